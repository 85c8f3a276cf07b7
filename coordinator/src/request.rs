//! A request, checked once at the edge: what lies behind works with valid requests only.

use crate::model::Model;
use crate::prompt;
use proto::v1::{GenerateRequest, SamplingParams, SpeculationMode, VerificationRule};
use service::{Class, Error};
use speculation::{NoiseKey, Sampling, TokenId};
use std::sync::Arc;

/// The most tokens that a request may have drafted per round.
pub(crate) const MAX_DRAFT_TOKENS: u32 = 16;

/// A request that can run.
#[derive(Debug, Clone)]
pub(crate) struct ValidRequest {
    /// The prompt's token ids: at least one, and fewer than the context holds.
    pub(crate) prompt: Vec<TokenId>,
    /// The most tokens to generate: at least one, and no more than the context has room for.
    pub(crate) max_tokens: usize,
    /// Tokens that end the text; none where the client wants it to go on.
    pub(crate) end_tokens: Arc<[TokenId]>,
    /// How tokens are chosen.
    pub(crate) sampling: Sampling,
    /// The noise that they are chosen with.
    pub(crate) key: NoiseKey,
    /// The most tokens to draft per round; 0 is plain decoding.
    pub(crate) max_draft_tokens: usize,
}

impl ValidRequest {
    /// Checks `request` against `model`; `default_draft` is what a client gets who does not say how
    /// many tokens to draft. Takes time for a long prompt.
    ///
    /// # Errors
    /// [`Class::NotFound`] for another model's name, or [`Class::Invalid`] with the field's path.
    pub(crate) fn new(
        request: GenerateRequest,
        model: &Model,
        default_draft: u32,
    ) -> Result<Self, Error> {
        check_model(&request.model, model)?;
        let sampling = sampling(request.sampling.unwrap_or_default())?;
        let stop = request.stop.unwrap_or_default();
        if stop.max_tokens == Some(0) {
            return Err(Error::invalid("stop.max_tokens", "must be at least 1"));
        }
        let max_draft_tokens =
            draft_length(request.speculation.unwrap_or_default(), default_draft)?;
        let key = match request.seed {
            Some(seed) => NoiseKey::from_seed(seed),
            None => NoiseKey(rand::random()),
        };
        let prompt = prompt::tokenize(request.prompt, model)?.token_ids;
        let room = room_after(&prompt, model)?;
        let max_tokens = stop.max_tokens.map_or(room, |most| room.min(most as usize));
        let end_tokens = if stop.ignore_eos {
            Arc::default()
        } else {
            Arc::clone(&model.end_tokens)
        };
        Ok(Self {
            prompt,
            max_tokens,
            end_tokens,
            sampling,
            key,
            max_draft_tokens: max_draft_tokens as usize,
        })
    }
}

/// Checks the name of a model in a request; an empty one takes the only model.
///
/// # Errors
/// [`Class::NotFound`].
pub(crate) fn check_model(name: &str, model: &Model) -> Result<(), Error> {
    if name.is_empty() || name == model.name {
        return Ok(());
    }
    let message = format!("there is no model `{name}`, only `{}`", model.name);
    Err(Error::new(Class::NotFound, message))
}

fn sampling(params: SamplingParams) -> Result<Sampling, Error> {
    Sampling::try_from(&params)
        .map_err(|error| Error::invalid(format!("sampling.{}", error.field), error.to_string()))
}

fn draft_length(speculation: proto::v1::Speculation, default: u32) -> Result<u32, Error> {
    let mode = SpeculationMode::try_from(speculation.mode)
        .map_err(|error| Error::invalid("speculation.mode", error.to_string()))?;
    // There is one rule so far; naming an unknown one is an error all the same.
    VerificationRule::try_from(speculation.rule)
        .map_err(|error| Error::invalid("speculation.rule", error.to_string()))?;
    let most = speculation.max_draft_tokens.unwrap_or(default);
    if most > MAX_DRAFT_TOKENS {
        let message = format!("must be at most {MAX_DRAFT_TOKENS}, not {most}");
        return Err(Error::invalid("speculation.max_draft_tokens", message));
    }
    Ok(match mode {
        SpeculationMode::Off => 0,
        SpeculationMode::Unspecified | SpeculationMode::Auto => most,
    })
}

