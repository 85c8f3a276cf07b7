//! The file of clients' keys.

use super::{Identity, Limits};
use serde::Deserialize;
use service::config::ConfigError;
use service::keyring::{Digest, Keyring, is_sendable};
use std::collections::HashSet;
use std::fmt;
use std::path::Path;

/// The longest name of a key's owner: it stands in logs and metrics.
const MAX_NAME_BYTES: usize = 64;

/// The file, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    keys: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    key: Option<String>,
    sha256: Option<String>,
    running: Option<u32>,
    waiting: Option<u32>,
    tokens: Option<u64>,
}

/// Reads the keys in the TOML file at `path`: `[[keys]]` with a `name`, a `key` or its `sha256`, and
/// limits of its own where it has some. Two keys may have one name, so that one can replace the other.
///
/// # Errors
/// Names the file, the key's name or the line; never a key.
pub(crate) fn read_keys(path: &Path) -> Result<Keyring<Identity>, ConfigError> {
    let wrong = |problem: String| ConfigError(format!("--api-keys: {}: {problem}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("cannot read the keys: {error}")))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<Keyring<Identity>, String> {
    let file: File = toml::from_str(text).map_err(|error| described(&error, text))?;
    if file.keys.is_empty() {
        return Err("holds no [[keys]]".to_owned());
    }
    let mut seen = HashSet::new();
    let entries = file.keys.into_iter().map(|entry| {
        let (secret, identity) = entry.read()?;
        if seen.insert(secret.clone()) {
            Ok((secret.digest()?, identity))
        } else {
            Err(format!(
                "key `{}` is the same as an earlier one",
                identity.name
            ))
        }
    });
    entries.collect()
}

/// The parser's own message shows the line, which may hold a key. This one says where it is.
fn described(error: &toml::de::Error, text: &str) -> String {
    match error.span() {
        Some(span) => {
            let before = text.get(..span.start).unwrap_or(text);
            let line = 1 + before.matches('\n').count();
            format!("line {line}: is not as it must be: see docs/security.md")
        }
        None => "is not as it must be: see docs/security.md".to_owned(),
    }
}

/// A key, or what is known of it.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Secret {
    Key(String),
    Sha256(String),
}

impl Secret {
    fn digest(&self) -> Result<Digest, String> {
        match self {
            Self::Key(key) => Ok(Digest::of(key)),
            Self::Sha256(text) => {
                Digest::parse(text).ok_or_else(|| "sha256 is not 64 hexadecimal digits".to_owned())
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

impl Entry {
    fn read(self) -> Result<(Secret, Identity), String> {
        let name = self.name;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_of_name) {
            return Err(format!(
                "a name is 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_` or `-`"
            ));
        }
        let secret = match (self.key, self.sha256) {
            (Some(key), None) if is_sendable(&key) => Secret::Key(key),
            (Some(_), None) => {
                return Err(format!("key `{name}` is not of visible ASCII characters"));
            }
            (None, Some(digest)) => Secret::Sha256(digest.to_ascii_lowercase()),
            _ => return Err(format!("key `{name}` needs either `key` or `sha256`")),
        };
        let limits = Limits {
            running: self.running,
            waiting: self.waiting,
            tokens: self.tokens,
        };
        let name = name.into();
        Ok((secret, Identity { name, limits }))
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_with_their_owners_and_limits() {
        // The digest is of "test".
        let keys = parse(
            "[[keys]]\nname = 'ann'\nkey = 'sk-ann'\nrunning = 2\nwaiting = 3\ntokens = 5\n\
             [[keys]]\nname = 'bob'\n\
             sha256 = '9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08'\n\
             [[keys]]\nname = 'ann'\nkey = 'sk-ann-2'\n",
        )
        .expect("valid");
        let ann = keys.find("sk-ann").expect("known");
        let limits = Limits {
            running: Some(2),
            waiting: Some(3),
            tokens: Some(5),
        };
        assert_eq!((&*ann.name, ann.limits), ("ann", limits));
        let bob = keys.find("test").expect("known by its digest");
        assert_eq!((&*bob.name, bob.limits), ("bob", Limits::default()));
        assert_eq!(&*keys.find("sk-ann-2").expect("known").name, "ann");
        assert!(keys.find("sk-carl").is_none());
    }

    #[test]
    fn a_wrong_file_is_refused_and_what_is_wrong_named_without_the_key() {
        for (text, named) in [
            ("", "[[keys]]"),
            ("keys = 'canary'", "line 1"),
            ("[[keys]]\nname = 'a'\nkey = canary\n", "line 3"),
            ("[[keys]]\nname = 'a'\nky = 'canary'\n", "line 3"),
            ("[[keys]]\nkey = 'canary'\n", "line 1"),
            ("[[keys]]\nname = 'a'\n", "`a`"),
            (
                "[[keys]]\nname = 'a'\nkey = 'canary'\nsha256 = 'x'\n",
                "`a`",
            ),
            ("[[keys]]\nname = 'a'\nsha256 = 'canary'\n", "sha256"),
            ("[[keys]]\nname = 'a'\nkey = ''\n", "`a`"),
            ("[[keys]]\nname = 'a'\nkey = 'canary bird'\n", "`a`"),
            ("[[keys]]\nname = ''\nkey = 'canary'\n", "a name"),
            ("[[keys]]\nname = 'a/b'\nkey = 'canary'\n", "a name"),
            (
                "[[keys]]\nname = 'a'\nkey = 'canary'\n[[keys]]\nname = 'b'\nkey = 'canary'\n",
                "`b`",
            ),
            (
                "[[keys]]\nname = 'a'\nkey = 'canary'\nrunning = -1\n",
                "line 4",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(named), "{named} in {error} of {text}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
