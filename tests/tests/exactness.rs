//! The exactness suite, small: the rules by enumeration, every rule and every option set once at least, the planted errors,
//! and byte equality. `cargo xtask exactness` runs all of it.

use anyhow::Result;
use proto::v1::VerificationRule;
use specdec_tests::drafts::Agreement;
use specdec_tests::exactness::table::{Line, Table, Verdict};
use specdec_tests::exactness::{
    Models, Plan, enumeration, equality_lines, law_lines, planted_lines,
};

/// Every option set under one rule, and under every rule those that it could go wrong with.
fn few(rule: VerificationRule, options: &str) -> bool {
    match options {
        "plain" | "penalties" | "grammar" => true,
        "top-k" => rule == VerificationRule::Block,
        "top-p" => rule == VerificationRule::Token,
        "min-p" => rule == VerificationRule::Coupled,
        _ => rule == VerificationRule::Block,
    }
}

fn plan() -> Plan {
    Plan {
        laws: few,
        tokens: 12,
        longest_draft: 4,
        agreements: vec![Agreement::Half],
        // Which rounds have drafts depends on timing, so each run is another sample of the ratio
        // rules: what fails here must not be chance.
        level: 1e-5,
        ..Plan::full(1024, 1)
    }
}

fn progress(what: &str) {
    eprintln!("{what}");
}

/// Fails unless every line is as it ought to be.
fn judge(lines: Vec<Line>) -> Table {
    let table = Table::judge(lines, plan().seed, plan().level);
    eprintln!("{table}");
    assert!(table.is_good(), "seed {}", table.seed);
    table
}

#[test]
fn the_rules_that_compare_leave_the_law_as_it_is_to_the_last_digits() {
    assert_eq!(judge(enumeration::lines(1)).lines.len(), 2);
}

#[tokio::test]
async fn what_is_written_has_the_targets_law_under_every_rule_and_option() -> Result<()> {
    let table = judge(law_lines(&plan(), &Models::write()?, &progress).await?);
    assert_eq!(table.lines.len(), 13);
    Ok(())
}

#[tokio::test]
async fn planted_errors_are_found() -> Result<()> {
    let table = judge(planted_lines(&plan(), &Models::write()?, &progress).await?);
    let verdicts = table.lines.iter().map(|line| line.verdict);
    assert!(
        verdicts
            .filter(|verdict| *verdict == Verdict::Caught)
            .count()
            >= 12
    );
    Ok(())
}

#[tokio::test]
async fn coupled_texts_are_those_of_plain_decoding() -> Result<()> {
    let table = judge(equality_lines(&plan(), &Models::write()?, &progress).await?);
    assert_eq!(table.lines.len(), 8, "every option set, and greedy");
    Ok(())
}
