//! What sequences have in common is computed once, and shows in nothing but the time.

use crate::real::{Noting, Whole, counted, open, text, with_blocks};
use crate::support::{begin, within};
use engine::{CacheType, Engine, EngineError, EngineOptions};
use rand::{Rng, SeedableRng, rngs::StdRng};
use speculation::TokenId;
use std::sync::{Arc, Mutex};

/// Waits until no sequence holds anything.
async fn settled(engine: &Engine) {
    let settled = async {
        while engine.cache().blocks.used > 0 {
            tokio::task::yield_now().await;
        }
    };
    within(settled).await;
}

#[tokio::test]
async fn a_second_request_with_the_same_beginning_computes_only_its_end() {
    let (engine, counts) = counted(with_blocks(100, CacheType::F32));
    let beginning = text(1, 1000);
    let texts = [7, 8].map(|seed| [&beginning[..], &text(seed, 20)].concat());
    let mut whole = Whole::new(CacheType::F32);
    for (text, computed) in texts.iter().zip([1020, 1020 - 31 * 32]) {
        let mut sequence = open(&engine);
        let call = sequence.read(0, text.clone(), 4, Noting::default());
        let Noting(logits) = within(call).await.unwrap();
        assert_eq!(counts.take_rows(), computed);
        assert_eq!(logits, whole.bits(text, 4));
        assert_eq!(sequence.cached_len(), 1020);
    }
    assert_eq!(engine.cache().prefix_hit_tokens, 31 * 32);
    settled(&engine).await;
}

#[tokio::test]
async fn choices_of_one_prompt_that_arrive_together_compute_it_once() {
    let (engine, counts) = counted(EngineOptions {
        max_step_tokens: 128,
        ..with_blocks(100, CacheType::F32)
    });
    let prompt = text(1, 330);
    let mut sequences: Vec<_> = (0..8).map(|_| open(&engine)).collect();
    let mut calls = Vec::new();
    let hold = engine.hold();
    for sequence in &mut sequences {
        calls.push(begin(sequence.read(0, prompt.clone(), 1, Noting::default())).await);
    }
    drop(hold);
    let expected = Whole::new(CacheType::F32).bits(&prompt, 1);
    for call in calls {
        assert_eq!(within(call).await.unwrap().0, expected);
    }
    assert_eq!(counts.take_rows(), 330 + 7 * (330 - 320));
    assert_eq!(engine.cache().blocks.used, 10 + 8, "a last block for each");
}

#[tokio::test]
async fn a_prompt_that_is_there_whole_still_has_its_logits_computed() {
    let (engine, counts) = counted(with_blocks(100, CacheType::F32));
    let prompt = text(1, 64);
    let expected = Whole::new(CacheType::F32).bits(&prompt, 1);
    for computed in [64, 32] {
        let mut sequence = open(&engine);
        let call = sequence.read(0, prompt.clone(), 1, Noting::default());
        assert_eq!(within(call).await.unwrap().0, expected);
        assert_eq!(counts.take_rows(), computed);
    }
    // Where none are wanted the model still has a step to compute.
    let mut sequence = open(&engine);
    let call = sequence.read(0, prompt.clone(), 0, Noting::default());
    assert!(within(call).await.unwrap().0.is_empty());
    assert_eq!(counts.take_rows(), 32);
}

#[tokio::test]
async fn a_cut_inside_what_another_holds_costs_a_copy_and_its_failure_one_call() {
    let (engine, counts) = counted(with_blocks(100, CacheType::F32));
    let mut sequences = [open(&engine), open(&engine)];
    for sequence in &mut sequences {
        within(sequence.read(0, text(1, 70), 1, Noting::default()))
            .await
            .unwrap();
    }
    let [first, second] = &mut sequences;
    counts.let_copies_fail(true);
    let failed = within(first.read(40, text(2, 8), 2, Noting::default())).await;
    assert_eq!(
        failed.unwrap_err(),
        EngineError::Model("as ordered".to_owned())
    );
    assert_eq!(first.cached_len(), 40);
    counts.let_copies_fail(false);
    counts.take_rows();
    let mut whole = Whole::new(CacheType::F32);
    let changed = [&text(1, 40)[..], &text(2, 8)].concat();
    let again = within(first.read(40, text(2, 8), 2, Noting::default())).await;
    assert_eq!(again.unwrap().0, whole.bits(&changed, 2));
    assert_eq!(counts.take_rows(), 16, "the end of what was kept as well");
    assert_eq!(counts.copies(), 1);
    let mut longer = text(1, 70);
    longer.push(5);
    let other = within(second.read(70, vec![5], 1, Noting::default())).await;
    assert_eq!(other.unwrap().0, whole.bits(&longer, 1), "it lost nothing");
}

