//! A prefix with a toy constraint: token 0 opens a bracket, token 1 closes one, token 2 ends the
//! text where all are closed, token 3 is any other character; at most two brackets are open.

use proptest::prelude::*;
use speculation::{AdjustmentOptions, Adjustments, Constraint, ConstraintError, Prefix, TokenId};
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Debug, Default, Clone)]
struct Brackets {
    taken: Vec<TokenId>,
}

impl Brackets {
    fn allows(&self, token: TokenId) -> bool {
        let count = |token| self.taken.iter().filter(|taken| **taken == token).count();
        let open = count(0) - count(1);
        let ended = count(2) > 0;
        !ended
            && match token {
                0 => open < 2,
                1 => open > 0,
                2 => open == 0,
                _ => token == 3,
            }
    }
}

impl Constraint for Brackets {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        for (token, logit) in (0..).zip(logits) {
            if !self.allows(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn push(&mut self, token: TokenId) -> bool {
        let allowed = self.allows(token);
        if allowed {
            self.taken.push(token);
        }
        allowed
    }

    fn pop(&mut self, count: usize) {
        let kept = self
            .taken
            .len()
            .checked_sub(count)
            .expect("no more than were taken");
        self.taken.truncate(kept);
    }

    fn fork(&self) -> Option<Box<dyn Constraint>> {
        Some(Box::new(self.clone()))
    }
}

/// Only this token, for ever.
#[derive(Debug)]
struct Only(TokenId);

impl Constraint for Only {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        for (token, logit) in (0..).zip(logits) {
            if token != self.0 {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn push(&mut self, token: TokenId) -> bool {
        token == self.0
    }

    fn pop(&mut self, _: usize) {}
}

/// A rule that is too much work to tell.
#[derive(Debug)]
struct Costly;

impl Constraint for Costly {
    fn mask(&mut self, _: &mut [f32]) -> Result<(), ConstraintError> {
        Err(ConstraintError("too much work".to_owned()))
    }

    fn push(&mut self, _: TokenId) -> bool {
        true
    }

    fn pop(&mut self, _: usize) {}
}

const ROW: [f32; 5] = [4.0, 3.0, 2.0, 1.0, 0.5];

fn adjustments(prompt_len: usize, adjusting: bool) -> Arc<Adjustments> {
    let mut options = AdjustmentOptions {
        prompt_len,
        ..AdjustmentOptions::default()
    };
    if adjusting {
        options.repetition_penalty = 1.5;
        options.frequency_penalty = 0.5;
        options.penalty_window = 4;
        options.bad_words = vec![vec![3, 3]];
        options.min_tokens = 3;
        options.end_tokens = vec![2];
    }
    Arc::new(Adjustments::new(options).expect("valid options"))
}

fn brackets(prompt_len: usize, adjusting: bool) -> Prefix {
    Prefix::new(
        adjustments(prompt_len, adjusting),
        Some(Box::new(Brackets::default())),
    )
}

fn processed(prefix: &mut Prefix) -> Result<Vec<f32>, ConstraintError> {
    prefix.process(&ROW).map(Cow::into_owned)
}

#[derive(Debug, Clone)]
enum Step {
    Push(TokenId),
    /// Keeps this many tokens.
    Truncate(usize),
    Process,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u32..5).prop_map(Step::Push),
        2 => (0_usize..16).prop_map(Step::Truncate),
        1 => Just(Step::Process),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Tokens that cannot follow among them: a draft proposes such.
    #[test]
    fn a_token_taken_back_leaves_no_trace(
        steps in steps(),
        prompt_len in 0_usize..4,
        adjusting: bool,
    ) {
        let mut prefix = brackets(prompt_len, adjusting);
        let mut tokens = Vec::new();
        for step in steps {
            match step {
                Step::Push(token) => {
                    prefix.push(token);
                    tokens.push(token);
                }
                Step::Truncate(len) => {
                    prefix.truncate(len);
                    tokens.truncate(len);
                }
                Step::Process => drop(processed(&mut prefix)),
            }
            prop_assert_eq!((prefix.len(), prefix.is_empty()), (tokens.len(), tokens.is_empty()));
        }
        let mut fresh = brackets(prompt_len, adjusting);
        tokens.iter().for_each(|token| fresh.push(*token));
        prop_assert_eq!(processed(&mut prefix), processed(&mut fresh));
    }

