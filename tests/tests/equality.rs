//! Speculation never changes a text: byte equality with plain decoding, for every way to choose
//! tokens, draft length, draft and load.

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use proto::v1::structured_output::Form;
use proto::v1::{FinishReason, GenerateRequest, SamplingParams};
use specdec_tests::drafts::{Agreement, TinyCluster, byte_token};
use specdec_tests::{Answer, Client, Oracle, Prompting, text_prompt};
use std::collections::HashSet;

const TOKENS: u32 = 48;
const PROMPTS: [&str; 3] = ["The answer is", "fn main() {", "Příliš žluťoučký kůň 🐴"];

/// A way to choose tokens: what is asked for, but for prompt and seed.
struct Setting {
    name: &'static str,
    request: GenerateRequest,
    /// Every draft length is also tried without other requests beside it.
    alone: bool,
}

fn setting(name: &'static str, change: impl FnOnce(&mut SamplingParams)) -> Setting {
    let request = GenerateRequest::default().choosing(change).tokens(TOKENS);
    Setting {
        name,
        request,
        alone: false,
    }
}

fn settings(end: u32) -> Vec<Setting> {
    let alone = |setting| Setting {
        alone: true,
        ..setting
    };
    let mut settings = vec![
        alone(setting("greedy", |s| s.temperature = Some(0.0))),
        alone(setting("temperature 1", |_| {})),
        setting("temperature 0.5", |s| s.temperature = Some(0.5)),
        setting("temperature 2", |s| s.temperature = Some(2.0)),
        setting("top-k 5", |s| s.top_k = Some(5)),
        setting("top-p 0.7", |s| s.top_p = Some(0.7)),
        setting("min-p 0.1", |s| {
            s.temperature = Some(1.5);
            s.min_p = Some(0.1);
        }),
        setting("typical-p 0.6", |s| s.typical_p = Some(0.6)),
    ];
    settings.extend(adjusted());
    settings.extend(constrained(end));
    settings
}

/// Those that change the logits.
fn adjusted() -> Vec<Setting> {
    vec![
        setting("repetition penalty", |s| {
            s.temperature = Some(0.0);
            s.repetition_penalty = Some(1.8);
        }),
        setting("presence penalty", |s| s.presence_penalty = Some(2.0)),
        setting("frequency penalty", |s| s.frequency_penalty = Some(-1.5)),
        setting("penalties of a window", |s| {
            s.repetition_penalty = Some(2.0);
            s.frequency_penalty = Some(1.0);
            s.presence_penalty = Some(-0.5);
            s.penalty_window = Some(6);
        }),
        setting("logit bias", |s| {
            s.logit_bias.extend((0..40).map(|id| (id * 7, 3.0)));
            s.logit_bias.extend((0..40).map(|id| (id * 7 + 1, -100.0)));
        }),
        setting("allowed and banned ids", |s| {
            s.allowed_token_ids = (20..120).collect();
            s.banned_token_ids = (60..90).collect();
        }),
    ]
}

/// Those that look at the text, and end before the last token or not.
fn constrained(end: u32) -> Vec<Setting> {
    let with = |name, change: fn(GenerateRequest) -> GenerateRequest| {
        let setting = setting(name, |_| {});
        let request = change(setting.request);
        Setting { request, ..setting }
    };
    let mut min_tokens = with("min tokens", |request| {
        request.at_most(TOKENS).stopping(|s| s.min_tokens = Some(9))
    });
    let sampling = min_tokens.request.sampling.get_or_insert_default();
    sampling.logit_bias.insert(end, 6.0);
    vec![
        with("bad words", |mut request| {
            request.bad_words = ["e", "a", "in", "st", " t", "A", "7"]
                .map(String::from)
                .to_vec();
            request.choosing(|s| s.allowed_token_ids = few_words())
        }),
        min_tokens,
        with("a regular expression", |request| {
            let form = Form::Regex("([a-z]{2,5} |[0-9]+[,;] |ž|日本 ){10,40}".to_owned());
            request.at_most(TOKENS).structured(form)
        }),
        with("a JSON schema", |request| {
            let schema = r#"{"type": "array", "items": {"enum": ["red", "green", 1, true]}}"#;
            let form = Form::JsonSchema(schema.to_owned());
            request.at_most(TOKENS).structured(form)
        }),
        with("a regular expression and more", |request| {
            let form = Form::Regex("[a-z ]{20,200}".to_owned());
            let request = request.at_most(TOKENS).structured(form);
            request.choosing(everything)
        }),
        with("everything but a grammar", |mut request| {
            request.bad_words = vec!["the".to_owned(), "q".to_owned()];
            request.choosing(everything)
        }),
    ]
}

fn everything(s: &mut SamplingParams) {
    s.temperature = Some(1.3);
    s.top_k = Some(200);
    s.top_p = Some(0.95);
    s.min_p = Some(0.001);
    s.typical_p = Some(0.9);
    s.repetition_penalty = Some(1.2);
    s.presence_penalty = Some(0.3);
    s.frequency_penalty = Some(0.5);
    s.penalty_window = Some(20);
    s.banned_token_ids = vec![byte_token(b'x'), byte_token(b'y')];
    s.logit_bias.insert(byte_token(b'e'), 2.0);
}

