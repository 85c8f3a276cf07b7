//! A deterministic toy language model: it stands in for any model and any GPU in tests of the
//! protocol, of scheduling and of faults.
//!
//! Its text is readable pseudo-words. Two of them with the same `vocab` share a tokenizer; one with
//! an `agreement` below 1 is a draft for one with an agreement of 1.

mod law;
mod pace;
mod ranks;
mod words;

pub use ranks::Ranks;

use crate::{
    BLOCK_TOKENS, BlockId, CacheType, EngineError, Input, KvLayout, LoadError, Logits, Model,
    ModelShape, Vocabulary,
};
use law::Law;
use pace::Pace;
use speculation::TokenId;
use std::{
    fmt::Display,
    ops::RangeInclusive,
    str::FromStr,
    time::{Duration, Instant},
};

/// What a synthetic model is like. Written as
/// `vocab=512,agreement=0.75,ranks=.4/.55/.7/.81,base_ms=0,row_ms=0,context=8192`; every key is optional.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Token ids, special ones included: 300 to 200,000. 512 where not given.
    pub vocab: usize,
    /// How often its law at a position is the reference law (that of `agreement=1`), from 0 to 1.
    /// Elsewhere it takes other tokens to be likelier than what that law chooses. 1 where not given.
    pub agreement: f64,
    /// How far down that choice then stands among its candidates.
    pub ranks: Ranks,
    /// Milliseconds per step, 0 to 60,000. 0 where not given.
    pub base_ms: f64,
    /// Milliseconds per row of a step, 0 to 60,000. 0 where not given.
    pub row_ms: f64,
    /// The longest sequence in tokens, 16 to 1,048,576. 8192 where not given.
    pub context: usize,
}

/// The toy model.
#[derive(Debug)]
pub struct Synthetic {
    description: Description,
    law: Law,
    shape: ModelShape,
    /// Its keys and values: the tokens themselves. Each empty until it is first written to.
    blocks: Vec<Vec<TokenId>>,
    pace: Pace,
}

const VOCAB: RangeInclusive<usize> = 300..=200_000;
const AGREEMENT: RangeInclusive<f64> = 0.0..=1.0;
const MILLISECONDS: RangeInclusive<f64> = 0.0..=60_000.0;
const CONTEXT: RangeInclusive<usize> = 16..=1_048_576;

impl Default for Description {
    fn default() -> Self {
        Self {
            vocab: 512,
            agreement: 1.0,
            ranks: Ranks::default(),
            base_ms: 0.0,
            row_ms: 0.0,
            context: 8192,
        }
    }
}

impl FromStr for Description {
    type Err = LoadError;

    /// # Errors
    /// [`LoadError::Synthetic`] naming the key that is unknown or whose value is out of its range.
    fn from_str(text: &str) -> Result<Self, LoadError> {
        let mut description = Self::default();
        let pairs = text.split(',').map(str::trim);
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(LoadError::Synthetic(format!("{pair} is not key=value")));
            };
            let (key, value) = (key.trim(), value.trim());
            match key {
                "vocab" => description.vocab = within(key, value, VOCAB)?,
                "agreement" => description.agreement = within(key, value, AGREEMENT)?,
                "ranks" => description.ranks = value.parse().map_err(LoadError::Synthetic)?,
                "base_ms" => description.base_ms = within(key, value, MILLISECONDS)?,
                "row_ms" => description.row_ms = within(key, value, MILLISECONDS)?,
                "context" => description.context = within(key, value, CONTEXT)?,
                _ => {
                    return Err(LoadError::Synthetic(format!(
                        "{key} is not one of vocab, agreement, ranks, base_ms, row_ms and context"
                    )));
                }
            }
        }
        Ok(description)
    }
}

/// Reads `value`, which must be a number in `range`.
fn within<T: FromStr + PartialOrd + Display>(
    key: &str,
    value: &str,
    range: RangeInclusive<T>,
) -> Result<T, LoadError> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = range.into_inner();
        LoadError::Synthetic(format!("{key} must be from {least} to {most}, not {value}"))
    })
}

