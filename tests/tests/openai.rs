//! What clients of OpenAI get is what clients of gRPC get, streamed or not.

use anyhow::{Context as _, Result};
use hyper::StatusCode;
use proto::v1::{GenerateRequest, LogprobsMode};
use serde_json::{Value, json};
use specdec_tests::drafts::{Agreement, TinyCluster};
use specdec_tests::{Answer, Http, HttpAnswer, Prompting, chat, ids_prompt, text_prompt};

const CHATS: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const PROMPT: &str = "Once upon a time";
const TOKENS: u32 = 24;

struct Front {
    tiny: TinyCluster,
    http: Http,
}

impl Front {
    async fn start() -> Result<Self> {
        let tiny = TinyCluster::start(&[Agreement::Half]).await?;
        let http = Http::new(tiny.cluster.coordinator.url());
        Ok(Self { tiny, http })
    }

    /// What gRPC says.
    async fn grpc(&self, request: GenerateRequest) -> Result<Vec<Answer>> {
        self.tiny.client.generate_choices(request).await
    }

    /// The answer to `body`, which must be one.
    async fn answer(&self, path: &str, body: &Value) -> Result<Value> {
        let HttpAnswer { status, json, .. } = self.http.post(path, body).await?;
        anyhow::ensure!(status == StatusCode::OK, "{status}: {json}");
        Ok(json)
    }

    /// The same, streamed, with the counts at the end.
    async fn pieces(&self, path: &str, body: &Value) -> Result<Vec<Value>> {
        let streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
        self.http.stream(path, &with(body, &streamed)).await
    }
}

/// `body` with all fields of `more`.
fn with(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    body
}

fn completion() -> Value {
    json!({"prompt": PROMPT, "max_tokens": TOKENS, "ignore_eos": true, "temperature": 0})
}

fn conversation() -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": TOKENS,
        "ignore_eos": true, "temperature": 0})
}

/// The whole of what the pieces of choice `index` have at `field`.
fn joined(pieces: &[Value], index: usize, field: &str) -> String {
    pieces
        .iter()
        .flat_map(|piece| piece["choices"].as_array().into_iter().flatten())
        .filter(|choice| choice["index"] == index)
        .filter_map(|choice| choice.pointer(field)?.as_str())
        .collect()
}

#[tokio::test]
async fn a_completion_says_what_grpc_says_streamed_or_not() -> Result<()> {
    let front = Front::start().await?;
    let request = text_prompt(PROMPT).tokens(TOKENS);
    let sampled = request
        .clone()
        .seed(7)
        .choosing(|it| it.temperature = Some(1.0));
    let sampled_body = with(&completion(), &json!({"temperature": 1.0, "seed": 7}));
    // Drafts in every round, whether or not they pay.
    let fixed = json!({"speculative": {"n_min": 3, "n_max": 3}});
    for (request, body) in [(request, completion()), (sampled, sampled_body)] {
        let body = with(&body, &fixed);
        let expected = front.grpc(request).await?.remove(0);
        let whole = front.answer(COMPLETIONS, &body).await?;
        assert_eq!(whole["object"], "text_completion");
        assert_eq!(whole["choices"][0]["text"], expected.text);
        assert_eq!(whole["choices"][0]["finish_reason"], "length");

        let pieces = front.pieces(COMPLETIONS, &body).await?;
        assert_eq!(joined(&pieces, 0, "/text"), expected.text);
        assert_eq!(joined(&pieces, 0, "/finish_reason"), "length");
        let (last, before) = pieces.split_last().context("pieces")?;
        assert_eq!(last["usage"], whole["usage"]);
        assert_eq!(last["choices"], json!([]));
        assert!(before.iter().all(|piece| piece["usage"].is_null()));
        let metrics = &last["metrics"]["speculative_decoding"];
        assert!(metrics["num_draft_tokens"].as_u64() > Some(0), "{metrics}");
    }
    Ok(())
}

#[tokio::test]
async fn a_chat_says_what_grpc_says_streamed_or_not() -> Result<()> {
    let front = Front::start().await?;
    let expected = front.grpc(chat("Hi").tokens(TOKENS)).await?.remove(0);
    let parts =
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]});
    for body in [conversation(), with(&conversation(), &parts)] {
        let whole = front.answer(CHATS, &body).await?;
        assert_eq!(whole["object"], "chat.completion");
        let message = json!({"role": "assistant", "content": expected.text});
        assert_eq!(whole["choices"][0]["message"], message);
        assert_eq!(
            whole["usage"]["prompt_tokens"],
            expected.usage.prompt_tokens
        );
        assert_eq!(whole["usage"]["completion_tokens"], TOKENS);

        let pieces = front.pieces(CHATS, &body).await?;
        assert_eq!(pieces[0]["object"], "chat.completion.chunk");
        assert_eq!(joined(&pieces, 0, "/delta/role"), "assistant");
        assert_eq!(joined(&pieces, 0, "/delta/content"), expected.text);
        assert_eq!(joined(&pieces, 0, "/finish_reason"), "length");
    }
    Ok(())
}

