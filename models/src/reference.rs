//! The text of `--model`, parsed.

use crate::ModelRef;
use std::path::PathBuf;
use std::str::FromStr;

/// The text names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelRefError {
    /// There is no text.
    #[error("the model's name is empty")]
    Empty,
    /// A hub reference without owner, repository, file or revision where one is announced.
    #[error("{0:?} is not of the form hf:owner/repo[/file][@revision]")]
    Hub(String),
}

impl FromStr for ModelRef {
    type Err = ModelRefError;

    /// Looks at the text alone: whether the file or the name exists is for [`crate::resolve`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ModelRefError::Empty);
        }
        if let Some(reference) = text.strip_prefix("hf:") {
            return parse_hub(reference).ok_or_else(|| ModelRefError::Hub(text.to_owned()));
        }
        if text == "synthetic" {
            return Ok(Self::Synthetic(String::new()));
        }
        if let Some(description) = text.strip_prefix("synthetic:") {
            return Ok(Self::Synthetic(description.to_owned()));
        }
        if text.contains(std::path::is_separator) || text.ends_with(".gguf") {
            return Ok(Self::Path(PathBuf::from(text)));
        }
        Ok(Self::Named(text.to_owned()))
    }
}

fn parse_hub(reference: &str) -> Option<ModelRef> {
    let (place, revision) = match reference.rsplit_once('@') {
        Some((place, revision)) => (place, Some(revision)),
        None => (reference, None),
    };
    let mut parts = place.splitn(3, '/');
    let (owner, repo, file) = (parts.next()?, parts.next()?, parts.next());
    let given = |part: &str| !part.is_empty();
    let all_given = [owner, repo]
        .into_iter()
        .chain(file)
        .chain(revision)
        .all(given);
    all_given.then(|| ModelRef::Hub {
        repo: format!("{owner}/{repo}"),
        file: file.map(str::to_owned),
        revision: revision.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(repo: &str, file: Option<&str>, revision: Option<&str>) -> ModelRef {
        ModelRef::Hub {
            repo: repo.to_owned(),
            file: file.map(str::to_owned),
            revision: revision.map(str::to_owned),
        }
    }

    #[test]
    fn each_form_is_recognised() {
        let cases = [
            ("./model", ModelRef::Path("./model".into())),
            ("model.gguf", ModelRef::Path("model.gguf".into())),
            ("a/synthetic", ModelRef::Path("a/synthetic".into())),
            ("synthetic", ModelRef::Synthetic(String::new())),
            (
                "synthetic:agreement=0.5,path=a/b",
                ModelRef::Synthetic("agreement=0.5,path=a/b".into()),
            ),
            ("qwen2.5-coder", ModelRef::Named("qwen2.5-coder".into())),
            ("hf:o/r", hub("o/r", None, None)),
            ("hf:o/r@main", hub("o/r", None, Some("main"))),
            ("hf:o/r/f.gguf", hub("o/r", Some("f.gguf"), None)),
            (
                "hf:o/r/sub/f.gguf@refs/pr/1",
                hub("o/r", Some("sub/f.gguf"), Some("refs/pr/1")),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        assert_eq!("".parse::<ModelRef>(), Err(ModelRefError::Empty));
        for text in [
            "hf:", "hf:o", "hf:o/", "hf:/r", "hf:o/r/", "hf:o/r@", "hf:@x",
        ] {
            assert_eq!(
                text.parse::<ModelRef>(),
                Err(ModelRefError::Hub(text.to_owned()))
            );
        }
    }
}
