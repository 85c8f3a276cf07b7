//! Which ids are frequent: as a file says, or as the tokenizer's own making does.
//!
//! A byte-pair vocabulary is built by merging what is most frequent, again and again: the earlier
//! the merge that makes a token, the more frequent the token was.

use crate::{LoadError, Vocabulary};
use serde::Deserialize;
use speculation::TokenId;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Files are refused beyond this: the largest vocabularies have 260,000 ids.
const MAX_FILE: u64 = 64 << 20;

/// The most frequent ids of a vocabulary.
///
/// Special tokens and those of single bytes are always among them: a text must be able to end, and
/// every text must be possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrequentIds {
    /// How many; more where more are always among them.
    pub count: usize,
    /// Lists the ids: one a line, the most frequent first, or each with how often it appeared,
    /// after a tab and in any order. Lines that are empty or begin with `#` are passed over. Without
    /// a file, and where it lists too few, the tokenizer's merges tell.
    pub file: Option<PathBuf>,
}

impl FrequentIds {
    /// The ids, in no order.
    pub(super) fn choose(&self, vocabulary: &Vocabulary) -> Result<Vec<TokenId>, LoadError> {
        let document = Document::parse(vocabulary)?;
        let listed = match &self.file {
            Some(path) => read(path, vocabulary.size)?,
            None => Vec::new(),
        };
        let mut kept = document.always(vocabulary);
        let mut seen: HashSet<TokenId> = kept.iter().copied().collect();
        let ranked = listed.into_iter().chain(document.ranked(vocabulary.size));
        let others = ranked.filter(|id| seen.insert(*id));
        let missing = self.count.saturating_sub(kept.len());
        kept.extend(others.take(missing));
        Ok(kept)
    }
}

/// The ids that the file lists, the most frequent first.
fn read(path: &Path, size: usize) -> Result<Vec<TokenId>, LoadError> {
    let text = read_text(path).map_err(|error| error.to_string());
    let listed = text.and_then(|text| parse(&text, size));
    listed.map_err(|detail| LoadError::FrequentIds {
        path: path.to_owned(),
        detail,
    })
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)?;
    if length as u64 > MAX_FILE {
        return Err(io::Error::other(format!("has more than {MAX_FILE} bytes")));
    }
    Ok(text)
}

fn parse(text: &str, size: usize) -> Result<Vec<TokenId>, String> {
    let mut counted: Option<bool> = None;
    let mut first_lines = HashMap::new();
    let mut entries = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| {
            let text: String = text.chars().take(40).collect();
            format!("line {line}: {text:?} {what}")
        };
        let (id, count) = match text.split_once('\t') {
            Some((id, count)) => (id, Some(count)),
            None => (text, None),
        };
        let id: TokenId = id.trim().parse().map_err(|_| wrong("is no token id"))?;
        if id as usize >= size {
            return Err(wrong(&format!("is beyond the tokenizer's {size} tokens")));
        }
        let count = count.map(|count| count.trim().parse::<u64>());
        let count = count
            .transpose()
            .map_err(|_| wrong("has no whole number as its count"))?;
        if *counted.get_or_insert(count.is_some()) != count.is_some() {
            return Err(wrong(
                "has a count where others have none, or none where others have one",
            ));
        }
        if let Some(first) = first_lines.insert(id, line) {
            return Err(wrong(&format!("appears before, in line {first}")));
        }
        entries.push((count.unwrap_or(0), id));
    }
    if entries.is_empty() {
        return Err("lists no token ids".to_owned());
    }
    // Stable: without counts, and among equal ones, the order is that of the lines.
    entries.sort_by_key(|entry| Reverse(entry.0));
    Ok(entries.into_iter().map(|entry| entry.1).collect())
}

