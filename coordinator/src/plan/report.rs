//! How a plan is told.

use serde_json::{Value, json};
use speculation::planner::{Bound, Choice, Planned, System, Way};
use std::io::{Result, Write};

/// For people.
pub(super) fn table(out: &mut impl Write, system: &System, planned: &Planned) -> Result<()> {
    summary(out, system, planned)?;
    writeln!(out)?;
    writeln!(
        out,
        "  {:>6}  {:>12}  {:>10}  {:>8}  {:>9}  {:>7}  bound by",
        "drafts", "tokens/round", "tokens/s", "of plain", "ms/token", "workers"
    )?;
    let plain = planned.plain().tokens_per_second;
    for choice in &planned.by_length {
        let mark = if choice == planned.best() { '*' } else { ' ' };
        writeln!(
            out,
            "{mark} {:>6}  {:>12.2}  {:>10.1}  {:>7.2}x  {:>9.2}  {:>7}  {}",
            choice.draft_tokens,
            choice.tokens_per_round,
            choice.tokens_per_second,
            choice.tokens_per_second / plain,
            choice.seconds_per_token * 1e3,
            choice.draft_workers,
            bound(choice.binding),
        )?;
    }
    Ok(())
}

fn summary(out: &mut impl Write, system: &System, planned: &Planned) -> Result<()> {
    let (best, plain) = (planned.best(), planned.plain());
    let mut line = |name: &str, text: String| writeln!(out, "{name:<18} {text}");
    let length = match best.draft_tokens {
        0 => "0: plain decoding is best".to_owned(),
        k => format!("{k}, {}", way(best.way)),
    };
    line("draft tokens", length)?;
    line("tokens per second", against(best.tokens_per_second, plain))?;
    line(
        "time per token",
        format!(
            "{:.2} ms, plain {:.2} ms",
            best.seconds_per_token * 1e3,
            plain.seconds_per_token * 1e3
        ),
    )?;
    let workers = match (planned.draft_workers, system.draft_workers) {
        (0, _) => "none needed".to_owned(),
        (workers, None) => format!("{workers} needed"),
        (workers, Some(_)) => format!("{workers}, of which {} are kept busy", best.draft_workers),
    };
    line("draft workers", workers)?;
    line("bound by", explained(best))?;
    if let Some(ahead) = planned.ahead {
        let candidates = match ahead.width {
            1 => "the draft's own choice".to_owned(),
            width => format!("each of {width} candidates a position"),
        };
        let text = format!(
            "{}; {} tokens, then {} ahead after {candidates}",
            against(ahead.tokens_per_second, plain),
            ahead.draft_tokens,
            ahead.ahead_tokens,
        );
        line("drafting ahead", text)?;
    }
    Ok(())
}

fn against(rate: f64, plain: &Choice) -> String {
    let plain = plain.tokens_per_second;
    format!("{rate:.1}, plain {plain:.1}: {:.2}x", rate / plain)
}

fn explained(choice: &Choice) -> String {
    let (what, most) = match choice.binding {
        Bound::Target => ("the target, verifying all the time", choice.bounds.target),
        Bound::Drafts => (
            "the draft workers, drafting all the time",
            choice.bounds.drafts,
        ),
        Bound::Concurrency => ("the number of requests", choice.bounds.concurrency),
    };
    format!("{what}: at most {most:.1} tokens per second")
}

fn bound(bound: Bound) -> &'static str {
    match bound {
        Bound::Target => "target",
        Bound::Drafts => "drafts",
        Bound::Concurrency => "requests",
    }
}

fn way(way: Way) -> &'static str {
    match way {
        Way::OneBatch => "all requests in one batch",
        Way::TwoBatches => "two batches that alternate",
        Way::Continuous => "batches of whatever is ready",
    }
}

/// For programs.
pub(super) fn json(out: &mut impl Write, system: &System, planned: &Planned) -> Result<()> {
    let ahead = planned.ahead.map(|ahead| {
        json!({
            "draft_tokens": ahead.draft_tokens,
            "ahead_tokens": ahead.ahead_tokens,
            "width": ahead.width,
            "tokens_per_second": ahead.tokens_per_second,
            "ms_per_token": ahead.seconds_per_token * 1e3,
        })
    });
    let by_length: Vec<Value> = planned.by_length.iter().map(choice).collect();
    let report = json!({
        "requests": system.requests,
        "draft_workers": planned.draft_workers,
        "best": choice(planned.best()),
        "plain": choice(planned.plain()),
        "ahead": ahead,
        "by_length": by_length,
    });
    writeln!(out, "{report:#}")
}

fn choice(choice: &Choice) -> Value {
    json!({
        "draft_tokens": choice.draft_tokens,
        "tokens_per_round": choice.tokens_per_round,
        "tokens_per_second": choice.tokens_per_second,
        "ms_per_token": choice.seconds_per_token * 1e3,
        "sequences_per_batch": choice.batch,
        "batches": match choice.way {
            Way::OneBatch => "one",
            Way::TwoBatches => "two",
            Way::Continuous => "continuous",
        },
        "busy_draft_workers": choice.draft_workers,
        "bound_by": bound(choice.binding),
        "bounds": {
            "target": choice.bounds.target,
            // JSON has no infinity: without drafts, they bound nothing.
            "drafts": Some(choice.bounds.drafts).filter(|bound| bound.is_finite()),
            "requests": choice.bounds.concurrency,
        },
    })
}
