//! The toy model's tokenizer is a real one.

use engine::{CacheType, Engine, EngineError, EngineOptions, Model, Reader, Row, Synthetic};
use speculation::{
    AdjustmentOptions, Adjustments, NoiseKey, Prefix, Sampler, Sampling, SamplingOptions,
};
use std::sync::Arc;
use tokenizers::Tokenizer;

fn synthetic(vocab: usize) -> (Synthetic, Tokenizer) {
    let description = format!("vocab={vocab}");
    let model = Synthetic::new(description.parse().expect("a description"));
    let json = model.vocabulary().tokenizer_json;
    let tokenizer = Tokenizer::from_bytes(json).expect("a tokenizer");
    (model, tokenizer)
}

#[test]
fn the_tokenizer_knows_exactly_the_ids_described() {
    for vocab in [300, 512, 1000, 20_000] {
        let (model, tokenizer) = synthetic(vocab);
        let mut ids: Vec<u32> = tokenizer.get_vocab(true).into_values().collect();
        ids.sort_unstable();
        assert_eq!(ids, Vec::from_iter(0..vocab as u32));
        let vocabulary = model.vocabulary();
        assert_eq!(vocabulary.size, vocab);
        assert_eq!(model.shape().vocabulary_rows, vocab);
        let end = tokenizer.token_to_id("<|im_end|>").unwrap();
        assert_eq!(vocabulary.eos_ids, [end]);
    }
}

#[test]
fn any_text_survives_the_tokenizer() {
    let (_, tokenizer) = synthetic(512);
    for text in [
        "",
        " ",
        "fn main() {\n\tprintln!(\"hello, world\");\n}",
        "Grüße, 世界 🦀\u{0}\u{7f}\u{a0}\u{ad}",
        " baka  toro ba",
    ] {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(ids.get_ids(), false).unwrap(), text);
    }
}

#[test]
fn every_token_is_what_its_own_text_encodes_to() {
    let (_, tokenizer) = synthetic(6000);
    for id in (0..0x80).chain(256..6000) {
        let text = tokenizer.decode(&[id], false).unwrap();
        let encoded = tokenizer.encode(text.as_str(), false).unwrap();
        assert_eq!(encoded.get_ids(), [id], "{text:?}");
    }
}

#[test]
fn special_tokens_are_single_ids_and_left_out_of_text() {
    let (_, tokenizer) = synthetic(512);
    let encoded = tokenizer.encode("<|im_start|>ba<|im_end|>", false).unwrap();
    assert_eq!(encoded.get_ids().first(), Some(&510));
    assert_eq!(encoded.get_ids().last(), Some(&511));
    assert_eq!(tokenizer.decode(encoded.get_ids(), true).unwrap(), "ba");
}

#[test]
fn vocabularies_are_the_same_where_their_sizes_are() {
    let of = |text: &str| Synthetic::new(text.parse().unwrap()).vocabulary();
    let target = of("vocab=512");
    let draft = of("vocab=512,agreement=0.5,row_ms=1");
    assert_eq!(target.fingerprint, draft.fingerprint);
    assert_eq!(target.tokenizer_json, draft.tokenizer_json);
    assert_ne!(target.fingerprint, of("vocab=513").fingerprint);
}

#[tokio::test]
async fn text_is_readable_words() {
    let (model, tokenizer) = synthetic(512);
    let options = EngineOptions {
        max_sequences: 1,
        cache_bytes: 1 << 20,
        cache_type: CacheType::F32,
        prefix_sharing: true,
        max_step_tokens: 64,
        tokenizer_size: 512,
    };
    let engine = Engine::start(Box::new(model), options).unwrap();
    let sampler = Sampler {
        sampling: Sampling::new(SamplingOptions::default()).unwrap(),
        key: NoiseKey(3),
    };
    let prompt = tokenizer.encode("Once upon a time", false).unwrap();
    let adjustments = Adjustments::new(AdjustmentOptions::default()).unwrap();
    let prefix = Prefix::new(Arc::new(adjustments), None);
    let mut sequence = engine.open(prefix).unwrap();
    let drawn = Drawn(sampler, Vec::new());
    let decoding = sequence.decode(0, prompt.get_ids().to_vec(), 200, drawn);
    let Drawn(_, ids) = decoding.await.unwrap();
    let text = tokenizer.decode(&ids, true).unwrap();
    let readable = text
        .chars()
        .filter(|c| c.is_ascii_lowercase() || *c == ' ')
        .count();
    assert!(readable * 50 > text.chars().count() * 49, "{text}");
    assert!(text.split(' ').count() > 150, "{text}");
}

/// Tokens as they are drawn.
#[derive(Debug)]
struct Drawn(Sampler, Vec<u32>);

impl Reader for Drawn {
    fn read(&mut self, row: Row<'_>) -> Result<Option<u32>, EngineError> {
        let token = self.0.choose(row.logits(), row.position()).token;
        self.1.push(token);
        Ok(Some(token))
    }
}
