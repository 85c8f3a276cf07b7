mod drafting;
mod sampling;
mod stops;

use super::*;
use crate::testing::{self, END_TOKEN, byte_token};
use proto::v1::structured_output::Form;
use proto::v1::{Prompt, SamplingParams, StopParams, StructuredOutput, TokenIds, prompt};
use service::Class;

const DEFAULTS: Defaults = Defaults {
    max_draft_tokens: 3,
    min_draft_tokens: 2,
    min_confidence: Some(0.25),
    rule: Rule::Token,
    logprobs: LogprobsMode::Processed,
    max_requests: 10,
};

/// The first id that does not exist.
const SIZE: TokenId = END_TOKEN + 1;

fn request(ids: usize) -> GenerateRequest {
    GenerateRequest {
        prompt: Some(Prompt {
            prompt: Some(prompt::Prompt::TokenIds(TokenIds { ids: vec![5; ids] })),
        }),
        ..GenerateRequest::default()
    }
}

fn with_stop(stop: StopParams) -> GenerateRequest {
    GenerateRequest {
        stop: Some(stop),
        ..request(1)
    }
}

fn with_sampling(sampling: SamplingParams) -> GenerateRequest {
    GenerateRequest {
        sampling: Some(sampling),
        ..request(1)
    }
}

fn with_form(form: Form) -> GenerateRequest {
    GenerateRequest {
        structured: Some(StructuredOutput { form: Some(form) }),
        ..request(1)
    }
}

fn valid(request: GenerateRequest) -> Result<Arc<Generation>, Error> {
    let valid = ValidRequest::new(request, &testing::shared_model(), &DEFAULTS)?;
    Ok(valid.generation)
}

fn refused_field(request: GenerateRequest) -> String {
    match valid(request).expect_err("a bad request").class {
        Class::Invalid { field } => field,
        class => panic!("{class:?}"),
    }
}

#[test]
fn a_tenants_name_is_bounded_and_may_be_empty() {
    let of = |tenant: &str| GenerateRequest {
        tenant: tenant.to_owned(),
        ..request(1)
    };
    assert_eq!(&*valid(of("")).unwrap().tenant, "");
    assert_eq!(&*valid(of(&"t".repeat(64))).unwrap().tenant, "t".repeat(64));
    assert_eq!(refused_field(of(&"t".repeat(65))), "tenant");
}

#[test]
fn log_probabilities_are_bounded_and_their_mode_is_stated() {
    let with = |top, mode| GenerateRequest {
        logprobs: Some(LogprobsParams { top, mode }),
        ..request(1)
    };
    assert_eq!(refused_field(with(21, 0)), "logprobs.top");
    assert_eq!(refused_field(with(0, 3)), "logprobs.mode");
    let mode = |mode: v1::LogprobsMode| {
        let generation = valid(with(20, mode.into())).unwrap();
        generation.logprobs.unwrap().mode()
    };
    use v1::LogprobsMode::{ProcessedLogprobs, RawLogprobs, Unspecified};
    assert_eq!(mode(Unspecified), ProcessedLogprobs);
    assert_eq!(mode(RawLogprobs), RawLogprobs);
    assert_eq!(valid(request(1)).unwrap().logprobs, None);
}

#[test]
fn an_over_long_prompt_names_both_sizes() {
    assert_eq!(valid(request(testing::CONTEXT - 1)).unwrap().max_tokens, 1);
    let error = valid(request(testing::CONTEXT)).expect_err("too long");
    let field = "prompt".to_owned();
    assert_eq!(error.class, Class::Invalid { field });
    let sizes = error.message.matches(&testing::CONTEXT.to_string()).count();
    assert_eq!(sizes, 2, "{error}");
}

#[test]
fn choices_are_bounded_by_what_the_server_runs() {
    let with = |n| GenerateRequest {
        n: Some(n),
        ..request(1)
    };
    assert_eq!(refused_field(with(0)), "n");
    assert_eq!(refused_field(with(11)), "n");
    assert!(valid(with(10)).is_ok());
    let large = Defaults {
        max_requests: 1000,
        ..DEFAULTS
    };
    let valid = |n| ValidRequest::new(with(n), &testing::shared_model(), &large);
    assert!(valid(64).is_ok() && valid(65).is_err());
}

#[test]
fn a_seed_fixes_the_noise_and_no_seed_draws_fresh_noise() {
    let keys = |seed, n| -> Vec<NoiseKey> {
        let request = GenerateRequest {
            seed,
            n: Some(n),
            ..request(1)
        };
        let valid = ValidRequest::new(request, &testing::shared_model(), &DEFAULTS).unwrap();
        assert_eq!(valid.n(), n);
        let choices = valid.choices();
        let sent = |choice: Choice| (choice.key, choice.decoding().key.unwrap().into());
        let sent = choices.map(sent).collect::<Vec<(NoiseKey, NoiseKey)>>();
        assert!(sent.iter().all(|(own, sent)| own == sent));
        sent.into_iter().map(|(own, _)| own).collect()
    };
    assert_eq!(keys(Some(7), 1), [NoiseKey::from_seed(7)]);
    assert_eq!(keys(Some(7), 10), keys(Some(7), 10));
    assert_eq!(
        keys(Some(7), 10)[..3],
        keys(Some(7), 3),
        "n says only how many"
    );
    assert_ne!(keys(None, 1), keys(None, 1));
    let mut all: Vec<_> = (0..50).flat_map(|seed| keys(Some(seed), 10)).collect();
    all.sort_by_key(|key| key.0);
    all.dedup();
    assert_eq!(
        all.len(),
        500,
        "no two choices of any seeds share their noise"
    );
}

#[test]
fn a_seeds_choices_are_the_same_in_every_version() {
    let keys = [0, 1, 63].map(|choice| choice_key(NoiseKey(1 << 64 | 2), choice));
    let seed = |seed| NoiseKey::from_seed(seed).0 ^ (1 << 64 | 2);
    assert_eq!(
        keys,
        [NoiseKey(1 << 64 | 2), NoiseKey(seed(3)), NoiseKey(seed(65))]
    );
}