/// How many tokens the context has room for after `prompt`.
fn room_after(prompt: &[TokenId], model: &Model) -> Result<usize, Error> {
    let context = model.context_length;
    match context.checked_sub(prompt.len()) {
        Some(room) if room > 0 => Ok(room),
        _ => {
            let len = prompt.len();
            let message = format!(
                "the prompt has {len} tokens, and the context of {context} must hold at least one more"
            );
            Err(Error::invalid("prompt", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proto::v1::{Prompt, Speculation, StopParams, TokenIds, prompt};

    const DEFAULT_DRAFT: u32 = 3;

    fn request(ids: usize) -> GenerateRequest {
        GenerateRequest {
            prompt: Some(Prompt {
                prompt: Some(prompt::Prompt::TokenIds(TokenIds { ids: vec![5; ids] })),
            }),
            ..GenerateRequest::default()
        }
    }

    fn valid(request: GenerateRequest) -> Result<ValidRequest, Error> {
        ValidRequest::new(request, &testing::model(), DEFAULT_DRAFT)
    }

    fn refused_field(request: GenerateRequest) -> String {
        match valid(request).expect_err("a bad request").class {
            Class::Invalid { field } => field,
            class => panic!("{class:?}"),
        }
    }

    #[test]
    fn sampling_out_of_range_names_the_parameter() {
        let with = |sampling| GenerateRequest {
            sampling: Some(sampling),
            ..request(1)
        };
        for temperature in [f32::NAN, -0.1, f32::INFINITY, 101.0] {
            let sampling = SamplingParams {
                temperature: Some(temperature),
                ..Default::default()
            };
            assert_eq!(refused_field(with(sampling)), "sampling.temperature");
        }
        for top_p in [0.0, 2.0, f32::NAN, -1.0] {
            let sampling = SamplingParams {
                top_p: Some(top_p),
                ..Default::default()
            };
            assert_eq!(refused_field(with(sampling)), "sampling.top_p");
        }
        for min_p in [1.5, f32::NAN] {
            let sampling = SamplingParams {
                min_p: Some(min_p),
                ..Default::default()
            };
            assert_eq!(refused_field(with(sampling)), "sampling.min_p");
        }
    }

    #[test]
    fn speculation_out_of_range_names_the_field() {
        let with = |speculation| GenerateRequest {
            speculation: Some(speculation),
            ..request(1)
        };
        let mode = Speculation {
            mode: 9,
            ..Default::default()
        };
        assert_eq!(refused_field(with(mode)), "speculation.mode");
        let rule = Speculation {
            rule: -1,
            ..Default::default()
        };
        assert_eq!(refused_field(with(rule)), "speculation.rule");
        let most = Speculation {
            max_draft_tokens: Some(17),
            ..Default::default()
        };
        assert_eq!(refused_field(with(most)), "speculation.max_draft_tokens");
    }

    #[test]
    fn draft_length_is_the_clients_or_the_servers_and_none_when_off() {
        let drafts = |mode: SpeculationMode, max_draft_tokens| {
            let speculation = Speculation {
                mode: mode.into(),
                max_draft_tokens,
                rule: 0,
            };
            valid(GenerateRequest {
                speculation: Some(speculation),
                ..request(1)
            })
            .unwrap()
            .max_draft_tokens
        };
        assert_eq!(drafts(SpeculationMode::Unspecified, None), 3);
        assert_eq!(drafts(SpeculationMode::Auto, Some(16)), 16);
        assert_eq!(drafts(SpeculationMode::Auto, Some(0)), 0);
        assert_eq!(drafts(SpeculationMode::Off, Some(5)), 0);
    }

    #[test]
    fn max_tokens_is_at_least_one_and_bounded_by_the_context() {
        let with = |max_tokens| {
            let stop = StopParams {
                max_tokens,
                ignore_eos: false,
            };
            GenerateRequest {
                stop: Some(stop),
                ..request(10)
            }
        };
        assert_eq!(refused_field(with(Some(0))), "stop.max_tokens");
        assert_eq!(valid(with(Some(7))).unwrap().max_tokens, 7);
        let room = testing::CONTEXT - 10;
        assert_eq!(valid(with(Some(u32::MAX))).unwrap().max_tokens, room);
        assert_eq!(valid(with(None)).unwrap().max_tokens, room);
    }

    #[test]
    fn an_over_long_prompt_names_both_sizes() {
        assert_eq!(valid(request(testing::CONTEXT - 1)).unwrap().max_tokens, 1);
        let error = valid(request(testing::CONTEXT)).expect_err("too long");
        assert_eq!(
            error.class,
            Class::Invalid {
                field: "prompt".into()
            }
        );
        assert!(
            error.message.matches(&testing::CONTEXT.to_string()).count() == 2,
            "{error}"
        );
    }

    #[test]
    fn another_model_is_not_found_and_no_name_takes_the_only_one() {
        let named = |model: &str| {
            valid(GenerateRequest {
                model: model.into(),
                ..request(1)
            })
        };
        assert_eq!(named("other").expect_err("unknown").class, Class::NotFound);
        assert!(named(testing::MODEL).is_ok());
        assert!(named("").is_ok());
    }

    #[test]
    fn a_seed_fixes_the_noise_and_no_seed_draws_fresh_noise() {
        let key = |seed| valid(GenerateRequest { seed, ..request(1) }).unwrap().key;
        assert_eq!(key(Some(7)), key(Some(7)));
        assert_ne!(key(Some(7)), key(Some(8)));
        assert_ne!(key(None), key(None));
    }

    #[test]
    fn ignoring_the_end_of_text_leaves_no_end_tokens() {
        let with = |ignore_eos| {
            let stop = StopParams {
                max_tokens: None,
                ignore_eos,
            };
            valid(GenerateRequest {
                stop: Some(stop),
                ..request(1)
            })
            .unwrap()
            .end_tokens
        };
        assert!(with(true).is_empty());
        assert_eq!(*with(false), [testing::END_TOKEN]);
    }
}
