//! Plans, against the closed forms.

use speculation::control::{Acceptance, Overlap, Plan, Ranks, Situation, StepCosts, Trust, plan};

/// Costs that are a base and a part per row, as measured at every size.
pub(crate) fn costs(base: f64, row: f64) -> StepCosts {
    let mut costs = StepCosts::new();
    for _ in 0..4 {
        for size in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] {
            costs.observe(size, base + row * size as f64);
        }
    }
    costs
}

struct Case {
    acceptance: Acceptance,
    ranks: Ranks,
    verify: StepCosts,
    ahead_verify: StepCosts,
    draft: StepCosts,
    rtt: f64,
    sequences: usize,
    bounds: (usize, usize),
    overlap: Overlap,
    trust: Trust,
}

impl Case {
    fn new(alpha: f64) -> Self {
        Self {
            acceptance: Acceptance::stated(&[alpha]),
            ranks: Ranks::new(),
            verify: costs(0.017, 0.0),
            ahead_verify: StepCosts::new(),
            draft: costs(0.0025, 0.0),
            rtt: 0.0005,
            sequences: 1,
            bounds: (0, 16),
            overlap: Overlap::Rounds,
            trust: Trust::new(),
        }
    }

    fn plan(&self) -> Plan {
        plan(&Situation {
            acceptance: &self.acceptance,
            ranks: &self.ranks,
            verify: &self.verify,
            verify_ahead: &self.ahead_verify,
            draft: &self.draft,
            draft_rtt: Some(self.rtt),
            target_rtt: self.rtt,
            sequences: self.sequences,
            drafting: self.sequences,
            min: self.bounds.0,
            max: self.bounds.1,
            overlap: self.overlap,
            trust: &self.trust,
        })
    }
}

fn expected(alpha: f64, k: usize) -> f64 {
    (0..=k).map(|l| alpha.powi(l as i32)).sum()
}

#[test]
fn alone_it_takes_the_best_length_of_the_closed_form() {
    for alpha in [0.5, 0.75, 0.9] {
        let got = Case::new(alpha).plan();
        let rate = |k: usize| expected(alpha, k) / (0.0005 + 0.0025 * k as f64 + 0.017 + 0.0005);
        let best = (1..=16).map(rate).fold(0.0, f64::max);
        assert!(
            (got.rate / rate(got.want) - 1.0).abs() < 1e-6,
            "alpha {alpha}: {got:?}"
        );
        assert!(got.rate > best * 0.99, "alpha {alpha}: {got:?}, {best}");
        assert!((got.plain_rate * 0.0175 - 1.0).abs() < 1e-6);
        assert!(got.known && got.plain_known);
        assert_eq!((got.groups, got.ahead_want), (1, 0));
    }
}

#[test]
fn drafting_ahead_hides_the_draft() {
    let mut case = Case::new(0.75);
    let synchronous = case.plan();
    case.overlap = Overlap::Ahead;
    let ahead = case.plan();
    assert!(ahead.ahead_want > 0, "{ahead:?}");
    assert!(ahead.ahead_width > 1, "{ahead:?}");
    let gain = ahead.rate / synchronous.rate;
    assert!(gain > 1.2, "{gain}: {ahead:?} over {synchronous:?}");
    // Not more than if every round began with what was drafted ahead.
    assert!(ahead.rate < expected(0.75, 16) / 0.0175);
}

#[test]
fn drafting_ahead_is_left_alone_where_branches_are_dear() {
    let mut case = Case::new(0.75);
    case.draft = costs(0.0, 0.0025);
    case.overlap = Overlap::Ahead;
    assert!(case.plan().ahead_width <= 1, "{:?}", case.plan());
    // Nor where it slows the verification down.
    let mut shared = Case::new(0.75);
    shared.overlap = Overlap::Ahead;
    shared.ahead_verify = costs(0.060, 0.0);
    assert_eq!(shared.plan().ahead_want, 0, "{:?}", shared.plan());
}

