//! A draft worker's model can be asked for by its name, and answers alone.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use proto::v1::{GenerateRequest, ListModelsRequest, ModelRole, SamplingParams};
use serde_json::json;
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{
    Client, Cluster, ClusterOptions, Http, PATIENCE, Process, Prompting, SequenceCount, eventually,
    text_prompt,
};
use tonic::Code;

const PROMPT: &str = "Once upon a time";
const DRAFT: &str = "draft-half";

/// A request of sampled tokens, with drafts where the model has any.
fn request(model: &str, seed: u64, tokens: u32) -> GenerateRequest {
    GenerateRequest {
        model: model.to_owned(),
        ..text_prompt(PROMPT)
            .sampling(SamplingParams::default())
            .seed(seed)
            .drafting(3)
            .tokens(tokens)
    }
}

/// A target, and one draft worker whose model can be asked for.
struct Both {
    cluster: Cluster,
    client: Client,
    draft_model: String,
    target_model: String,
    _folder: tempfile::TempDir,
}

impl Both {
    async fn start(coordinator_args: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let target_model = write_target(folder.path())?;
        let draft_model = write_draft(folder.path(), Agreement::Half)?;
        let mut options = ClusterOptions::new(target_model.clone(), [draft_model.clone()]);
        options.coordinator_args = coordinator_args.iter().map(ToString::to_string).collect();
        let cluster = Cluster::start(options).await?;
        Ok(Self {
            client: cluster.client().await?,
            cluster,
            draft_model,
            target_model,
            _folder: folder,
        })
    }

    /// The same with the draft's model known.
    async fn ready(coordinator_args: &[&str]) -> Result<Self> {
        let both = Self::start(coordinator_args).await?;
        both.listed().await?;
        Ok(both)
    }

    async fn models(&self) -> Result<Vec<(String, ModelRole)>> {
        let models = self.client.raw().list_models(ListModelsRequest {}).await?;
        let models = models.into_inner().models.into_iter();
        Ok(models.map(|it| (it.id.clone(), it.role())).collect())
    }

    /// Waits until the draft's model can be asked for.
    async fn listed(&self) -> Result<()> {
        let draft = (DRAFT.to_owned(), ModelRole::Draft);
        eventually("the draft's model is listed", PATIENCE, || async {
            self.models()
                .await
                .is_ok_and(|models| models.contains(&draft))
        })
        .await
    }

    async fn refused(&self, model: &str) -> Result<tonic::Status> {
        let answer = self.client.raw().generate(request(model, 1, 4)).await;
        answer.err().context("it is answered")
    }
}

/// What `model` says to the requests when it is a target and there are no drafts.
async fn as_a_target(model: &str, requests: &[GenerateRequest]) -> Result<Vec<String>> {
    let cluster = Cluster::start(ClusterOptions::new(model, [""; 0])).await?;
    let unnamed = requests.iter().cloned().map(|request| GenerateRequest {
        model: String::new(),
        ..request
    });
    let answers = cluster.client().await?.generate_all(unnamed).await?;
    Ok(answers.into_iter().map(|answer| answer.text).collect())
}

#[tokio::test]
async fn a_draft_says_what_it_would_say_as_a_target_and_the_target_goes_on_beside_it() -> Result<()>
{
    let both = Both::ready(&[]).await?;
    let requests = |model: &str| {
        (0..6)
            .map(|seed| request(model, seed, 60))
            .collect::<Vec<_>>()
    };
    let (of_draft, of_target) = (requests(DRAFT), requests("target"));
    let mixed: Vec<_> = std::iter::zip(&of_draft, &of_target)
        .flat_map(|(draft, target)| [draft.clone(), target.clone()])
        .collect();
    let answers = both.client.generate_all(mixed).await?;
    let draft_alone = as_a_target(&both.draft_model, &of_draft).await?;
    let target_alone = as_a_target(&both.target_model, &of_target).await?;
    assert_ne!(draft_alone, target_alone, "they are two models");
    for (index, pair) in answers.chunks(2).enumerate() {
        assert_eq!(pair[0].text, draft_alone[index], "draft, seed {index}");
        assert_eq!(pair[0].speculation.draft_tokens, 0, "it decodes plainly");
        assert_eq!(pair[1].text, target_alone[index], "target, seed {index}");
    }
    let drafted = answers.iter().map(|it| it.speculation.draft_tokens);
    assert!(drafted.sum::<u32>() > 0, "the target had drafts meanwhile");
    Ok(())
}

