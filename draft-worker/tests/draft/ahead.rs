//! Outcomes of a proposal are drafted while the target verifies it.

use crate::support::{Stream, Worker, commit, greedy, open, warm};
use engine::tiny::TinyModel;
use engine::{Input, Model as _, Pool, Synthetic};
use proto::v1::{CloseReason, Decoding, DraftCommit, Proposal, VerificationRule};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use speculation::{DraftLaw, NoiseKey, Sampler, Sampling, TokenId};
use tempfile::TempDir;

const PROMPT: &[u32] = &[11, 42, 7, 300, 5];
const BASE: usize = PROMPT.len();
/// Tokens asked for after each outcome.
const AHEAD: u32 = 5;

fn ahead(commit: DraftCommit, width: u32) -> DraftCommit {
    DraftCommit {
        ahead_want: AHEAD,
        ahead_width: width,
        ..commit
    }
}

/// The next proposals: of one line, all outcomes.
async fn outcomes(stream: &mut Stream, line: &[u32], width: usize) -> Vec<Proposal> {
    let positions = if width > 1 { line.len() + 1 } else { 1 };
    let mut outcomes = Vec::new();
    for _ in 0..positions * width {
        outcomes.push(stream.proposal().await);
    }
    outcomes.sort_by_key(|outcome| (outcome.assumed.len(), outcome.rank));
    outcomes
}

/// What the synthetic model's candidates are after `tokens`, with the probability of the first.
fn candidates(decoding: &Decoding, tokens: &[u32], count: usize) -> (Vec<TokenId>, f64) {
    let mut model = Synthetic::new("agreement=0.75".parse().expect("a description"));
    let pool = Pool::new(model.shape().kv, model.shape().kv.bytes_for(tokens.len()));
    let mut cache = pool.lease();
    assert_eq!(cache.reserve(tokens.len()), Ok(None));
    let input = Input {
        blocks: cache.blocks(),
        start: 0,
        tokens,
        wanted: 1,
    };
    let logits = model.forward(&[input]).expect("logits");
    let row = logits.rows().next().expect("a row");
    let sampling = Sampling::try_from(&decoding.sampling.clone().unwrap_or_default());
    let sampler = Sampler {
        sampling: sampling.expect("valid"),
        key: NoiseKey(3 << 64 | 4),
    };
    let candidates = sampler.candidates(row, tokens.len() as u64, count);
    let confidence = sampler.confidence(row, candidates[0]);
    (candidates, confidence)
}

fn tiny() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.gguf");
    TinyModel::default().write(&path).expect("written");
    let path = path.display().to_string();
    (folder, path)
}

#[tokio::test]
async fn the_outcomes_followed_are_the_likeliest_and_are_drafted_as_if_they_were_committed() {
    let worker = Worker::start("synthetic", &[]).await;
    for decoding in &[greedy(), warm()] {
        let mut stream = worker.stream().await;
        stream.open(open(1, 1, PROMPT, decoding)).await;
        let line = stream.propose(ahead(commit(1, 1, BASE, &[9], 4), 2)).await;
        assert_eq!((line.draft_ids.len(), line.rank), (4, 0));
        assert!(line.assumed.is_empty());
        let committed = [PROMPT, &[9]].concat();
        let outcomes = outcomes(&mut stream, &line.draft_ids, 2).await;
        let mut expected = Vec::new();
        for at in 0..=4 {
            let accepted = &line.draft_ids[..at];
            let (likeliest, _) = candidates(decoding, &[&committed, accepted].concat(), 3);
            let ranks = if at < 4 { 2..=3 } else { 1..=2 };
            expected.extend(ranks.map(|rank| {
                let assumed = [accepted, &[likeliest[rank - 1]]].concat();
                (assumed, rank as u32)
            }));
        }
        let told: Vec<_> = outcomes
            .iter()
            .map(|o| (o.assumed.clone(), o.rank))
            .collect();
        assert_eq!(told, expected);
        for outcome in &outcomes {
            assert_eq!(outcome.base_len as usize, committed.len());
            // After the whole line, the first step brings the presumed token.
            let count = AHEAD - u32::from(outcome.assumed.len() == 5);
            let presumed = [&committed[..], &outcome.assumed].concat();
            let fresh = worker.fresh(&presumed, decoding, count).await;
            assert_eq!(outcome.draft_ids, fresh, "{:?}", outcome.assumed);
            assert_eq!(outcome.confidences.len(), fresh.len());
        }
    }
}

