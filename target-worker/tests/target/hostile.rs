//! Nothing that a peer sends stops the others.

use crate::support::{Worker, greedy, item, open, warm};
use proto::v1::target_command::Command;
use proto::v1::target_event::Event;
use proto::v1::{NoiseKey, SamplingParams, TargetClose, TargetOpen, VerifyBatch, VerifyItem};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use service::Tasks;

const PROMPT: &[u32] = &[11, 42, 7];
/// A sequence that no random command speaks of.
const SOUND: u64 = 99;

fn ids(rng: &mut StdRng, most: usize) -> Vec<u32> {
    let id = |rng: &mut StdRng| match rng.random_range(0..20) {
        0 => rng.random(),
        _ => rng.random_range(0..512),
    };
    (0..rng.random_range(0..=most)).map(|_| id(rng)).collect()
}

fn number(rng: &mut StdRng) -> Option<f32> {
    match rng.random_range(0..40) {
        0 => Some(f32::from_bits(rng.random())),
        1 => Some(f32::NAN),
        2..20 => Some(rng.random()),
        _ => None,
    }
}

fn random_open(rng: &mut StdRng) -> TargetOpen {
    TargetOpen {
        sequence: rng.random_range(0..4),
        epoch: rng.random_range(0..4),
        token_ids: ids(rng, 4),
        sampling: rng.random_bool(0.8).then(|| SamplingParams {
            temperature: number(rng),
            top_k: rng.random_bool(0.3).then(|| rng.random()),
            top_p: number(rng),
            min_p: number(rng),
        }),
        key: rng.random_bool(0.9).then(|| NoiseKey {
            high: rng.random(),
            low: rng.random(),
        }),
    }
}

fn random_item(rng: &mut StdRng) -> VerifyItem {
    VerifyItem {
        sequence: rng.random_range(0..4),
        epoch: rng.random_range(0..4),
        base_len: match rng.random_range(0..20) {
            0 => rng.random(),
            _ => rng.random_range(2..6),
        },
        draft_ids: ids(rng, 17),
    }
}

fn command(rng: &mut StdRng) -> Command {
    match rng.random_range(0..10) {
        0..4 => Command::Open(random_open(rng)),
        4..9 => Command::Verify(VerifyBatch {
            step: rng.random(),
            items: (0..rng.random_range(0..4))
                .map(|_| random_item(rng))
                .collect(),
        }),
        _ => Command::Close(TargetClose {
            sequence: rng.random_range(0..4),
        }),
    }
}

#[tokio::test]
async fn random_commands_disturb_no_other_stream() {
    const SEED: u64 = 20_240_611;
    println!("seed {SEED}");
    let worker = Worker::start("synthetic", &[]).await;
    let truth = worker.plain(PROMPT, warm(), 60).await;

    let mut hostile = worker.stream().await;
    let tasks = Tasks::new();
    let (count, counted) = tokio::sync::oneshot::channel();
    tasks.spawn("hostile", async move {
        let mut rng = StdRng::seed_from_u64(SEED);
        let mut verdicts = 0;
        for burst in 1..=600 {
            for _ in 0..rng.random_range(1..8) {
                hostile.send(command(&mut rng)).await;
            }
            // Waits for one sound answer, so that some of the work comes to its end.
            let sound = open(SOUND, burst, PROMPT, greedy());
            hostile.send(Command::Open(sound)).await;
            loop {
                match hostile.next().await {
                    Event::Opened(opened) if opened.sequence == SOUND => break,
                    Event::Verdicts(batch) => verdicts += batch.items.len(),
                    _ => {}
                }
            }
        }
        let _ = count.send(verdicts);
    });

    let mut stream = worker.stream().await;
    let mut text = vec![stream.open(open(1, 1, PROMPT, warm())).await.next_token];
    while text.len() < 50 {
        let draft = &truth[text.len()..text.len() + 3];
        let items = vec![item(1, 1, PROMPT.len() + text.len(), draft)];
        let batch = stream.verify(items).await;
        assert_eq!(batch.items[0].accepted, 3);
        text.extend(draft);
        text.push(batch.items[0].next_token);
    }
    assert_eq!(text, truth[..text.len()]);
    let verdicts = counted.await.expect("the hostile stream came to its end");
    assert!(verdicts > 0, "some of its commands made sense");
}

#[tokio::test]
async fn a_peer_that_never_reads_stops_itself_alone() {
    let worker = Worker::start("synthetic", &[]).await;
    let deaf = worker.stream().await;
    let tasks = Tasks::new();
    let commands = deaf.commands.clone();
    tasks.spawn("flood", async move {
        // Far more answers than all windows and queues between hold; ends with the stream.
        let items = vec![item(7, 7, 0, &[1; 16]); 100];
        let verify = Command::Verify(VerifyBatch { step: 1, items });
        let command = Some(verify);
        while commands
            .send(proto::v1::TargetCommand {
                command: command.clone(),
            })
            .await
            .is_ok()
        {}
    });
    let mut stream = worker.stream().await;
    let first = stream.open(open(1, 1, PROMPT, greedy())).await.next_token;
    assert_eq!(first, worker.plain(PROMPT, greedy(), 1).await[0]);
    drop(deaf);
    drop(worker);
    tasks.finished().await;
}
