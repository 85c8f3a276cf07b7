//! The logits of a model after every short text, read from its file once.
//!
//! The model runs in this process, one prefix after the other without a cache: no batch of several
//! requests, no draft, no service.

use super::law::{Text, TokenId};
use super::options::Words;
use crate::oracle::whole_context;
use anyhow::{Context as _, Result};
use engine::{BlockId, Input, LoadOptions, Model, Source, Vocabulary};
use std::collections::HashMap;
use std::path::Path;

/// One model's logits for the alphabet and the ends of a text, by the output so far.
#[derive(Debug)]
pub struct Table {
    /// The words in its vocabulary.
    pub words: Words,
    /// What else there is to know of its tokens.
    pub vocabulary: Vocabulary,
    /// Rows of its output matrix.
    pub rows: usize,
    logits: HashMap<Text, Vec<f32>>,
}

impl Table {
    /// Reads the model at `path`, after all texts of fewer than `length` tokens.
    ///
    /// # Errors
    /// Where it cannot be loaded or run, or lacks a word of the alphabet.
    pub fn read(path: &str, length: usize) -> Result<Self> {
        let source = Source::Files(Path::new(path).to_owned());
        let options = LoadOptions {
            batch_invariant: true,
            ..LoadOptions::default()
        };
        let mut loaded = engine::load(&source, options)?;
        let ids = ids(&loaded.vocabulary.tokenizer_json)?;
        let words = Words::find(&ids, &loaded.vocabulary.eos_ids)
            .context("the model lacks a token of the alphabet")?;
        let blocks = whole_context(&mut *loaded.model)?;
        let mut logits = HashMap::new();
        let mut texts = vec![Text::new()];
        for depth in 0..length {
            for text in &texts {
                let row = row(&mut *loaded.model, &blocks, &words, text)?;
                logits.insert(text.clone(), row);
            }
            if depth + 1 < length {
                texts = longer(&texts, &words.alphabet);
            }
        }
        Ok(Self {
            words,
            rows: loaded.model.shape().vocabulary_rows,
            vocabulary: loaded.vocabulary,
            logits,
        })
    }

    /// The ids of the alphabet and of the ends with their logits after `output`; none after a longer
    /// output than was read.
    pub fn logits(&self, output: &[TokenId]) -> Option<impl Iterator<Item = (TokenId, f32)>> {
        let logits = self.logits.get(output)?;
        Some(ids_read(&self.words).zip(logits.iter().copied()))
    }
}

fn longer(texts: &[Text], alphabet: &[TokenId]) -> Vec<Text> {
    let next = |text: &Text| {
        let text = text.clone();
        alphabet
            .iter()
            .map(move |token| [&text[..], &[*token]].concat())
    };
    texts.iter().flat_map(next).collect()
}

fn row(
    model: &mut dyn Model,
    blocks: &[BlockId],
    words: &Words,
    output: &[TokenId],
) -> Result<Vec<f32>> {
    let tokens = [&words.prompt[..], output].concat();
    let input = Input {
        blocks,
        start: 0,
        tokens: &tokens,
        wanted: 1,
    };
    let logits = model.forward(&[input])?;
    let row = logits.rows().next().context("a row of logits")?;
    Ok(ids_read(words).map(|id| row[id as usize]).collect())
}

fn ids_read(words: &Words) -> impl Iterator<Item = TokenId> {
    words.alphabet.iter().chain(&words.ends).copied()
}

/// The ids of all tokens, as the tokenizer's document states them.
fn ids(tokenizer_json: &[u8]) -> Result<HashMap<String, TokenId>> {
    let document: serde_json::Value = serde_json::from_slice(tokenizer_json)?;
    let vocabulary = document.pointer("/model/vocab").cloned();
    let vocabulary = vocabulary.context("the tokenizer states no vocabulary")?;
    Ok(serde_json::from_value(vocabulary)?)
}
