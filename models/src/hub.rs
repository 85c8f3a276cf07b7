//! Models from the hub.

use crate::HubFile;
use crate::progress::Progress;
use crate::store::Source;
use crate::watch::{Beat, Patience, Sign, watched};
use anyhow::{Context as _, Result, bail};
use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A hub that cannot be reached must cost no more than seconds.
const PATIENCE: Patience = Patience {
    first: Duration::from_secs(8),
    next: Duration::from_secs(30),
};

/// The file that `hf:` names, from the hub's own cache, or fetched into it.
pub(crate) fn resolve(
    repo: String,
    file: Option<String>,
    revision: Option<String>,
) -> Result<PathBuf> {
    let name = repo.clone();
    let repo = match revision {
        Some(revision) => Repo::with_revision(repo, RepoType::Model, revision),
        None => Repo::model(repo),
    };
    let progress = Progress::new(&name, 0);
    let work = move |beat: &Beat| {
        let api = ApiBuilder::from_env().build()?.repo(repo.clone());
        let file = match file {
            Some(file) => file,
            None => only_gguf(api.info()?.siblings.into_iter().map(|file| file.rfilename))?,
        };
        match Cache::from_env().repo(repo).get(&file) {
            Some(path) => Ok(path),
            None => download(&api, &file, beat),
        }
    };
    watched(PATIENCE, work, |sign| show(&progress, sign))
        .with_context(|| format!("fetch {name} from the hub"))
}

/// The one GGUF file among `files`.
fn only_gguf(files: impl IntoIterator<Item = String>) -> Result<String> {
    let mut models: Vec<String> = files
        .into_iter()
        .filter(|file| file.ends_with(".gguf"))
        .collect();
    models.sort();
    match models.len() {
        0 => bail!("the repository holds no GGUF file"),
        1 => Ok(models.swap_remove(0)),
        _ => bail!(
            "the repository holds several GGUF files, name one: {}",
            models.join(", ")
        ),
    }
}

fn download(api: &ApiRepo, file: &str, beat: &Beat) -> Result<PathBuf> {
    Ok(api.download_with_progress(file, Download(beat))?)
}

/// Turns the hub client's progress into signs of life.
struct Download<'a>(&'a Beat);

impl hf_hub::api::Progress for Download<'_> {
    fn init(&mut self, size: usize, _filename: &str) {
        self.0.sign(Sign::Total(size as u64));
    }

    fn update(&mut self, size: usize) {
        self.0.sign(Sign::More(size as u64));
    }

    fn finish(&mut self) {}
}

fn show(progress: &Progress, sign: Sign) {
    match sign {
        Sign::Total(bytes) => progress.total(bytes),
        Sign::More(bytes) => progress.advance(bytes),
    }
}

impl Source for HubFile {
    fn name(&self) -> String {
        "the hub".to_owned()
    }

    /// Takes what the hub's own cache holds. What it must fetch goes through `scratch`, so that a
    /// model is not kept twice.
    fn copy_to(&self, out: &mut dyn Write, scratch: &Path, progress: &Progress) -> Result<()> {
        let repo = Repo::model(self.repo.clone());
        let file = self.file.clone();
        let cache = scratch.join("hub");
        let work = move |beat: &Beat| {
            let shared = Cache::from_env();
            if let Some(path) = shared.repo(repo.clone()).get(&file) {
                return Ok(path);
            }
            let api = ApiBuilder::from_env()
                .with_token(shared.token())
                .with_cache_dir(cache)
                .build()?
                .repo(repo);
            download(&api, &file, beat)
        };
        let path = watched(PATIENCE, work, |sign| show(progress, sign))?;
        std::io::copy(&mut File::open(path)?, out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_left_out_must_be_the_only_one() {
        let find = |names: &[&str]| only_gguf(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(find(&["README.md", "a.gguf"]).unwrap(), "a.gguf");
        assert!(find(&["README.md"]).is_err());
        let message = find(&["b.gguf", "a.gguf"]).unwrap_err().to_string();
        assert!(message.contains("a.gguf, b.gguf"), "{message}");
    }
}
