//! Vocabularies of folders: `tokenizer.json` and what stands beside it.

use super::{END_TOKENS, Vocabulary, fingerprint};
use crate::folder::{Folder, Json};
use crate::{LoadError, mapped};
use serde_json::Value;
use speculation::TokenId;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use tokenizers::Tokenizer;

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const TEMPLATE: &str = "chat_template.jinja";
const MAX_TEMPLATE: u64 = 4 << 20;
const MAX_TOKENS: usize = 1 << 24;
/// Ids without a token: each takes a place in memory and none in the file.
const MAX_GAPS: usize = 1 << 16;

/// The vocabulary of `folder`.
pub(super) fn vocabulary(folder: &Folder) -> Result<Vocabulary, LoadError> {
    let rows = folder.config().count("vocab_size")?.unwrap_or(MAX_TOKENS);
    let tokens = Tokens::read(folder, rows)?;
    let config = folder.optional(TOKENIZER_CONFIG)?;
    Ok(Vocabulary {
        size: tokens.table.len(),
        fingerprint: fingerprint(
            tokens
                .table
                .iter()
                .map(|(token, special)| (token.as_str(), *special)),
        ),
        eos_ids: eos_ids(folder, config.as_ref(), &tokens)?,
        bos_id: bos_id(config.as_ref(), &tokens)?,
        chat_template: chat_template(folder, config.as_ref())?,
        tokenizer_json: tokens.json,
    })
}

/// What `tokenizer.json` holds.
struct Tokens {
    path: PathBuf,
    json: Vec<u8>,
    tokenizer: Tokenizer,
    /// Token and whether it is special, by id.
    table: Vec<(String, bool)>,
}

impl Tokens {
    /// Reads the tokenizer, less tokens that are for other models of the family: those with an id
    /// for which the embedding has none of its `rows`.
    fn read(folder: &Folder, rows: usize) -> Result<Self, LoadError> {
        let path = folder.path().join(TOKENIZER);
        let json = without_rows(Json::read(&path)?, rows)
            .to_string()
            .into_bytes();
        let invalid = |detail: String| LoadError::Invalid {
            path: path.clone(),
            detail,
        };
        let tokenizer = Tokenizer::from_bytes(&json)
            .map_err(|error| invalid(format!("it is no tokenizer: {error:.200}")))?;
        let table = table(&tokenizer, rows).map_err(invalid)?;
        Ok(Self {
            path,
            json,
            tokenizer,
            table,
        })
    }

    fn id(&self, token: &str) -> Option<TokenId> {
        self.tokenizer.token_to_id(token)
    }

    /// The ids with which the tokenizer itself would have a text begin.
    fn first_id(&self) -> Result<Option<TokenId>, LoadError> {
        let ids = |special| {
            let encoding = self.tokenizer.encode("a", special);
            encoding.map(|encoding| encoding.get_ids().to_vec())
        };
        let (with, without) =
            ids(true)
                .and_then(|with| Ok((with, ids(false)?)))
                .map_err(|error| LoadError::Invalid {
                    path: self.path.clone(),
                    detail: format!("it cannot encode: {error:.200}"),
                })?;
        let first = with.first().copied();
        Ok(first.filter(|_| first != without.first().copied()))
    }
}

fn without_rows(mut document: Json, rows: usize) -> Value {
    if let Some(Value::Array(added)) = document.get_mut("added_tokens") {
        let has_row = |token: &Value| token["id"].as_u64().is_none_or(|id| id < rows as u64);
        added.retain(has_row);
    }
    document.into_value()
}

