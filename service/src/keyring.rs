//! Secrets that callers present: held as digests alone, and compared in constant time. Knows nothing
//! of where they come from.

use crate::config::ConfigError;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::path::Path;
use subtle::ConstantTimeEq as _;

/// The shortest token that a file may hold: what is shorter can be guessed.
const MIN_TOKEN_BYTES: usize = 16;

/// The SHA-256 of a secret.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    /// That of `secret`.
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Reads 64 hexadecimal digits; `None` where `text` is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = &text[2 * index..][..2];
            if digits.starts_with('+') {
                return None;
            }
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl PartialEq for Digest {
    /// Takes as long whatever differs.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Digest {}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(redacted)")
    }
}

/// Known secrets, each with its owner.
#[derive(Debug, Clone)]
pub struct Keyring<T>(Vec<(Digest, T)>);

impl<T> Keyring<T> {
    /// The owner of `secret`. Compares with every digest and each to its end, so that the time it
    /// takes does not say how near a guess was.
    pub fn find(&self, secret: &str) -> Option<&T> {
        let presented = Digest::of(secret);
        let mut owner = None;
        for (known, of) in &self.0 {
            if *known == presented {
                owner = Some(of);
            }
        }
        owner
    }
}

impl<T> FromIterator<(Digest, T)> for Keyring<T> {
    fn from_iter<I: IntoIterator<Item = (Digest, T)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

/// The tokens that a coordinator and its workers share. Never printed.
#[derive(Clone)]
pub struct Tokens(Vec<String>);

impl Tokens {
    /// Reads a file with one token a line; empty lines and lines that begin with `#` are left out.
    /// Whoever asks sends the first; whoever is asked takes any, so that tokens can be changed one
    /// process at a time.
    ///
    /// # Errors
    /// Names the file and the line, never what is in it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let wrong = |problem: String| ConfigError(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| wrong(format!("cannot read the tokens: {error}")))?;
        let lines = text.lines().map(str::trim).enumerate();
        let mut tokens = Vec::new();
        for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            if line.len() < MIN_TOKEN_BYTES || !is_sendable(line) {
                return Err(wrong(format!(
                    "line {}: a token is at least {MIN_TOKEN_BYTES} visible ASCII characters",
                    index + 1
                )));
            }
            tokens.push(line.to_owned());
        }
        if tokens.is_empty() {
            return Err(wrong("holds no token".to_owned()));
        }
        Ok(Self(tokens))
    }

    /// The one to send.
    pub fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// All of them, to be asked for.
    pub fn keyring(&self) -> Keyring<()> {
        self.0.iter().map(|token| (Digest::of(token), ())).collect()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({}, redacted)", self.0.len())
    }
}

/// True where `secret` can stand in a header.
pub fn is_sendable(secret: &str) -> bool {
    !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_found_by_the_whole_secret_alone() {
        let ring: Keyring<_> = [("first-secret", 1), ("second-secret", 2)]
            .map(|(secret, owner)| (Digest::of(secret), owner))
            .into_iter()
            .collect();
        assert_eq!(ring.find("first-secret"), Some(&1));
        assert_eq!(ring.find("second-secret"), Some(&2));
        for wrong in [
            "",
            "first",
            "first-secret ",
            "First-secret",
            "second-secreT",
        ] {
            assert_eq!(ring.find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_digest_reads_as_sha256sum_prints_it() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert!(Digest::parse(empty) == Some(Digest::of("")));
        assert!(Digest::parse(&empty.to_uppercase()) == Some(Digest::of("")));
        let signed = format!("+1{}", &empty[2..]);
        for wrong in ["", "e3", &empty[1..], &empty.replace('e', "g"), &signed] {
            assert!(Digest::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn nothing_that_is_printed_holds_a_secret() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("tokens");
        let token = "canary-0123456789abcdef";
        std::fs::write(&path, format!("# ours\n\n{token}\n")).expect("write");
        let tokens = Tokens::read(&path).expect("valid");
        assert_eq!(tokens.first(), token);
        let printed = format!("{tokens:?} {:?}", tokens.keyring());
        assert!(!printed.contains("canary"), "{printed}");
        assert!(!printed.contains("[1"), "nor its digest: {printed}");
        assert!(tokens.keyring().find(token).is_some());
    }

    #[test]
    fn a_wrong_token_file_is_refused_by_line_without_what_is_in_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("tokens");
        for (text, named) in [
            ("", "no token"),
            ("# nothing\n\n", "no token"),
            ("long-enough-0123456789\ncanary", "line 2"),
            ("canary with blanks in between", "line 1"),
            ("canary-canary-canär", "line 1"),
        ] {
            std::fs::write(&path, text).expect("write");
            let error = Tokens::read(&path).expect_err(text).0;
            assert!(error.contains(named), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