/// Letters, so that words come up, and those that the merges make of them.
fn few_words() -> Vec<u32> {
    let letters = b"aehinorstAB7 ".iter().map(|byte| byte_token(*byte));
    letters.chain(256..304).collect()
}

fn request(prompt: usize, template: &GenerateRequest) -> GenerateRequest {
    GenerateRequest {
        prompt: text_prompt(PROMPTS[prompt % PROMPTS.len()]).prompt,
        ..template.clone()
    }
    .seed(7 + prompt as u64)
}

fn sampled(prompt: usize) -> GenerateRequest {
    request(prompt, &setting("", |_| {}).request)
}

fn same_text(what: &str, plain: &Answer, answer: &Answer) {
    assert_eq!(answer.ids, plain.ids, "{what}: token ids");
    assert_eq!(answer.text, plain.text, "{what}: text");
    assert_eq!(answer.reason, plain.reason, "{what}: finish reason");
    assert_eq!(answer.matched, plain.matched, "{what}: matched");
    // What a cache holds of a prompt depends on who asked before.
    let counts = |answer: &Answer| (answer.usage.prompt_tokens, answer.usage.completion_tokens);
    assert_eq!(counts(answer), counts(plain), "{what}: usage");
}

/// Every draft length, on prompts in turn, all at once; before that, where the setting says so,
/// every one alone.
async fn check_setting(client: &Client, setting: &Setting) -> Result<Drafted> {
    let Setting {
        name,
        request: template,
        alone,
    } = setting;
    let plain = try_join_all(
        (0..PROMPTS.len()).map(|prompt| client.generate(request(prompt, template).plain())),
    )
    .await?;
    let mut drafted = Drafted::default();
    for k in (0..=8).filter(|_| *alone) {
        let answer = client.generate(request(0, template).drafting(k)).await?;
        same_text(&format!("{name}, k = {k}"), &plain[0], &answer);
        drafted.add(&answer);
    }
    let crowd = (0..=8_u32).map(|k| {
        let prompt = k as usize % PROMPTS.len();
        request(prompt, template).drafting(k)
    });
    for (k, answer) in client.generate_all(crowd).await?.iter().enumerate() {
        let what = format!("{name}, k = {k} among others");
        same_text(&what, &plain[k % PROMPTS.len()], answer);
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

/// Runs every setting over one cluster; returns what became of the greedy drafts.
async fn check(drafts: &[Agreement]) -> Result<Drafted> {
    let tiny = TinyCluster::start(drafts).await?;
    let end = Oracle::load(&tiny.target)?.end_token();
    let mut greedy = None;
    for setting in settings(end) {
        let drafted = check_setting(&tiny.client, &setting).await?;
        let name = setting.name;
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
async fn proposals_of_nonsense_are_rejected_and_no_more() -> Result<()> {
    // A letter, an end of the text, and what is no token.
    let tiny = TinyCluster::with_rogue(&[byte_token(b'e'), 306, 307, u32::MAX]).await?;
    for setting in settings(306) {
        let drafted = check_setting(&tiny.client, &setting).await?;
        let name = setting.name;
        assert!(drafted.drafted > 0, "{name}: the drafts took part");
        assert!(drafted.agreement() < 0.3, "{name}: {drafted:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_seed_decides_the_text_whatever_runs_beside_it() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let plain = tiny
        .client
        .generate_all((0..8).map(|prompt| sampled(prompt).plain()))
        .await?;
    let unseeded = || GenerateRequest {
        seed: None,
        ..sampled(0)
    };
    let mixed = (0..8).flat_map(|prompt| [sampled(prompt), unseeded()]);
    let answers = tiny.client.generate_all(mixed).await?;
    for (prompt, plain) in plain.iter().enumerate() {
        let what = format!("seeded request {prompt} of 8");
        same_text(&what, plain, &answers[2 * prompt]);
    }
    let distinct: HashSet<_> = answers.iter().map(|answer| &answer.ids).collect();
    assert_eq!(
        distinct.len(),
        16,
        "other seeds, and none, give other texts"
    );
    Ok(())
}

#[tokio::test]
async fn choices_are_independent_and_the_first_is_the_text_of_the_seed() -> Result<()> {
    let mut expected = None;
    for agreement in [Agreement::Always, Agreement::Half] {
        let tiny = TinyCluster::start(&[agreement]).await?;
        let alone = tiny.client.generate(sampled(0).plain()).await?;
        for k in [0, 1, 4, 8] {
            let request = sampled(0).choices(4).drafting(k);
            let choices = tiny.client.generate_choices(request).await?;
            same_text(&format!("choice 0, k = {k}"), &alone, &choices[0]);
            let ids: Vec<_> = choices.into_iter().map(|choice| choice.ids).collect();
            assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4, "all differ");
            let expected = expected.get_or_insert_with(|| ids.clone());
            assert_eq!(&ids, expected, "k = {k}, {agreement:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn max_tokens_only_cuts() -> Result<()> {
    let tiny = TinyCluster::start(&[Agreement::Half]).await?;
    let whole = tiny.client.generate(sampled(0)).await?;
    let cuts = (1..=12).map(|count| sampled(0).tokens(count));
    for (cut, count) in tiny.client.generate_all(cuts).await?.iter().zip(1..) {
        assert_eq!(cut.ids, whole.ids[..count], "{count} tokens");
        assert_eq!(cut.reason, FinishReason::Length);
    }
    Ok(())
}
