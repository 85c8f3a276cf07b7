//! Bodies that are wrong get an error that names what is, and leave nothing behind.

use anyhow::{Context as _, Result};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use specdec_tests::drafts::{Agreement, TinyCluster};
use specdec_tests::{Http, HttpAnswer};

const CHATS: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const JSON: &str = "application/json";

/// How often what is large is sent, to see whether any of it stays.
const REPEATS: usize = 12;

/// What memory may grow by meanwhile, in bytes: allocators keep some of what was freed.
const GROWTH: u64 = 64 << 20;

async fn start() -> Result<(TinyCluster, Http)> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let http = Http::new(tiny.cluster.coordinator.url());
    Ok((tiny, http))
}

fn completion() -> Value {
    json!({"prompt": "Hi", "max_tokens": 4})
}

fn chat() -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})
}

/// `body` with `field` set.
fn set(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

/// Refused as a wrong request, with a message and, where that is not empty, the `field`.
fn check(answer: &HttpAnswer, field: &str, what: &str) {
    let HttpAnswer { status, json, .. } = answer;
    assert_eq!(*status, StatusCode::BAD_REQUEST, "{what}: {json}");
    assert_eq!(json["error"]["type"], "invalid_request_error", "{what}");
    assert!(!answer.message().is_empty(), "{what}: {json}");
    assert_eq!(answer.param(), field, "{what}: {json}");
    assert!(answer.message().contains(field), "{what}: {json}");
}

/// Fields and a value of a wrong type or out of range, in either kind of body.
fn wrong_values() -> Vec<(&'static str, Value)> {
    vec![
        ("model", json!(1)),
        ("stream", json!("yes")),
        ("n", json!(0)),
        ("n", json!(65)),
        ("n", json!(1_u64 << 40)),
        ("n", json!(-1)),
        ("temperature", json!("hot")),
        ("temperature", json!(-1)),
        ("temperature", json!(1e300)),
        ("top_p", json!(0)),
        ("top_p", json!([1])),
        ("top_k", json!(-2)),
        ("top_k", json!(1.5)),
        ("min_p", json!(2)),
        ("typical_p", json!(0)),
        ("repetition_penalty", json!(0)),
        ("presence_penalty", json!(3)),
        ("frequency_penalty", json!({})),
        ("repeat_last_n", json!(-5)),
        ("logit_bias", json!([1])),
        ("logit_bias", json!({"999999": 1})),
        ("allowed_token_ids[1]", json!([1, 999_999])),
        ("banned_token_ids[0]", json!(["x"])),
        ("bad_words[1]", json!(["a", ""])),
        ("seed", json!(1.5)),
        ("seed", json!("7")),
        ("stop[2]", json!(["a", "b", ""])),
        ("stop[1]", json!(["a", 1])),
        ("stop", json!(1)),
        ("stop", json!(vec!["x".repeat(1000); 1000])),
        ("stop_token_ids[0]", json!([999_999])),
        ("include_stop_str_in_output", json!(1)),
        ("ignore_eos", json!("no")),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("max_tokens", json!(1e20)),
        ("min_tokens", json!(9)),
        ("priority", json!(101)),
        ("user", json!(1)),
        ("response_format", json!("json")),
        ("response_format.type", json!({"type": "xml"})),
        (
            "response_format.json_schema.schema",
            json!({"type": "json_schema"}),
        ),
        ("structured_outputs.regex", json!({"regex": 1})),
        ("guided_regex", json!("(")),
        ("guided_json", json!({"type": 7})),
        ("guided_grammar", json!("")),
        ("speculative.n_max", json!({"n_max": 17})),
        ("speculative.n_min", json!({"n_min": 5, "n_max": 4})),
        ("speculative.p_min", json!({"p_min": 1})),
        ("speculative.rule", json!({"rule": "best"})),
        ("speculative.sources[0]", json!({"sources": ["web"]})),
        ("speculative.k", json!({"k": 1})),
        ("stream_options", json!({"include_usage": true})),
        ("no_such_field", json!(null)),
        ("suffix_array", json!([])),
    ]
}

/// The field that the value goes into: what comes before a dot or a bracket.
fn top(field: &str) -> &str {
    field.split(['.', '[']).next().unwrap_or(field)
}

#[tokio::test]
async fn every_wrong_value_is_refused_by_its_name_in_either_kind_of_body() -> Result<()> {
    let (_tiny, http) = start().await?;
    for (field, value) in wrong_values() {
        for (path, body) in [(COMPLETIONS, completion()), (CHATS, chat())] {
            let answer = http
                .post(path, &set(body, top(field), value.clone()))
                .await?;
            check(&answer, field, &format!("{path} {field}: {value:.60}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_one_kind_of_body_alone_has_is_refused_by_its_name() -> Result<()> {
    let (_tiny, http) = start().await?;
    let image = json!([{"role": "user", "content": [{"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "x"}}]}]);
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let wizard = json!([{"role": "user", "content": "a"}, {"role": "wizard", "content": "a"}]);
    let tool = json!([{"type": "function", "function": {"name": 1}}]);
    let long = json!(vec![9; 5000]);
    for (path, body, field, value) in [
        (CHATS, chat(), "messages", json!([])),
        (CHATS, json!({}), "messages", json!("Hi")),
        (CHATS, chat(), "messages[0].role", json!([{"content": "a"}])),
        (CHATS, chat(), "messages[1].role", wizard),
        (CHATS, chat(), "messages[0].content[1].type", image),
        (CHATS, chat(), "messages[0].content", user(json!(1))),
        (CHATS, chat(), "messages[0].content", user(Value::Null)),
        (CHATS, chat(), "tools[0].function.name", tool),
        (CHATS, chat(), "tool_choice", json!("perhaps")),
        (CHATS, chat(), "top_logprobs", json!(2)),
        (CHATS, chat(), "logprobs", json!(2)),
        (CHATS, chat(), "max_completion_tokens", json!(0)),
        (CHATS, chat(), "add_generation_prompt", json!(false)),
        (CHATS, chat(), "prompt", json!("Hi")),
        (CHATS, chat(), "functions", json!([])),
        (COMPLETIONS, completion(), "prompt", json!("")),
        (COMPLETIONS, completion(), "prompt", json!([])),
        (COMPLETIONS, completion(), "prompt", Value::Null),
        (COMPLETIONS, completion(), "prompt", json!({})),
        (COMPLETIONS, completion(), "prompt", long),
        (COMPLETIONS, completion(), "prompt", json!(vec!["x"; 1000])),
        (COMPLETIONS, completion(), "prompt[1]", json!([1, 999_999])),
        (COMPLETIONS, completion(), "prompt[1]", json!(["a", ""])),
        (
            COMPLETIONS,
            completion(),
            "prompt[1][0]",
            json!([[1], [999_999]]),
        ),
        (COMPLETIONS, completion(), "prompt[1]", json!(["a", 1])),
        (COMPLETIONS, completion(), "logprobs", json!(21)),
        (COMPLETIONS, completion(), "logprobs", json!(true)),
        (COMPLETIONS, completion(), "best_of", json!(3)),
        (COMPLETIONS, completion(), "suffix", json!("x")),
        (COMPLETIONS, completion(), "messages", json!([])),
    ] {
        let what = format!("{path} {field}: {value:.60}");
        check(
            &http.post(path, &set(body, top(field), value)).await?,
            field,
            &what,
        );
    }
    check(&http.post(CHATS, &json!({})).await?, "messages", "none");
    check(
        &http.post("/detokenize", &json!({})).await?,
        "tokens",
        "none",
    );
    let echo = json!({"prompt": "Hi", "echo": true, "logprobs": 1});
    check(
        &http.post(COMPLETIONS, &echo).await?,
        "echo",
        "echo with logprobs",
    );
    Ok(())
}

#[tokio::test]
async fn a_prompt_over_the_context_is_refused_with_both_sizes_also_when_streamed() -> Result<()> {
    let (_tiny, http) = start().await?;
    let long = "x".repeat(100_000);
    for stream in [false, true] {
        let body = json!({"prompt": long, "stream": stream});
        let answer = http.post(COMPLETIONS, &body).await?;
        check(&answer, "prompt", "a long prompt");
        let numbers = answer.message().split(|c: char| !c.is_ascii_digit());
        let sizes = numbers.filter(|number| number.len() > 2).count();
        assert_eq!(sizes, 2, "{}", answer.message());
        let messages = json!([{"role": "user", "content": long}]);
        let body = json!({"messages": messages, "stream": stream});
        check(&http.post(CHATS, &body).await?, "messages", "a long chat");
    }
    Ok(())
}

/// Bodies that are no JSON of ours, with what kind they claim to be and the status they get.
fn broken() -> Vec<(&'static str, Vec<u8>, &'static str, StatusCode)> {
    let bad = StatusCode::BAD_REQUEST;
    let deep = |depth| format!(r#"{{"prompt": {}1"#, "[".repeat(depth)).into_bytes();
    let deep_schema = format!(
        r#"{{"prompt": "Hi", "guided_json": {}{}}}"#,
        r#"{"a":"#.repeat(5000) + "1",
        "}".repeat(5000)
    );
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("nothing", vec![], JSON, bad),
        ("no object", text("[]"), JSON, bad),
        ("half", text(r#"{"prompt": "Hi""#), JSON, bad),
        ("more", text(r#"{"prompt": "Hi"} {}"#), JSON, bad),
        (
            "twice",
            text(r#"{"prompt": "Hi", "prompt": "Ho"}"#),
            JSON,
            bad,
        ),
        (
            "nan",
            text(r#"{"prompt": "Hi", "temperature": NaN}"#),
            JSON,
            bad,
        ),
        (
            "huge",
            text(r#"{"prompt": "Hi", "temperature": 1e999}"#),
            JSON,
            bad,
        ),
        (
            "no UTF-8",
            b"{\"prompt\": \"\xff\xfe\"}".to_vec(),
            JSON,
            bad,
        ),
        ("a surrogate", text(r#"{"prompt": "\ud800"}"#), JSON, bad),
        ("deep", deep(100_000), JSON, bad),
        ("a deep schema", deep_schema.into_bytes(), JSON, bad),
        (
            "a form",
            text("prompt=Hi"),
            "application/x-www-form-urlencoded",
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            "a byte too many",
            vec![b' '; (16 << 20) + 1],
            JSON,
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
    ]
}

#[tokio::test]
async fn what_is_no_body_is_refused_and_so_are_wrong_paths_and_methods() -> Result<()> {
    let (_tiny, http) = start().await?;
    for (what, body, kind, status) in broken() {
        for path in [COMPLETIONS, CHATS, "/tokenize", "/detokenize"] {
            let body = body.clone();
            let answer = http.ask(Method::POST, path, kind, body).await?;
            assert_eq!(answer.status, status, "{path} {what}: {}", answer.json);
            assert!(!answer.message().is_empty(), "{path} {what}");
        }
    }
    let answer = http.get("/v1/nothing").await?;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.message().contains("/v1/nothing"));
    let answer = http.get(CHATS).await?;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(!answer.message().is_empty());
    let unknown = set(completion(), "model", json!("no-such"));
    let answer = http.post(COMPLETIONS, &unknown).await?;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.json["error"]["code"], "model_not_found");
    assert!(answer.message().contains("no-such"));
    Ok(())
}

#[tokio::test]
async fn large_requests_that_are_refused_leave_no_memory_behind() -> Result<()> {
    let (tiny, http) = start().await?;
    let message = json!({"role": "user", "content": "Hi"});
    let large = [
        (
            COMPLETIONS,
            set(completion(), "stop", json!(vec!["x".repeat(1000); 1000])),
        ),
        (CHATS, set(chat(), "messages", json!(vec![message; 10_000]))),
        (
            COMPLETIONS,
            set(completion(), "prompt", json!("word ".repeat(60_000))),
        ),
        (
            COMPLETIONS,
            set(completion(), "prompt", json!(vec![1; 1_000_000])),
        ),
        (
            COMPLETIONS,
            set(completion(), "no_such_field", json!(vec![1; 1_000_000])),
        ),
    ];
    let coordinator = &tiny.cluster.coordinator;
    let mut after_first = 0;
    for round in 0..REPEATS {
        for (path, body) in &large {
            let answer = http.post(path, body).await?;
            assert_eq!(
                answer.status,
                StatusCode::BAD_REQUEST,
                "{:.200}",
                answer.message()
            );
            assert!(!answer.param().is_empty());
        }
        if round == REPEATS / 4 {
            after_first = coordinator.resident_bytes()?;
        }
    }
    let after_all = coordinator.resident_bytes()?;
    assert!(
        after_all < after_first + GROWTH,
        "{after_first} bytes, then {after_all}"
    );
    let answer = http.post(CHATS, &chat()).await?;
    assert_eq!(
        answer.status,
        StatusCode::OK,
        "a good one works: {}",
        answer.json
    );
    let text = answer.json.pointer("/choices/0/message/content");
    text.context("a text").map(drop)
}
