//! The message that opens a sequence, parsed once.

use crate::{Fault, Limits};
use proto::v1;
use speculation::{Sampler, Sampling, TokenId};

/// A valid opening of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Opening {
    /// All committed tokens: at least one, all known to the tokenizer, with room in the context
    /// for one more.
    pub tokens: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampler: Sampler,
}

impl Opening {
    /// Checks the fields of a `TargetOpen` or `DraftOpen`.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn parse(
        tokens: Vec<TokenId>,
        sampling: Option<v1::SamplingParams>,
        key: Option<v1::NoiseKey>,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        if tokens.is_empty() {
            return Err(Fault::invalid("token_ids must not be empty"));
        }
        let (length, context) = (tokens.len(), limits.context_length);
        if length >= context {
            return Err(Fault::invalid(format!(
                "token_ids are {length} tokens and leave no room in the context of {context}"
            )));
        }
        limits.check_ids("token_ids", &tokens)?;
        let key = key.ok_or_else(|| Fault::invalid("key is missing"))?;
        let sampling = Sampling::try_from(&sampling.unwrap_or_default())
            .map_err(|error| Fault::invalid(format!("sampling.{error}")))?;
        Ok(Self {
            tokens,
            sampler: Sampler {
                sampling,
                key: key.into(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1::CloseReason;

    const LIMITS: Limits = Limits {
        tokenizer_size: 10,
        context_length: 4,
        max_sequences: 1,
        max_draft_tokens: 16,
    };
    const KEY: Option<v1::NoiseKey> = Some(v1::NoiseKey { high: 1, low: 2 });

    #[test]
    fn the_field_that_is_wrong_is_named() {
        let hot = v1::SamplingParams {
            temperature: Some(f32::NAN),
            ..Default::default()
        };
        for (tokens, sampling, key, named) in [
            (vec![], None, KEY, "token_ids"),
            (vec![1, 2, 3, 4], None, KEY, "context of 4"),
            (vec![1, 10], None, KEY, "token_ids[1] is 10"),
            (vec![1, u32::MAX], None, KEY, "token_ids[1]"),
            (vec![1], None, None, "key"),
            (vec![1], Some(hot), KEY, "sampling.temperature"),
        ] {
            let fault = Opening::parse(tokens, sampling, key, &LIMITS).expect_err(named);
            assert_eq!(fault.reason, CloseReason::Invalid);
            assert!(fault.detail.contains(named), "{fault} names {named}");
        }
    }

    #[test]
    fn what_leaves_room_for_one_token_is_taken() {
        let opening = Opening::parse(vec![1, 9, 0], None, KEY, &LIMITS).expect("valid");
        assert_eq!(opening.tokens, [1, 9, 0]);
        assert_eq!(opening.sampler.key.0, (1 << 64) | 2);
    }
}
