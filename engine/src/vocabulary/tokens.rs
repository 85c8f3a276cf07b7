//! The tokens of a file, by id, padding left out.

use crate::{LoadError, gguf::GgufFile};
use candle_core::quantized::gguf_file::Value;
use speculation::TokenId;
use std::collections::HashMap;
use tokenizers::models::bpe::Vocab;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const EMBEDDING: &str = "token_embd.weight";

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A piece of text that merges make.
    Text,
    /// A piece of text that is a token wherever it appears.
    UserDefined,
    /// A sign to or from the model, never text.
    Control,
    /// An id that nothing makes. At the end of the list it is padding.
    Unused,
}

impl Kind {
    /// From the numbers of `enum llama_token_type`.
    fn from_number(number: usize) -> Option<Self> {
        match number {
            1 | 6 => Some(Self::Text),
            2 | 3 => Some(Self::Control),
            4 => Some(Self::UserDefined),
            5 => Some(Self::Unused),
            _ => None,
        }
    }

    /// True for tokens that are left out where text is shown.
    pub(super) fn is_special(self) -> bool {
        self == Self::Control
    }
}

/// The tokens by id.
pub(super) struct TokenTable<'a> {
    tokens: Vec<(&'a str, Kind)>,
    ids: HashMap<&'a str, TokenId>,
}

impl<'a> TokenTable<'a> {
    /// Reads the list of tokens and of their types.
    pub(super) fn from_gguf(file: &'a GgufFile) -> Result<Self, LoadError> {
        let strings = strings(file, TOKENS)?;
        let kinds = kinds(file, strings.len())?;
        let mut tokens: Vec<_> = strings.into_iter().zip(kinds).collect();
        tokens.truncate(real_len(&tokens));
        if tokens.is_empty() {
            return Err(file.invalid(format!("{TOKENS} holds no tokens")));
        }
        refuse_without_rows(file, tokens.len())?;
        let ids = ids(file, &tokens)?;
        Ok(Self { tokens, ids })
    }

    /// Tokens.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens with their kinds, in the order of the ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, Kind)> {
        self.tokens.iter().copied()
    }

    /// Tokens with their ids, as a tokenizer is built from them.
    pub(super) fn to_vocab(&self) -> Vocab {
        let tokens = self.iter().zip(0..);
        tokens
            .map(|((token, _), id)| (token.to_owned(), id))
            .collect()
    }

    /// The id of a token.
    pub(super) fn id(&self, token: &str) -> Option<TokenId> {
        self.ids.get(token).copied()
    }

    /// What the token `id`, which must be in the table, is for.
    pub(super) fn kind(&self, id: TokenId) -> Kind {
        self.tokens[id as usize].1
    }
}

/// A required list of strings.
pub(super) fn strings<'a>(file: &'a GgufFile, key: &str) -> Result<Vec<&'a str>, LoadError> {
    file.list(key)?
        .iter()
        .enumerate()
        .map(|(index, value)| match value {
            Value::String(text) => Ok(text.as_str()),
            _ => Err(file.invalid(format!("{key}: entry {index} is not a string"))),
        })
        .collect()
}

fn kinds(file: &GgufFile, expected: usize) -> Result<Vec<Kind>, LoadError> {
    if file.metadata(TYPES).is_none() {
        return Ok(vec![Kind::Text; expected]);
    }
    let numbers = file.list(TYPES)?;
    if numbers.len() != expected {
        return Err(file.invalid(format!(
            "{TYPES} has {} entries, {TOKENS} has {expected}",
            numbers.len()
        )));
    }
    numbers
        .iter()
        .enumerate()
        .map(|(id, value)| {
            let number = match *value {
                Value::I32(number) => usize::try_from(number).ok(),
                Value::U32(number) => usize::try_from(number).ok(),
                _ => None,
            };
            number.and_then(Kind::from_number).ok_or_else(|| {
                file.invalid(format!(
                    "{TYPES}: entry {id} is {value:.40?}, which is no token type"
                ))
            })
        })
        .collect()
}

/// Tokens less the padding at the end. Files pad the list up to the rows of the embedding, which
/// are rounded up. Older files mark padding as user-defined; its text gives it away.
fn real_len(tokens: &[(&str, Kind)]) -> usize {
    let is_real = |(id, &(token, kind)): (usize, &(&str, Kind))| {
        kind != Kind::Unused && token != format!("[PAD{id}]")
    };
    let last_real = tokens.iter().enumerate().rposition(is_real);
    last_real.map_or(0, |last| last + 1)
}

fn refuse_without_rows(file: &GgufFile, tokens: usize) -> Result<(), LoadError> {
    match file.tensor_shape(EMBEDDING) {
        Some(&[rows, _]) if tokens > rows => Err(file.invalid(format!(
            "{TOKENS} has {tokens} tokens, tensor {EMBEDDING} has {rows} rows"
        ))),
        _ => Ok(()),
    }
}

fn ids<'a>(
    file: &GgufFile,
    tokens: &[(&'a str, Kind)],
) -> Result<HashMap<&'a str, TokenId>, LoadError> {
    let mut ids = HashMap::with_capacity(tokens.len());
    for (&(token, _), id) in tokens.iter().zip(0..) {
        if token.is_empty() {
            return Err(file.invalid(format!("{TOKENS}: token {id} is empty")));
        }
        if let Some(first) = ids.insert(token, id) {
            return Err(file.invalid(format!(
                "{TOKENS}: tokens {first} and {id} are both {:?}",
                token.chars().take(40).collect::<String>()
            )));
        }
    }
    Ok(ids)
}
