//! What is asked: Spec-Bench's questions, or the project's own prompts.

use crate::bench::prompts::PROMPTS;
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// Spec-Bench's six groups, in the order of its tables.
pub(super) const GROUPS: [&str; 6] = [
    "conversation",
    "translation",
    "summarization",
    "qa",
    "math_reasoning",
    "rag",
];

/// The categories of the multi-turn questions, which are one group.
const CONVERSATION: [&str; 8] = [
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
];

/// The group of the file to edit.
pub(super) const EDIT: &str = "edit a file";

/// The longest prompt that is taken, in bytes: some 1200 tokens, which prefill in seconds.
const MAX_LEN: usize = 4500;

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) group: String,
    pub(super) text: String,
}

/// A line of Spec-Bench's file.
#[derive(Debug, Deserialize)]
struct Line {
    category: String,
    turns: Vec<String>,
}

impl Question {
    pub(super) fn is_edit(&self) -> bool {
        self.group == EDIT
    }
}

/// `per_group` questions of each group of the file at `path`: first turns, spread over the group.
pub(super) fn of_spec_bench(path: &Path, per_group: usize) -> Result<Vec<Question>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    select(&text, per_group).with_context(|| path.display().to_string())
}

/// `per_group` of the project's own prompts of each kind, of which there are four.
pub(super) fn of_the_project(per_group: usize) -> Vec<Question> {
    let some = |(kind, prompts): &(&str, [&str; 4])| -> Vec<Question> {
        let prompts = prompts.iter().take(per_group);
        prompts
            .map(|prompt| Question {
                group: (*kind).to_owned(),
                text: (*prompt).to_owned(),
            })
            .collect()
    };
    PROMPTS.iter().flat_map(some).collect()
}

fn select(text: &str, per_group: usize) -> Result<Vec<Question>> {
    let questions: Vec<Question> = text.lines().map(parse).collect::<Result<_>>()?;
    let mut selected = Vec::new();
    for group in GROUPS {
        let fitting: Vec<_> = questions
            .iter()
            .filter(|question| question.group == group && question.text.len() <= MAX_LEN)
            .collect();
        let found = fitting.len();
        ensure!(
            found >= per_group,
            "{found} questions of the group {group} fit, not {per_group}"
        );
        selected
            .extend((0..per_group).map(|i| fitting[(2 * i + 1) * found / (2 * per_group)].clone()));
    }
    Ok(selected)
}

fn parse(line: &str) -> Result<Question> {
    let Line { category, turns } = serde_json::from_str(line)?;
    let group = match category.as_str() {
        category if CONVERSATION.contains(&category) => GROUPS[0].to_owned(),
        category if GROUPS.contains(&category) => category.to_owned(),
        category => bail!("there is no category {category}"),
    };
    let text = turns.into_iter().next().context("a question has no turn")?;
    Ok(Question { group, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(categories: &[&str], each: usize) -> String {
        let line = |category: &str, i| {
            format!(
                "{{\"question_id\": 1, \"category\": \"{category}\", \"turns\": [\"{category} {i}\", \"and then?\"]}}\n"
            )
        };
        let lines = categories
            .iter()
            .flat_map(|category| (0..each).map(move |i| line(category, i)));
        lines.collect()
    }

    #[test]
    fn first_turns_are_spread_over_each_group_in_the_order_of_the_tables() {
        let text = file(&["writing", "stem"], 4) + &file(&["rag", "qa", "translation"], 9);
        let text = text + &file(&["math_reasoning", "summarization"], 9);
        let selected = select(&text, 2).unwrap();
        let texts: Vec<_> = selected
            .iter()
            .map(|question| question.text.as_str())
            .collect();
        assert_eq!(
            texts[..4],
            ["writing 2", "stem 2", "translation 2", "translation 6"]
        );
        assert_eq!(selected.len(), 12);
        assert!(
            selected
                .chunks(2)
                .zip(GROUPS)
                .all(|(two, group)| two.iter().all(|one| one.group == group))
        );
    }

    #[test]
    fn too_few_questions_and_unknown_categories_are_refused() {
        let error = select(&file(&["writing"], 3), 2).unwrap_err().to_string();
        assert!(error.contains("translation"), "{error}");
        let error = select(&file(&["poetry"], 3), 1).unwrap_err().to_string();
        assert!(error.contains("poetry"), "{error}");
    }
}
