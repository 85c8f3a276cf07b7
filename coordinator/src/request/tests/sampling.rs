//! What shapes the law.

use super::*;
use crate::request::words;

#[test]
fn sampling_out_of_range_names_the_parameter() {
    type Change = fn(&mut SamplingParams);
    let cases: [(&str, Change); 14] = [
        ("temperature", |p| p.temperature = Some(f32::NAN)),
        ("temperature", |p| p.temperature = Some(101.0)),
        ("top_p", |p| p.top_p = Some(0.0)),
        ("min_p", |p| p.min_p = Some(1.5)),
        ("typical_p", |p| p.typical_p = Some(0.0)),
        ("repetition_penalty", |p| p.repetition_penalty = Some(0.0)),
        ("presence_penalty", |p| p.presence_penalty = Some(2.1)),
        ("frequency_penalty", |p| p.frequency_penalty = Some(-2.1)),
        ("logit_bias", |p| p.logit_bias.extend([(1, 101.0)])),
        ("logit_bias", |p| p.logit_bias.extend([(SIZE, 1.0)])),
        ("logit_bias", |p| {
            p.logit_bias.extend((0..5000).map(|id| (id, 0.0)))
        }),
        ("allowed_token_ids[1]", |p| {
            p.allowed_token_ids = vec![1, SIZE]
        }),
        ("banned_token_ids[0]", |p| p.banned_token_ids = vec![SIZE]),
        ("banned_token_ids", |p| p.banned_token_ids = vec![1; 258]),
    ];
    for (field, change) in cases {
        let mut sampling = SamplingParams::default();
        change(&mut sampling);
        let refused = refused_field(with_sampling(sampling.clone()));
        assert_eq!(refused, format!("sampling.{field}"), "{sampling:?}");
    }
}

#[test]
fn a_request_that_leaves_no_token_to_choose_is_refused() {
    let sampling = |allowed: &[TokenId], banned: &[TokenId]| SamplingParams {
        allowed_token_ids: allowed.to_vec(),
        banned_token_ids: banned.to_vec(),
        ..SamplingParams::default()
    };
    let field = "sampling.allowed_token_ids";
    assert_eq!(
        refused_field(with_sampling(sampling(&[1, 2], &[2, 3, 1]))),
        field
    );
    assert!(valid(with_sampling(sampling(&[1, 2], &[2]))).is_ok());
    let everything: Vec<_> = (0..SIZE).collect();
    let banned = refused_field(with_sampling(sampling(&[], &everything)));
    assert_eq!(banned, "sampling.banned_token_ids");

    let letter = GenerateRequest {
        bad_words: vec!["a".to_owned()],
        ..with_sampling(sampling(&[byte_token(b'a')], &[]))
    };
    assert_eq!(refused_field(letter), field);
    let mut ends = GenerateRequest {
        stop: Some(StopParams {
            min_tokens: Some(1),
            ..StopParams::default()
        }),
        ..with_sampling(sampling(&[END_TOKEN], &[]))
    };
    assert_eq!(refused_field(ends.clone()), field);
    ends.stop = None;
    assert!(valid(ends).is_ok());
}

#[test]
fn bad_words_out_of_range_name_the_entry() {
    let with = |words: &[&str]| GenerateRequest {
        bad_words: words.iter().map(ToString::to_string).collect(),
        ..request(1)
    };
    assert_eq!(refused_field(with(&["a", ""])), "bad_words[1]");
    assert_eq!(refused_field(with(&[&"a".repeat(1025)])), "bad_words[0]");
    assert_eq!(refused_field(with(&["a"; 1025])), "bad_words");
    assert!(valid(with(&["a"; 1024])).is_ok());
}

#[test]
fn a_bad_word_is_banned_bare_and_where_it_differs_after_a_space() {
    // "a" is 0, " a" is 1, "b" is 2, " " is 3.
    let model = testing::model_of(&[b"a", b" a", b"b", b" "]);
    let merged = testing::with_merges(&model, &[("Ġ", "a")]);
    let ids = |model: &Model, word: &str| -> Vec<Vec<TokenId>> {
        let words = words::tokenize(&[word.to_owned()], model).unwrap();
        words.into_iter().map(|word| word.ids).collect()
    };
    assert_eq!(ids(&merged, "a"), [vec![1], vec![0]]);
    assert_eq!(
        ids(&merged, " ab"),
        [vec![1, 2], vec![0, 2]],
        "its own space is no matter"
    );
    assert_eq!(
        ids(&merged, "b"),
        [vec![2]],
        "the space is a token of its own"
    );
    assert_eq!(
        ids(&merged, "  "),
        [vec![3, 3]],
        "a word of spaces is what it is"
    );
}