impl Synthetic {
    /// A toy model as described.
    ///
    /// # Panics
    /// If `description` has too few token ids for a vocabulary; one that was read from text has
    /// enough.
    pub fn new(description: Description) -> Self {
        let shape = ModelShape {
            vocabulary_rows: description.vocab,
            context_length: description.context,
            // A token takes 4 bytes; this leaves room for the books of its block.
            kv: KvLayout {
                layers: 1,
                kv_heads: 1,
                head_dim: 8,
                kind: CacheType::F32,
            },
        };
        Self {
            law: Law::new(description.vocab, description.agreement, description.ranks),
            description,
            shape,
            blocks: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// Its tokenizer and so on.
    pub fn vocabulary(&self) -> Vocabulary {
        words::vocabulary(self.description.vocab)
    }

    /// What the law sees of the first `end` tokens, read from their blocks.
    fn window(&self, input: &Input<'_>, end: usize) -> Vec<TokenId> {
        let positions = end.saturating_sub(law::WINDOW)..end;
        let token = |position: usize| {
            let block = input.blocks[position / BLOCK_TOKENS].index();
            self.blocks[block][position % BLOCK_TOKENS]
        };
        positions.map(token).collect()
    }

    fn block_mut(&mut self, id: BlockId) -> &mut Vec<TokenId> {
        let index = id.index();
        if index >= self.blocks.len() {
            self.blocks.resize(index + 1, Vec::new());
        }
        let block = &mut self.blocks[index];
        block.resize(BLOCK_TOKENS, 0);
        block
    }
}

impl Model for Synthetic {
    fn shape(&self) -> &ModelShape {
        &self.shape
    }

    fn allocate(&mut self, _blocks: usize, kind: CacheType) -> Result<(), EngineError> {
        self.shape.kv.kind = kind;
        Ok(())
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), EngineError> {
        *self.block_mut(to) = self.block_mut(from).clone();
        Ok(())
    }

    /// Takes `base_ms` and, per row, `row_ms`, by the clock: exactly so on average, as a step makes up for what those before it took too
    /// long. The calling thread sleeps: it
    /// is the executor's, which would wait for a device just so.
    fn forward(&mut self, batch: &[Input<'_>]) -> Result<Logits, EngineError> {
        let begun = Instant::now();
        let wanted: usize = batch.iter().map(|input| input.wanted).sum();
        let rows: usize = batch.iter().map(|input| input.tokens.len()).sum();
        let mut values = Vec::with_capacity(wanted * self.description.vocab);
        for input in batch {
            for (position, &token) in (input.start..).zip(input.tokens) {
                let block = self.block_mut(input.blocks[position / BLOCK_TOKENS]);
                block[position % BLOCK_TOKENS] = token;
            }
            let len = input.start + input.tokens.len();
            for end in len - input.wanted + 1..=len {
                self.law
                    .append_logits(&self.window(input, end), &mut values);
            }
        }
        let took_ms = self.description.base_ms + self.description.row_ms * rows as f64;
        self.pace
            .wait(begun, Duration::from_secs_f64(took_ms / 1e3));
        Ok(Logits::new(values, self.description.vocab))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_may_leave_keys_out() {
        assert_eq!("".parse::<Description>().unwrap(), Description::default());
        let description: Description = "agreement=0.75, vocab=300,row_ms=0.5, ranks=1/1/1/1"
            .parse()
            .unwrap();
        let expected = Description {
            vocab: 300,
            agreement: 0.75,
            row_ms: 0.5,
            ranks: "1/1/1/1".parse().unwrap(),
            ..Description::default()
        };
        assert_eq!(description, expected);
    }

    #[test]
    fn a_wrong_description_is_refused_with_its_key_and_value() {
        for (text, message) in [
            ("agreement=2", "agreement must be from 0 to 1, not 2"),
            ("agreement=NaN", "agreement must be from 0 to 1, not NaN"),
            ("vocab=299", "vocab must be from 300 to 200000, not 299"),
            ("vocab=many", "vocab must be from 300 to 200000, not many"),
            (
                "ranks=.5/.4/.6/.7",
                "ranks must be four ascending shares from 0 to 1, as .4/.55/.7/.81, not .5/.4/.6/.7",
            ),
            ("base_ms=-1", "base_ms must be from 0 to 60000, not -1"),
            ("row_ms=inf", "row_ms must be from 0 to 60000, not inf"),
            ("context=0", "context must be from 16 to 1048576, not 0"),
            ("vocab", "vocab is not key=value"),
            (
                "seed=1",
                "seed is not one of vocab, agreement, ranks, base_ms, row_ms and context",
            ),
        ] {
            let error = text.parse::<Description>().unwrap_err();
            assert_eq!(error.to_string(), format!("synthetic model: {message}"));
        }
    }
}
