//! Speculation never changes a text: byte equality with plain decoding, for every rule, draft
//! length, draft and load.

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use proto::v1::{GenerateRequest, SamplingParams};
use specdec_tests::drafts::{Agreement, write_draft, write_target};
use specdec_tests::{Answer, Client, Cluster, ClusterOptions, Prompting, text_prompt};

const TOKENS: u32 = 48;
const PROMPTS: [&str; 3] = ["The answer is", "fn main() {", "Příliš žluťoučký kůň 🐴"];

/// The ways to choose tokens, greedy and coupled.
fn samplings() -> Vec<(&'static str, SamplingParams)> {
    let plain = |temperature| SamplingParams {
        temperature: Some(temperature),
        ..SamplingParams::default()
    };
    vec![
        ("greedy", plain(0.0)),
        ("temperature 0.5", plain(0.5)),
        ("temperature 1", plain(1.0)),
        ("temperature 2", plain(2.0)),
        (
            "top-k 5",
            SamplingParams {
                top_k: Some(5),
                ..plain(1.0)
            },
        ),
        (
            "top-p 0.7",
            SamplingParams {
                top_p: Some(0.7),
                ..plain(1.0)
            },
        ),
        (
            "min-p 0.1",
            SamplingParams {
                min_p: Some(0.1),
                ..plain(1.5)
            },
        ),
    ]
}

fn same_text(what: &str, plain: &Answer, answer: &Answer) {
    assert_eq!(answer.ids, plain.ids, "{what}: token ids");
    assert_eq!(answer.text, plain.text, "{what}: text");
    assert_eq!(answer.reason, plain.reason, "{what}: finish reason");
    assert_eq!(answer.usage, plain.usage, "{what}: usage");
    assert_eq!(
        answer.ids.len(),
        answer.usage.completion_tokens as usize,
        "{what}: delivered tokens are the usage"
    );
    assert_eq!(answer.origins.len(), answer.ids.len(), "{what}: origins");
}

fn request(prompt: usize, sampling: &SamplingParams) -> GenerateRequest {
    text_prompt(PROMPTS[prompt % PROMPTS.len()])
        .sampling(*sampling)
        .seed(7 + prompt as u64)
        .tokens(TOKENS)
}

/// Every draft length alone, then eight requests of different lengths and prompts at once.
async fn check_sampling(client: &Client, name: &str, sampling: &SamplingParams) -> Result<Drafted> {
    let plain = try_join_all(
        (0..PROMPTS.len()).map(|prompt| client.generate(request(prompt, sampling).plain())),
    )
    .await?;
    let mut drafted = Drafted::default();
    for k in 0..=8 {
        let answer = client.generate(request(0, sampling).drafting(k)).await?;
        same_text(&format!("{name}, k = {k}"), &plain[0], &answer);
        drafted.add(&answer);
    }
    let crowd = (0..8_u32).map(|i| {
        let prompt = i as usize % PROMPTS.len();
        client.generate(request(prompt, sampling).drafting(1 + i))
    });
    for (i, answer) in try_join_all(crowd).await?.iter().enumerate() {
        same_text(
            &format!("{name}, request {i} of 8"),
            &plain[i % PROMPTS.len()],
            answer,
        );
        drafted.add(answer);
    }
    Ok(drafted)
}

/// What became of the drafts of many answers.
#[derive(Debug, Default, Clone, Copy)]
struct Drafted {
    drafted: u32,
    accepted: u32,
    /// Proposals, and those whose first token was accepted.
    proposals: u32,
    agreed: u32,
}

impl Drafted {
    fn add(&mut self, answer: &Answer) {
        let stats = &answer.speculation;
        self.drafted += stats.draft_tokens;
        self.accepted += stats.accepted_draft_tokens;
        let proposals: u32 = stats.acceptance_histogram.iter().sum();
        self.proposals += proposals;
        self.agreed += proposals - stats.acceptance_histogram.first().unwrap_or(&0);
    }

    /// How often draft and target choose the same token after the same prefix.
    fn agreement(&self) -> f64 {
        f64::from(self.agreed) / f64::from(self.proposals)
    }
}

/// Runs every way to choose over one cluster; returns what became of the greedy drafts.
async fn check(drafts: &[Agreement]) -> Result<Drafted> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let drafts = drafts
        .iter()
        .map(|agreement| write_draft(folder.path(), *agreement))
        .collect::<Result<Vec<_>>>()?;
    let cluster = Cluster::start(ClusterOptions::new(target, drafts)).await?;
    let client = cluster.client().await?;
    let mut greedy = None;
    for (name, sampling) in samplings() {
        let drafted = check_sampling(&client, name, &sampling).await?;
        eprintln!("{name}: {drafted:?}, agreement {:.3}", drafted.agreement());
        assert!(drafted.drafted > 0, "{name}: the drafts took part");
        greedy.get_or_insert(drafted);
    }
    greedy.context("a greedy run")
}

#[tokio::test]
async fn drafts_that_always_agree() -> Result<()> {
    let greedy = check(&[Agreement::Always]).await?;
    assert_eq!(greedy.accepted, greedy.drafted, "the draft is the target");
    Ok(())
}

#[tokio::test]
async fn drafts_that_never_agree() -> Result<()> {
    let greedy = check(&[Agreement::Never]).await?;
    assert!(greedy.agreement() < 0.15, "{greedy:?}");
    Ok(())
}

#[tokio::test]
async fn drafts_that_agree_half_the_time() -> Result<()> {
    let greedy = check(&[Agreement::Half]).await?;
    assert!((0.3..0.7).contains(&greedy.agreement()), "{greedy:?}");
    Ok(())
}

#[tokio::test]
async fn two_different_draft_workers_at_once() -> Result<()> {
    check(&[Agreement::Always, Agreement::Half]).await?;
    Ok(())
}

#[tokio::test]
async fn the_seed_decides_the_text() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let draft = write_draft(folder.path(), Agreement::Half)?;
    let cluster = Cluster::start(ClusterOptions::new(target, [draft])).await?;
    let client = cluster.client().await?;
    let sampling = SamplingParams::default();
    let seeded = |seed| client.generate(request(0, &sampling).seed(seed));
    let (first, again, other) = futures::try_join!(seeded(1), seeded(1), seeded(2))?;
    same_text("the same seed", &first, &again);
    assert_ne!(first.ids, other.ids, "another seed");
    let mut unseeded = request(0, &sampling);
    unseeded.seed = None;
    let (a, b) = futures::try_join!(client.generate(unseeded.clone()), client.generate(unseeded))?;
    assert_ne!(a.ids, b.ids, "requests without a seed draw their own");
    Ok(())
}

#[tokio::test]
async fn max_tokens_only_cuts() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let target = write_target(folder.path())?;
    let draft = write_draft(folder.path(), Agreement::Half)?;
    let cluster = Cluster::start(ClusterOptions::new(target, [draft])).await?;
    let client = cluster.client().await?;
    let sampling = SamplingParams::default();
    let whole = client.generate(request(0, &sampling)).await?;
    for count in 1..=12 {
        let cut = client.generate(request(0, &sampling).tokens(count)).await?;
        assert_eq!(cut.ids, whole.ids[..count as usize], "{count} tokens");
        assert_eq!(cut.reason, proto::v1::FinishReason::Length);
    }
    Ok(())
}
