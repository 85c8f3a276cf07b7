//! What operators see: metrics that add up, health that tells the truth, calls with names.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use futures::future::try_join_all;
use proto::v1::{Finished, GenerateRequest, generate_response::Event};
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{
    Client, Cluster, ClusterOptions, PATIENCE, Prompting, Scrape, eventually, get, text_prompt,
};

const NAMES: &str = include_str!("../../docs/telemetry.md");

async fn cluster(args: &[&str]) -> Result<(tempfile::TempDir, Cluster)> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let draft = write_draft(folder.path(), Agreement::Half)?;
    let mut options = ClusterOptions::new(target, [draft]);
    options.coordinator_args = args.iter().map(ToString::to_string).collect();
    Ok((folder, Cluster::start(options).await?))
}

fn request(seed: u64) -> GenerateRequest {
    let prompt = "Once upon a time there was a wolf, and it was a good wolf, and it sang";
    text_prompt(prompt).seed(seed).drafting(3).tokens(60)
}

/// What is told at the end of each choice.
async fn ends(client: &Client, request: GenerateRequest) -> Result<Vec<Finished>> {
    let mut stream = client.raw().generate(request).await?.into_inner();
    let mut ends = Vec::new();
    while let Some(response) = stream.next().await {
        if let Some(Event::Finished(finished)) = response?.event {
            ends.push(finished);
        }
    }
    Ok(ends)
}

