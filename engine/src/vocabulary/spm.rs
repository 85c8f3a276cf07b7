//! SentencePiece tokenizers, put together from the metadata: pieces that are merged in the order
//! of their scores, as of Llama 2, Mistral and Gemma.
//!
//! What is built is byte-pair encoding with a merge per piece. That is the same: pieces grow by the
//! best score among all neighbours that join to a piece, so whatever stands around a piece, it was
//! put together in the one way in which it is put together alone.

use super::tokens::{Kind, TokenTable};
use crate::{LoadError, gguf::GgufFile};
use candle_core::quantized::gguf_file::Value;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::normalizers::prepend::Prepend;
use tokenizers::normalizers::replace::Replace;
use tokenizers::normalizers::utils::Sequence as Normalizers;
use tokenizers::{AddedToken, Tokenizer};

const SCORES: &str = "tokenizer.ggml.scores";
const SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
/// How pieces write a space.
const SPACE: &str = "\u{2581}";
/// Characters of a piece that merging makes; those in use have 16, and 31 where they are spaces.
const MAX_PIECE: usize = 64;

/// The tokenizer over `tokens`.
pub(super) fn tokenizer(file: &GgufFile, tokens: &TokenTable<'_>) -> Result<Tokenizer, LoadError> {
    let scores = scores(file, tokens.len())?;
    let prefix = file.flag(SPACE_PREFIX)?.unwrap_or(true);
    assemble(tokens, merges(tokens, &scores), prefix)
        .map_err(|error| file.invalid(format!("tokenizer.ggml.model: {error}")))
}

fn scores(file: &GgufFile, tokens: usize) -> Result<Vec<f32>, LoadError> {
    let values = file.list(SCORES)?;
    if values.len() < tokens {
        return Err(file.invalid(format!(
            "{SCORES} has {} entries for {tokens} tokens",
            values.len()
        )));
    }
    let score = |(id, value): (usize, &Value)| match value {
        Value::F32(score) if !score.is_nan() => Ok(*score),
        _ => Err(file.invalid(format!("{SCORES}: entry {id} is not a number"))),
    };
    values.iter().take(tokens).enumerate().map(score).collect()
}

/// For each piece that merging makes, what it is made of; the best score first.
fn merges(tokens: &TokenTable<'_>, scores: &[f32]) -> Vec<(String, String)> {
    let mut merges: Vec<(usize, (String, String))> = tokens
        .iter()
        .enumerate()
        .filter(|(_, (_, kind))| matches!(kind, Kind::Text | Kind::UserDefined))
        .filter_map(|(id, (piece, _))| {
            let (left, right) = piece.split_at(last_join(piece, tokens, scores)?);
            // A character may be no piece; it is then written in bytes and joins nothing.
            tokens.id(left).and(tokens.id(right))?;
            Some((id, (left.to_owned(), right.to_owned())))
        })
        .collect();
    merges.sort_by(|(a, _), (b, _)| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    merges.into_iter().map(|(_, merge)| merge).collect()
}

/// Where the last two parts meet that are joined when `piece` is put together from its characters;
/// `None` where it never comes to that.
fn last_join(piece: &str, tokens: &TokenTable<'_>, scores: &[f32]) -> Option<usize> {
    // Where parts begin, and at last the end.
    let starts = piece.char_indices().map(|(start, _)| start);
    let mut bounds: Vec<usize> = starts.chain([piece.len()]).take(MAX_PIECE + 2).collect();
    if bounds.len() > MAX_PIECE + 1 {
        return None;
    }
    // Of the part that begins at a bound joined with the next one.
    let score = |bounds: &[usize], index: usize| {
        let joined = &piece[bounds[index]..*bounds.get(index + 2)?];
        tokens.id(joined).map(|id| scores[id as usize])
    };
    let mut joins: Vec<_> = (0..bounds.len())
        .map(|index| score(&bounds, index))
        .collect();
    while bounds.len() > 3 {
        let best = joins.iter().flatten().copied().reduce(f32::max)?;
        let index = joins.iter().position(|&join| join == Some(best))?;
        bounds.remove(index + 1);
        joins.remove(index + 1);
        joins[index] = score(&bounds, index);
        if let Some(before) = index.checked_sub(1) {
            joins[before] = score(&bounds, before);
        }
    }
    (bounds.len() == 3).then(|| bounds[1])
}

fn assemble(
    tokens: &TokenTable<'_>,
    merges: Vec<(String, String)>,
    prefix: bool,
) -> tokenizers::Result<Tokenizer> {
    let mut model = BPE::builder()
        .vocab_and_merges(tokens.to_vocab(), merges)
        .byte_fallback(true)
        .fuse_unk(true);
    if tokens.id("<unk>").is_some() {
        model = model.unk_token("<unk>".to_owned());
    }
    let mut tokenizer = Tokenizer::new(model.build()?);
    tokenizer.with_normalizer(Some(normalizer(prefix)?))?;
    tokenizer.with_decoder(Some(decoder(prefix)?));
    let added = tokens
        .iter()
        .filter_map(|(token, kind)| added_token(token, kind, prefix));
    tokenizer.add_tokens(added)?;
    Ok(tokenizer)
}

fn normalizer(prefix: bool) -> tokenizers::Result<NormalizerWrapper> {
    let spaces = Replace::new(" ", SPACE)?;
    if !prefix {
        return Ok(spaces.into());
    }
    let prepend = Prepend::new(SPACE.to_owned());
    Ok(Normalizers::new(vec![prepend.into(), spaces.into()]).into())
}

fn decoder(prefix: bool) -> tokenizers::Result<DecoderWrapper> {
    let mut steps: Vec<DecoderWrapper> = vec![
        Replace::new(SPACE, " ")?.into(),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ];
    if prefix {
        steps.push(Strip::new(' ', 1, 0).into());
    }
    Ok(tokenizers::decoders::sequence::Sequence::new(steps).into())
}

fn added_token(token: &str, kind: Kind, prefix: bool) -> Option<AddedToken> {
    match kind {
        Kind::Control | Kind::UserDefined => {
            // Runs of spaces are found where spaces are already written as pieces write them.
            let written = !prefix && token.contains(SPACE);
            Some(AddedToken::from(token, kind.is_special()).normalized(written))
        }
        Kind::Text | Kind::Unused => None,
    }
}
