//! The whole engine on candle's tensors: batches, shared and copied blocks, a cache that is too
//! small, cut-back texts. The texts are those of the processor's own kernels.

use crate::support::load;
use crate::tokens;
use engine::tiny::TinyModel;
use engine::{
    CacheType, Device, Engine, EngineError, EngineOptions, Reader, Row, Sequence, Source,
    WeightType,
};
use speculation::{AdjustmentOptions, Adjustments, Prefix, TokenId};
use std::sync::Arc;
use std::time::Duration;

/// Notes the most likely token of each row.
#[derive(Debug, Default)]
struct Greedy(Vec<TokenId>);

impl Reader for Greedy {
    fn read(&mut self, row: Row<'_>) -> Result<Option<TokenId>, EngineError> {
        let best = row
            .logits()
            .iter()
            .enumerate()
            .max_by(|(_, a), (_, b)| a.total_cmp(b));
        let token = best.map_or(0, |(token, _)| token as TokenId);
        self.0.push(token);
        Ok(Some(token))
    }
}

fn engine(source: &Source, device: Device) -> Engine {
    let model = load(source, device, WeightType::Stored).model;
    let options = EngineOptions {
        max_sequences: 8,
        // Less than all sequences need together.
        cache_bytes: 12 * model.shape().kv.block_bytes(),
        cache_type: CacheType::F32,
        prefix_sharing: true,
        max_step_tokens: 48,
        tokenizer_size: 300,
    };
    Engine::start(model, options).expect("a thread")
}

fn open(engine: &Engine) -> Sequence {
    let adjustments = Adjustments::new(AdjustmentOptions::default()).expect("in range");
    engine
        .open(Prefix::new(Arc::new(adjustments), None))
        .expect("logits")
}

/// A text, then half of it kept and gone on with by a draft that is verified, then another text.
async fn texts(engine: &Engine, prompt: Vec<TokenId>) -> Vec<Vec<TokenId>> {
    let mut sequence = open(engine);
    let kept = prompt.len();
    let first = sequence
        .decode(0, prompt, 30, Greedy::default())
        .await
        .expect("logits")
        .0;
    let verified = sequence
        .read(kept, first[..8].to_vec(), 8, Greedy::default())
        .await
        .expect("logits")
        .0;
    let wrong = [&first[..4], &[7, 7, 7]].concat();
    let rejected = sequence
        .read(kept, wrong, 7, Greedy::default())
        .await
        .expect("logits")
        .0;
    let second = sequence
        .decode(kept + 4, first[4..5].to_vec(), 10, Greedy::default())
        .await
        .expect("logits")
        .0;
    vec![first, verified, rejected, second]
}

async fn all_texts(source: &Source, device: Device) -> Vec<Vec<Vec<TokenId>>> {
    let engine = engine(source, device);
    // Some begin with the same tokens; 140 tokens are more than two may hold at once.
    let common = tokens(70, 1);
    let prompts = [
        tokens(90, 2),
        [&common[..], &tokens(9, 3)].concat(),
        [&common[..], &tokens(20, 4)].concat(),
        common.clone(),
        tokens(3, 5),
    ];
    let [a, b, c, d, e] = prompts.map(|prompt| texts(&engine, prompt));
    let all = tokio::time::timeout(Duration::from_secs(60), async {
        tokio::join!(a, b, c, d, e)
    });
    let (a, b, c, d, e) = all.await.expect("no hang");
    vec![a, b, c, d, e]
}

#[tokio::test]
async fn the_engine_writes_the_same_texts() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    TinyModel {
        seed: 9,
        ..TinyModel::default()
    }
    .write(&file)
    .unwrap();
    let source = Source::Files(file.to_path_buf());
    let own = all_texts(&source, Device::cpu()).await;
    let candle = all_texts(&source, Device::candle_cpu()).await;
    assert_eq!(candle, own);
    for texts in &own {
        assert_eq!(texts[0][1..9], texts[1], "verified as it was decoded");
        assert_eq!(texts[0][5..15], texts[3], "gone on with as before");
    }
}
