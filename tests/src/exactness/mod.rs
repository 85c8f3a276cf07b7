//! The exactness suite: that what three real processes write has the target's law under every rule
//! and every option, and is the target's text under the rule `coupled`.
//!
//! [`enumeration`] adds the rules up by calculation. [`options`] says what is asked for; [`tables`] and [`oracle`] say, in this process and from the
//! definitions alone, which law that is; [`laws`] and [`equality`] run the programs; [`statistics`]
//! compares; [`teeth`] shows on planted errors ([`biased`], [`liar`]) that the comparison would
//! find them; [`table`] says what came of it. `docs/exactness.md` is for readers of the table.

pub mod biased;
pub mod enumeration;
pub mod equality;
pub mod law;
pub mod laws;
pub mod liar;
pub mod options;
pub mod oracle;
pub mod statistics;
pub mod table;
pub mod tables;
pub mod teeth;

use crate::drafts::{Agreement, write_draft, write_target};
use anyhow::Result;
use options::option_sets;
use proto::v1::VerificationRule;
use table::{Line, Table};
use tempfile::TempDir;

/// Tokens of a text whose law is checked: the first, and a whole round of drafts and its bonus.
pub const LENGTH: usize = 5;

/// Tokens drafted per round.
pub const DRAFTED: usize = 3;

/// All rules.
pub const RULES: [VerificationRule; 3] = [
    VerificationRule::Coupled,
    VerificationRule::Token,
    VerificationRule::Block,
];

/// A rule's name in requests.
pub fn rule_name(rule: VerificationRule) -> &'static str {
    match rule {
        VerificationRule::Unspecified => "unspecified",
        VerificationRule::Coupled => "coupled",
        VerificationRule::Token => "token",
        VerificationRule::Block => "block",
    }
}

/// How much is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Texts per line that is judged by a statistic.
    pub samples: u64,
    /// What all seeds are made from.
    pub seed: u64,
    /// With which probability a run may fail though everything is exact.
    pub level: f64,
    /// Which pairs of a rule and an option set, by its name, have their law checked.
    pub laws: fn(VerificationRule, &str) -> bool,
    /// Tokens of the texts that are compared byte by byte.
    pub tokens: u32,
    /// Their longest draft.
    pub longest_draft: u32,
    /// The drafts that they are compared over.
    pub agreements: Vec<Agreement>,
}

impl Plan {
    /// Everything.
    pub fn full(samples: u64, seed: u64) -> Self {
        Self {
            samples,
            seed,
            level: 0.01,
            laws: |_, _| true,
            tokens: 24,
            longest_draft: 8,
            agreements: vec![Agreement::Always, Agreement::Half, Agreement::Never],
        }
    }
}

/// A target and a draft, as files and as tables.
#[derive(Debug)]
pub struct Models {
    folder: TempDir,
    /// The target's file.
    pub target_path: String,
    /// The draft's file.
    pub draft_path: String,
    /// The target's logits.
    pub target: tables::Table,
    /// The draft's.
    pub draft: tables::Table,
}

impl Models {
    /// Writes a pair of tiny models whose laws differ, and reads their tables.
    ///
    /// # Errors
    /// Where they cannot be written or read.
    pub fn write() -> Result<Self> {
        let folder = TempDir::with_prefix("specdec-exactness-")?;
        let target_path = write_target(folder.path())?;
        let draft_path = write_draft(folder.path(), Agreement::Half)?;
        Ok(Self {
            target: tables::Table::read(&target_path, LENGTH)?,
            draft: tables::Table::read(&draft_path, LENGTH)?,
            folder,
            target_path,
            draft_path,
        })
    }

    /// Writes another draft for the same target; returns its path.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write_draft(&self, agreement: Agreement) -> Result<String> {
        write_draft(self.folder.path(), agreement)
    }
}

/// Runs everything that `plan` says; tells `progress` what is next.
///
/// # Errors
/// Where a program does not come up or a request fails; what is merely wrong is in the table.
pub async fn run(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Table> {
    progress("reading the models' own laws");
    let models = Models::write()?;
    progress("enumeration: all paths of small random models");
    let mut lines = enumeration::lines(plan.seed);
    lines.extend(law_lines(plan, &models, progress).await?);
    lines.extend(planted_lines(plan, &models, progress).await?);
    lines.extend(equality_lines(plan, &models, progress).await?);
    Ok(Table::judge(lines, plan.seed, plan.level))
}

/// The law of every rule under every option set.
///
/// # Errors
/// As [`run`].
pub async fn law_lines(plan: &Plan, models: &Models, progress: &dyn Fn(&str)) -> Result<Vec<Line>> {
    let drafts = [models.draft_path.clone()];
    let cluster = laws::start(models, &drafts, &[]).await?;
    let client = cluster.client().await?;
    let sets = option_sets(&models.target.words);
    let mut lines = Vec::new();
    for rule in RULES {
        for set in sets.iter().filter(|set| (plan.laws)(rule, set.name)) {
            progress(&format!("law: {}, {}", rule_name(rule), set.name));
            let sampling = laws::Sampling {
                samples: plan.samples,
                first_seed: seed_of(plan.seed, lines.len()),
            };
            lines.push(laws::line(&client, &models.target, rule, set, sampling).await?);
        }
    }
    Ok(lines)
}

/// Errors planted in the loop of this process, and in a draft worker of our own.
///
/// # Errors
/// As [`run`].
pub async fn planted_lines(
    plan: &Plan,
    models: &Models,
    progress: &dyn Fn(&str),
) -> Result<Vec<Line>> {
    progress("teeth: errors planted in a loop of this process");
    let sets = option_sets(&models.target.words);
    let tables = (&models.target, &models.draft);
    let mut lines = teeth::lines(tables, &sets, plan.samples, plan.seed)?;
    let sampling = laws::Sampling {
        samples: plan.samples,
        first_seed: seed_of(plan.seed, PLANTED_LINE),
    };
    for set in sets.iter().filter(|set| set.name == "plain") {
        lines.extend(laws::lying_draft(models, set, sampling, progress).await?);
    }
    Ok(lines)
}

/// Texts under the rule `coupled` against plain decoding, for every option set and greedily.
///
/// # Errors
/// As [`run`].
pub async fn equality_lines(
    plan: &Plan,
    models: &Models,
    progress: &dyn Fn(&str),
) -> Result<Vec<Line>> {
    let mut sets = vec![equality::greedy()];
    sets.extend(option_sets(&models.target.words));
    let extent = equality::Extent {
        tokens: plan.tokens,
        longest_draft: plan.longest_draft,
        seed: plan.seed,
    };
    let mut lines = Vec::new();
    for agreement in &plan.agreements {
        lines.extend(equality::lines(models, &sets, *agreement, extent, progress).await?);
    }
    Ok(lines)
}

/// Where the seeds of lines with planted errors begin: behind those of all others.
const PLANTED_LINE: usize = 1000;

/// The first seed of a line: far from those of other lines.
fn seed_of(seed: u64, line: usize) -> u64 {
    seed.wrapping_add((line as u64 + 1) << 32)
}
