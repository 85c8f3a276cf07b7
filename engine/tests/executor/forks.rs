//! A fork begins as another sequence's first tokens, and neither sees what the other does then.

use crate::real::{Noting, Whole, counted, open, text, with_blocks};
use crate::support::{begin, within};
use engine::{CacheType, Engine, EngineError, EngineOptions, MAX_FORKS, Sequence};
use rand::{Rng, SeedableRng, rngs::StdRng};
use speculation::TokenId;

const F32: CacheType = CacheType::F32;

/// Waits until nothing is held.
async fn settled(engine: &Engine) {
    let settled = async {
        while engine.cache().blocks.used > 0 {
            tokio::task::yield_now().await;
        }
    };
    within(settled).await;
}

async fn read(
    sequence: &mut Sequence,
    keep: usize,
    tokens: &[TokenId],
) -> Result<Vec<Vec<u32>>, EngineError> {
    let call = sequence.read(
        keep,
        tokens.to_vec(),
        tokens.len().min(3),
        Noting::default(),
    );
    within(call).await.map(|Noting(bits)| bits)
}

fn sharing(prefix_sharing: bool) -> EngineOptions {
    EngineOptions {
        prefix_sharing,
        ..with_blocks(60, F32)
    }
}

#[tokio::test]
async fn forks_go_on_as_sequences_of_their_own_do_and_compute_nothing_twice() {
    let mut whole = Whole::new(F32);
    for shares in [true, false] {
        let (engine, counts) = counted(sharing(shares));
        let prompt = text(1, 70);
        let mut parent = open(&engine);
        read(&mut parent, 0, &prompt).await.unwrap();
        let keeps = [1, 31, 32, 33, 64, 69, 70];
        let mut forks: Vec<_> = keeps.map(|keep| parent.fork(keep).unwrap()).into();
        // The parent goes on first, with other tokens from the middle of a block on.
        let other = text(9, 40);
        let bits = read(&mut parent, 40, &other).await.unwrap();
        assert_eq!(bits, whole.bits(&[&prompt[..40], &other].concat(), 3));
        counts.take_rows();
        for (seed, (fork, keep)) in forks.iter_mut().zip(keeps).enumerate() {
            let end = text(20 + seed, 35);
            let expected = whole.bits(&[&prompt[..keep], &end].concat(), 3);
            assert_eq!(read(fork, keep, &end).await.unwrap(), expected, "{keep}");
            assert_eq!(counts.take_rows(), 35, "{keep}");
        }
        let bits = read(&mut parent, 80, &[5]).await.unwrap();
        assert_eq!(bits, whole.bits(&[&prompt[..40], &other, &[5]].concat(), 1));
        // A fork outlives what it came from, and can be forked.
        drop(parent);
        let fork = &forks[3];
        let mut second = fork.fork(50).unwrap();
        let bits = read(&mut second, 50, &[7, 8]).await.unwrap();
        let end = &text(23, 35)[..17];
        assert_eq!(bits, whole.bits(&[&prompt[..33], end, &[7, 8]].concat(), 2));
        drop((forks, second));
        settled(&engine).await;
    }
}

#[tokio::test]
async fn a_family_counts_as_one_sequence() {
    let (engine, _) = counted(EngineOptions {
        max_sequences: 2,
        ..sharing(true)
    });
    let mut parent = open(&engine);
    assert!(parent.fork(1).is_err(), "nothing is held yet");
    read(&mut parent, 0, &text(1, 40)).await.unwrap();
    assert!(parent.fork(0).is_err() && parent.fork(41).is_err());
    let mut forks: Vec<_> = (0..5).map(|_| parent.fork(40).unwrap()).collect();
    let _other = open(&engine);
    assert_eq!(engine.active_sequences(), 2);
    let mut heir = forks.pop().unwrap();
    heir.promote();
    drop((parent, forks));
    assert_eq!(engine.active_sequences(), 2, "one of the family is left");
    assert!(read(&mut heir, 40, &[3]).await.is_ok());
    drop(heir);
    assert_eq!(engine.active_sequences(), 1);
    settled(&engine).await;
}

#[tokio::test]
async fn there_are_only_so_many_forks() {
    let (engine, _) = counted(sharing(true));
    let mut parent = open(&engine);
    read(&mut parent, 0, &text(1, 40)).await.unwrap();
    let mut forks = Vec::new();
    for _ in 0..MAX_FORKS {
        forks.push(parent.fork(40).unwrap());
    }
    let error = parent.fork(40).unwrap_err();
    assert_eq!(error, EngineError::Overloaded { max: MAX_FORKS });
    forks[0].promote();
    assert!(parent.fork(40).is_ok(), "a sequence is no fork");
}

#[tokio::test]
async fn a_fork_takes_no_room_that_a_sequence_holds() {
    let (engine, _) = counted(with_blocks(6, F32));
    let mut sequences = [open(&engine), open(&engine)];
    for (seed, sequence) in sequences.iter_mut().enumerate() {
        read(sequence, 0, &text(seed, 80)).await.unwrap();
    }
    // All six blocks are held: a fork that goes on has no room, one that would write none has.
    let mut fork = sequences[0].fork(70).unwrap();
    let error = read(&mut fork, 70, &[3]).await.unwrap_err();
    assert!(matches!(error, EngineError::CacheFull { .. }), "{error}");
    assert_eq!(engine.cache().preemptions, 0);
    let bits = read(&mut sequences[1], 80, &[4]).await.unwrap();
    let expected = Whole::new(F32).bits(&[&text(1, 80)[..], &[4]].concat(), 1);
    assert_eq!(bits, expected);
}

