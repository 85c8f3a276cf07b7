//! What ends a text, and what it must match.

use super::*;

#[test]
fn max_tokens_is_at_least_one_and_bounded_by_the_context() {
    let with = |max_tokens| GenerateRequest {
        stop: Some(StopParams {
            max_tokens,
            ..StopParams::default()
        }),
        ..request(10)
    };
    assert_eq!(refused_field(with(Some(0))), "stop.max_tokens");
    assert_eq!(valid(with(Some(7))).unwrap().max_tokens, 7);
    let room = testing::CONTEXT - 10;
    assert_eq!(valid(with(Some(u32::MAX))).unwrap().max_tokens, room);
    assert_eq!(valid(with(None)).unwrap().max_tokens, room);
}

#[test]
fn min_tokens_is_bounded_by_max_tokens_and_by_the_context() {
    let with = |min_tokens, max_tokens, ignore_eos| {
        with_stop(StopParams {
            min_tokens: Some(min_tokens),
            max_tokens,
            ignore_eos,
            ..StopParams::default()
        })
    };
    let room = testing::CONTEXT as u32 - 1;
    assert_eq!(refused_field(with(8, Some(7), false)), "stop.min_tokens");
    assert_eq!(
        refused_field(with(room + 1, None, false)),
        "stop.min_tokens"
    );
    assert_eq!(
        refused_field(with(room + 1, Some(1000), true)),
        "stop.min_tokens"
    );
    let longest = valid(with(room, None, true)).unwrap();
    assert_eq!(longest.decoding.min_tokens, room);
    assert!(valid(with(7, Some(7), false)).is_ok());
}

#[test]
fn stops_out_of_range_name_the_entry() {
    let strings = |strings: &[&str]| {
        with_stop(StopParams {
            strings: strings.iter().map(ToString::to_string).collect(),
            ..StopParams::default()
        })
    };
    let long = "é".repeat(513);
    assert_eq!(refused_field(strings(&["a", ""])), "stop.strings[1]");
    assert_eq!(
        refused_field(strings(&["a", "b", &long])),
        "stop.strings[2]"
    );
    assert_eq!(refused_field(strings(&["a"; 65])), "stop.strings");
    assert!(valid(strings(&[&long[..1024]; 64])).is_ok());
    let ids = |token_ids| {
        with_stop(StopParams {
            token_ids,
            ..StopParams::default()
        })
    };
    assert_eq!(refused_field(ids(vec![1, SIZE])), "stop.token_ids[1]");
    assert_eq!(refused_field(ids(vec![1; 4097])), "stop.token_ids");
}

#[test]
fn workers_and_coordinator_know_the_same_end_tokens() {
    let with = |ignore_eos, token_ids: &[TokenId]| {
        let generation = valid(with_stop(StopParams {
            ignore_eos,
            token_ids: token_ids.to_vec(),
            ..StopParams::default()
        }));
        let generation = generation.unwrap();
        assert_eq!(
            generation.decoding.end_token_ids,
            generation.stop.end_tokens
        );
        generation.stop.end_tokens.clone()
    };
    assert_eq!(with(false, &[]), [END_TOKEN]);
    assert_eq!(with(false, &[9, 3, 9]), [3, 9, END_TOKEN]);
    assert_eq!(with(true, &[9]), [9]);
    assert!(with(true, &[]).is_empty());
}

#[test]
fn what_is_no_constraint_is_refused() {
    let structured = GenerateRequest {
        structured: Some(StructuredOutput { form: None }),
        ..request(1)
    };
    assert_eq!(refused_field(structured), "structured");
    let long = "a".repeat(1024 * 1024 + 1);
    for (form, field) in [
        (Form::JsonObject(false), "structured.json_object"),
        (Form::JsonSchema(String::new()), "structured.json_schema"),
        (Form::JsonSchema("{".to_owned()), "structured.json_schema"),
        (
            Form::JsonSchema("{} {}".to_owned()),
            "structured.json_schema",
        ),
        (Form::Regex(String::new()), "structured.regex"),
        (Form::Regex(long), "structured.regex"),
        (Form::Lark(String::new()), "structured.lark"),
    ] {
        assert_eq!(refused_field(with_form(form)), field);
    }
    let schema = Form::JsonSchema("{\"type\": \"object\"}".to_owned());
    let generation = valid(with_form(schema.clone())).unwrap();
    let form = generation.decoding.structured.clone().unwrap().form;
    assert_eq!(form, Some(schema));
}

#[test]
fn what_a_constraint_decides_nothing_else_can() {
    type Change = fn(&mut StopParams, &mut SamplingParams, &mut Vec<String>);
    let cases: [(&str, Change); 5] = [
        ("stop.ignore_eos", |stop, _, _| stop.ignore_eos = true),
        ("stop.min_tokens", |stop, _, _| stop.min_tokens = Some(1)),
        ("stop.strings", |stop, _, _| {
            stop.strings.push("a".to_owned())
        }),
        ("sampling.allowed_token_ids", |_, sampling, _| {
            sampling.allowed_token_ids.push(1);
        }),
        ("bad_words", |_, _, words| words.push("a".to_owned())),
    ];
    for (field, change) in cases {
        let mut request = with_form(Form::JsonObject(true));
        let (mut stop, mut sampling) = (StopParams::default(), SamplingParams::default());
        stop.min_tokens = Some(0);
        change(&mut stop, &mut sampling, &mut request.bad_words);
        request.stop = Some(stop);
        request.sampling = Some(sampling);
        assert_eq!(refused_field(request.clone()), field);
        request.structured = None;
        assert!(valid(request).is_ok(), "{field} alone is fine");
    }
}