#[tokio::test]
async fn both_fronts_list_the_draft_and_answer_with_it() -> Result<()> {
    let both = Both::ready(&[]).await?;
    let target = ("target".to_owned(), ModelRole::Target);
    let draft = (DRAFT.to_owned(), ModelRole::Draft);
    assert_eq!(both.models().await?, [target, draft]);
    let http = Http::new(both.cluster.coordinator.url());
    let models = http.get("/v1/models").await?.json;
    assert_eq!(models["data"][1]["id"], DRAFT);
    assert_eq!(models["data"][1]["role"], "draft");
    let body = json!({"model": DRAFT, "prompt": PROMPT, "max_tokens": 24, "ignore_eos": true,
        "seed": 5});
    let answer = http.post("/v1/completions", &body).await?.json;
    let over_grpc = both.client.generate(request(DRAFT, 5, 24)).await?;
    assert_eq!(answer["model"], DRAFT);
    assert_eq!(answer["choices"][0]["text"], over_grpc.text.as_str());
    Ok(())
}

#[tokio::test]
async fn an_unknown_model_is_not_found_and_told_what_there_is() -> Result<()> {
    let both = Both::ready(&[]).await?;
    let status = both.refused("nobody").await?;
    assert_eq!(status.code(), Code::NotFound);
    for name in ["`nobody`", "`target`", "`draft-half`"] {
        assert!(status.message().contains(name), "{name}: {status}");
    }
    Ok(())
}

#[tokio::test]
async fn drafts_cannot_be_asked_for_where_the_operator_says_so_or_the_target_has_the_name()
-> Result<()> {
    let off = Both::start(&["--serve-draft-models", "off"]).await?;
    assert_eq!(off.models().await?.len(), 1);
    assert_eq!(off.refused(DRAFT).await?.code(), Code::NotFound);

    let named = Both::start(&["--model-name", DRAFT]).await?;
    let told = || async {
        let log = named.cluster.coordinator.log();
        log.contains("cannot be asked for alone")
    };
    eventually("the clash is logged", PATIENCE, told).await?;
    let target = (DRAFT.to_owned(), ModelRole::Target);
    assert_eq!(named.models().await?, [target]);
    let answer = named.client.generate(request(DRAFT, 2, 40)).await?;
    let expected = as_a_target(&named.target_model, &[request("", 2, 40)]).await?;
    assert_eq!(answer.text, expected[0]);
    Ok(())
}

#[tokio::test]
async fn a_draft_that_is_killed_is_unavailable_until_it_is_back_and_the_target_serves_on()
-> Result<()> {
    let mut both = Both::ready(&["--target-timeout-ms", "300"]).await?;
    let before = both.client.generate(request(DRAFT, 3, 40)).await?;
    let mut running = both
        .client
        .raw()
        .generate(request(DRAFT, 3, 3500))
        .await?
        .into_inner();
    running.next().await.context("a first token")??;
    let draft = &mut both.cluster.drafts[0];
    let address = draft.url().trim_start_matches("http://").to_owned();
    draft.kill().await?;
    let ended = loop {
        match running.next().await.context("an end that says why")? {
            Ok(_) => {}
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    assert_eq!(both.refused(DRAFT).await?.code(), Code::Unavailable);
    assert!(both.client.is_serving().await, "health is the target's");
    both.client.generate(request("target", 3, 20)).await?;
    let args = ["--model".to_owned(), both.draft_model.clone()];
    both.cluster.drafts[0] = Process::start_at("draft-worker", &args, &address).await?;
    both.listed().await?;
    let after = both.client.generate(request(DRAFT, 3, 40)).await?;
    assert_eq!(after.text, before.text);
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_a_draft_leaves_nothing_there() -> Result<()> {
    let both = Both::ready(&[]).await?;
    let mut held = SequenceCount::of_target(both.cluster.drafts[0].url()).await?;
    let mut stream = both
        .client
        .raw()
        .generate(request(DRAFT, 1, 3500))
        .await?
        .into_inner();
    stream.next().await.context("a first token")??;
    held.reaches(1, PATIENCE).await?;
    drop(stream);
    held.reaches(0, PATIENCE).await
}
