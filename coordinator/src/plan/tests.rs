//! What `coordinator plan` prints, and refuses.

use super::*;
use serde_json::Value;

const STATED: [&str; 8] = [
    "--verify-ms",
    "17",
    "--draft-ms",
    "2.5",
    "--rtt-ms",
    "0.5",
    "--acceptance",
    "0.75",
];

fn run(more: &[&str]) -> String {
    let args = [&["plan"], &STATED[..], more].concat();
    let mut out = Vec::new();
    let code = exit_code_of(args.iter().map(OsString::from), &mut out);
    assert_eq!(code, 0, "{more:?}");
    String::from_utf8(out).expect("utf-8")
}

fn refusal(args: &[&str]) -> String {
    let args = [&["plan"], args].concat();
    match parse(args.iter().map(OsString::from)) {
        Err(error) => error.0,
        other => panic!("{args:?} is taken: {other:?}"),
    }
}

#[test]
fn one_request_is_told_its_closed_form() {
    let text = run(&[]);
    assert_eq!(
        text.lines().take(6).collect::<Vec<_>>(),
        [
            "draft tokens       4, all requests in one batch",
            "tokens per second  110.9, plain 58.8: 1.89x",
            "time per token     9.01 ms, plain 17.00 ms",
            "draft workers      1 needed",
            "bound by           the number of requests: at most 110.9 tokens per second",
            "drafting ahead     182.1, plain 58.8: 3.10x; 2 tokens, then 6 ahead after each of 8 candidates a position",
        ],
        "{text}"
    );
    let best = text
        .lines()
        .filter(|line| line.starts_with("* "))
        .collect::<Vec<_>>();
    assert_eq!(
        best,
        ["*      4          3.05       110.9     1.89x       9.01        1  requests"]
    );
    // A header, and a line for each length from 0 to 16.
    assert_eq!(text.lines().count(), 6 + 1 + 1 + 17, "{text}");
}

#[test]
fn json_has_the_same_figures_and_no_infinity() {
    let report: Value = serde_json::from_str(&run(&["--json", "--requests", "16"])).expect("json");
    assert_eq!(report["requests"], 16);
    assert!(
        report["draft_workers"]
            .as_u64()
            .is_some_and(|workers| workers >= 1)
    );
    let best = &report["best"];
    let of_plain = best["tokens_per_second"]
        .as_f64()
        .zip(report["plain"]["tokens_per_second"].as_f64());
    assert!(
        of_plain.is_some_and(|(best, plain)| best > 1.5 * plain),
        "{report}"
    );
    assert_eq!(report["plain"]["bounds"]["drafts"], Value::Null);
    assert_eq!(report["plain"]["draft_tokens"], 0);
    assert_eq!(report["by_length"].as_array().map(Vec::len), Some(17));
}

#[test]
fn workers_that_are_stated_are_taken_and_their_bound_is_named() {
    let few = [
        "--requests",
        "64",
        "--draft-row-ms",
        "2",
        "--draft-workers",
        "1",
        "--max-draft-tokens",
        "3",
    ];
    let text = run(&few);
    assert!(text.contains("  drafts\n"), "{text}");
    let text = run(&[
        "--requests",
        "64",
        "--acceptance",
        "0.01",
        "--verify-row-ms",
        "5",
    ]);
    assert!(text.contains("0: plain decoding is best"), "{text}");
}

#[test]
fn acceptance_may_differ_by_position() {
    let report = |acceptance| -> Value {
        let args = [
            "plan",
            "--verify-ms",
            "17",
            "--draft-ms",
            "2.5",
            "--acceptance",
            acceptance,
            "--json",
        ];
        let mut out = Vec::new();
        assert_eq!(exit_code_of(args.iter().map(OsString::from), &mut out), 0);
        serde_json::from_slice(&out).expect("json")
    };
    let falling = report("0.9,0.5,0.1");
    let tokens = falling["by_length"][3]["tokens_per_round"].as_f64();
    let expected = 1.0 + 0.9 + 0.9 * 0.5 + 0.9 * 0.5 * 0.1;
    assert!(
        tokens.is_some_and(|tokens| (tokens - expected).abs() < 1e-9),
        "{tokens:?}"
    );
    assert!(
        falling["best"]["draft_tokens"].as_u64() < report("0.9")["best"]["draft_tokens"].as_u64()
    );
}

#[test]
fn wrong_values_are_refused_and_the_flag_named() {
    let with = |flag: &'static str, value: &'static str| {
        let rest = STATED
            .chunks(2)
            .filter(|pair| pair[0] != flag)
            .flatten()
            .copied();
        rest.chain([flag, value]).collect::<Vec<_>>()
    };
    for (flag, value) in [
        ("--verify-ms", "0"),
        ("--verify-ms", "fast"),
        ("--verify-ms", "inf"),
        ("--verify-row-ms", "-1"),
        ("--draft-ms", "NaN"),
        ("--draft-row-ms", "x"),
        ("--rtt-ms", "-0.5"),
        ("--acceptance", "1.5"),
        ("--acceptance", "0.5,,0.5"),
        (
            "--acceptance",
            "0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9,0.9",
        ),
        ("--requests", "0"),
        ("--draft-workers", "0"),
        ("--max-draft-tokens", "17"),
    ] {
        let error = refusal(&with(flag, value));
        assert!(error.contains(flag), "{flag} {value}: {error}");
    }
    assert!(refusal(&[]).contains("--verify-ms"));
    let args = ["plan", "--bogus"].map(OsString::from);
    assert_eq!(exit_code_of(args, &mut Vec::new()), EXIT_CONFIG);
}

#[test]
fn only_the_first_word_asks_for_it_and_its_help_is_help() {
    let args = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
    assert!(main(args(&["coordinator"])).is_none());
    assert!(main(args(&["coordinator", "--target", "plan"])).is_none());
    let mut out = Vec::new();
    assert_eq!(exit_code_of(args(&["plan", "--help"]), &mut out), 0);
    let help = String::from_utf8(out).expect("utf-8");
    assert!(help.contains("Usage: coordinator plan"), "{help}");
    assert!(help.contains("--acceptance <PROBABILITY>"), "{help}");
}