#[tokio::test]
async fn without_sharing_everything_is_computed_for_each() {
    let (engine, counts) = counted(EngineOptions {
        prefix_sharing: false,
        ..with_blocks(100, CacheType::F32)
    });
    for _ in 0..2 {
        let mut sequence = open(&engine);
        within(sequence.read(0, text(1, 100), 1, Noting::default()))
            .await
            .unwrap();
        assert_eq!(counts.take_rows(), 100);
    }
    settled(&engine).await;
    assert_eq!(engine.cache().blocks.cached, 0);
}

/// The next tokens of a text that follows `base` up to a random place and leaves it there.
fn continuation(base: &[TokenId], keep: usize, random: &mut StdRng) -> Vec<TokenId> {
    let len = random.random_range(1..60);
    let leaves = keep + random.random_range(0..100);
    let token = |at: usize| {
        let follows = at < leaves && at < base.len();
        if follows { base[at] } else { at as u32 % 5 }
    };
    (keep..keep + len).map(token).collect()
}

/// Rollback, scoring and decoding from six sequences at once over texts that begin alike, in a cache
/// that is too small for all: they share, copy, wait and give way, and none of it shows.
#[tokio::test]
async fn random_calls_in_a_small_cache_give_the_bits_of_each_text_alone() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    for kind in [CacheType::F32, CacheType::F16, CacheType::Q8] {
        let (engine, counts) = counted(EngineOptions {
            max_step_tokens: 40,
            ..with_blocks(9, kind)
        });
        let base = text(1, 200);
        let whole = Arc::new(Mutex::new(Whole::new(kind)));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..6 {
            let mut random = StdRng::seed_from_u64(seed.wrapping_add(number));
            let (engine, base, whole) = (engine.clone(), base.clone(), Arc::clone(&whole));
            tasks.spawn(async move {
                let mut sequence = open(&engine);
                let mut text: Vec<TokenId> = Vec::new();
                for _ in 0..40 {
                    if random.random_bool(0.1) {
                        sequence = open(&engine);
                        text.clear();
                    }
                    let keep = random.random_range(0..=text.len().min(190));
                    let new = continuation(&base, keep, &mut random);
                    text.truncate(keep);
                    text.extend(&new);
                    let rows = random.random_range(1..=new.len().min(6));
                    let decoding = random.random_bool(0.3);
                    let logits = if decoding {
                        let call = sequence.decode(keep, new, rows, Noting::default());
                        let Noting(logits) = call.await.unwrap();
                        let likeliest = |bits: &Vec<u32>| {
                            let logits: Vec<_> = bits.iter().map(|&b| f32::from_bits(b)).collect();
                            crate::real::likeliest(&logits)
                        };
                        text.extend(logits[..rows - 1].iter().map(likeliest));
                        logits
                    } else {
                        let call = sequence.read(keep, new, rows, Noting::default());
                        call.await.unwrap().0
                    };
                    assert_eq!(sequence.cached_len(), text.len());
                    let expected = whole.lock().unwrap().bits(&text, rows);
                    assert!(logits == expected, "other bits after {text:?}");
                }
            });
        }
        within(tasks.join_all()).await;
        settled(&engine).await;
        let state = engine.cache();
        println!("{kind}: {state:?}, {} copies", counts.copies());
        assert!(state.prefix_hit_tokens > 0 && state.preemptions > 0 && counts.copies() > 0);
    }
}