#[tokio::test]
async fn a_chat_without_the_option_streams_no_counts() -> Result<()> {
    let front = Front::start().await?;
    let body = with(&conversation(), &json!({"stream": true}));
    let pieces = front.http.stream(CHATS, &body).await?;
    assert!(pieces.iter().all(|piece| piece.get("usage").is_none()));
    let reasons: Vec<_> = pieces
        .iter()
        .filter(|piece| !piece["choices"][0]["finish_reason"].is_null())
        .collect();
    assert_eq!(reasons.len(), 1, "one end");
    Ok(())
}

#[tokio::test]
async fn several_prompts_and_choices_are_numbered_through_and_begin_with_their_prompt() -> Result<()>
{
    let front = Front::start().await?;
    let prompts = ["Once", "upon a time"];
    let more = json!({"prompt": prompts, "n": 2, "echo": true, "seed": 3, "temperature": 1});
    let body = with(&completion(), &more);
    let whole = front.answer(COMPLETIONS, &body).await?;
    let pieces = front.pieces(COMPLETIONS, &body).await?;
    let mut prompt_tokens = 0;
    for (number, prompt) in prompts.iter().enumerate() {
        let request = text_prompt(prompt).tokens(TOKENS).seed(3).choices(2);
        let request = request.choosing(|it| it.temperature = Some(1.0));
        let answers = front.grpc(request).await?;
        prompt_tokens += answers[0].usage.prompt_tokens;
        for (choice, answer) in answers.iter().enumerate() {
            let index = number * 2 + choice;
            let expected = format!("{prompt}{}", answer.text);
            assert_eq!(whole["choices"][index]["index"], index);
            assert_eq!(whole["choices"][index]["text"], expected);
            assert_eq!(joined(&pieces, index, "/text"), expected);
        }
    }
    assert_eq!(whole["usage"]["prompt_tokens"], prompt_tokens);
    assert_eq!(whole["usage"]["completion_tokens"], 4 * TOKENS);
    Ok(())
}

#[tokio::test]
async fn token_ids_are_a_prompt_and_their_text_is_echoed() -> Result<()> {
    let front = Front::start().await?;
    let tokenized = front
        .answer("/tokenize", &json!({"prompt": PROMPT}))
        .await?;
    let ids: Vec<u32> = serde_json::from_value(tokenized["tokens"].clone())?;
    assert_eq!(tokenized["count"], ids.len());
    let request = ids_prompt(ids.clone()).tokens(TOKENS);
    let expected = front.grpc(request).await?.remove(0).text;
    for prompt in [json!(ids), json!([ids])] {
        let body = with(&completion(), &json!({"prompt": prompt, "echo": true}));
        let whole = front.answer(COMPLETIONS, &body).await?;
        assert_eq!(whole["choices"][0]["text"], format!("{PROMPT}{expected}"));
    }
    let text = front.answer("/detokenize", &json!({"tokens": ids})).await?;
    assert_eq!(text["prompt"], PROMPT);
    Ok(())
}

#[tokio::test]
async fn every_token_delivered_is_counted_and_has_its_logprobs_as_grpc_has_them() -> Result<()> {
    let front = Front::start().await?;
    let request = chat("Hi").tokens(TOKENS);
    let request = request.logprobs(2, LogprobsMode::RawLogprobs);
    let expected = front.grpc(request).await?.remove(0).logprobs;
    let body = with(
        &conversation(),
        &json!({"logprobs": true, "top_logprobs": 2}),
    );
    let whole = front.answer(CHATS, &body).await?;
    let pieces = front.pieces(CHATS, &body).await?;
    let of_pieces: Vec<&Value> = pieces
        .iter()
        .flat_map(|piece| piece["choices"].as_array().into_iter().flatten())
        .flat_map(|choice| {
            choice["logprobs"]["content"]
                .as_array()
                .into_iter()
                .flatten()
        })
        .collect();
    let entries = whole["choices"][0]["logprobs"]["content"]
        .as_array()
        .context("entries")?;
    assert_eq!(entries.iter().collect::<Vec<_>>(), of_pieces);
    assert_eq!(entries.len(), whole["usage"]["completion_tokens"]);
    let mut bytes: Vec<u8> = Vec::new();
    for (entry, expected) in entries.iter().zip(&expected) {
        let logprob = entry["logprob"].as_f64().context("a number")?;
        assert!((logprob - f64::from(expected.logprob)).abs() < 1e-6);
        assert_eq!(entry["top_logprobs"].as_array().map(Vec::len), Some(2));
        bytes.extend(serde_json::from_value::<Vec<u8>>(entry["bytes"].clone())?);
    }
    let text = whole["choices"][0]["message"]["content"].as_str();
    // The bytes of special tokens are among them, and their text is not in the text.
    let specials = String::from_utf8_lossy(&bytes).contains("<|");
    assert!(specials || Some(&*String::from_utf8_lossy(&bytes)) == text);
    Ok(())
}

