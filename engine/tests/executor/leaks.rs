//! What ends gives back all that it held.

use crate::support::{BLOCK, Order, begin, engine, greedy, open, options, prompt, steered, within};
use engine::{Engine, EngineOptions};
use rand::{Rng, SeedableRng, rngs::StdRng};

fn sharing(blocks: usize) -> EngineOptions {
    EngineOptions {
        cache_bytes: blocks * BLOCK,
        prefix_sharing: true,
        ..options()
    }
}

/// Waits until no sequence holds anything, and checks that all blocks are there.
async fn settled(engine: &Engine, blocks: usize) {
    let settled = async {
        while engine.cache().blocks.used > 0 {
            tokio::task::yield_now().await;
        }
    };
    within(settled).await;
    let usage = engine.cache().blocks;
    assert_eq!(usage.cached + usage.free, blocks);
}

#[tokio::test]
async fn a_thousand_requests_leave_nothing_behind() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let engine = engine(EngineOptions {
        cache_bytes: 32 * 2048,
        prefix_sharing: true,
        ..options()
    });
    let blocks = engine.cache().blocks.free;
    for request in 0..1000 {
        let mut sequence = open(&engine, greedy()).unwrap();
        let mut tokens = prompt(1, random.random_range(1..100));
        tokens.extend(prompt(request, random.random_range(1..100)));
        let len = tokens.len();
        within(sequence.score(0, tokens, 1)).await.unwrap();
        within(sequence.generate(len, vec![5], 20)).await.unwrap();
    }
    settled(&engine, blocks).await;
    assert!(engine.cache().prefix_hit_tokens > 0);
}

#[tokio::test]
async fn sequences_that_are_dropped_in_any_state_leave_nothing_behind() {
    let (engine, mut steering) = steered(sharing(4));
    // Idle, and idle without its cache.
    let mut preempted = open(&engine, greedy()).unwrap();
    let mut idle = open(&engine, greedy()).unwrap();
    for (sequence, len) in [(&mut preempted, 64), (&mut idle, 90)] {
        steering.order(Order::Run);
        within(sequence.score(0, prompt(len, len), 0))
            .await
            .unwrap();
        steering.begun().await;
    }
    assert_eq!(engine.cache().preemptions, 1);
    let untouched = open(&engine, greedy()).unwrap();
    // In a step, waiting for room, and on its way while the thread computes.
    let mut computed = open(&engine, greedy()).unwrap();
    let mut waiting = open(&engine, greedy()).unwrap();
    let mut queued = open(&engine, greedy()).unwrap();
    let computing = begin(computed.generate(0, prompt(1, 20), 50)).await;
    assert_eq!(steering.begun().await, [20]);
    let waits = begin(waiting.score(0, prompt(2, 100), 1)).await;
    steering.order(Order::Run);
    assert_eq!(steering.begun().await, [1]);
    let on_its_way = begin(queued.score(0, prompt(3, 100), 1)).await;
    drop((computing, waits, on_its_way));
    drop((preempted, idle, untouched, computed, waiting, queued));
    steering.let_go();
    settled(&engine, 4).await;
    assert_eq!(engine.active_sequences(), 0);

    // A failed step, and a call that is abandoned in a step.
    let (engine, mut steering) = steered(sharing(4));
    let mut failed = open(&engine, greedy()).unwrap();
    steering.order(Order::Fail);
    within(failed.score(0, prompt(1, 70), 1)).await.unwrap_err();
    steering.begun().await;
    let mut abandoned = open(&engine, greedy()).unwrap();
    drop(begin(abandoned.generate(0, prompt(1, 40), 60)).await);
    let call = begin(abandoned.generate(0, prompt(2, 40), 60)).await;
    assert_eq!(steering.begun().await, [40]);
    drop(call);
    steering.let_go();
    drop(failed);
    settled(&engine, 4).await;
    assert_eq!(abandoned.cached_len(), 0);
}
