//! What a model's metadata says of its tokens: the tokenizer, the ids that end a text, the chat
//! template.
//!
//! The tokenizer travels on as a `tokenizer.json` document, so that whoever handles text needs
//! neither the model's file nor this crate. Knows nothing of weights.

mod bpe;
mod folder;
mod spm;
mod tokens;

use crate::{LoadError, folder::Folder, gguf::GgufFile};
use sha2::{Digest, Sha256};
use speculation::TokenId;
use std::collections::HashSet;
use tokens::{Kind, TokenTable};

/// A model's tokenizer and what belongs to it.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// The tokenizer as a `tokenizer.json` document, padding left out.
    pub tokenizer_json: Vec<u8>,
    /// Ids that the tokenizer knows: 0 to this number, less one. Rows beyond are padding.
    pub size: usize,
    /// sha256 over (id, string, special or not) of all of them, in hex. Models of the same
    /// fingerprint mean the same text by the same ids.
    pub fingerprint: String,
    /// Ids that end a text; the one that the model names comes first.
    pub eos_ids: Vec<TokenId>,
    /// The id put before every prompt, where the model wants one.
    pub bos_id: Option<TokenId>,
    /// The chat template (Jinja); empty where there is none.
    pub chat_template: String,
}

/// How text becomes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    /// By merges of bytes.
    BytePairs,
    /// By the scores of pieces.
    SentencePiece,
}

impl Model {
    fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        let key = "tokenizer.ggml.model";
        match file.string(key)? {
            "gpt2" => Ok(Self::BytePairs),
            "llama" => Ok(Self::SentencePiece),
            other => Err(file.unsupported(format!(
                "{key} is \"{other:.40}\"; supported are \"gpt2\" and \"llama\""
            ))),
        }
    }
}

/// Control tokens that end a text in the models that have them, whether or not the metadata names
/// them: chat models end a turn by one token and a document by another.
const END_TOKENS: [&str; 7] = [
    "<end_of_turn>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "</s>",
];

impl Vocabulary {
    /// Reads the tokenizer that `folder` carries.
    ///
    /// # Errors
    /// [`LoadError`] naming the file and the key that is wrong.
    pub fn from_folder(folder: &Folder) -> Result<Self, LoadError> {
        folder::vocabulary(folder)
    }

    /// Reads the tokenizer that `file` carries: byte-level BPE as of GPT-2, with the splitting
    /// rules of Qwen2, SmolLM, Llama 3 or GPT-2; or SentencePiece as of Llama 2 and Gemma.
    ///
    /// # Errors
    /// [`LoadError`] naming the key that is absent, wrong or not supported.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        let tokens = TokenTable::from_gguf(file)?;
        let kind = Model::from_gguf(file)?;
        let tokenizer = match kind {
            Model::BytePairs => bpe::tokenizer(file, &tokens)?,
            Model::SentencePiece => spm::tokenizer(file, &tokens)?,
        };
        let tokenizer_json = tokenizer
            .to_string(false)
            .map_err(|error| file.invalid(format!("tokenizer.ggml.tokens: {error}")))?
            .into_bytes();
        Ok(Self {
            tokenizer_json,
            size: tokens.len(),
            fingerprint: fingerprint(
                tokens
                    .iter()
                    .map(|(token, kind)| (token, kind.is_special())),
            ),
            eos_ids: eos_ids(file, &tokens)?,
            bos_id: bos_id(file, &tokens, kind)?,
            chat_template: chat_template(file)?,
        })
    }
}

/// sha256 over `tokens` in the order of their ids, each with whether it is special. Merges and
/// splitting rules are left out: what an id stands for does not depend on them.
pub(crate) fn fingerprint<'a>(tokens: impl Iterator<Item = (&'a str, bool)>) -> String {
    let mut hash = Sha256::new();
    for (id, (token, special)) in tokens.enumerate() {
        // The length keeps a token with a line break from passing for two tokens.
        let special = u8::from(special);
        hash.update(format!("{id} {special} {} {token}\n", token.len()));
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn eos_ids(file: &GgufFile, tokens: &TokenTable<'_>) -> Result<Vec<TokenId>, LoadError> {
    let mut ids = Vec::new();
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        ids.extend(token_id(file, tokens, &format!("tokenizer.ggml.{key}"))?);
    }
    let known = END_TOKENS.iter().filter_map(|token| tokens.id(token));
    ids.extend(known.filter(|&id| tokens.kind(id) == Kind::Control));
    let mut seen = HashSet::new();
    ids.retain(|&id| seen.insert(id));
    Ok(ids)
}

fn bos_id(
    file: &GgufFile,
    tokens: &TokenTable<'_>,
    model: Model,
) -> Result<Option<TokenId>, LoadError> {
    // What older files leave unsaid follows from the tokenizer.
    let default = model == Model::SentencePiece || bpe::is_llama3(file);
    let stated = file.flag("tokenizer.ggml.add_bos_token")?;
    if !stated.unwrap_or(default) {
        return Ok(None);
    }
    let key = "tokenizer.ggml.bos_token_id";
    match token_id(file, tokens, key)? {
        Some(id) => Ok(Some(id)),
        None if stated.is_none() => Ok(None),
        None => Err(file.invalid(format!("{key} is absent, and every prompt begins with it"))),
    }
}

fn token_id(
    file: &GgufFile,
    tokens: &TokenTable<'_>,
    key: &str,
) -> Result<Option<TokenId>, LoadError> {
    if file.metadata(key).is_none() {
        return Ok(None);
    }
    let id = file.count(key)?;
    match TokenId::try_from(id) {
        Ok(token) if id < tokens.len() => Ok(Some(token)),
        _ => Err(file.invalid(format!(
            "{key} is {id}, the tokenizer has {} tokens",
            tokens.len()
        ))),
    }
}

fn chat_template(file: &GgufFile) -> Result<String, LoadError> {
    let key = "tokenizer.chat_template";
    match file.metadata(key) {
        None => Ok(String::new()),
        Some(_) => file.string(key).map(str::to_owned),
    }
}