    /// What may follow is told by the output alone, after adjustments and constraint together.
    #[test]
    fn nothing_but_what_may_follow_is_possible(
        choices in prop::collection::vec(any::<u16>(), 0..20),
        prompt_len in 0_usize..4,
    ) {
        let mut prefix = brackets(prompt_len, true);
        let mut own = Brackets::default();
        (0..prompt_len).for_each(|_| prefix.push(1));
        for (index, choice) in choices.into_iter().enumerate() {
            let repeats = own.taken.last() == Some(&3);
            let expected: Vec<TokenId> = (0..5)
                .filter(|token| own.allows(*token))
                .filter(|token| *token != 3 || !repeats)
                .filter(|token| *token != 2 || index >= 3)
                .collect();
            let Ok(row) = processed(&mut prefix) else {
                prop_assert_eq!(expected, Vec::<TokenId>::new());
                return Ok(());
            };
            let is_possible = |id: &TokenId| row[*id as usize] > f32::NEG_INFINITY;
            let possible: Vec<TokenId> = (0..5).filter(is_possible).collect();
            prop_assert_eq!(&possible, &expected);
            let token = possible[usize::from(choice) % possible.len()];
            prefix.push(token);
            prop_assert!(own.push(token));
        }
    }
}

#[test]
fn without_a_demand_the_row_is_the_models_own() {
    let mut prefix = Prefix::new(adjustments(2, false), None);
    for token in 0..5 {
        let processed = prefix.process(&ROW).expect("no demand");
        assert!(matches!(processed, Cow::Borrowed(row) if std::ptr::eq(row, &ROW)));
        prefix.push(token);
    }
    // Not even a row without any possible token is looked at.
    assert!(prefix.process(&[f32::NAN]).is_ok());
}

#[test]
fn the_constraint_gets_no_token_of_the_prompt() {
    let mut prefix = brackets(3, false);
    for token in [1, 2, 2] {
        prefix.push(token);
    }
    let never = f32::NEG_INFINITY;
    assert_eq!(
        processed(&mut prefix),
        Ok(vec![4.0, never, 2.0, 1.0, never])
    );
    prefix.push(0);
    assert_eq!(
        processed(&mut prefix),
        Ok(vec![4.0, 3.0, never, 1.0, never])
    );
}

#[test]
fn demands_that_leave_nothing_are_an_error_and_not_a_token() {
    let mut options = AdjustmentOptions {
        banned_tokens: vec![2],
        prompt_len: 1,
        ..Default::default()
    };
    let with = |options: &AdjustmentOptions, constraint| {
        let adjustments = Adjustments::new(options.clone()).expect("valid options");
        let mut prefix = Prefix::new(Arc::new(adjustments), constraint);
        prefix.push(0);
        prefix
    };
    let only = |token| -> Option<Box<dyn Constraint>> { Some(Box::new(Only(token))) };
    let error = processed(&mut with(&options, only(2))).expect_err("nothing is left");
    assert!(error.to_string().contains("position 1"), "{error}");
    assert!(processed(&mut with(&options, only(3))).is_ok());
    options.allowed_tokens = vec![9];
    assert!(processed(&mut with(&options, None)).is_err());
    let error = processed(&mut with(
        &AdjustmentOptions::default(),
        Some(Box::new(Costly)),
    ));
    assert_eq!(error, Err(ConstraintError("too much work".to_owned())));
}

#[test]
fn a_fork_goes_on_by_itself_from_where_it_began() {
    let mut prefix = brackets(1, false);
    for token in [3, 0, 3, 1, 2] {
        prefix.push(token);
    }
    for len in 1..=5 {
        let mut fork = prefix.fork(len).expect("brackets fork");
        let mut alone = brackets(1, false);
        for token in [3, 0, 3, 1, 2].into_iter().take(len) {
            alone.push(token);
        }
        assert_eq!(fork.tokens(), alone.tokens());
        assert_eq!(processed(&mut fork), processed(&mut alone));
        fork.push(3);
        alone.push(3);
        assert_eq!(processed(&mut fork), processed(&mut alone));
    }
    assert_eq!(prefix.len(), 5, "which is as it was");
    prefix.truncate(4);
    let never = f32::NEG_INFINITY;
    let expected = Ok(vec![4.0, never, 2.0, 1.0, never]);
    assert_eq!(processed(&mut prefix), expected);
    let only = Prefix::new(adjustments(0, false), Some(Box::new(Only(2))));
    assert!(only.fork(0).is_none(), "of this constraint there is one");
}

/// A draft proposes what cannot follow; the rows after it are of no interest, and no reason to fail.
#[test]
fn after_a_token_that_cannot_follow_the_constraint_is_not_asked() {
    let mut prefix = brackets(0, false);
    // A character, an end, and one more character after the end.
    for token in [3, 2, 3] {
        prefix.push(token);
    }
    assert_eq!(processed(&mut prefix), Ok(ROW.to_vec()));
    prefix.truncate(2);
    assert!(processed(&mut prefix).is_err(), "nothing follows the end");
}

#[test]
fn what_is_left_but_no_number_is_nothing() {
    let options = AdjustmentOptions {
        allowed_tokens: vec![1],
        ..Default::default()
    };
    let adjustments = Arc::new(Adjustments::new(options).expect("valid options"));
    let mut prefix = Prefix::new(adjustments, None);
    assert!(prefix.process(&[0.0, f32::NAN]).is_err());
    assert!(prefix.process(&[0.0, f32::INFINITY]).is_ok());
}
