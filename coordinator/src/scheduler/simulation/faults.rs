//! One fault at a time, and what must follow from it.

use super::{End, Event, Law, PATIENCE, World};
use proto::v1::{CloseReason, VerificationRule};
use service::Class;
use std::time::Duration;

fn world(agreements: &[f64]) -> World {
    let law = Law {
        seed: 11,
        eos_every: u64::MAX,
        eos_at: None,
    };
    World::new(1, law, agreements)
}

/// Carries messages until `done`, without letting time pass.
fn carry_until(world: &mut World, done: impl Fn(&World) -> bool) {
    for _ in 0..10_000 {
        if done(world) {
            return;
        }
        assert!(world.carry_one(), "nothing moves: {world:#?}");
    }
    panic!("it never comes: {world:#?}");
}

fn written(world: &World, id: u64) -> usize {
    world.clients[&id].tokens.len()
}

fn failure(world: &World, id: u64) -> Class {
    match &world.clients[&id].end {
        Some(End::Failed(error)) => error.class.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sequences_that_are_ready_share_a_batch() {
    let mut world = world(&[]);
    for _ in 0..6 {
        world.admit(4, 100, 0);
    }
    world.settle();
    assert_eq!(world.check(), 6);
    assert!(world.batches.len() < 120, "{:?}", world.batches);
}

#[test]
fn a_hung_draft_is_waited_for_once_and_taken_back_when_it_answers() {
    let mut world = world(&[1.0]);
    world.admit(4, 200, 4);
    carry_until(&mut world, |world| written(world, 1) > 20);
    world.drafts[0].hung = true;
    let start = world.now;
    for _ in 0..40 {
        if !world.carry_one() {
            world.now = world
                .scheduler
                .deadline(world.now)
                .expect("the wait has an end");
            world.advance();
        }
    }
    assert_eq!(world.now - start, PATIENCE.draft, "one wait, and then none");
    let plain_from = written(&world, 1);
    world.drafts[0].hung = false;
    world.settle();
    assert_eq!(world.check(), 1);
    let late = &world.clients[&1].origins[plain_from + 10..];
    let drafted = late
        .iter()
        .filter(|origin| **origin == crate::commit::Origin::Draft)
        .count();
    assert!(
        drafted > late.len() / 2,
        "it drafts again: {drafted} of {}",
        late.len()
    );
}

#[test]
fn where_drafts_decide_the_text_its_first_round_waits_for_the_prefill_though_not_for_ever() {
    let mut world = world(&[1.0]);
    world.drafts[0].hung = true;
    // One of each rule.
    let ids = [(); 3].map(|()| world.admit(4, 20, 4));
    while world.carry_one() {}
    let written = ids.map(|id| {
        (
            world.clients[&id].choice.decoding().rule(),
            written(&world, id),
        )
    });
    for (rule, written) in written {
        let expected = if rule == VerificationRule::Coupled {
            20
        } else {
            1
        };
        assert_eq!(written, expected, "{rule:?}");
    }
    let deadline = world.scheduler.deadline(world.now);
    assert_eq!(deadline, Some(world.now + PATIENCE.draft));
    world.now += PATIENCE.draft;
    world.advance();
    while world.carry_one() {}
    assert_eq!(world.check(), 3, "all have ended");
}

#[test]
fn a_sequence_moves_from_a_hung_or_lost_draft_to_another() {
    for hangs in [true, false] {
        let mut world = world(&[1.0, 1.0]);
        world.admit(4, 200, 4);
        carry_until(&mut world, |world| written(world, 1) > 20);
        assert_eq!(world.drafts[0].held.len(), 1, "the first of equals");
        if hangs {
            world.drafts[0].hung = true;
        } else {
            world.draft_dies(0);
        }
        while world.clients[&1].end.is_none() {
            if !world.carry_one() {
                world.now = world.scheduler.deadline(world.now).unwrap();
                world.advance();
            }
        }
        assert!(world.drafts[1].told > 20);
        world.drafts[0].hung = false;
        world.settle();
        assert_eq!(world.check(), 1);
    }
}

#[test]
fn sequences_spread_over_draft_workers_within_their_limits() {
    let mut world = world(&[1.0, 1.0]);
    world.draft_dies(0);
    world.drafts[0].max_sequences = 1;
    world.restore();
    for _ in 0..5 {
        world.admit(4, 100, 4);
    }
    carry_until(&mut world, |world| {
        world
            .drafts
            .iter()
            .map(|draft| draft.held.len())
            .sum::<usize>()
            == 5
    });
    assert_eq!(world.drafts[0].held.len(), 1);
    world.settle();
    assert_eq!(world.check(), 5);
}

#[test]
fn a_draft_that_keeps_losing_a_sequence_is_given_up() {
    let mut world = world(&[1.0]);
    world.drafts[0].refuses = vec![CloseReason::Desync; 100].into();
    world.admit(4, 100, 4);
    world.settle();
    assert_eq!(world.check(), 1);
    assert_eq!(world.drafts[0].refuses.len(), 96, "four attempts");
}

#[test]
fn a_draft_that_loses_a_sequence_now_and_then_is_kept() {
    let mut world = world(&[1.0]);
    world.admit(4, 900, 4);
    for loss in 1..8 {
        carry_until(&mut world, |world| written(world, 1) > 120 * loss);
        world.drafts[0].drop_one();
    }
    world.settle();
    assert_eq!(world.check(), 1);
    let last = world.clients[&1].origins.rchunks(50).next().unwrap();
    assert!(last.contains(&crate::commit::Origin::Draft));
}

#[test]
fn a_full_draft_worker_is_left_alone_for_a_while() {
    let mut world = world(&[1.0, 1.0]);
    let held = |world: &World| [0, 1].map(|worker: usize| world.drafts[worker].held.len());
    world.drafts[0].refuses = [CloseReason::Overloaded].into();
    for id in [1, 2, 3] {
        world.admit(4, 100, 4);
        carry_until(&mut world, |world| written(world, id) > 5);
    }
    assert_eq!(held(&world), [0, 3], "the first is not asked again");
    world.now += Duration::from_secs(1);
    world.admit(4, 100, 4);
    assert_eq!(world.drafts[0].inbox.len(), 1);
    world.settle();
    assert_eq!(world.check(), 4);
}

#[test]
fn a_full_target_is_tried_again_and_then_the_client_told_when_to_come_back() {
    let mut world = world(&[]);
    world.target.refuses = vec![CloseReason::Overloaded; 5].into();
    world.admit(4, 20, 0);
    world.settle();
    assert_eq!(world.check(), 1);
    world.target.refuses = vec![CloseReason::Overloaded; 6].into();
    let id = world.admit(4, 20, 0);
    world.settle();
    assert!(matches!(failure(&world, id), Class::Overloaded { .. }));
}

#[test]
fn what_the_target_calls_invalid_or_an_error_fails_that_request_alone() {
    for reason in [CloseReason::Invalid, CloseReason::Error] {
        let mut world = world(&[0.5]);
        world.admit(4, 60, 4);
        carry_until(&mut world, |world| written(world, 1) > 5);
        world.target.refuses = [reason].into();
        let id = world.admit(4, 60, 4);
        world.settle();
        assert_eq!(failure(&world, id), Class::Internal);
        assert_eq!(world.check(), 1);
    }
}

#[test]
fn a_request_that_the_target_finds_wrong_is_refused_with_its_field() {
    let mut world = world(&[0.5]);
    world.admit(4, 60, 4);
    world.target.refuses = [CloseReason::Invalid].into();
    world.target.refused_field = "structured.regex".to_owned();
    world.settle();
    let field = "structured.regex".to_owned();
    assert_eq!(failure(&world, 1), Class::Invalid { field });
    world.admit(4, 60, 4);
    world.settle();
    assert_eq!(world.check(), 1);
}

#[test]
fn an_answer_without_the_log_probabilities_that_were_asked_for_does_not_fit() {
    for forgotten in 0..12 {
        let mut world = world(&[0.5]);
        world.admit(4, 60, 4);
        let id = world.admit(4, 60, 4);
        assert!(world.clients[&id].choice.generation.logprobs.is_some());
        carry_until(&mut world, |world| written(world, id) >= forgotten);
        world.target.forgets = 3;
        world.settle();
        assert_eq!(world.check(), 2);
    }
}

#[test]
fn a_hung_target_is_given_up_and_requests_fail_if_it_stays_away() {
    let mut world = world(&[1.0]);
    world.admit(4, 100, 4);
    carry_until(&mut world, |world| written(world, 1) > 20);
    world.target.hung = true;
    let start = world.now;
    world.settle();
    assert_eq!(world.resets, 1);
    assert_eq!(failure(&world, 1), Class::Unavailable);
    assert!(world.now - start <= 3 * PATIENCE.target);
    world.check();
}

#[test]
fn a_target_that_returns_in_time_goes_on_where_it_was() {
    let mut world = world(&[1.0]);
    world.admit(4, 200, 4);
    for round in 1..10 {
        carry_until(&mut world, |world| written(world, 1) > 15 * round);
        world.target_dies();
        world.now += PATIENCE.target - Duration::from_millis(1);
        world.advance();
        world.target_up();
    }
    world.settle();
    assert_eq!(world.check(), 1);
}

#[test]
fn a_request_that_brings_the_target_down_again_and_again_fails() {
    let mut world = world(&[]);
    world.admit(4, 200, 0);
    for _ in 0..6 {
        world.target_dies();
        world.target_up();
    }
    assert_eq!(failure(&world, 1), Class::Unavailable);
}

#[test]
fn a_target_that_serves_another_model_ends_what_was_begun() {
    let mut world = world(&[1.0]);
    world.admit(4, 200, 4);
    carry_until(&mut world, |world| written(world, 1) > 20);
    world.target.die();
    let limits = super::TargetLimits {
        max_sequences: 8,
        max_draft_tokens: 8,
        processors: super::Processors::default(),
    };
    world.event(Event::TargetUp {
        limits,
        replaced: true,
    });
    assert_eq!(failure(&world, 1), Class::Unavailable);
}

#[test]
fn a_new_request_waits_its_own_time_for_a_target_that_was_lost_long_ago() {
    let mut world = world(&[]);
    world.target_dies();
    world.now += 100 * PATIENCE.target;
    world.admit(4, 10, 0);
    assert!(world.clients[&1].end.is_none());
    world.target_up();
    world.settle();
    assert_eq!(world.check(), 1);
}

#[test]
fn a_client_that_takes_nothing_gets_no_rounds_until_it_does() {
    let mut world = world(&[1.0]);
    world.admit(4, 200, 4);
    carry_until(&mut world, |world| written(world, 1) > 20);
    world.event(Event::ClientFull(1));
    while world.carry_one() {}
    let (batches, tokens) = (world.batches.len(), written(&world, 1));
    world.now += 10 * PATIENCE.target;
    world.advance();
    assert_eq!((world.batches.len(), written(&world, 1)), (batches, tokens));
    assert!(tokens < 200);
    world.event(Event::ClientReady(1));
    world.settle();
    assert_eq!(world.check(), 1);
}

#[test]
fn a_client_that_leaves_frees_every_worker_at_once() {
    let mut world = world(&[1.0]);
    world.admit(4, 200, 4);
    carry_until(&mut world, |world| written(world, 1) > 20);
    world.end(1, End::Left);
    world.event(Event::ClientGone(1));
    let batches = world.batches.len();
    while world.carry_one() {}
    assert_eq!(world.batches.len(), batches, "no round after it");
    world.check();
}
