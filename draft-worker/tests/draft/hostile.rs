//! Nothing that a peer sends stops the others.

use crate::support::{Worker, commit, open, warm};
use proto::v1::{Decoding, DraftCommand, DraftCommit, DraftOpen, NoiseKey, SamplingParams};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use service::Tasks;

fn ids(rng: &mut StdRng, most: usize) -> Vec<u32> {
    let id = |rng: &mut StdRng| match rng.random_range(0..20) {
        0 => rng.random(),
        _ => rng.random_range(0..512),
    };
    (0..rng.random_range(0..=most)).map(|_| id(rng)).collect()
}

fn random_open(rng: &mut StdRng) -> DraftOpen {
    DraftOpen {
        sequence: rng.random_range(0..5),
        epoch: rng.random_range(0..6),
        token_ids: ids(rng, 8),
        decoding: rng.random_bool(0.9).then(|| random_decoding(rng)),
        ..DraftOpen::default()
    }
}

fn random_decoding(rng: &mut StdRng) -> Decoding {
    Decoding {
        sampling: rng.random_bool(0.5).then(|| SamplingParams {
            temperature: rng.random_bool(0.5).then(|| f32::from_bits(rng.random())),
            top_k: rng.random_bool(0.3).then(|| rng.random()),
            top_p: rng.random_bool(0.5).then(|| rng.random()),
            min_p: rng.random_bool(0.5).then(|| rng.random()),
            penalty_window: rng.random_bool(0.3).then(|| rng.random()),
            allowed_token_ids: ids(rng, 1),
            ..SamplingParams::default()
        }),
        key: rng.random_bool(0.9).then(|| NoiseKey {
            high: rng.random(),
            low: rng.random(),
        }),
        rule: rng.random_range(0..5),
        prompt_len: rng.random_range(0..9),
        min_tokens: rng.random_range(0..9),
        end_token_ids: ids(rng, 2),
        ..Decoding::default()
    }
}

fn random_commit(rng: &mut StdRng) -> DraftCommit {
    DraftCommit {
        sequence: rng.random_range(0..5),
        epoch: rng.random_range(0..6),
        base_len: match rng.random_range(0..8) {
            0 => rng.random(),
            _ => rng.random_range(0..10),
        },
        token_ids: ids(rng, 3),
        want: match rng.random_range(0..8) {
            0 => rng.random(),
            _ => rng.random_range(0..6),
        },
        ahead_want: match rng.random_range(0..8) {
            0 => rng.random(),
            _ => rng.random_range(0..6),
        },
        ahead_width: match rng.random_range(0..8) {
            0 => rng.random(),
            _ => rng.random_range(0..4),
        },
        min_confidence: match rng.random_range(0..8) {
            0 => f32::from_bits(rng.random()),
            1 => rng.random(),
            _ => 0.0,
        },
    }
}

fn random_command(rng: &mut StdRng) -> DraftCommand {
    DraftCommand {
        opens: (0..rng.random_range(0..3))
            .map(|_| random_open(rng))
            .collect(),
        commits: (0..rng.random_range(0..8))
            .map(|_| random_commit(rng))
            .collect(),
        closes: (0..rng.random_range(0..2))
            .map(|_| rng.random_range(0..5))
            .collect(),
    }
}

#[tokio::test]
async fn random_commands_disturb_no_other_stream() {
    const SEED: u64 = 20_240_612;
    println!("seed {SEED}");
    let worker = Worker::start("synthetic", &[]).await;
    let hostile = worker.stream().await;
    let (commands, mut events) = (hostile.commands, hostile.events);
    let tasks = Tasks::new();
    tasks.spawn("hostile", async move {
        let mut rng = StdRng::seed_from_u64(SEED);
        for _ in 0..3000 {
            let sent = commands.send(random_command(&mut rng)).await;
            sent.expect("the stream lives");
        }
    });
    let (count, counted) = tokio::sync::oneshot::channel();
    tasks.spawn("reader", async move {
        let mut answers = 0;
        while let Some(event) = events.message().await.expect("the stream lives") {
            answers += event.opened.len() + event.proposals.len() + event.closed.len();
        }
        let _ = count.send(answers);
    });

    let mut stream = worker.stream().await;
    let mut committed = vec![11, 42];
    stream.open(open(1, 1, &committed, &warm())).await;
    for round in 0..40 {
        let base = committed.len();
        committed.push(round);
        let proposal = stream.propose(commit(1, 1, base, &[round], 3)).await;
        assert_eq!(
            proposal.draft_ids,
            worker.fresh(&committed, &warm(), 3).await
        );
    }
    tasks.finished().await;
    assert!(
        counted.await.expect("reported") > 0,
        "the worker answers them"
    );
}