#[tokio::test]
async fn a_width_of_one_goes_on_with_the_line_alone() {
    let worker = Worker::start("synthetic", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &warm())).await;
    let mut committed = PROMPT.to_vec();
    let mut run = vec![9];
    let mut hits = 0;
    let mut line = stream
        .propose(ahead(commit(1, 1, BASE, &run, 4), 1))
        .await
        .draft_ids;
    // Everything is accepted, round after round, and no proposal but the first is waited for.
    for _ in 0..30 {
        committed.extend(&run);
        let outcome = outcomes(&mut stream, &line, 1).await.remove(0);
        let presumed = [&committed[..], &outcome.assumed].concat();
        assert_eq!(outcome.base_len as usize, committed.len());
        assert_eq!(outcome.draft_ids, worker.fresh(&presumed, &warm(), 4).await);
        assert_eq!(outcome.assumed[..line.len()], line);
        run = outcome.assumed;
        line = outcome.draft_ids;
        let next = ahead(commit(1, 1, committed.len(), &run, 4), 1);
        stream.send_commit(next).await;
        hits += 1;
    }
    assert_eq!(hits, 30);
}

/// A sequence as a coordinator sees it, which checks all that it is told.
struct Follower<'a> {
    worker: &'a Worker,
    stream: Stream,
    decoding: Decoding,
    committed: Vec<u32>,
    /// What was committed last.
    run: Vec<u32>,
    /// What was proposed after what is committed.
    line: Vec<u32>,
    /// Outcomes of that, and what was proposed after them.
    foreseen: Vec<(Vec<u32>, Vec<u32>)>,
    hits: usize,
}

const WIDTH: u32 = 3;

impl Follower<'_> {
    async fn commit(&mut self, run: &[u32], want: u32) {
        let new = commit(1, 1, self.committed.len(), run, want);
        self.stream.send_commit(ahead(new, WIDTH)).await;
        self.committed.extend(run);
        self.run = run.to_vec();
        let known = self.foreseen.drain(..).find(|outcome| outcome.0 == run);
        match known {
            // It was sent, and is not sent again.
            Some((_, line)) => {
                self.line = line;
                self.hits += 1;
            }
            None => while !self.take().await {},
        }
    }

    /// Takes the next proposal in, checked. True where it follows what is committed.
    async fn take(&mut self) -> bool {
        let proposal = self.stream.proposal().await;
        let base = proposal.base_len as usize;
        let presumed = [&self.committed[..base], &proposal.assumed].concat();
        let count = proposal.draft_ids.len() as u32;
        let fresh = self.worker.fresh(&presumed, &self.decoding, count).await;
        assert_eq!(proposal.draft_ids, fresh, "{proposal:?}");
        let is_current = base == self.committed.len();
        if !is_current
            && base + self.run.len() == self.committed.len()
            && proposal.assumed == self.run
        {
            // On its way when the commit was.
            self.hits += 1;
        } else if !is_current || !proposal.assumed.is_empty() {
            if is_current {
                self.foreseen.push((proposal.assumed, proposal.draft_ids));
            }
            return false;
        }
        self.line = proposal.draft_ids;
        true
    }

    /// Takes in `count` outcomes of what was proposed.
    async fn foresee(&mut self, count: usize) {
        while self.foreseen.len() < count {
            assert!(!self.take().await, "nothing is proposed twice");
        }
    }

    /// What the target might choose: an outcome that is known or not, or something that nobody foresaw.
    async fn next_run(&self, rng: &mut StdRng) -> Vec<u32> {
        let accepted = rng.random_range(0..=self.line.len());
        match rng.random_range(0..6) {
            0 | 1 if !self.foreseen.is_empty() => self.foreseen
                [rng.random_range(0..self.foreseen.len())]
            .0
            .clone(),
            2 if accepted > 0 => self.line[..accepted].to_vec(),
            3 => [&self.line[..accepted], &[rng.random_range(0..300)]].concat(),
            _ => {
                let presumed = [&self.committed[..], &self.line].concat();
                let next = self.worker.fresh(&presumed, &self.decoding, 1).await;
                [&self.line[..], &next].concat()
            }
        }
    }
}

