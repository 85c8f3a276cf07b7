//! Values that a body may write in several ways.

use serde::de::{self, Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use utoipa::ToSchema;

/// The deepest that a JSON value in a body may nest: what its readers take.
const MAX_DEPTH: usize = 100;

/// A value that is no part of the service: only null is taken.
#[derive(Debug)]
pub(super) enum Unsupported {}

impl<'de> Deserialize<'de> for Unsupported {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("is not supported"))
    }
}

/// A JSON value that is passed on as it was written: a schema's properties keep their order.
#[derive(Debug)]
pub(super) struct Json(pub(super) String);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if depth(raw.get()) > MAX_DEPTH {
            let message = format!("must not be nested more than {MAX_DEPTH} deep");
            return Err(D::Error::custom(message));
        }
        Ok(Self(Box::<str>::from(raw).into_string()))
    }
}

/// How deep the arrays and objects of `json`, which is valid, nest.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A seed: an integer of 64 bits, with a sign or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed(pub(super) u64);

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Integer;
        impl Visitor<'_> for Integer {
            type Value = Seed;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an integer of 64 bits")
            }

            fn visit_u64<E: de::Error>(self, seed: u64) -> Result<Seed, E> {
                Ok(Seed(seed))
            }

            fn visit_i64<E: de::Error>(self, seed: i64) -> Result<Seed, E> {
                Ok(Seed(seed.cast_unsigned()))
            }
        }
        deserializer.deserialize_any(Integer)
    }
}

/// A string, or a list of strings.
#[derive(Debug, PartialEq, Eq, ToSchema)]
#[serde(untagged)]
pub(super) enum Strings {
    /// A string.
    One(String),
    /// A list.
    Many(Vec<String>),
}

impl From<Strings> for Vec<String> {
    fn from(strings: Strings) -> Self {
        match strings {
            Strings::One(one) => vec![one],
            Strings::Many(many) => many,
        }
    }
}

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Strings;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, one: &str) -> Result<Strings, E> {
                Ok(Strings::One(one.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, many: A) -> Result<Strings, A::Error> {
                rest(Vec::new(), many).map(Strings::Many)
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// What a completion continues.
#[derive(Debug, PartialEq, Eq, ToSchema)]
#[serde(untagged)]
pub(super) enum Prompts {
    /// One text.
    Text(String),
    /// Several.
    Texts(Vec<String>),
    /// One list of token ids.
    Ids(Vec<u32>),
    /// Several.
    ManyIds(Vec<Vec<u32>>),
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyPrompt)
    }
}

/// Reads [`Prompts`]: the first entry of a list says what the others must be.
struct AnyPrompt;

impl<'de> Visitor<'de> for AnyPrompt {
    type Value = Prompts;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a list of strings, a list of token ids, or a list of those")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        Ok(match list.next_element()? {
            // Not a prompt, and refused as one without tokens.
            None => Prompts::Ids(Vec::new()),
            Some(Entry::Text(first)) => Prompts::Texts(rest(vec![first], list)?),
            Some(Entry::Id(first)) => Prompts::Ids(rest(vec![first], list)?),
            Some(Entry::Ids(first)) => Prompts::ManyIds(rest(vec![first], list)?),
        })
    }
}

/// An entry of a list of prompts, or of a prompt.
enum Entry {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyEntry;
        impl<'de> Visitor<'de> for AnyEntry {
            type Value = Entry;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string, a token id, or a list of token ids")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Entry, E> {
                Ok(Entry::Text(text.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Entry, E> {
                let id = u32::try_from(id);
                id.map(Entry::Id)
                    .map_err(|_| E::custom("no token id is so large"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, ids: A) -> Result<Entry, A::Error> {
                rest(Vec::new(), ids).map(Entry::Ids)
            }
        }
        deserializer.deserialize_any(AnyEntry)
    }
}

/// `first` and what follows it.
fn rest<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    mut first: Vec<T>,
    mut list: A,
) -> Result<Vec<T>, A::Error> {
    while let Some(next) = list.next_element()? {
        first.push(next);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(json: &str) -> Option<Prompts> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn a_prompt_has_four_forms_and_no_mixture() {
        assert_eq!(prompts(r#""a""#), Some(Prompts::Text("a".into())));
        let texts = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(prompts(r#"["a", "b"]"#), Some(Prompts::Texts(texts)));
        assert_eq!(prompts("[1, 2]"), Some(Prompts::Ids(vec![1, 2])));
        let ids = vec![vec![1], vec![]];
        assert_eq!(prompts("[[1], []]"), Some(Prompts::ManyIds(ids)));
        assert_eq!(prompts("[]"), Some(Prompts::Ids(vec![])));
        for wrong in [
            r#"["a", 1]"#,
            "[1, [2]]",
            "[-1]",
            "[1.5]",
            "[4294967296]",
            "3",
            "{}",
        ] {
            assert_eq!(prompts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_negative_seed_is_a_seed_of_its_own() {
        let seed = |json| serde_json::from_str::<Seed>(json).ok().map(|seed| seed.0);
        assert_eq!(seed("7"), Some(7));
        assert_eq!(seed("-1"), Some(u64::MAX));
        assert_eq!(seed("1.5"), None);
        assert_eq!(seed(r#""7""#), None);
    }

    #[test]
    fn a_json_value_keeps_its_order_and_is_not_too_deep() {
        let json = |json: &str| serde_json::from_str::<Json>(json).map(|json| json.0);
        assert_eq!(json(r#"{"b": 1,"a":2}"#).unwrap(), r#"{"b": 1,"a":2}"#);
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(json(&nested(MAX_DEPTH)).is_ok());
        assert!(json(&nested(MAX_DEPTH + 1)).is_err());
        assert!(json(&format!(r#""\"{}""#, "[".repeat(500))).is_ok());
    }
}
