//! The message that opens a sequence, parsed once.

use crate::{Fault, Limits};
use grammar::Form;
use proto::v1::{self, structured_output};
use speculation::{Adjustments, InvalidSampling, Rule, Sampler, Sampling, TokenId};
use std::sync::Arc;

/// A valid opening of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Opening {
    /// All committed tokens: at least one, all known to the tokenizer, with room in the context
    /// for one more.
    pub tokens: Vec<TokenId>,
    /// How tokens are drawn.
    pub sampler: Sampler,
    /// How proposals are verified.
    pub rule: Rule,
    /// What is done to logits before.
    pub adjustments: Arc<Adjustments>,
    /// What the text must match.
    pub structured: Option<Form>,
}

impl Opening {
    /// Checks the fields of a `TargetOpen` or `DraftOpen`.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn parse(
        tokens: Vec<TokenId>,
        decoding: Option<v1::Decoding>,
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
        let decoding = decoding.ok_or_else(|| Fault::invalid("decoding is missing"))?;
        let key = decoding
            .key
            .ok_or_else(|| Fault::invalid("decoding.key is missing"))?;
        let rule = Rule::try_from(decoding.rule())
            .map_err(|_| Fault::invalid("decoding.rule must be stated"))?;
        if decoding.prompt_len as usize > length {
            return Err(Fault::invalid(format!(
                "decoding.prompt_len must be at most the {length} token_ids, not {}",
                decoding.prompt_len
            )));
        }
        if decoding.bad_words.iter().any(|word| word.ids.is_empty()) {
            return Err(Fault::invalid("decoding.bad_words must not be empty words"));
        }
        let wrong = |error: InvalidSampling| Fault::invalid(format!("decoding.sampling.{error}"));
        let adjustments = Adjustments::try_from(&decoding).map_err(wrong)?;
        let sampling = Sampling::try_from(&decoding.sampling.unwrap_or_default()).map_err(wrong)?;
        Ok(Self {
            tokens,
            sampler: Sampler {
                sampling,
                key: key.into(),
            },
            rule,
            adjustments: Arc::new(adjustments),
            structured: decoding.structured.map(form).transpose()?,
        })
    }
}

fn form(structured: v1::StructuredOutput) -> Result<Form, Fault> {
    match structured.form {
        Some(structured_output::Form::JsonSchema(schema)) => Ok(Form::JsonSchema(schema)),
        Some(structured_output::Form::Regex(regex)) => Ok(Form::Regex(regex)),
        Some(structured_output::Form::Lark(lark)) => Ok(Form::Lark(lark)),
        Some(structured_output::Form::JsonObject(true)) => Ok(Form::JsonObject),
        Some(structured_output::Form::JsonObject(false)) => Err(Fault::invalid(
            "decoding.structured.json_object must be true",
        )),
        None => Err(Fault::invalid("decoding.structured.form is missing")),
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

    fn decoding() -> v1::Decoding {
        v1::Decoding {
            key: Some(v1::NoiseKey { high: 1, low: 2 }),
            rule: v1::VerificationRule::Coupled.into(),
            ..Default::default()
        }
    }

    fn refused(tokens: &[TokenId], decoding: Option<v1::Decoding>) -> String {
        let fault = Opening::parse(tokens.to_vec(), decoding, &LIMITS).expect_err("wrong");
        assert_eq!(fault.reason, CloseReason::Invalid);
        fault.detail
    }

    #[test]
    fn tokens_that_are_wrong_are_named() {
        for (tokens, named) in [
            (&[][..], "token_ids"),
            (&[1, 2, 3, 4], "context of 4"),
            (&[1, 10], "token_ids[1] is 10"),
            (&[1, u32::MAX], "token_ids[1]"),
        ] {
            let detail = refused(tokens, Some(decoding()));
            assert!(detail.contains(named), "{detail} names {named}");
        }
        assert!(refused(&[1], None).contains("decoding"));
    }

    #[test]
    fn the_field_of_the_decoding_that_is_wrong_is_named() {
        type Spoil = fn(&mut v1::Decoding);
        let cases: [(&str, Spoil); 7] = [
            ("decoding.key", |d| d.key = None),
            ("decoding.rule", |d| d.rule = 0),
            ("decoding.prompt_len", |d| d.prompt_len = 2),
            ("decoding.bad_words", |d| {
                d.bad_words = vec![v1::TokenIds::default()];
            }),
            ("decoding.sampling.temperature", |d| {
                d.sampling.get_or_insert_default().temperature = Some(f32::NAN);
            }),
            ("decoding.sampling.presence_penalty", |d| {
                d.sampling.get_or_insert_default().presence_penalty = Some(3.0);
            }),
            ("decoding.structured.form", |d| {
                d.structured = Some(v1::StructuredOutput::default());
            }),
        ];
        for (named, change) in cases {
            let mut decoding = decoding();
            change(&mut decoding);
            let detail = refused(&[1], Some(decoding));
            assert!(detail.starts_with(named), "{detail} names {named}");
        }
    }

    #[test]
    fn what_leaves_room_for_one_token_is_taken() {
        let opening = Opening::parse(vec![1, 9, 0], Some(decoding()), &LIMITS).expect("valid");
        assert_eq!(opening.tokens, [1, 9, 0]);
        assert_eq!(opening.sampler.key.0, (1 << 64) | 2);
        assert_eq!(opening.rule, Rule::Coupled);
    }
}