/// Hits, full acceptances, rejections that were foreseen and ones that were not, early and late; in the tiny
/// model every token depends on the whole text.
#[tokio::test]
async fn whatever_comes_about_what_is_drafted_is_what_a_fresh_cache_drafts() {
    const SEED: u64 = 4711;
    println!("seed {SEED}");
    let (_folder, path) = tiny();
    for (model, decoding, flag) in [
        (&*path, greedy(), "--prefix-sharing=true"),
        (&*path, warm(), "--prefix-sharing=false"),
        ("synthetic:base_ms=2", warm(), "--prefix-sharing=true"),
    ] {
        let worker = Worker::start(model, &[flag]).await;
        let mut rng = StdRng::seed_from_u64(SEED);
        let mut stream = worker.stream().await;
        stream.open(open(1, 1, &PROMPT[..3], &decoding)).await;
        let mut follower = Follower {
            worker: &worker,
            stream,
            decoding,
            committed: PROMPT[..3].to_vec(),
            run: Vec::new(),
            line: Vec::new(),
            foreseen: Vec::new(),
            hits: 0,
        };
        let mut run = vec![9];
        for _ in 0..40 {
            follower.commit(&run, rng.random_range(1..6)).await;
            // So many follow every line.
            follower.foresee(rng.random_range(0..=WIDTH as usize)).await;
            run = follower.next_run(&mut rng).await;
        }
        assert!(follower.hits > 10, "{} hits", follower.hits);
    }
}

/// Steps of 100 ms: all outcomes are under way when the commit comes.
#[tokio::test]
async fn an_outcome_that_came_about_while_it_was_drafted_goes_on_as_the_proposal() {
    let worker = Worker::start("synthetic:agreement=0.75,base_ms=100", &[]).await;
    let free = Worker::start("synthetic:agreement=0.75", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &warm())).await;
    let line = stream.propose(ahead(commit(1, 1, BASE, &[9], 2), 2)).await;
    let mut committed = [PROMPT, &[9, line.draft_ids[0]]].concat();
    let (likeliest, _) = candidates(&warm(), &committed, 3);
    let run = [line.draft_ids[0], likeliest[2]];
    let new = ahead(commit(1, 1, BASE + 1, &run, 8), 2);
    let proposal = stream.propose(new).await;
    committed.push(likeliest[2]);
    assert!(proposal.assumed.is_empty());
    // As many tokens as were drafted ahead: not begun anew for the eight that the commit asks for.
    let drafted = free.fresh(&committed, &warm(), AHEAD).await;
    assert_eq!(proposal.draft_ids, drafted);
    let next = outcomes(&mut stream, &drafted, 2).await;
    assert!(
        next.iter()
            .all(|outcome| outcome.base_len == proposal.base_len)
    );
}

