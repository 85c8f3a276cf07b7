//! The ways to shape the law that every rule is checked under.

use super::law::TokenId;
use crate::Prompting as _;
use proto::v1::{GenerateRequest, Prompt, SamplingParams, TokenIds, prompt, structured_output};
use std::collections::HashMap;

/// The tokens that texts are made of. Few, so that texts come often enough to be counted; and all
/// that the letters of [`REGEX`] make in a tiny model's vocabulary.
pub const ALPHABET: [&str; 6] = ["e", "r", "s", "er", "re", "es"];

/// The tokens of the prompt, of the alphabet for the repetition penalty; that the last is one, a
/// penalty that takes it for output shows.
pub const PROMPT: [&str; 3] = ["re", "e", "s"];

/// The regular expression of the option set `grammar`; [`super::oracle`] knows it as an automaton.
pub const REGEX: &str = "(er*s|r)+";

/// One way to shape the law.
#[derive(Debug, Clone)]
pub struct OptionSet {
    /// What it is called in the table.
    pub name: &'static str,
    /// The request's parameters, without the restriction to the alphabet.
    pub sampling: SamplingParams,
    /// Whether the text must match [`REGEX`].
    pub grammar: bool,
}

impl OptionSet {
    fn new(name: &'static str, change: impl FnOnce(&mut SamplingParams)) -> Self {
        let mut sampling = SamplingParams {
            temperature: Some(1.0),
            ..SamplingParams::default()
        };
        change(&mut sampling);
        Self {
            name,
            sampling,
            grammar: false,
        }
    }

    /// A request for `count` tokens after the prompt. A `narrow` one is for texts of the alphabet
    /// only; with a grammar they are that anyway, and may end sooner.
    pub fn request(&self, words: &Words, narrow: bool, count: u32) -> GenerateRequest {
        let request = GenerateRequest {
            prompt: Some(Prompt {
                prompt: Some(prompt::Prompt::TokenIds(TokenIds {
                    ids: words.prompt.clone(),
                })),
            }),
            ..GenerateRequest::default()
        };
        let mut sampling = self.sampling.clone();
        if self.grammar {
            let regex = structured_output::Form::Regex(REGEX.to_owned());
            return request.sampling(sampling).structured(regex).at_most(count);
        }
        if narrow {
            sampling.allowed_token_ids.clone_from(&words.alphabet);
        }
        request.sampling(sampling).tokens(count)
    }
}

/// The ids of the words above in one model's vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// Those of [`ALPHABET`], in its order.
    pub alphabet: Vec<TokenId>,
    /// Those of [`PROMPT`].
    pub prompt: Vec<TokenId>,
    /// The ids that end a text.
    pub ends: Vec<TokenId>,
}

impl Words {
    /// Looks the words up; none where the vocabulary lacks one.
    pub fn find(vocabulary: &HashMap<String, TokenId>, ends: &[TokenId]) -> Option<Self> {
        let ids = |words: &[&str]| {
            words
                .iter()
                .map(|word| vocabulary.get(*word).copied())
                .collect::<Option<Vec<_>>>()
        };
        Some(Self {
            alphabet: ids(&ALPHABET)?,
            prompt: ids(&PROMPT)?,
            ends: ends.to_vec(),
        })
    }

    /// The text of an id of the alphabet.
    pub fn text(&self, id: TokenId) -> &'static str {
        let place = self.alphabet.iter().position(|other| *other == id);
        place.map_or("", |place| ALPHABET[place])
    }
}

/// Every option set; `words` are what the bias falls on.
pub fn option_sets(words: &Words) -> Vec<OptionSet> {
    let grammar = OptionSet {
        grammar: true,
        ..OptionSet::new("grammar", |_| {})
    };
    vec![
        OptionSet::new("plain", |_| {}),
        OptionSet::new("top-k", |sampling| sampling.top_k = Some(3)),
        OptionSet::new("top-p", |sampling| {
            sampling.temperature = Some(1.5);
            sampling.top_p = Some(0.9);
        }),
        OptionSet::new("min-p", |sampling| {
            sampling.temperature = Some(1.5);
            sampling.min_p = Some(0.15);
        }),
        OptionSet::new("penalties", |sampling| {
            sampling.repetition_penalty = Some(1.5);
            sampling.presence_penalty = Some(0.6);
            sampling.frequency_penalty = Some(0.8);
        }),
        OptionSet::new("logit bias", |sampling| {
            let biases = [1.5, 0.0, -1.0, 0.7, 0.0, -2.0];
            let biased = words.alphabet.iter().copied().zip(biases);
            sampling.logit_bias = biased.filter(|entry| entry.1 != 0.0).collect();
        }),
        grammar,
    ]
}