#[tokio::test]
async fn a_completions_logprobs_lie_where_their_tokens_do() -> Result<()> {
    let front = Front::start().await?;
    let body = with(&completion(), &json!({"logprobs": 1}));
    let whole = front.answer(COMPLETIONS, &body).await?;
    let logprobs = &whole["choices"][0]["logprobs"];
    let lists = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];
    for list in lists {
        assert_eq!(
            logprobs[list].as_array().map(Vec::len),
            Some(TOKENS as usize)
        );
    }
    assert_eq!(logprobs["text_offset"][0], 0);
    Ok(())
}

#[tokio::test]
async fn a_stop_string_is_named_and_left_out() -> Result<()> {
    let front = Front::start().await?;
    let text = front.answer(COMPLETIONS, &completion()).await?;
    let text = text["choices"][0]["text"]
        .as_str()
        .context("a text")?
        .to_owned();
    let stop: String = text.chars().skip(4).take(3).collect();
    let before = text.find(&stop).context("in the text")?;
    for stops in [json!(stop), json!([stop])] {
        let body = with(&completion(), &json!({"stop": stops}));
        let choice = front.answer(COMPLETIONS, &body).await?["choices"][0].clone();
        assert_eq!(choice["text"], text[..before]);
        assert_eq!(choice["finish_reason"], "stop");
        assert_eq!(choice["stop_reason"], stop);
    }
    Ok(())
}

#[tokio::test]
async fn the_text_matches_what_it_must_in_every_spelling() -> Result<()> {
    let front = Front::start().await?;
    let schema = json!({"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"type": "boolean"}},
        "required": ["b", "a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    for more in [
        json!({"response_format": format}),
        json!({"guided_json": schema}),
        json!({"structured_outputs": {"json": schema}}),
    ] {
        let body = with(
            &json!({"prompt": PROMPT, "max_tokens": 64, "seed": 1}),
            &more,
        );
        let answer = front.answer(COMPLETIONS, &body).await?;
        let text = answer["choices"][0]["text"].as_str().context("a text")?;
        let value: Value = serde_json::from_str(text).context(text.to_owned())?;
        assert!(value["a"].is_boolean() && value["b"].is_boolean());
        assert!(
            text.find("\"b\"") < text.find("\"a\""),
            "the schema's order: {text}"
        );
    }
    let choice = json!({"guided_choice": ["yes \"sir\"", "no"]});
    let body = with(&json!({"prompt": PROMPT, "seed": 1}), &choice);
    let answer = front.answer(COMPLETIONS, &body).await?;
    let text = answer["choices"][0]["text"].as_str().context("a text")?;
    assert!(["yes \"sir\"", "no"].contains(&text), "{text}");
    Ok(())
}

#[tokio::test]
async fn speculation_is_controlled_in_either_spelling() -> Result<()> {
    let front = Front::start().await?;
    let drafted =
        |answer: &Value| answer["metrics"]["speculative_decoding"]["num_draft_tokens"].as_u64();
    let text = |answer: &Value| answer["choices"][0]["text"].clone();
    let off = with(&completion(), &json!({"speculative": {"enabled": false}}));
    let on = with(
        &completion(),
        &json!({"speculative.n_min": 4, "speculative.n_max": 4}),
    );
    let off = front.answer(COMPLETIONS, &off).await?;
    let on = front.answer(COMPLETIONS, &on).await?;
    assert_eq!(drafted(&off), Some(0));
    assert!(drafted(&on) > Some(0));
    assert_eq!(text(&off), text(&on));
    Ok(())
}

#[tokio::test]
async fn the_model_is_listed_and_found_and_the_document_is_there() -> Result<()> {
    let front = Front::start().await?;
    let models = front.http.get("/v1/models").await?.json;
    let id = models["data"][0]["id"].as_str().context("a model")?;
    let found = front.http.get(&format!("/v1/models/{id}")).await?;
    assert_eq!(found.json, models["data"][0]);
    let none = front.http.get("/v1/models/no/such").await?;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    assert!(front.http.get("/version").await?.json["version"].is_string());
    let document = front.http.get("/openapi.json").await?.json;
    assert!(document["paths"][CHATS]["post"].is_object());
    Ok(())
}
