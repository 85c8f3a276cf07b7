//! Nothing that a peer sends stops the others.

use crate::support::{Worker, greedy, item, open, warm};
use proto::v1::target_command::Command;
use proto::v1::target_event::Event;
use proto::v1::{NoiseKey, SamplingParams, TargetClose, TargetOpen, VerifyBatch, VerifyItem};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use service::Tasks;

const PROMPT: &[u32] = &[11, 42, 7];

fn ids(rng: &mut StdRng, most: usize) -> Vec<u32> {
    let id = |rng: &mut StdRng| match rng.random_range(0..20) {
        0 => rng.random(),
        _ => rng.random_range(0..512),
    };
    (0..rng.random_range(0..=most)).map(|_| id(rng)).collect()
}

fn number(rng: &mut StdRng) -> Option<f32> {
    match rng.random_range(0..8) {
        0 => Some(f32::from_bits(rng.random())),
        1 => Some(f32::NAN),
        2..5 => Some(rng.random()),
        _ => None,
    }
}

fn command(rng: &mut StdRng) -> Command {
    let sequence = rng.random_range(0..5);
    match rng.random_range(0..10) {
        0..3 => Command::Open(TargetOpen {
            sequence,
            epoch: rng.random_range(0..6),
            token_ids: ids(rng, 12),
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
        }),
        3..9 => Command::Verify(VerifyBatch {
            step: rng.random(),
            items: (0..rng.random_range(0..6))
                .map(|_| VerifyItem {
                    sequence: rng.random_range(0..5),
                    epoch: rng.random_range(0..6),
                    base_len: match rng.random_range(0..8) {
                        0 => rng.random(),
                        _ => rng.random_range(0..16),
                    },
                    draft_ids: ids(rng, 20),
                })
                .collect(),
        }),
        _ => Command::Close(TargetClose { sequence }),
    }
}

#[tokio::test]
async fn random_commands_disturb_no_other_stream() {
    const SEED: u64 = 20_240_611;
    println!("seed {SEED}");
    let worker = Worker::start("synthetic", &[]).await;
    let truth = worker.plain(PROMPT, warm(), 60).await;

    let hostile = worker.stream().await;
    let (commands, mut events) = (hostile.commands, hostile.events);
    let tasks = Tasks::new();
    tasks.spawn("hostile", async move {
        let mut rng = StdRng::seed_from_u64(SEED);
        for _ in 0..3000 {
            let command = Some(command(&mut rng));
            let sent = commands.send(proto::v1::TargetCommand { command }).await;
            sent.expect("the stream lives");
        }
    });
    let (count, counted) = tokio::sync::oneshot::channel();
    tasks.spawn("reader", async move {
        let mut verdicts = 0;
        while let Some(event) = events.message().await.expect("the stream lives") {
            if let Some(Event::Verdicts(batch)) = event.event {
                verdicts += batch.items.len();
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