/// Tokens by id. Ids that no token has are empty strings, so that later ones keep their place.
fn table(tokenizer: &Tokenizer, rows: usize) -> Result<Vec<(String, bool)>, String> {
    let by_id: BTreeMap<TokenId, String> = tokenizer
        .get_vocab(true)
        .into_iter()
        .map(|(token, id)| (id, token))
        .collect();
    let Some((&last, _)) = by_id.last_key_value() else {
        return Err("it holds no tokens".to_owned());
    };
    if last as usize >= rows {
        return Err(format!(
            "model.vocab: token {last} has no row, vocab_size in config.json is {rows}"
        ));
    }
    let gaps = last as usize + 1 - by_id.len();
    if gaps > MAX_GAPS {
        return Err(format!(
            "model.vocab: {gaps} ids below {last} have no token, the most is {MAX_GAPS}"
        ));
    }
    let special: HashSet<TokenId> = tokenizer
        .get_added_tokens_decoder()
        .into_iter()
        .filter(|(_, token)| token.special)
        .map(|(id, _)| id)
        .collect();
    let mut table = vec![(String::new(), false); last as usize + 1];
    for (id, token) in by_id {
        table[id as usize] = (token, special.contains(&id));
    }
    Ok(table)
}

fn eos_ids(
    folder: &Folder,
    tokenizer_config: Option<&Json>,
    tokens: &Tokens,
) -> Result<Vec<TokenId>, LoadError> {
    let mut ids = Vec::new();
    let generation = folder.optional(GENERATION_CONFIG)?;
    for config in generation.iter().chain([folder.config()]) {
        ids.extend(ids_of(config, "eos_token_id", tokens)?);
    }
    if let Some(config) = tokenizer_config {
        ids.extend(token_of(config, "eos_token", tokens)?);
    }
    let known = END_TOKENS.iter().filter_map(|token| tokens.id(token));
    ids.extend(known.filter(|&id| tokens.table.get(id as usize).is_some_and(|token| token.1)));
    let mut seen = HashSet::new();
    ids.retain(|&id| seen.insert(id));
    Ok(ids)
}

/// A number or a list of them.
fn ids_of(config: &Json, key: &str, tokens: &Tokens) -> Result<Vec<TokenId>, LoadError> {
    let values = match config.get(key) {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => values.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
        id.filter(|&id| (id as usize) < tokens.table.len())
            .ok_or_else(|| {
                config.invalid(format!(
                    "{key} is {value:.40}, the tokenizer has {} tokens",
                    tokens.table.len()
                ))
            })
    };
    values.iter().map(id).collect()
}

/// A token by its string, which may stand in an object.
fn token_of(config: &Json, key: &str, tokens: &Tokens) -> Result<Option<TokenId>, LoadError> {
    let text = match config.get(key) {
        None => return Ok(None),
        Some(Value::Object(token)) => token.get("content").and_then(Value::as_str),
        Some(token) => token.as_str(),
    };
    match text.map(|text| tokens.id(text)) {
        Some(Some(id)) => Ok(Some(id)),
        _ => Err(config.invalid(format!("{key} is no token of {TOKENIZER}"))),
    }
}

fn bos_id(config: Option<&Json>, tokens: &Tokens) -> Result<Option<TokenId>, LoadError> {
    let stated = match config {
        Some(config) => config.flag("add_bos_token")?,
        None => None,
    };
    match (config, stated) {
        (Some(config), Some(true)) => token_of(config, "bos_token", tokens),
        (_, Some(false)) => Ok(None),
        _ => tokens.first_id(),
    }
}

fn chat_template(folder: &Folder, config: Option<&Json>) -> Result<String, LoadError> {
    let path = folder.path().join(TEMPLATE);
    if path.exists() {
        let bytes = mapped::read(&path, MAX_TEMPLATE)?;
        return String::from_utf8(bytes).map_err(|_| LoadError::Invalid {
            path,
            detail: "it is not UTF-8".to_owned(),
        });
    }
    let key = "chat_template";
    let Some(config) = config else {
        return Ok(String::new());
    };
    match config.get(key) {
        None => Ok(String::new()),
        Some(Value::String(template)) => Ok(template.clone()),
        Some(Value::Array(named)) => Ok(default_template(named).to_owned()),
        Some(_) => Err(config.invalid(format!("{key} is neither a string nor a list"))),
    }
}

/// Of several templates with names, the one for ordinary chats.
fn default_template(named: &[Value]) -> &str {
    let default = named.iter().find(|entry| entry["name"] == "default");
    default
        .and_then(|entry| entry["template"].as_str())
        .unwrap_or_default()
}
