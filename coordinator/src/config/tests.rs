use super::*;
use crate::scheduler::SpecOptions;
use ::speculation::Rule;
use service::program::Config as _;

fn parse(args: &[&str]) -> Result<Config, String> {
    let program = std::iter::once(&"coordinator");
    let config = Config::try_parse_from(program.chain(args)).map_err(|error| error.to_string())?;
    config.validate().map_err(|error| error.to_string())?;
    Ok(config)
}

#[test]
fn a_target_is_enough() {
    let config = parse(&["--target", "http://t:1"]).unwrap();
    assert!(config.drafts.is_empty());
    assert!(config.listen.ip().is_loopback());
    assert_eq!(config.speculation.spec_draft_n_max, 8);
    assert_eq!(config.speculation.spec_rule, SpecRule::Coupled);
    assert_eq!(config.logprobs_mode, LogprobsMode::RawLogprobs);
}

#[test]
fn help_tells_of_the_planner() {
    use clap::CommandFactory as _;
    let help = Config::command().render_long_help().to_string();
    assert!(help.contains("coordinator plan --help"), "{help}");
}

#[test]
fn rules_and_modes_have_the_names_of_the_protocol() {
    let target = ["--target", "http://t:1"];
    for (name, rule) in [
        ("coupled", Rule::Coupled),
        ("token", Rule::Token),
        ("block", Rule::Block),
    ] {
        let config = parse(&[&target[..], &["--spec-rule", name]].concat());
        assert_eq!(Rule::from(config.unwrap().speculation.spec_rule), rule);
    }
    let mode = ["--logprobs-mode", "processed_logprobs"];
    let config = parse(&[target, mode].concat()).unwrap();
    assert_eq!(config.logprobs_mode, LogprobsMode::ProcessedLogprobs);
}

#[test]
fn speculation_is_adaptive_unless_the_operator_says_otherwise() {
    let options = |args: &[&str]| {
        let config = parse(&[&["--target", "http://t:1"], args].concat()).unwrap();
        let options = config.speculation.scheduling();
        let lengths = (
            config.speculation.spec_draft_n_min,
            config.speculation.spec_draft_n_max,
        );
        (lengths, options)
    };
    assert_eq!(options(&[]), ((0, 8), SpecOptions::default()));
    let stated = [
        "--spec-draft-n-min=2",
        "--spec-draft-n-max=16",
        "--spec-draft-ahead=off",
        "--spec-ngram-history=1000",
    ];
    let scheduling = SpecOptions {
        ahead: false,
        ngram: true,
        ngram_history: 1000,
    };
    assert_eq!(options(&stated), ((2, 16), scheduling));
    assert!(!options(&["--spec-ngram", "off"]).1.ngram);
}

#[test]
fn a_draft_is_an_address_or_a_name_that_stands_for_some() {
    // Without the files that https needs.
    let config = Config::try_parse_from([
        "coordinator",
        "--target",
        "http://t:1",
        "--draft",
        "http://a:1/,dns://drafts.svc:2,https://b:3,dns+https://drafts.svc:4",
    ]);
    assert_eq!(
        config.unwrap().draft_places().unwrap(),
        [
            DraftPlace::Url("http://a:1".to_owned()),
            DraftPlace::Name {
                name: "drafts.svc:2".to_owned(),
                tls: false
            },
            DraftPlace::Url("https://b:3".to_owned()),
            DraftPlace::Name {
                name: "drafts.svc:4".to_owned(),
                tls: true
            },
        ]
    );
}

#[test]
fn drafts_are_repeated_or_separated_by_commas() {
    let config = parse(&[
        "--target",
        "http://t:1",
        "--draft",
        "http://a:1,http://b:2",
        "--draft",
        "http://c:3",
    ]);
    assert_eq!(
        config.unwrap().drafts,
        ["http://a:1", "http://b:2", "http://c:3"]
    );
}

#[test]
fn wrong_values_are_refused_and_the_flag_named() {
    let cases: [(&[&str], &str); 25] = [
        (&[], "--target"),
        (&["--target", "not a url"], "--target"),
        (&["--target", "https://t:1"], "--worker-ca"),
        (&["--target", "http://t"], "--target"),
        (&["--target", "http://t:1/v1"], "--target"),
        (&["--target", "http://t:1", "--draft", "d:1"], "--draft"),
        (
            &["--target", "http://t:1", "--draft", "http://d:1,http://d:1"],
            "--draft",
        ),
        (
            &["--target", "http://t:1", "--spec-draft-n-max", "17"],
            "--spec-draft-n-max",
        ),
        (
            &["--target", "http://t:1", "--spec-rule", "best"],
            "--spec-rule",
        ),
        (
            &["--target", "http://t:1", "--logprobs-mode", "raw"],
            "--logprobs-mode",
        ),
        (
            &["--target", "http://t:1", "--max-requests", "0"],
            "--max-requests",
        ),
        (
            &["--target", "http://t:1", "--max-waiting", "65537"],
            "--max-waiting",
        ),
        (
            &["--target", "http://t:1", "--max-wait-ms", "0"],
            "--max-wait-ms",
        ),
        (
            &["--target", "http://t:1", "--max-tokens-in-flight", "0"],
            "--max-tokens-in-flight",
        ),
        (
            &["--target", "http://t:1", "--slow-client-timeout-ms", "0"],
            "--slow-client-timeout-ms",
        ),
        (
            &["--target", "http://t:1", "--draft-timeout-ms", "0"],
            "--draft-timeout-ms",
        ),
        (
            &[
                "--target",
                "http://t:1",
                "--draft",
                "http://d:1,http://d:1/",
            ],
            "--draft",
        ),
        (&["--target", "http://t:1", "--draft", "dns://d"], "--draft"),
        (&["--target", "dns://t:1"], "--target"),
        (
            &["--target", "http://t:1", "--draft-resolve-ms", "0"],
            "--draft-resolve-ms",
        ),
        (
            &["--target", "http://t:1", "--spec-draft-n-min", "9"],
            "--spec-draft-n-min",
        ),
        (
            &["--target", "http://t:1", "--spec-draft-p-min", "1"],
            "--spec-draft-p-min",
        ),
        (
            &["--target", "http://t:1", "--spec-draft-ahead", "on"],
            "--spec-draft-ahead",
        ),
        (
            &["--target", "http://t:1", "--spec-ngram", "auto"],
            "--spec-ngram",
        ),
        (
            &[
                "--target",
                "http://t:1",
                "--spec-ngram",
                "off",
                "--spec-ngram-history",
                "9",
            ],
            "--spec-ngram-history",
        ),
    ];
    for (args, flag) in cases {
        let error = parse(args).expect_err(flag);
        assert!(error.contains(flag), "{args:?}: {error}");
    }
}
