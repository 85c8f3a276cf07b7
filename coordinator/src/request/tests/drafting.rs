use super::*;
use proto::v1::{DraftSource, Speculation, SpeculationMode};

#[test]
fn speculation_out_of_range_names_the_field() {
    let with = |speculation| GenerateRequest {
        speculation: Some(speculation),
        ..request(1)
    };
    let mode = Speculation {
        mode: 9,
        ..Speculation::default()
    };
    assert_eq!(refused_field(with(mode)), "speculation.mode");
    let rule = Speculation {
        rule: -1,
        ..Speculation::default()
    };
    assert_eq!(refused_field(with(rule)), "speculation.rule");
    let most = Speculation {
        max_draft_tokens: Some(17),
        ..Speculation::default()
    };
    assert_eq!(refused_field(with(most)), "speculation.max_draft_tokens");
    for most in [None, Some(4)] {
        let fewest = Speculation {
            max_draft_tokens: most,
            min_draft_tokens: Some(5),
            ..Speculation::default()
        };
        assert_eq!(refused_field(with(fewest)), "speculation.min_draft_tokens");
    }
    for least in [-0.1, 1.0, f32::NAN, f32::INFINITY] {
        let confidence = Speculation {
            min_confidence: Some(least),
            ..Speculation::default()
        };
        assert_eq!(
            refused_field(with(confidence)),
            "speculation.min_confidence"
        );
    }
    for source in [0, 3, -1] {
        let sources = Speculation {
            sources: vec![DraftSource::Model.into(), source],
            ..Speculation::default()
        };
        assert_eq!(refused_field(with(sources)), "speculation.sources");
    }
}

#[test]
fn speculation_is_the_clients_or_the_servers_and_none_when_off() {
    let drafts = |mode: SpeculationMode, max_draft_tokens, rule: v1::VerificationRule| {
        let speculation = Speculation {
            mode: mode.into(),
            max_draft_tokens,
            rule: rule.into(),
            ..Speculation::default()
        };
        let generation = valid(GenerateRequest {
            speculation: Some(speculation),
            ..request(1)
        });
        let generation = generation.unwrap();
        (generation.max_draft_tokens, generation.decoding.rule())
    };
    use SpeculationMode::{Auto, Off};
    use v1::VerificationRule::{Block, Coupled, Token, Unspecified};
    let unstated = SpeculationMode::Unspecified;
    assert_eq!(drafts(unstated, None, Unspecified), (3, Token));
    assert_eq!(drafts(Auto, Some(16), Block), (16, Block));
    assert_eq!(drafts(Auto, Some(0), Coupled), (0, Coupled));
    assert_eq!(drafts(Off, Some(5), Token), (0, Token));
}

#[test]
fn the_fewest_drafted_tokens_are_never_more_than_the_most() {
    let lengths = |min_draft_tokens, max_draft_tokens, mode: SpeculationMode| {
        let speculation = Speculation {
            mode: mode.into(),
            min_draft_tokens,
            max_draft_tokens,
            ..Speculation::default()
        };
        let generation = valid(GenerateRequest {
            speculation: Some(speculation),
            ..request(1)
        });
        let generation = generation.unwrap();
        (generation.min_draft_tokens, generation.max_draft_tokens)
    };
    use SpeculationMode::{Auto, Off};
    assert_eq!(lengths(None, None, Auto), (2, 3), "the server's");
    assert_eq!(lengths(None, Some(1), Auto), (1, 1));
    assert_eq!(lengths(Some(0), None, Auto), (0, 3));
    assert_eq!(lengths(Some(5), Some(5), Auto), (5, 5));
    assert_eq!(lengths(Some(3), Some(5), Off), (0, 0));
}

#[test]
fn confidence_and_sources_are_the_clients_or_the_servers() {
    let with = |min_confidence, sources: &[DraftSource]| {
        let speculation = Speculation {
            min_confidence,
            sources: sources.iter().map(|source| (*source).into()).collect(),
            ..Speculation::default()
        };
        let generation = valid(GenerateRequest {
            speculation: Some(speculation),
            ..request(1)
        });
        let generation = generation.unwrap();
        let Sources { model, ngram } = generation.sources;
        (generation.min_confidence, model, ngram)
    };
    use DraftSource::{Model, Ngram};
    assert_eq!(with(None, &[]), (Some(0.25), true, true));
    assert_eq!(with(Some(0.0), &[Model]), (Some(0.0), true, false));
    assert_eq!(with(Some(0.5), &[Ngram]), (Some(0.5), false, true));
    assert!(with(None, &[Ngram, Model, Ngram]).1);
}
