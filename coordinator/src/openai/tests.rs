//! Whatever a body says, it is translated, or refused by a name.

use super::bodies::{ChatRequest, CompletionRequest};
use super::body::parse;
use super::error::Failure;
use super::tokenize::{DetokenizeRequest, TokenizeRequest};
use axum::response::IntoResponse as _;
use proptest::prelude::*;
use proto::v1::{Chat, GenerateRequest, ToolMode, prompt, tool_choice};
use serde_json::{Map, Value, json};

/// A conversation with all that it can say.
fn full_chat() -> Value {
    let mut body = parameters();
    let own = json!({
        "messages": [
            {"role": "developer", "content": "Be brief.", "name": "boss"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "rain"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d",
            "parameters": {"type": "object"}, "strict": true}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "logprobs": true, "top_logprobs": 3, "max_completion_tokens": 9,
        "chat_template_kwargs": {"enable_thinking": false},
        "continue_final_message": false, "add_generation_prompt": true, "parallel_tool_calls": true,
    });
    for (field, value) in own.as_object().expect("an object") {
        body.insert(field.clone(), value.clone());
    }
    body.into()
}

/// A completion with all that it can say.
fn full_completion() -> Value {
    let mut body = parameters();
    body.insert("prompt".into(), json!(["a", "b"]));
    body.insert("echo".into(), json!(true));
    body.insert("best_of".into(), json!(2));
    body.insert("suffix".into(), json!(null));
    body.into()
}

fn parameters() -> Map<String, Value> {
    let parameters = r#"{
        "model": "m", "stream": true, "n": 2,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "typical_p": 0.9,
        "repetition_penalty": 1.1, "presence_penalty": 1, "frequency_penalty": 1, "repeat_last_n": 64,
        "logit_bias": {"5": -1}, "allowed_token_ids": [1], "banned_token_ids": [2], "bad_words": ["x"],
        "seed": -1, "stop": ["a", "b"], "stop_token_ids": [3], "include_stop_str_in_output": true,
        "ignore_eos": false, "max_tokens": 8, "min_tokens": 1, "priority": -3, "user": "me",
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"b": 1, "a": 2}}},
        "structured_outputs": null, "guided_json": null, "guided_regex": null, "guided_choice": null,
        "guided_grammar": null,
        "speculative": {"rule": "block", "sources": ["model", "ngram"], "p_min": 0.5},
        "speculative.enabled": true, "speculative.n_max": 4, "speculative.n_min": 2,
        "store": false, "metadata": {"a": "b"}, "service_tier": "auto", "safety_identifier": "x",
        "prompt_cache_key": "x", "prompt_cache_retention": "24h", "cache_prompt": true
    }"#;
    serde_json::from_str(parameters).expect("an object")
}

/// Reads `body` in every way there is. A refusal is the client's fault, with a message.
fn check(body: &[u8]) -> Result<(), TestCaseError> {
    let chat = parse::<ChatRequest>(body).and_then(ChatRequest::translate);
    let completion = parse::<CompletionRequest>(body).and_then(CompletionRequest::translate);
    for call in [chat, completion] {
        match call {
            Ok(call) => prop_assert!(!call.prompts.is_empty()),
            Err(failure) => refused(failure)?,
        }
    }
    parse::<TokenizeRequest>(body).map_or_else(refused, |_| Ok(()))?;
    parse::<DetokenizeRequest>(body).map_or_else(refused, |_| Ok(()))
}

