//! Requests that are wrong get an error that names the field, and nobody else hears of them.

use anyhow::{Context as _, Result};
use proto::v1::structured_output::Form;
use proto::v1::{
    Chat, ChatMessage, GenerateRequest, LogprobsParams, Prompt, SamplingParams, Speculation,
    StopParams, StructuredOutput, prompt,
};
use specdec_tests::drafts::{Agreement, TinyCluster, byte_token};
use specdec_tests::{Client, Prompting, ids_prompt, text_prompt};
use tonic::Code;
use tonic_types::StatusExt as _;

/// Ids that the tiny models' tokenizer knows: 0 to this number, less one.
const VOCABULARY: u32 = 307;

fn with(change: impl FnOnce(&mut GenerateRequest)) -> GenerateRequest {
    let mut request = text_prompt("Hi");
    change(&mut request);
    request
}

/// A request that is wrong in one field, by that field's path.
type Wrong = (&'static str, GenerateRequest);

fn wrong_prompts() -> Vec<Wrong> {
    let ids = ids_prompt;
    let chat = |messages| {
        with(|it| {
            it.prompt = Some(Prompt {
                prompt: Some(prompt::Prompt::Chat(Chat {
                    messages,
                    ..Chat::default()
                })),
            });
        })
    };
    let wizard = ChatMessage {
        role: "wizard".to_owned(),
        content: "Hi".to_owned(),
        ..ChatMessage::default()
    };
    vec![
        ("prompt", GenerateRequest::default()),
        ("prompt", text_prompt("")),
        ("prompt", ids(vec![])),
        ("prompt.token_ids.ids[0]", ids(vec![4_000_000])),
        ("prompt.token_ids.ids[1]", ids(vec![1, VOCABULARY])),
        ("prompt", ids(vec![9; 5000])),
        ("prompt.chat.messages", chat(vec![])),
        ("prompt.chat.messages[0].role", chat(vec![wizard])),
    ]
}

fn wrong_sampling() -> Vec<Wrong> {
    type Change = fn(&mut SamplingParams);
    let cases: [(&'static str, Change); 27] = [
        ("sampling.temperature", |s| s.temperature = Some(f32::NAN)),
        ("sampling.temperature", |s| s.temperature = Some(-1.0)),
        ("sampling.temperature", |s| {
            s.temperature = Some(f32::INFINITY)
        }),
        ("sampling.top_p", |s| s.top_p = Some(0.0)),
        ("sampling.top_p", |s| s.top_p = Some(2.0)),
        ("sampling.top_p", |s| s.top_p = Some(f32::NAN)),
        ("sampling.min_p", |s| s.min_p = Some(-0.1)),
        ("sampling.min_p", |s| s.min_p = Some(1.5)),
        ("sampling.typical_p", |s| s.typical_p = Some(0.0)),
        ("sampling.typical_p", |s| s.typical_p = Some(1.1)),
        ("sampling.typical_p", |s| s.typical_p = Some(f32::NAN)),
        ("sampling.repetition_penalty", |s| {
            s.repetition_penalty = Some(0.0)
        }),
        ("sampling.repetition_penalty", |s| {
            s.repetition_penalty = Some(-1.0)
        }),
        ("sampling.repetition_penalty", |s| {
            s.repetition_penalty = Some(101.0)
        }),
        ("sampling.presence_penalty", |s| {
            s.presence_penalty = Some(2.1)
        }),
        ("sampling.presence_penalty", |s| {
            s.presence_penalty = Some(f32::NAN)
        }),
        ("sampling.frequency_penalty", |s| {
            s.frequency_penalty = Some(-2.1)
        }),
        ("sampling.frequency_penalty", |s| {
            s.frequency_penalty = Some(f32::NEG_INFINITY);
        }),
        ("sampling.logit_bias", |s| _ = s.logit_bias.insert(1, 100.5)),
        ("sampling.logit_bias", |s| {
            _ = s.logit_bias.insert(1, f32::NAN)
        }),
        ("sampling.logit_bias", |s| {
            _ = s.logit_bias.insert(VOCABULARY, 1.0)
        }),
        ("sampling.logit_bias", |s| {
            s.logit_bias = (0..4097).map(|id| (id, 1.0)).collect();
        }),
        ("sampling.allowed_token_ids[1]", |s| {
            s.allowed_token_ids = vec![0, VOCABULARY];
        }),
        ("sampling.banned_token_ids[0]", |s| {
            s.banned_token_ids = vec![u32::MAX];
        }),
        ("sampling.banned_token_ids", |s| {
            s.banned_token_ids = (0..VOCABULARY).collect();
        }),
        ("sampling.allowed_token_ids", |s| {
            s.allowed_token_ids = vec![3, 4];
            s.banned_token_ids = vec![4, 3, 5];
        }),
        ("sampling.banned_token_ids", |s| {
            s.banned_token_ids = vec![0; VOCABULARY as usize + 1];
        }),
    ];
    let wrong =
        |(field, change): (&'static str, Change)| (field, text_prompt("Hi").choosing(change));
    cases.into_iter().map(wrong).collect()
}

fn wrong_stops() -> Vec<Wrong> {
    let stop = |change: fn(&mut StopParams)| text_prompt("Hi").stopping(change);
    let strings =
        |strings: &[String]| with(|it| it.stop.get_or_insert_default().strings = strings.to_vec());
    let words = |words: &[String]| with(|it| it.bad_words = words.to_vec());
    let long = "x".repeat(1025);
    let letter = "a".to_owned();
    vec![
        ("stop.max_tokens", stop(|s| s.max_tokens = Some(0))),
        (
            "stop.min_tokens",
            stop(|s| (s.min_tokens, s.max_tokens) = (Some(6), Some(5))),
        ),
        ("stop.min_tokens", stop(|s| s.min_tokens = Some(4096))),
        (
            "stop.token_ids[2]",
            stop(|s| s.token_ids = vec![1, 2, VOCABULARY]),
        ),
        ("stop.token_ids", stop(|s| s.token_ids = vec![1; 4097])),
        ("stop.strings[1]", strings(&[letter.clone(), String::new()])),
        ("stop.strings[0]", strings(std::slice::from_ref(&long))),
        ("stop.strings", strings(&vec![letter.clone(); 65])),
        ("bad_words[1]", words(&[letter.clone(), String::new()])),
        ("bad_words[0]", words(&[long])),
        ("bad_words", words(&vec![letter; 1025])),
    ]
}

fn wrong_others() -> Vec<Wrong> {
    let speculation = |speculation| with(|it| it.speculation = Some(speculation));
    let mode = speculation(Speculation {
        mode: -3,
        ..Speculation::default()
    });
    let length = speculation(Speculation {
        max_draft_tokens: Some(17),
        ..Speculation::default()
    });
    let rule = |rule| {
        speculation(Speculation {
            rule,
            ..Speculation::default()
        })
    };
    let logprobs = |top, mode| with(|it| it.logprobs = Some(LogprobsParams { top, mode }));
    vec![
        ("speculation.mode", mode),
        ("speculation.max_draft_tokens", length),
        ("speculation.rule", rule(77)),
        ("speculation.rule", rule(-1)),
        ("logprobs.top", logprobs(21, 0)),
        ("logprobs.mode", logprobs(1, 3)),
        ("n", with(|it| it.n = Some(0))),
        ("n", with(|it| it.n = Some(65))),
    ]
}

/// Constraints that are wrong, and what cannot go with one.
fn wrong_structured() -> Vec<Wrong> {
    let form = |form| text_prompt("Hi").structured(form);
    let regex = || form(Form::Regex("[a-z]+".to_owned()));
    let mut bad_words = regex();
    bad_words.bad_words = vec!["x".to_owned()];
    vec![
        (
            "structured",
            with(|it| it.structured = Some(StructuredOutput::default())),
        ),
        ("structured.json_object", form(Form::JsonObject(false))),
        (
            "structured.json_schema",
            form(Form::JsonSchema(String::new())),
        ),
        (
            "structured.json_schema",
            form(Form::JsonSchema("{\"type\":".to_owned())),
        ),
        ("structured.regex", form(Form::Regex(String::new()))),
        (
            "structured.lark",
            form(Form::Lark("x".repeat((1 << 20) + 1))),
        ),
        ("stop.ignore_eos", regex().stopping(|s| s.ignore_eos = true)),
        (
            "stop.min_tokens",
            regex().stopping(|s| s.min_tokens = Some(1)),
        ),
        ("stop.strings", regex().stop_string("x")),
        (
            "sampling.allowed_token_ids",
            regex().choosing(|s| s.allowed_token_ids = vec![1]),
        ),
        ("bad_words", bad_words),
    ]
}

/// What only the target can tell, when it has the request: grammars that do not compile, and texts
/// that nothing can follow, at their beginning or later.
fn refused_by_the_target() -> Vec<Wrong> {
    let form = |form| text_prompt("Hi").structured(form);
    let schema = |schema: &str| form(Form::JsonSchema(schema.to_owned()));
    let regex = |regex: &str| form(Form::Regex(regex.to_owned()));
    let lark = |lark: &str| form(Form::Lark(lark.to_owned()));
    let without = |letters: &[u8], request: GenerateRequest| {
        let banned = letters.iter().map(|it| byte_token(*it)).collect();
        request.choosing(|s| s.banned_token_ids = banned)
    };
    vec![
        ("structured.json_schema", schema("7")),
        ("structured.json_schema", schema("false")),
        ("structured.json_schema", schema(r#"{"type": "strange"}"#)),
        (
            "structured.json_schema",
            schema(r##"{"$ref": "#/$defs/none"}"##),
        ),
        (
            "structured.json_schema",
            schema(r#"{"type": "string", "pattern": "("}"#),
        ),
        ("structured.regex", regex("(unclosed")),
        ("structured.regex", regex("a(?=b)")),
        ("structured.lark", lark("start: nowhere")),
        ("structured.lark", lark("this is no grammar")),
        ("sampling", without(b"ab", regex("[ab]{4}"))),
        ("sampling", without(b"c", regex("[ab]{5}c"))),
    ]
}

async fn refusal(client: &Client, request: GenerateRequest) -> Result<tonic::Status> {
    client
        .raw()
        .generate(request)
        .await
        .err()
        .context("the request is refused before a stream begins")
}

fn check_refusal(status: &tonic::Status, field: &str, request: &GenerateRequest) -> Result<()> {
    let what = format!("{request:.400?}");
    assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
    let violations = status.get_details_bad_request().context("details")?;
    let named = &violations.field_violations[0].field;
    assert!(
        named.starts_with(field),
        "{what} names {named}, not {field}: {status}"
    );
    Ok(())
}

#[tokio::test]
async fn wrong_requests_are_refused_with_their_field_named() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let client = &tiny.client;
    let wrong = [
        wrong_prompts(),
        wrong_sampling(),
        wrong_stops(),
        wrong_others(),
        wrong_structured(),
    ];
    for (field, request) in wrong.into_iter().flatten() {
        let status = refusal(client, request.clone()).await.context(field)?;
        check_refusal(&status, field, &request)?;
    }
    let answer = client.generate(text_prompt("Hi").tokens(5)).await?;
    assert_eq!(answer.ids.len(), 5, "the service goes on");
    Ok(())
}

#[tokio::test]
async fn what_the_target_refuses_names_the_field_and_harms_nobody_else() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let client = &tiny.client;
    let long = || text_prompt("Once").tokens(600);
    let plain = client.generate(long().plain()).await?;
    let refusals = async {
        for (field, request) in refused_by_the_target() {
            for k in [0, 4] {
                let request = request.clone().drafting(k).at_most(60);
                let error = client
                    .generate(request.clone())
                    .await
                    .err()
                    .context(field)?;
                let status = error.downcast_ref::<tonic::Status>().context(field)?;
                check_refusal(status, field, &request)?;
            }
        }
        Ok(())
    };
    let (neighbour, ()) = futures::try_join!(client.generate(long()), refusals)?;
    assert_eq!(neighbour.ids, plain.ids);
    assert_eq!(client.generate(long()).await?.ids, plain.ids);
    Ok(())
}

#[tokio::test]
async fn an_over_long_prompt_names_both_sizes() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let client = &tiny.client;
    let request = ids_prompt(vec![9; 4096]);
    let status = refusal(client, request).await?;
    assert!(status.message().contains("4096"), "{status}");
    let fits = ids_prompt(vec![9; 4095]);
    let answer = client.generate(fits).await?;
    assert_eq!(answer.ids.len(), 1, "one token is left of the context");
    assert_eq!(answer.reason, proto::v1::FinishReason::Length);
    Ok(())
}

#[tokio::test]
async fn an_unknown_model_is_not_found() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let request = GenerateRequest {
        model: "gpt-17".to_owned(),
        ..text_prompt("Hi")
    };
    let status = refusal(&tiny.client, request).await?;
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("gpt-17"), "{status}");
    Ok(())
}

#[tokio::test]
async fn one_token_prompts_and_answers_work() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let answer = tiny.client.generate(ids_prompt(vec![5]).tokens(1)).await?;
    assert_eq!(answer.ids.len(), 1);
    assert_eq!(answer.usage.prompt_tokens, 1);
    Ok(())
}
