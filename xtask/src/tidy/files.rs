//! The rules about files.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The longest source file, in lines. Longer ones hold more than one thing.
const MAX_LINES: usize = 500;
/// Generated code, and the one place that declares it.
const GENERATED: [&str; 2] = ["proto/src/gen", "proto/src/lib.rs"];
/// Folders that are not part of the source.
const SKIPPED: [&str; 2] = [".git", "target"];

/// Checks every file under `root`.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    let places = machine_places(root);
    for path in walk(root)? {
        let name = path.strip_prefix(root)?;
        // Files that are not text have no lines.
        let Ok(text) = String::from_utf8(fs::read(&path)?) else {
            continue;
        };
        let name = name.to_string_lossy().replace('\\', "/");
        violations.extend(check_places(&name, &text, &places));
        let generated = GENERATED.iter().any(|prefix| name.starts_with(prefix));
        if name.ends_with(".rs") && !generated {
            violations.extend(check_source(&name, &text));
        }
    }
    Ok(violations)
}

/// Folders of this machine, which mean nothing on another: the checkout, the folder around it and
/// the user's home.
fn machine_places(root: &Path) -> Vec<String> {
    let home = std::env::home_dir();
    [Some(root), root.parent(), home.as_deref()]
        .into_iter()
        .flatten()
        .filter(|place| place.parent().is_some())
        .map(|place| format!("{}/", place.display()))
        .collect()
}

fn check_places(name: &str, text: &str, places: &[String]) -> Option<String> {
    let line = text
        .lines()
        .position(|line| places.iter().any(|place| line.contains(place)))?;
    Some(format!("{name}:{}: names a path of this machine", line + 1))
}

fn check_source(name: &str, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        violations.push(format!("{name}: {lines} lines, at most {MAX_LINES}"));
    }
    let silent = |line: &str| {
        let line = line.trim_start();
        line.starts_with("#[allow(") || line.starts_with("#![allow(")
    };
    if let Some(line) = text.lines().position(silent) {
        violations.push(format!(
            "{name}:{}: expect a lint with a reason instead of allowing it",
            line + 1
        ));
    }
    violations
}

fn walk(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() {
                files.push(entry.path());
            } else if kind.is_dir() && !SKIPPED.iter().any(|name| entry.file_name() == *name) {
                folders.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_silenced_lints_are_found() {
        assert!(check_source("a.rs", &"\n".repeat(MAX_LINES)).is_empty());
        let long = check_source("a.rs", &"\n".repeat(MAX_LINES + 1));
        assert_eq!(long, ["a.rs: 501 lines, at most 500"]);
        let text = "fn a() {\n    #[allow(dead_code)]\n    let b = 1;\n}\n";
        let silenced = check_source("a.rs", text);
        assert!(silenced[0].starts_with("a.rs:2:"), "{silenced:?}");
    }

    #[test]
    fn paths_of_this_machine_are_found_in_any_text_file() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("checkout");
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::create_dir_all(root.join("target")).unwrap();
        let text = format!("see\n{}/docs/b.md\n", root.display());
        fs::write(root.join("docs/a.md"), &text).unwrap();
        fs::write(root.join("target/a.d"), &text).unwrap();
        fs::write(root.join("docs/b.bin"), b"\xff").unwrap();
        assert_eq!(
            check(&root).unwrap(),
            ["docs/a.md:2: names a path of this machine"]
        );
    }
}
