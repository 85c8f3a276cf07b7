//! Who gets a place and room in the cache.

use crate::support::{
    BLOCK, Order, begin, greedy, open, options, prompt, reference, steered, within,
};
use engine::{EngineError, EngineOptions};

fn blocks(count: usize) -> EngineOptions {
    EngineOptions {
        cache_bytes: count * BLOCK,
        ..options()
    }
}

#[tokio::test]
async fn the_limit_of_sequences_holds_and_a_dropped_one_frees_its_place_at_once() {
    let (engine, _steering) = steered(EngineOptions {
        max_sequences: 2,
        ..options()
    });
    let first = open(&engine, greedy()).unwrap();
    let _second = open(&engine, greedy()).unwrap();
    assert_eq!(engine.active_sequences(), 2);
    let refused = open(&engine, greedy()).unwrap_err();
    assert_eq!(refused, EngineError::Overloaded { max: 2 });
    drop(first);
    assert_eq!(engine.active_sequences(), 1);
    open(&engine, greedy()).unwrap();
}

#[tokio::test]
async fn a_dropped_sequence_gives_its_cache_back() {
    let (engine, mut steering) = steered(blocks(4));
    steering.let_go();
    let mut idle = open(&engine, greedy()).unwrap();
    within(idle.score(0, prompt(1, 32), 0)).await.unwrap();
    let mut dropped = open(&engine, greedy()).unwrap();
    within(dropped.score(0, prompt(2, 96), 0)).await.unwrap();
    drop(dropped);
    let mut next = open(&engine, greedy()).unwrap();
    within(next.score(0, prompt(3, 96), 0)).await.unwrap();
    // Were the dropped one still there, the idle one would have had to go first, being older.
    assert_eq!(engine.cache().preemptions, 0);
    assert_eq!(idle.cached_len(), 32);
}

#[tokio::test]
async fn the_least_recently_used_idle_sequence_is_preempted_and_does_not_notice() {
    let (engine, mut steering) = steered(blocks(4));
    steering.let_go();
    let mut older = open(&engine, greedy()).unwrap();
    let mut newer = open(&engine, greedy()).unwrap();
    within(older.score(0, prompt(1, 32), 0)).await.unwrap();
    within(newer.score(0, prompt(2, 32), 0)).await.unwrap();
    within(older.score(31, prompt(3, 1), 0)).await.unwrap();
    let mut hungry = open(&engine, greedy()).unwrap();
    within(hungry.score(0, prompt(4, 96), 0)).await.unwrap();
    assert_eq!(engine.cache().preemptions, 1);
    for rows in [32, 32, 1, 96] {
        assert_eq!(steering.begun().await, [rows]);
    }

    within(older.score(31, prompt(3, 1), 1)).await.unwrap();
    assert_eq!(steering.begun().await, [1], "the older one was used later");
    assert_eq!(newer.cached_len(), 32);
    let resumed = within(newer.score(30, prompt(5, 9), 9)).await.unwrap();
    assert_eq!(steering.begun().await, [39], "its cache was gone");
    let tokens = [&prompt(2, 30)[..], &prompt(5, 9)].concat();
    assert_eq!(resumed, reference(greedy(), &tokens, 9));
}

#[tokio::test]
async fn what_can_never_fit_is_refused_and_preempts_nobody() {
    let (engine, mut steering) = steered(blocks(4));
    steering.let_go();
    let mut idle = open(&engine, greedy()).unwrap();
    within(idle.score(0, prompt(1, 32), 0)).await.unwrap();
    let mut huge = open(&engine, greedy()).unwrap();
    let refused = within(huge.generate(0, prompt(2, 128), 2)).await;
    let full = EngineError::CacheFull {
        tokens: 129,
        budget_bytes: 4 * BLOCK,
    };
    assert_eq!(refused, Err(full));
    assert_eq!(engine.cache().preemptions, 0);
    assert_eq!(idle.cached_len(), 32);
}

#[tokio::test]
async fn a_job_waits_for_room_that_running_ones_hold() {
    let (engine, mut steering) = steered(blocks(4));
    let mut first = open(&engine, greedy()).unwrap();
    let mut second = open(&engine, greedy()).unwrap();
    let running = begin(first.score(0, prompt(1, 96), 0)).await;
    assert_eq!(steering.begun().await, [96]);
    let waiting = begin(second.score(0, prompt(2, 64), 1)).await;
    steering.let_go();
    within(running).await.unwrap();
    within(waiting).await.unwrap();
    // It was idle by then.
    assert_eq!(engine.cache().preemptions, 1);
    assert_eq!(first.cached_len(), 96);
}

#[tokio::test]
async fn a_short_job_passes_one_that_waits_for_room() {
    let (engine, mut steering) = steered(EngineOptions {
        max_step_tokens: 32,
        ..blocks(4)
    });
    let mut first = open(&engine, greedy()).unwrap();
    let mut second = open(&engine, greedy()).unwrap();
    let mut third = open(&engine, greedy()).unwrap();
    let running = begin(first.score(0, prompt(1, 96), 0)).await;
    assert_eq!(steering.begun().await, [32]);
    let waiting = begin(second.score(0, prompt(2, 64), 0)).await;
    let short = begin(third.score(0, prompt(3, 4), 1)).await;
    steering.order(Order::Run);
    assert_eq!(steering.begun().await, [28, 4]);
    steering.let_go();
    within(short).await.unwrap();
    within(running).await.unwrap();
    within(waiting).await.unwrap();
}

#[tokio::test]
async fn jobs_that_wait_for_each_other_do_not_hang() {
    let (engine, mut steering) = steered(blocks(5));
    let mut other = open(&engine, greedy()).unwrap();
    let mut first = open(&engine, greedy()).unwrap();
    let mut second = open(&engine, greedy()).unwrap();
    for sequence in [&mut first, &mut second] {
        steering.order(Order::Run);
        within(sequence.score(0, prompt(1, 64), 0)).await.unwrap();
        steering.begun().await;
    }
    // Both call while a step is under way, and neither has room to grow.
    let running = begin(other.score(0, prompt(2, 1), 0)).await;
    assert_eq!(steering.begun().await, [1]);
    let earlier = begin(first.score(64, prompt(3, 64), 1)).await;
    let later = begin(second.score(64, prompt(4, 64), 1)).await;
    steering.let_go();
    within(running).await.unwrap();
    for (call, new) in [(earlier, 3), (later, 4)] {
        let tokens = [prompt(1, 64), prompt(new, 64)].concat();
        let choices = within(call).await.unwrap();
        assert_eq!(choices, reference(greedy(), &tokens, 1));
    }
    assert_eq!(engine.cache().preemptions, 3, "the second, both idle ones");
}
