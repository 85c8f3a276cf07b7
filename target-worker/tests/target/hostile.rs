//! Nothing that a peer sends stops the others.

use crate::support::{Worker, greedy, item, open, warm};
use proto::v1::structured_output::Form;
use proto::v1::target_command::Command;
use proto::v1::target_event::Event;
use proto::v1::{
    Decoding, DraftLaws, LogprobsParams, NoiseKey, SamplingParams, StructuredOutput, TargetClose,
    TargetOpen, TokenIds, VerifyBatch, VerifyItem,
};
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
        decoding: rng.random_bool(0.9).then(|| random_decoding(rng)),
        logprobs: rng.random_bool(0.3).then(|| LogprobsParams {
            top: rng.random_range(0..24),
            mode: rng.random_range(0..4),
        }),
        ..TargetOpen::default()
    }
}

fn random_decoding(rng: &mut StdRng) -> Decoding {
    Decoding {
        sampling: rng.random_bool(0.8).then(|| random_sampling(rng)),
        key: rng.random_bool(0.9).then(|| NoiseKey {
            high: rng.random(),
            low: rng.random(),
        }),
        rule: rng.random_range(0..5),
        prompt_len: rng.random_range(0..5),
        bad_words: (0..rng.random_range(0..3))
            .map(|_| TokenIds { ids: ids(rng, 2) })
            .collect(),
        min_tokens: rng.random_range(0..9),
        end_token_ids: ids(rng, 2),
        structured: rng.random_bool(0.2).then(|| StructuredOutput {
            form: [
                None,
                Some(Form::JsonObject(rng.random())),
                Some(Form::Regex("[a-z ]+(".to_owned())),
                Some(Form::Regex("[a-z ]+".to_owned())),
                Some(Form::JsonSchema("{\"type\":".to_owned())),
                Some(Form::Lark("start: \"a\" start?".to_owned())),
            ][rng.random_range(0..6)]
            .clone(),
        }),
    }
}

fn random_sampling(rng: &mut StdRng) -> SamplingParams {
    SamplingParams {
        temperature: number(rng),
        top_k: rng.random_bool(0.3).then(|| rng.random()),
        top_p: number(rng),
        min_p: number(rng),
        typical_p: number(rng),
        repetition_penalty: number(rng),
        presence_penalty: number(rng),
        frequency_penalty: number(rng),
        penalty_window: rng.random_bool(0.3).then(|| rng.random()),
        logit_bias: ids(rng, 2).into_iter().map(|id| (id, 1.0)).collect(),
        allowed_token_ids: ids(rng, 1),
        banned_token_ids: ids(rng, 3),
    }
}

fn random_laws(rng: &mut StdRng) -> DraftLaws {
    let sizes: Vec<u32> = (0..rng.random_range(0..4))
        .map(|_| rng.random_range(0..3))
        .collect();
    let entries = sizes.iter().sum::<u32>() as usize;
    DraftLaws {
        id_gaps: (0..entries).map(|_| rng.random_range(0..600)).collect(),
        counts: vec![65_536; entries],
        sizes,
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
        laws: rng.random_bool(0.2).then(|| random_laws(rng)),
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
    let truth = worker.plain(PROMPT, &warm(), 60).await;

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
            let sound = open(SOUND, burst, PROMPT, &greedy());
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
    let mut text = vec![stream.open(open(1, 1, PROMPT, &warm())).await.next_token];
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
    let first = stream.open(open(1, 1, PROMPT, &greedy())).await.next_token;
    assert_eq!(first, worker.plain(PROMPT, &greedy(), 1).await[0]);
    drop(deaf);
    drop(worker);
    tasks.finished().await;
}
