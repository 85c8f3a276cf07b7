//! Log-probabilities, as chats and completions write them.

use super::tokens::{Tokens, shown};
use proto::v1::Delta;
use serde::Serialize;
use speculation::TokenId;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What stands for minus infinity, which JSON has not.
const IMPOSSIBLE: f32 = -9999.0;

/// Those of a chat's choice.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChatLogprobs {
    /// One entry per token.
    content: Vec<TokenEntry>,
}

/// A token with its log-probability, and the most likely at its position.
#[derive(Debug, Serialize, ToSchema)]
struct TokenEntry {
    #[serde(flatten)]
    chosen: Candidate,
    /// The most likely tokens, the most likely first.
    top_logprobs: Vec<Candidate>,
}

/// A token with its log-probability.
#[derive(Debug, Serialize, ToSchema)]
struct Candidate {
    /// The token; where it is no text of its own, its bytes.
    token: String,
    /// In nats.
    logprob: f32,
    /// What it stands for.
    bytes: Vec<u8>,
}

/// Those of a completion's choice.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CompletionLogprobs {
    /// The tokens.
    tokens: Vec<String>,
    /// Their log-probabilities.
    token_logprobs: Vec<f32>,
    /// The most likely tokens at each position, and the chosen one.
    top_logprobs: Vec<BTreeMap<String, f32>>,
    /// Where each token begins in the text, in characters.
    text_offset: Vec<usize>,
}

impl ChatLogprobs {
    /// Those of the tokens of `delta`.
    pub(super) fn new(tokens: &Tokens, delta: &Delta) -> Self {
        let entries = delta.token_ids.iter().zip(&delta.logprobs);
        let content = entries.map(|(id, logprobs)| TokenEntry {
            chosen: candidate(tokens, *id, logprobs.logprob),
            top_logprobs: top(logprobs)
                .map(|(id, logprob)| candidate(tokens, id, logprob))
                .collect(),
        });
        Self {
            content: content.collect(),
        }
    }
}

impl CompletionLogprobs {
    /// Those of the tokens of `delta`, the first of which begins `offset` characters into the text;
    /// moves that on.
    pub(super) fn new(tokens: &Tokens, delta: &Delta, offset: &mut usize) -> Self {
        let mut told = Self {
            tokens: Vec::new(),
            token_logprobs: Vec::new(),
            top_logprobs: Vec::new(),
            text_offset: Vec::new(),
        };
        for (id, logprobs) in delta.token_ids.iter().zip(&delta.logprobs) {
            let bytes = tokens.bytes(*id);
            let top = top(logprobs).chain([(*id, logprobs.logprob)]);
            let top = top.map(|(id, logprob)| (shown(&tokens.bytes(id)), finite(logprob)));
            told.top_logprobs.push(top.collect());
            told.tokens.push(shown(&bytes));
            told.token_logprobs.push(finite(logprobs.logprob));
            told.text_offset.push(*offset);
            *offset += characters(&bytes);
        }
        told
    }
}

fn top(logprobs: &proto::v1::TokenLogprobs) -> impl Iterator<Item = (TokenId, f32)> {
    let ids = logprobs.top_ids.iter().copied();
    ids.zip(logprobs.top_logprobs.iter().copied())
}

fn candidate(tokens: &Tokens, id: TokenId, logprob: f32) -> Candidate {
    let bytes = tokens.bytes(id);
    Candidate {
        token: shown(&bytes),
        logprob: finite(logprob),
        bytes,
    }
}

fn finite(logprob: f32) -> f32 {
    logprob.max(IMPOSSIBLE)
}

/// How many characters begin in `bytes`.
fn characters(bytes: &[u8]) -> usize {
    let continues = |byte: &&u8| **byte & 0xc0 == 0x80;
    bytes.len() - bytes.iter().filter(continues).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{byte_token, shared_model};
    use proto::v1::TokenLogprobs;

    fn delta(bytes: &[u8]) -> Delta {
        let logprobs = TokenLogprobs {
            logprob: f32::NEG_INFINITY,
            top_ids: vec![byte_token(b'x')],
            top_logprobs: vec![-0.5],
        };
        Delta {
            token_ids: bytes.iter().copied().map(byte_token).collect(),
            logprobs: vec![logprobs; bytes.len()],
            ..Delta::default()
        }
    }

    #[test]
    fn every_token_has_an_entry_with_its_true_bytes() {
        let tokens = Tokens::new(shared_model());
        let told = ChatLogprobs::new(&tokens, &delta("aé".as_bytes()));
        let bytes = told.content.iter().flat_map(|entry| &entry.chosen.bytes);
        assert_eq!(bytes.copied().collect::<Vec<_>>(), "aé".as_bytes());
        let json = serde_json::to_value(&told).unwrap();
        assert_eq!(json["content"][0]["token"], "a");
        assert_eq!(json["content"][1]["token"], r"bytes:\xc3");
        assert_eq!(json["content"][1]["logprob"], -9999.0);
        assert_eq!(json["content"][0]["top_logprobs"][0]["token"], "x");
    }

    #[test]
    fn offsets_count_characters_and_go_on_from_piece_to_piece() {
        let (tokens, mut offset) = (Tokens::new(shared_model()), 0);
        let first = CompletionLogprobs::new(&tokens, &delta("é".as_bytes()), &mut offset);
        assert_eq!(first.text_offset, [0, 1]);
        let second = CompletionLogprobs::new(&tokens, &delta(b"ab"), &mut offset);
        assert_eq!(second.text_offset, [1, 2]);
        assert_eq!(second.top_logprobs[0].len(), 2);
    }
}
