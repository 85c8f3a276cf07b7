//! Byte-level BPE tokenizers, put together from the metadata.
//!
//! The metadata names the splitting rules rather than holding them. Those here are the rules of
//! the `tokenizer.json` files that the models were published with.

use super::tokens::{Kind, TokenTable, strings};
use crate::{LoadError, gguf::GgufFile};
use std::collections::HashSet;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, Tokenizer};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const MERGES: &str = "tokenizer.ggml.merges";

/// How text is split before merges apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Splitting {
    Gpt2,
    Llama3,
    Qwen2,
    SmolLm,
}

impl Splitting {
    fn from_gguf(file: &GgufFile) -> Result<Self, LoadError> {
        if file.metadata(PRE).is_none() {
            return Ok(Self::Gpt2);
        }
        match file.string(PRE)? {
            "default" | "gpt-2" | "gpt2" => Ok(Self::Gpt2),
            "llama-bpe" | "llama3" | "llama-v3" => Ok(Self::Llama3),
            "qwen2" => Ok(Self::Qwen2),
            "smollm" => Ok(Self::SmolLm),
            other => Err(file.unsupported(format!(
                "{PRE} is \"{other:.40}\"; supported are \"gpt-2\", \"llama-bpe\", \"qwen2\" and \
                 \"smollm\""
            ))),
        }
    }

    fn pre_tokenizer(self) -> tokenizers::Result<PreTokenizerWrapper> {
        let bytes = ByteLevel::new(false, true, false);
        // GPT-2's rule is the one that the byte-level step has built in.
        let gpt2 = ByteLevel::new(false, true, true);
        let parts: Vec<PreTokenizerWrapper> = match self {
            Self::Gpt2 => return Ok(gpt2.into()),
            Self::SmolLm => vec![Digits::new(true).into(), gpt2.into()],
            Self::Llama3 => vec![split(r"\p{N}{1,3}")?.into(), bytes.into()],
            Self::Qwen2 => vec![split(r"\p{N}")?.into(), bytes.into()],
        };
        Ok(Sequence::new(parts).into())
    }
}

/// The rule of cl100k, in which models differ by the `numbers` that stay together.
fn split(numbers: &str) -> tokenizers::Result<Split> {
    let rule = [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        numbers,
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
    .join("|");
    Split::new(
        SplitPattern::Regex(rule),
        SplitDelimiterBehavior::Isolated,
        false,
    )
}

/// True where text is split as for Llama 3, whose prompts begin with a token of their own.
pub(super) fn is_llama3(file: &GgufFile) -> bool {
    matches!(Splitting::from_gguf(file), Ok(Splitting::Llama3))
}

/// The tokenizer over `tokens`.
pub(super) fn tokenizer(file: &GgufFile, tokens: &TokenTable<'_>) -> Result<Tokenizer, LoadError> {
    let splitting = Splitting::from_gguf(file)?;
    let merges = merges(file, tokens)?;
    assemble(splitting, tokens, merges).map_err(|error| file.invalid(format!("{MODEL}: {error}")))
}

fn assemble(
    splitting: Splitting,
    tokens: &TokenTable<'_>,
    merges: Vec<(String, String)>,
) -> tokenizers::Result<Tokenizer> {
    let model = BPE::builder()
        .vocab_and_merges(tokens.to_vocab(), merges)
        // Llama 3 takes a word that is a token as it is, whatever the merges make of it.
        .ignore_merges(splitting == Splitting::Llama3)
        .build()?;
    let mut tokenizer = Tokenizer::new(model);
    if splitting == Splitting::Qwen2 {
        tokenizer.with_normalizer(Some(NFC))?;
    }
    tokenizer.with_pre_tokenizer(Some(splitting.pre_tokenizer()?));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, false)));
    tokenizer.add_tokens(tokens.iter().filter_map(added_token))?;
    Ok(tokenizer)
}

fn added_token((token, kind): (&str, Kind)) -> Option<AddedToken> {
    match kind {
        Kind::Control | Kind::UserDefined => {
            Some(AddedToken::from(token, kind.is_special()).normalized(false))
        }
        Kind::Text | Kind::Unused => None,
    }
}

/// The merges, each checked to join two tokens to a third: the library would panic on some that
/// do not.
fn merges(file: &GgufFile, tokens: &TokenTable<'_>) -> Result<Vec<(String, String)>, LoadError> {
    let mut seen = HashSet::new();
    strings(file, MERGES)?
        .into_iter()
        .enumerate()
        .map(|(rank, merge)| {
            let invalid = |what: &str| {
                let merge = merge.chars().take(40).collect::<String>();
                file.invalid(format!("{MERGES}: entry {rank}, {merge:?}, {what}"))
            };
            let (left, right) = merge
                .split_once(' ')
                .ok_or_else(|| invalid("has no space"))?;
            let joined = format!("{left}{right}");
            if [left, right, &joined]
                .iter()
                .any(|part| tokens.id(part).is_none())
            {
                return Err(invalid("does not join two tokens to a third"));
            }
            if !seen.insert(merge) {
                return Err(invalid("appears twice"));
            }
            Ok((left.to_owned(), right.to_owned()))
        })
        .collect()
}