fn refused(failure: Failure) -> Result<(), TestCaseError> {
    let told = serde_json::to_value(failure.body()).expect("JSON");
    prop_assert!(failure.into_response().status().is_client_error());
    let message = told["error"]["message"].as_str().unwrap_or_default();
    prop_assert!(!message.is_empty());
    if let Some(param) = told["error"]["param"].as_str() {
        prop_assert!(!param.is_empty() && message.contains(param), "{}", told);
    }
    Ok(())
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        "(text|function|auto|none|json_object|user|1)".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let fields = "(type|function|name|role|content|text|schema|[a-z.]{0,6})";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((fields, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Puts `value` at a place in `body` that `at` chooses.
fn mutate(body: &mut Value, at: &mut impl Iterator<Item = prop::sample::Index>, value: Value) {
    let index = at.next();
    let inner = match (body, index) {
        (Value::Object(fields), Some(index)) if !fields.is_empty() => {
            let index = index.index(fields.len());
            fields.values_mut().nth(index)
        }
        (Value::Array(entries), Some(index)) if !entries.is_empty() => {
            let index = index.index(entries.len());
            entries.get_mut(index)
        }
        (body, _) => {
            *body = value;
            return;
        }
    };
    if let Some(inner) = inner {
        mutate(inner, at, value);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(body in prop::collection::vec(any::<u8>(), 0..64)) {
        check(&body)?;
    }

    #[test]
    fn any_json_is_refused_or_read(body in any_json()) {
        check(body.to_string().as_bytes())?;
    }

    #[test]
    fn a_good_body_with_anything_in_it_is_refused_or_read(
        at in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
        value in any_json(),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut body in [full_chat(), full_completion()] {
            mutate(&mut body, &mut at.iter().copied(), value.clone());
            let body = body.to_string();
            check(body.as_bytes())?;
            check(&body.as_bytes()[..cut.index(body.len())])?;
        }
    }
}

fn translated(body: &Value) -> (GenerateRequest, Chat) {
    let call = parse::<ChatRequest>(body.to_string().as_bytes()).and_then(ChatRequest::translate);
    let mut call = call.expect("a good body");
    match call.prompts.remove(0) {
        prompt::Prompt::Chat(chat) => (call.request, chat),
        prompt => panic!("no chat: {prompt:?}"),
    }
}

#[test]
fn a_full_chat_arrives_whole() {
    let (request, chat) = translated(&full_chat());
    assert_eq!(
        (&*request.model, request.n, request.seed),
        ("m", Some(2), Some(u64::MAX))
    );
    assert_eq!((&*request.tenant, request.priority), ("me", 3));
    let sampling = request.sampling.expect("sampling");
    assert_eq!(
        (sampling.top_k, sampling.penalty_window),
        (Some(0), Some(64))
    );
    assert_eq!(sampling.logit_bias[&5], -1.0);
    let stop = request.stop.expect("stop");
    assert_eq!((stop.max_tokens, stop.strings.len()), (Some(9), 2));
    let speculation = request.speculation.expect("speculation");
    assert_eq!(speculation.max_draft_tokens, Some(4));
    assert_eq!(speculation.sources.len(), 2);
    let schema = request.structured.and_then(|it| it.form).expect("a form");
    assert!(
        format!("{schema:?}").contains(r#"{\"b\":1,\"a\":2}"#),
        "{schema:?}"
    );
    let roles: Vec<_> = chat.messages.iter().map(|it| &*it.role).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    assert_eq!(chat.messages[1].content, "a\nb");
    assert_eq!(chat.messages[2].tool_calls[0].name, "f");
    assert_eq!(chat.messages[3].tool_call_id, "1");
    assert!(chat.tools[0].strict);
    let choice = chat.tool_choice.and_then(|it| it.choice);
    assert_eq!(choice, Some(tool_choice::Choice::Name("f".to_owned())));
    assert_eq!(chat.template_arguments, r#"{"enable_thinking":false}"#);
}

#[test]
fn a_choice_of_tools_without_tools_matters_only_where_one_must_be_called() {
    let body = |choice: &str| json!({"messages": [], "tool_choice": choice}).to_string();
    let call =
        |choice| parse::<ChatRequest>(body(choice).as_bytes()).and_then(ChatRequest::translate);
    assert!(call("none").is_ok() && call("auto").is_ok());
    assert!(call("required").is_err());
    let tools = json!([{"function": {"name": "f"}}]);
    let (_, chat) = translated(&json!({"messages": [], "tools": tools, "tool_choice": "none"}));
    let choice = chat.tool_choice.and_then(|it| it.choice);
    assert_eq!(
        choice,
        Some(tool_choice::Choice::Mode(ToolMode::None.into()))
    );
}

#[test]
fn a_full_completion_asks_once_for_each_prompt() {
    let body = full_completion().to_string();
    let call = parse::<CompletionRequest>(body.as_bytes()).and_then(CompletionRequest::translate);
    assert_eq!(call.expect("a good body").prompts.len(), 2);
}

#[test]
fn one_text_can_match_only_one_form_and_one_field_has_one_spelling() {
    for (more, named) in [
        (json!({"guided_regex": "a"}), "guided_regex"),
        (json!({"speculative": {"n_max": 1}}), "speculative.n_max"),
    ] {
        let mut body = full_chat();
        for (field, value) in more.as_object().expect("an object") {
            body[field] = value.clone();
        }
        let call = parse::<ChatRequest>(body.to_string().as_bytes());
        let failure = call.and_then(ChatRequest::translate).expect_err("twice");
        let told = serde_json::to_value(failure.body()).expect("JSON");
        assert_eq!(told["error"]["param"], named);
    }
}
