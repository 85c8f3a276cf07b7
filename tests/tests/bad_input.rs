//! Bad input gets an error that names the field or the file, before any work, and nothing crashes.

use anyhow::{Context as _, Result};
use proto::v1::{
    Chat, ChatMessage, GenerateRequest, Prompt, SamplingParams, Speculation, StopParams, TokenIds,
    prompt,
};
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{Client, Cluster, ClusterOptions, Prompting, refused, text_prompt};
use std::io::Write as _;
use tonic::Code;
use tonic_types::StatusExt as _;

fn sampled(sampling: SamplingParams) -> GenerateRequest {
    text_prompt("Hi").sampling(sampling)
}

fn prompted(prompt: prompt::Prompt) -> GenerateRequest {
    GenerateRequest {
        prompt: Some(Prompt {
            prompt: Some(prompt),
        }),
        ..GenerateRequest::default()
    }
}

/// Requests that are wrong in one field, with that field's path.
fn wrong_requests() -> Vec<(&'static str, GenerateRequest)> {
    let temperature = |value| {
        sampled(SamplingParams {
            temperature: Some(value),
            ..SamplingParams::default()
        })
    };
    let top_p = |value| {
        sampled(SamplingParams {
            top_p: Some(value),
            ..SamplingParams::default()
        })
    };
    let min_p = |value| {
        sampled(SamplingParams {
            min_p: Some(value),
            ..SamplingParams::default()
        })
    };
    let speculation = |speculation| GenerateRequest {
        speculation: Some(speculation),
        ..text_prompt("Hi")
    };
    vec![
        ("sampling.temperature", temperature(f32::NAN)),
        ("sampling.temperature", temperature(-1.0)),
        ("sampling.temperature", temperature(f32::INFINITY)),
        ("sampling.top_p", top_p(0.0)),
        ("sampling.top_p", top_p(2.0)),
        ("sampling.top_p", top_p(f32::NAN)),
        ("sampling.min_p", min_p(-0.1)),
        ("sampling.min_p", min_p(1.5)),
        ("stop.max_tokens", text_prompt("Hi").at_most(0)),
        ("prompt", GenerateRequest::default()),
        ("prompt", text_prompt("")),
        (
            "prompt",
            prompted(prompt::Prompt::TokenIds(TokenIds { ids: vec![] })),
        ),
        (
            "prompt",
            prompted(prompt::Prompt::TokenIds(TokenIds {
                ids: vec![4_000_000],
            })),
        ),
        (
            "prompt",
            prompted(prompt::Prompt::TokenIds(TokenIds { ids: vec![9; 5000] })),
        ),
        (
            "prompt",
            prompted(prompt::Prompt::Chat(Chat { messages: vec![] })),
        ),
        (
            "prompt",
            prompted(prompt::Prompt::Chat(Chat {
                messages: vec![ChatMessage {
                    role: "wizard".to_owned(),
                    content: "Hi".to_owned(),
                }],
            })),
        ),
        (
            "speculation.rule",
            speculation(Speculation {
                rule: 77,
                ..Speculation::default()
            }),
        ),
        (
            "speculation.mode",
            speculation(Speculation {
                mode: -3,
                ..Speculation::default()
            }),
        ),
        (
            "speculation.max_draft_tokens",
            speculation(Speculation {
                max_draft_tokens: Some(17),
                ..Speculation::default()
            }),
        ),
    ]
}

async fn cluster() -> Result<(tempfile::TempDir, Cluster)> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let draft = write_draft(folder.path(), Agreement::Half)?;
    let cluster = Cluster::start(ClusterOptions::new(target, [draft])).await?;
    Ok((folder, cluster))
}

async fn refusal(client: &Client, request: GenerateRequest) -> Result<tonic::Status> {
    client
        .raw()
        .generate(request)
        .await
        .err()
        .context("the request is refused before a stream begins")
}