#[test]
fn two_batches_alternate_where_that_hides_the_draft() {
    let mut case = Case::new(0.9);
    case.sequences = 64;
    // Rows cost, so that half of the batch takes little more than half of the time.
    case.verify = costs(0.010, 0.00016);
    case.draft = costs(0.008, 0.0);
    let two = case.plan();
    assert_eq!(two.groups, 2, "{two:?}");
    // The target computes both batches in a round, or the drafts take longer.
    let verify = 0.010 + 0.00016 * (32 * (two.want + 1)) as f64;
    let drafting = 0.0005 + 0.008 * two.want as f64 + verify + 0.0005;
    let round = drafting.max(2.0 * verify);
    assert!(
        round > drafting,
        "the case is one where the target is the slower one"
    );
    assert!(
        (two.rate * round / expected(0.9, two.want) - 1.0).abs() < 1e-6,
        "{two:?}"
    );
    // Where rows are free, half a batch costs as much as a whole one.
    case.verify = costs(0.017, 0.0);
    case.draft = costs(0.0005, 0.0);
    assert_eq!(case.plan().groups, 1, "{:?}", case.plan());
}

#[test]
fn where_rows_are_dear_and_tokens_rarely_accepted_plain_is_better() {
    let mut case = Case::new(0.05);
    case.sequences = 64;
    case.verify = costs(0.001, 0.001);
    let got = case.plan();
    assert!(got.rate < got.plain_rate, "{got:?}");
    assert!(got.want > 0, "what it would be is told all the same");
}

#[test]
fn bounds_hold() {
    for (min, max) in [(0, 0), (0, 1), (3, 3), (5, 8), (16, 16), (0, 99)] {
        for overlap in [Overlap::Nothing, Overlap::Rounds, Overlap::Ahead] {
            let mut case = Case::new(0.75);
            case.bounds = (min, max);
            case.overlap = overlap;
            let got = case.plan();
            assert!(
                (min..=max.min(16)).contains(&got.want),
                "{min}..{max}: {got:?}"
            );
            assert!(got.ahead_want <= max.min(16));
        }
    }
}

#[test]
fn where_nothing_is_known_it_tries_something_small_and_claims_nothing() {
    for (verify, draft) in [(false, false), (true, false), (false, true)] {
        let mut case = Case::new(0.75);
        if !verify {
            case.verify = StepCosts::new();
        }
        if !draft {
            case.draft = StepCosts::new();
        }
        let got = case.plan();
        assert!(!got.known);
        assert_eq!((got.rate, got.want, got.ahead_want), (0.0, 2, 0), "{got:?}");
        case.bounds = (4, 8);
        assert_eq!(case.plan().want, 4);
        case.bounds = (0, 0);
        assert_eq!(case.plan().want, 0);
    }
}

#[test]
fn where_the_draft_is_far_away_it_is_drafted_for_later() {
    // 80 ms to the draft and next to nothing to the target: nobody would wait for that.
    let mut case = Case::new(0.9);
    case.rtt = 0.0;
    let far = |case: &Case| {
        plan(&Situation {
            acceptance: &case.acceptance,
            ranks: &case.ranks,
            verify: &case.verify,
            verify_ahead: &case.ahead_verify,
            draft: &case.draft,
            draft_rtt: Some(0.080),
            target_rtt: 0.0,
            sequences: 1,
            drafting: 1,
            min: 0,
            max: 16,
            overlap: Overlap::Rounds,
            trust: &case.trust,
        })
    };
    let got = far(&case);
    assert!(got.rate > 1.05 * got.plain_rate, "{got:?}");
    assert!(
        got.want > 6,
        "the first tokens are decoded plainly meanwhile: {got:?}"
    );
    case.acceptance = Acceptance::stated(&[0.3]);
    assert!(far(&case).rate <= got.plain_rate * 1.001);
}

#[test]
fn a_long_round_trip_asks_for_long_drafts() {
    let near = Case::new(0.9).plan();
    let mut far = Case::new(0.9);
    far.rtt = 0.080;
    assert!(far.plan().want > near.want, "{:?} {near:?}", far.plan());
}

#[test]
fn hope_outlives_what_was_once_found_too_slow() {
    let mut case = Case::new(0.9);
    case.sequences = 16;
    case.overlap = Overlap::Nothing;
    case.verify = StepCosts::new();
    for _ in 0..4 {
        for (rows, seconds) in [(16, 0.017), (32, 0.1), (128, 0.2)] {
            case.verify.observe(rows, seconds);
        }
    }
    let fresh = case.plan();
    assert!(fresh.rate < 0.85 * fresh.plain_rate, "{fresh:?}");
    assert_eq!(fresh.hope, fresh.rate);
    for _ in 0..100 {
        case.verify.observe(16, 0.017);
    }
    let old = case.plan();
    assert!(old.rate < 0.85 * old.plain_rate, "{old:?}");
    assert!(old.hope > 2.0 * old.plain_rate, "{old:?}");
}