/// What a `tokenizer.json` says of how its tokens came to be.
#[derive(Deserialize)]
struct Document {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct Model {
    vocab: Tokens,
    #[serde(default)]
    merges: Vec<Merge>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Tokens {
    Ids(HashMap<String, TokenId>),
    /// With the logarithm of their probability, in the order of the ids.
    Scored(Vec<(String, f64)>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    /// With a space between.
    Joined(String),
}

#[derive(Deserialize)]
struct AddedToken {
    id: TokenId,
    #[serde(default)]
    special: bool,
}

impl Document {
    fn parse(vocabulary: &Vocabulary) -> Result<Self, LoadError> {
        serde_json::from_slice(&vocabulary.tokenizer_json).map_err(|error| LoadError::Invalid {
            path: "tokenizer.json".into(),
            detail: format!("does not say how frequent its tokens are: {error:.200}"),
        })
    }

    /// The ids that are kept whatever their rank: special ones, those that end a text, single bytes.
    fn always(&self, vocabulary: &Vocabulary) -> Vec<TokenId> {
        let special = self.added_tokens.iter().filter(|token| token.special);
        let bytes = self
            .tokens()
            .into_iter()
            .filter(|(token, _)| is_byte(token));
        let mut ids: Vec<TokenId> = special
            .map(|token| token.id)
            .chain(vocabulary.eos_ids.iter().copied())
            .chain(bytes.map(|(_, id)| id))
            .filter(|id| (*id as usize) < vocabulary.size)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// All ids, the most frequent first: by score, or by the rank of the merge that makes the token,
    /// then those that no merge makes. On a tie the lower id comes first.
    fn ranked(&self, size: usize) -> Vec<TokenId> {
        let mut ids: Vec<(f64, TokenId)> = match &self.model.vocab {
            Tokens::Scored(tokens) => {
                let scores = tokens.iter().map(|(_, score)| -score);
                scores.zip(0..).collect()
            }
            Tokens::Ids(tokens) => {
                let ranks = self.merge_ranks();
                let rank =
                    |token: &str| ranks.get(token).map_or(f64::INFINITY, |rank| *rank as f64);
                tokens
                    .iter()
                    .map(|(token, id)| (rank(token), *id))
                    .collect()
            }
        };
        ids.retain(|entry| (entry.1 as usize) < size);
        ids.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        ids.into_iter().map(|entry| entry.1).collect()
    }

    fn tokens(&self) -> Vec<(&str, TokenId)> {
        match &self.model.vocab {
            Tokens::Ids(tokens) => tokens
                .iter()
                .map(|(token, id)| (token.as_str(), *id))
                .collect(),
            Tokens::Scored(tokens) => tokens
                .iter()
                .map(|(token, _)| token.as_str())
                .zip(0..)
                .collect(),
        }
    }

    fn merge_ranks(&self) -> HashMap<String, usize> {
        let mut ranks = HashMap::new();
        for (rank, merge) in self.model.merges.iter().enumerate() {
            let joined = match merge {
                Merge::Pair(left, right) => format!("{left}{right}"),
                Merge::Joined(text) => text.replacen(' ', "", 1),
            };
            ranks.entry(joined).or_insert(rank);
        }
        ranks
    }
}

/// A token of one byte: `<0x0A>`, or a letter of the alphabet in which byte-level vocabularies write
/// bytes, which is Latin-1 and a little more.
fn is_byte(token: &str) -> bool {
    let mut letters = token.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => u32::from(letter) < BYTE_LETTERS,
        _ => token.len() == 6 && token.starts_with("<0x") && token.ends_with('>'),
    }
}

/// Letters for all 256 bytes come before this.
const BYTE_LETTERS: u32 = 0x144;

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(tokenizer: &str, size: usize) -> Vocabulary {
        Vocabulary {
            tokenizer_json: tokenizer.as_bytes().to_vec(),
            size,
            fingerprint: String::new(),
            eos_ids: vec![6],
            bos_id: None,
            chat_template: String::new(),
        }
    }

    /// Ids 0 and 1 are bytes; the merges make 4 first, then 2, 5 and 3; 6 ends a text.
    const MERGED: &str = r#"{"added_tokens": [{"id": 7, "special": true}, {"id": 8, "special": false}],
        "model": {"vocab": {"a": 0, "b": 1, "aba": 2, "abab": 3, "ab": 4, "bb": 5, "<e>": 6, "<s>": 7,
        "<tool>": 8}, "merges": [["a", "b"], "ab a", "b b", "ab ab"]}}"#;

    fn chosen(count: usize, file: Option<&Path>) -> Vec<TokenId> {
        let file = file.map(Path::to_owned);
        let frequent = FrequentIds { count, file };
        let mut ids = frequent.choose(&vocabulary(MERGED, 9)).expect("valid");
        ids.sort_unstable();
        ids
    }

    #[test]
    fn early_merges_come_first_and_bytes_and_special_tokens_always() {
        assert_eq!(chosen(1, None), [0, 1, 6, 7]);
        assert_eq!(chosen(5, None), [0, 1, 4, 6, 7]);
        assert_eq!(chosen(6, None), [0, 1, 2, 4, 6, 7]);
        assert_eq!(chosen(7, None), [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!(chosen(100, None), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_file_tells_before_merges_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("frequent.txt");
        std::fs::write(&path, "# ours\n3\n\n0\n8\n").expect("written");
        assert_eq!(chosen(5, Some(&path)), [0, 1, 3, 6, 7]);
        assert_eq!(chosen(6, Some(&path)), [0, 1, 3, 6, 7, 8]);
        assert_eq!(
            chosen(7, Some(&path)),
            [0, 1, 3, 4, 6, 7, 8],
            "filled by merges"
        );
        std::fs::write(&path, "3\t5\n8\t700\n").expect("written");
        assert_eq!(chosen(5, Some(&path)), [0, 1, 6, 7, 8], "by count");
    }

    #[test]
    fn scores_rank_where_there_are_no_merges() {
        let scored = r#"{"model": {"vocab": [["<0x00>", -9.0], ["abc", -3.0], ["de", -2.0], ["fgh", -4.0]]}}"#;
        let frequent = FrequentIds {
            count: 3,
            file: None,
        };
        let mut vocabulary = vocabulary(scored, 4);
        vocabulary.eos_ids.clear();
        assert_eq!(frequent.choose(&vocabulary).expect("valid"), [0, 2, 1]);
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        for (text, named) in [
            ("1\n2\nthree\n", "line 3: \"three\" is no token id"),
            ("1\n-2\n", "line 2: \"-2\" is no token id"),
            (
                "# x\n9\n",
                "line 2: \"9\" is beyond the tokenizer's 9 tokens",
            ),
            ("1\n2\n1\n", "line 3: \"1\" appears before, in line 1"),
            ("1\t5\n2\n", "line 2: \"2\" has a count where"),
            (
                "1\t5\n2\tmany\n",
                "line 2: \"2\\tmany\" has no whole number",
            ),
            ("\n# nothing\n", "lists no token ids"),
        ] {
            let refusal = parse(text, 9).expect_err("wrong");
            assert!(refusal.starts_with(named), "{refusal} for {text:?}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("frequent.txt");
        std::fs::write(&path, "1\n77\n").expect("written");
        let frequent = FrequentIds {
            count: 3,
            file: Some(path.clone()),
        };
        let error = frequent
            .choose(&vocabulary(MERGED, 9))
            .expect_err("wrong")
            .to_string();
        assert!(
            error.contains("frequent.txt") && error.contains("line 2"),
            "{error}"
        );
    }
}