#[tokio::test]
async fn wrong_requests_are_refused_with_their_field_named() -> Result<()> {
    let (_folder, cluster) = cluster().await?;
    let client = cluster.client().await?;
    for (field, request) in wrong_requests() {
        let status = refusal(&client, request.clone())
            .await
            .context(format!("{request:?}"))?;
        assert_eq!(
            status.code(),
            Code::InvalidArgument,
            "{request:?}: {status}"
        );
        let violations = status.get_details_bad_request().context("details")?;
        let named = &violations.field_violations[0].field;
        assert!(
            named.starts_with(field),
            "{request:?} names {named}, not {field}"
        );
    }
    let answer = client.generate(text_prompt("Hi").tokens(5)).await?;
    assert_eq!(answer.ids.len(), 5, "the service goes on");
    Ok(())
}

#[tokio::test]
async fn an_over_long_prompt_names_both_sizes() -> Result<()> {
    let (_folder, cluster) = cluster().await?;
    let client = cluster.client().await?;
    let request = prompted(prompt::Prompt::TokenIds(TokenIds { ids: vec![9; 4096] }));
    let status = refusal(&client, request).await?;
    assert!(status.message().contains("4096"), "{status}");
    let fits = prompted(prompt::Prompt::TokenIds(TokenIds { ids: vec![9; 4095] }));
    let answer = client.generate(fits).await?;
    assert_eq!(answer.ids.len(), 1, "one token is left of the context");
    assert_eq!(answer.reason, proto::v1::FinishReason::Length);
    Ok(())
}

#[tokio::test]
async fn an_unknown_model_is_not_found() -> Result<()> {
    let (_folder, cluster) = cluster().await?;
    let request = GenerateRequest {
        model: "gpt-17".to_owned(),
        ..text_prompt("Hi")
    };
    let status = refusal(&cluster.client().await?, request).await?;
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("gpt-17"), "{status}");
    Ok(())
}

#[tokio::test]
async fn one_token_prompts_and_answers_work() -> Result<()> {
    let (_folder, cluster) = cluster().await?;
    let request = prompted(prompt::Prompt::TokenIds(TokenIds { ids: vec![5] }));
    let request = GenerateRequest {
        stop: Some(StopParams {
            max_tokens: Some(1),
            ignore_eos: true,
        }),
        ..request
    };
    let answer = cluster.client().await?.generate(request).await?;
    assert_eq!(answer.ids.len(), 1);
    assert_eq!(answer.usage.prompt_tokens, 1);
    Ok(())
}

#[tokio::test]
async fn workers_name_the_model_file_that_they_cannot_use() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let valid = std::fs::read(write_target(folder.path())?)?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, bytes: &[u8]| -> Result<String> {
        let path = path(name);
        std::fs::File::create(&path)?.write_all(bytes)?;
        Ok(path)
    };
    // The counts of tensors and of metadata entries follow magic and version.
    let mut absurd = valid.clone();
    absurd[8..24].fill(0xff);
    let files = [
        path("absent.gguf"),
        write("empty.gguf", b"")?,
        write("text.gguf", b"this is not a model")?,
        write("header.gguf", &valid[..100])?,
        write("truncated.gguf", &valid[..valid.len() - 1000])?,
        write("absurd.gguf", &absurd)?,
    ];
    for program in ["target-worker", "draft-worker"] {
        for file in &files {
            let (code, log) = refused(program, &["--model", file]).await?;
            assert!(
                code.is_some_and(|code| code != 0),
                "{program} {file}: {code:?}"
            );
            assert!(log.contains(file.as_str()), "{program} names {file}: {log}");
            assert!(!log.contains("panicked"), "{program} {file}: {log}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn wrong_flags_exit_with_64_and_name_the_flag() -> Result<()> {
    let cases: [(&str, &[&str], &str); 5] = [
        (
            "target-worker",
            &["--model", "no-such-preset"],
            "no-such-preset",
        ),
        (
            "target-worker",
            &["--model", "synthetic:agreement=2"],
            "agreement",
        ),
        (
            "draft-worker",
            &["--model", "synthetic", "--max-sequences", "0"],
            "max-sequences",
        ),
        ("coordinator", &["--target", "not a url"], "target"),
        (
            "coordinator",
            &["--target", "http://127.0.0.1:1", "--spec-draft-n-max", "99"],
            "spec-draft-n-max",
        ),
    ];
    for (program, args, named) in cases {
        let (code, log) = refused(program, args).await?;
        assert_eq!(code, Some(64), "{program} {args:?}: {log}");
        assert!(
            log.contains(named),
            "{program} {args:?} names {named}: {log}"
        );
    }
    Ok(())
}