#[tokio::test]
async fn the_counters_are_the_sums_of_what_requests_were_told() -> Result<()> {
    let (_folder, cluster) = cluster(&[]).await?;
    let client = cluster.client().await?;
    let requests = (0..6).map(|seed| ends(&client, request(seed).choices(1 + seed as u32 % 2)));
    let mut ends = try_join_all(requests).await?.concat();
    // What was prefilled before is found in the cache.
    ends.extend(self::ends(&client, request(7)).await?);
    let scrape = Scrape::of(cluster.coordinator.url()).await?;
    let (mut accepted_at, mut usage, mut stats) = (vec![0; 16], [0; 3], [0; 8]);
    for end in &ends {
        let own = end.usage.context("usage")?;
        for (sum, own) in
            usage
                .iter_mut()
                .zip([own.prompt_tokens, own.completion_tokens, own.cached_tokens])
        {
            *sum += own;
        }
        let own = end.speculation.clone().context("speculation")?;
        for (accepted, rounds) in own.acceptance_histogram.iter().enumerate() {
            accepted_at[..accepted]
                .iter_mut()
                .for_each(|at| *at += rounds);
        }
        for (sum, own) in stats.iter_mut().zip([
            own.rounds,
            own.draft_tokens,
            own.accepted_draft_tokens,
            own.ngram_draft_tokens,
            own.accepted_ngram_tokens,
            own.ahead_hits,
            own.ahead_misses,
            own.acceptance_histogram.iter().sum(),
        ]) {
            *sum += own;
        }
        let timings = end.timings.context("timings")?;
        assert!(
            timings.queue_ms >= 0.0 && timings.prompt_ms > 0.0,
            "{end:?}"
        );
        assert!(timings.predicted_ms > 0.0, "{end:?}");
    }
    assert!(usage[2] > 0, "prompts are found in the cache");
    let choices = ends.len() as u32;
    let ngram = &["source=\"ngram\""][..];
    for (name, labels, expected) in [
        ("prompt_tokens_total", &[][..], usage[0]),
        ("generation_tokens_total", &[], usage[1]),
        ("prefix_cache_queries_total", &[], usage[0]),
        ("prefix_cache_hits_total", &[], usage[2]),
        ("verify_rounds_total", &[], stats[0]),
        ("spec_decode_num_draft_tokens_total", &[], stats[1]),
        ("spec_decode_num_accepted_tokens_total", &[], stats[2]),
        ("spec_decode_num_draft_tokens_total", ngram, stats[3]),
        ("spec_decode_num_accepted_tokens_total", ngram, stats[4]),
        ("draft_ahead_hits_total", &[], stats[5]),
        ("draft_ahead_misses_total", &[], stats[6]),
        ("spec_decode_num_drafts_total", &[], stats[7]),
        ("time_to_first_token_seconds_count", &[], choices),
        ("requests_total", &["outcome=\"length\""], 7),
        ("requests_total", &[], 7),
        ("requests_running", &[], 0),
        ("requests_waiting", &[], 0),
    ] {
        let sum = scrape.sum(&format!("specdec_{name}"), labels);
        assert_eq!(sum, f64::from(expected), "{name} {labels:?}");
    }
    for (position, expected) in accepted_at.into_iter().enumerate() {
        let labels = [&*format!("position=\"{position}\"")];
        let name = "specdec_spec_decode_num_accepted_tokens_per_pos_total";
        assert_eq!(scrape.sum(name, &labels), f64::from(expected), "{position}");
    }
    for name in [
        "verify_step_seconds",
        "draft_step_seconds",
        "worker_rtt_seconds",
    ] {
        let count = scrape.sum(&format!("specdec_{name}_count"), &[]);
        assert!(count > 0.0, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_was_given_up_is_counted_once_with_the_tokens_that_it_got() -> Result<()> {
    let (_folder, cluster) = cluster(&[]).await?;
    let client = cluster.client().await?;
    let mut stream = client
        .raw()
        .generate(request(1).tokens(2000))
        .await?
        .into_inner();
    let mut tokens = 0;
    while tokens < 20 {
        let response = stream.next().await.context("more")??;
        if let Some(Event::Delta(delta)) = response.event {
            tokens += delta.token_ids.len();
        }
    }
    let running = Scrape::of(cluster.coordinator.url()).await?;
    assert_eq!(running.sum("specdec_requests_running", &[]), 1.0);
    drop(stream);
    let ended = || async {
        let scrape = Scrape::of(cluster.coordinator.url()).await;
        scrape.is_ok_and(|scrape| scrape.sum("specdec_requests_running", &[]) == 0.0)
    };
    eventually("the gauge is back", PATIENCE, ended).await?;
    let scrape = Scrape::of(cluster.coordinator.url()).await?;
    assert_eq!(scrape.sum("specdec_requests_total", &[]), 1.0);
    let cancelled = &["outcome=\"cancelled\""];
    assert_eq!(scrape.sum("specdec_requests_total", cancelled), 1.0);
    let generated = scrape.sum("specdec_generation_tokens_total", &[]);
    assert!(
        generated >= tokens as f64 && generated < 2000.0,
        "{generated}"
    );
    let log = cluster.coordinator.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|it| it.contains("request ended"))
        .collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("cancelled"), "{}", lines[0]);
    assert!(!log.contains("wolf"), "no text of users");
    Ok(())
}

#[tokio::test]
async fn a_target_that_hangs_is_not_serving_until_it_goes_on() -> Result<()> {
    let (_folder, cluster) = cluster(&["--health-deadline-ms", "2000"]).await?;
    let (client, url) = (cluster.client().await?, cluster.coordinator.url());
    let health = || async { get(url, "/health").await };
    assert_eq!(health().await?.status, 200);
    cluster.target.signal("STOP").await?;
    let hung = || async { !client.is_serving().await };
    eventually("gRPC health says so", PATIENCE, hung).await?;
    let told = health().await?;
    assert_eq!(told.status, 503);
    // Not that the connection was lost, which takes longer to find out.
    assert_eq!(told.json()?["reason"], "the target does not answer");
    assert_eq!(get(url, "/ready").await?.status, 503);
    cluster.target.signal("CONT").await?;
    eventually("it serves again", PATIENCE, || client.is_serving()).await?;
    let serves = || async { health().await.is_ok_and(|told| told.status == 200) };
    eventually("over HTTP as well", PATIENCE, serves).await?;
    client.generate(request(1)).await?;
    Ok(())
}

#[tokio::test]
async fn a_draft_worker_that_hangs_only_degrades() -> Result<()> {
    let (_folder, mut cluster) = cluster(&["--health-deadline-ms", "2000"]).await?;
    let client = cluster.client().await?;
    let url = cluster.coordinator.url().to_owned();
    let status = async |wanted: &str, state: &str| {
        let told = || async {
            let told = get(&url, "/health")
                .await
                .and_then(|told| Ok((told.status, told.json()?)));
            told.is_ok_and(|(code, json)| {
                code == 200 && json["status"] == wanted && json["drafts"][0]["state"] == state
            })
        };
        eventually(&format!("{wanted}, {state}"), PATIENCE, told).await
    };
    status("ok", "serving").await?;
    cluster.drafts[0].signal("STOP").await?;
    status("degraded", "hung").await?;
    assert!(client.is_serving().await);
    client.generate(request(1)).await?;
    cluster.drafts[0].signal("CONT").await?;
    status("ok", "serving").await?;
    cluster.drafts[0].kill().await?;
    status("degraded", "disconnected").await?;
    assert!(client.is_serving().await);
    Ok(())
}

#[tokio::test]
async fn a_coordinator_without_a_target_is_not_healthy_and_says_why() -> Result<()> {
    let args = ["--target", "http://127.0.0.1:1"].map(str::to_owned);
    let coordinator = specdec_tests::Process::start("coordinator", &args).await?;
    let told = get(coordinator.url(), "/health").await?;
    assert_eq!(told.status, 503);
    assert_eq!(told.json()?["reason"], "the target is not connected");
    assert_eq!(get(coordinator.url(), "/metrics").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_call_has_the_name_that_its_client_gave_it_in_its_answer_and_in_the_log() -> Result<()> {
    let (_folder, cluster) = cluster(&[]).await?;
    let client = cluster.client().await?;
    let mut named = tonic::Request::new(request(1));
    named
        .metadata_mut()
        .insert("x-request-id", "call-4711".parse()?);
    let answer = client.raw().generate(named).await?;
    assert_eq!(
        answer.metadata().get("x-request-id").context("named")?,
        "call-4711"
    );
    let mut stream = answer.into_inner();
    while let Some(response) = stream.next().await {
        response?;
    }
    let logged = || async { cluster.coordinator.log().contains("call-4711") };
    eventually("it is in the log", PATIENCE, logged).await?;
    let unnamed = get(cluster.coordinator.url(), "/v1/models").await?;
    let made = unnamed.headers.get("x-request-id").context("a name")?;
    assert_eq!(made.len(), 32);
    Ok(())
}

#[tokio::test]
async fn every_metric_is_in_the_documentation() -> Result<()> {
    let (_folder, cluster) = cluster(&[]).await?;
    cluster.client().await?.generate(request(1)).await?;
    let mut programs = vec![&cluster.coordinator, &cluster.target];
    programs.extend(&cluster.drafts);
    for program in programs {
        let body = get(program.url(), "/metrics").await?.body;
        let helps = body.lines().filter_map(|line| line.strip_prefix("# HELP "));
        let names: Vec<_> = helps.filter_map(|line| line.split(' ').next()).collect();
        assert!(names.len() > 5, "{body}");
        for name in names {
            assert!(
                NAMES.contains(&format!("`{name}`")),
                "{name} is not documented"
            );
        }
    }
    Ok(())
}