#[tokio::test]
async fn under_the_rules_that_compare_nothing_is_drafted_ahead() {
    let worker = Worker::start("synthetic", &[]).await;
    for rule in [VerificationRule::Token, VerificationRule::Block] {
        let decoding = Decoding {
            rule: rule.into(),
            ..warm()
        };
        let mut stream = worker.stream().await;
        stream.open(open(1, 1, PROMPT, &decoding)).await;
        for base in BASE..BASE + 5 {
            let line = stream.propose(ahead(commit(1, 1, base, &[9], 4), 2)).await;
            assert!(line.confidences.is_empty(), "the laws say it");
        }
        stream.send_close(1).await;
        assert_eq!(stream.closed().await.reason(), CloseReason::Requested);
    }
}

#[tokio::test]
async fn a_proposal_ends_before_the_first_token_that_is_too_unlikely() {
    let worker = Worker::start("synthetic", &[]).await;
    for decoding in &[greedy(), warm()] {
        let (mut stream, mut shorter) = (worker.stream().await, 0);
        for last in 0..30 {
            let sequence = u64::from(last);
            stream.open(open(sequence, 1, PROMPT, decoding)).await;
            let committed = [PROMPT, &[last]].concat();
            let free = worker.fresh(&committed, decoding, 8).await;
            let mut expected = Vec::new();
            for at in 0..free.len() {
                let text = [&committed[..], &free[..at]].concat();
                let (_, confidence) = candidates(decoding, &text, 1);
                if confidence < 0.45 {
                    break;
                }
                expected.push((confidence * 255.0).round() as u8);
            }
            let careful = DraftCommit {
                min_confidence: 0.45,
                ..commit(sequence, 1, BASE, &[last], 8)
            };
            let proposal = stream.propose(careful).await;
            assert_eq!(proposal.draft_ids, free[..expected.len()]);
            assert_eq!(proposal.confidences, expected);
            shorter += usize::from(expected.len() < 8);
        }
        assert!(shorter > 10, "{shorter} were cut");
    }
}

#[tokio::test]
async fn where_probabilities_are_compared_a_proposal_ends_by_its_laws_alone() {
    let worker = Worker::start("synthetic", &[]).await;
    let decoding = Decoding {
        rule: VerificationRule::Token.into(),
        ..warm()
    };
    let mut stream = worker.stream().await;
    let (mut unlikely, mut cut) = (0, 0);
    for last in 0..40 {
        let sequence = u64::from(last);
        stream.open(open(sequence, 1, PROMPT, &decoding)).await;
        let careful = DraftCommit {
            min_confidence: 0.4,
            ..commit(sequence, 1, BASE, &[last], 8)
        };
        let proposal = stream.propose(careful).await;
        cut += usize::from(proposal.draft_ids.len() < 8);
        let laws = proposal.laws.as_ref();
        let laws = laws.map(|laws| Vec::<DraftLaw>::try_from(laws).expect("laws"));
        for (token, law) in proposal.draft_ids.iter().zip(laws.iter().flatten()) {
            let largest = law.probabilities().map(|entry| entry.1).fold(0.0, f64::max);
            assert!(largest >= 0.4, "{law:?}");
            unlikely += usize::from(law.probability(*token) < 0.4);
        }
    }
    assert!(
        unlikely > 5 && cut > 5,
        "{unlikely} unlikely tokens, {cut} were cut"
    );
}

#[tokio::test]
async fn nothing_is_drafted_past_the_end_of_the_context() {
    let worker = Worker::start("synthetic:context=16", &[]).await;
    let mut stream = worker.stream().await;
    stream.open(open(1, 1, PROMPT, &greedy())).await;
    let line = stream.propose(ahead(commit(1, 1, 5, &[1; 5], 4), 2)).await;
    assert_eq!(line.draft_ids.len(), 4);
    for outcome in outcomes(&mut stream, &line.draft_ids, 2).await {
        let end = 10 + outcome.assumed.len() + outcome.draft_ids.len();
        assert!(end <= 16, "{outcome:?}");
        assert!(!outcome.draft_ids.is_empty());
    }
}