#[tokio::test]
async fn a_sequence_takes_the_room_of_forks_before_that_of_sequences() {
    let (engine, _) = counted(with_blocks(8, F32));
    let mut parent = open(&engine);
    let mut idle = open(&engine);
    read(&mut idle, 0, &text(1, 60)).await.unwrap();
    read(&mut parent, 0, &text(2, 60)).await.unwrap();
    // Two that are done and hold two blocks each of their own.
    let mut forks: Vec<_> = (0..2).map(|_| parent.fork(32).unwrap()).collect();
    for (seed, fork) in forks.iter_mut().enumerate() {
        read(fork, 32, &text(10 + seed, 60)).await.unwrap();
    }
    assert_eq!(engine.cache().blocks.used, 8);
    let end = text(3, 90);
    let bits = read(&mut parent, 60, &end).await.unwrap();
    let expected = Whole::new(F32).bits(&[&text(2, 60)[..], &end].concat(), 3);
    assert_eq!(bits, expected);
    assert_eq!(
        engine.cache().preemptions,
        0,
        "no sequence gave anything up"
    );
    // One of them is what came about: it computes its tokens again, as any sequence would.
    drop(parent);
    let mut heir = forks.swap_remove(0);
    heir.promote();
    let bits = read(&mut heir, 92, &[6]).await.unwrap();
    let tokens = [&text(2, 60)[..32], &text(10, 60), &[6]].concat();
    assert_eq!(bits, Whole::new(F32).bits(&tokens, 1));
}

#[tokio::test]
async fn a_fork_that_runs_gives_way_to_a_sequence() {
    let (engine, _) = counted(with_blocks(8, F32));
    let mut parent = open(&engine);
    read(&mut parent, 0, &text(2, 64)).await.unwrap();
    let mut fork = parent.fork(64).unwrap();
    let hold = engine.hold();
    let decoding = begin(fork.decode(64, vec![3], 120, Noting::default())).await;
    let end = text(3, 100);
    let reading = begin(parent.read(64, end.clone(), 1, Noting::default())).await;
    drop(hold);
    let Noting(bits) = within(reading).await.unwrap();
    let expected = Whole::new(F32).bits(&[&text(2, 64)[..], &end].concat(), 1);
    assert_eq!(bits, expected);
    let error = within(decoding).await.unwrap_err();
    assert!(matches!(error, EngineError::CacheFull { .. }), "{error}");
}

#[tokio::test]
async fn what_a_fork_computes_is_found_once_it_is_promoted() {
    for (is_promoted, found) in [(false, 32), (true, 128)] {
        let (engine, counts) = counted(sharing(true));
        let mut parent = open(&engine);
        read(&mut parent, 0, &text(1, 40)).await.unwrap();
        let mut fork = parent.fork(40).unwrap();
        let end = text(2, 100);
        read(&mut fork, 40, &end).await.unwrap();
        if is_promoted {
            fork.promote();
        }
        read(&mut fork, 140, &[1]).await.unwrap();
        counts.take_rows();
        let tokens = [&text(1, 40)[..], &end, &[1]].concat();
        let bits = read(&mut open(&engine), 0, &tokens).await.unwrap();
        assert_eq!(bits, Whole::new(F32).bits(&tokens, 3));
        assert_eq!(counts.take_rows(), tokens.len() - found);
        drop((parent, fork));
        settled(&engine).await;
    }
}

/// Families that fork, cut back, go on and go, in a cache that is too small for all of them.
#[tokio::test]
async fn whatever_a_family_does_each_member_reads_its_own_text() {
    const SEED: u64 = 77;
    println!("seed {SEED}");
    let mut rng = StdRng::seed_from_u64(SEED);
    let mut whole = Whole::new(F32);
    for round in 0..6 {
        let (engine, _) = counted(EngineOptions {
            prefix_sharing: round % 2 == 0,
            ..with_blocks(16, F32)
        });
        let mut members: Vec<(Sequence, Vec<TokenId>)> = Vec::new();
        let (mut reads, mut full) = (0, 0);
        for _ in 0..250 {
            if members.is_empty() {
                members.push((open(&engine), Vec::new()));
            }
            let (count, at) = (members.len(), rng.random_range(0..members.len()));
            let (sequence, tokens) = &mut members[at];
            match rng.random_range(0..10) {
                0..3 if !tokens.is_empty() => {
                    let keep = rng.random_range(1..=tokens.len());
                    let mut fork = sequence.fork(keep).unwrap();
                    if rng.random_bool(0.3) {
                        fork.promote();
                    }
                    let tokens = tokens[..keep].to_vec();
                    members.push((fork, tokens));
                }
                3 if count > 3 => drop(members.swap_remove(at)),
                _ => {
                    let keep = rng.random_range(tokens.len() / 2..=tokens.len());
                    let new = text(rng.random_range(0..3), rng.random_range(1..40));
                    let room = 200_usize.saturating_sub(keep);
                    let new = &new[..new.len().min(room)];
                    if new.is_empty() {
                        continue;
                    }
                    tokens.truncate(keep);
                    match read(sequence, keep, new).await {
                        Ok(bits) => {
                            tokens.extend(new);
                            assert_eq!(bits, whole.bits(tokens, bits.len()));
                            reads += 1;
                        }
                        Err(EngineError::CacheFull { .. }) => full += 1,
                        // It began when what it was to begin with had made room.
                        Err(EngineError::Invalid(_)) => drop(members.swap_remove(at)),
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        assert!(reads > 60 && full > 0, "{reads} reads, {full} times full");
        drop(members);
        settled(&engine).await;
    }
}
