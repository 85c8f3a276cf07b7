//! Calls that make no sense, callers that go away, models that fail.

use crate::support::{
    BLOCK, Order, begin, greedy, open, options, prompt, reference, sampler, steered, within,
};
use engine::{Engine, EngineError, EngineOptions, Synthetic};

#[tokio::test]
async fn a_call_that_makes_no_sense_is_refused_and_changes_nothing() {
    let (engine, mut steering) = steered(options());
    steering.let_go();
    let mut sequence = open(&engine, greedy()).unwrap();
    within(sequence.score(0, prompt(1, 10), 0)).await.unwrap();
    let invalid = |text: &str| Err(EngineError::Invalid(text.to_owned()));
    assert_eq!(
        within(sequence.score(10, vec![3, 512], 1)).await,
        invalid("tokens must be below 512, the size of the vocabulary, not 512")
    );
    assert_eq!(
        within(sequence.score(11, vec![3], 1)).await,
        invalid("keep must be at most the cached length, 10, not 11")
    );
    assert_eq!(
        within(sequence.score(10, vec![], 0)).await,
        invalid("tokens must not be empty")
    );
    assert_eq!(
        within(sequence.score(10, vec![3], 2)).await,
        invalid("rows must be at most the number of tokens, 1, not 2")
    );
    assert_eq!(
        within(sequence.generate(10, vec![3], 0)).await,
        invalid("count must be over 0")
    );
    assert_eq!(sequence.cached_len(), 10);
    within(sequence.score(10, vec![3], 1)).await.unwrap();
}

#[tokio::test]
async fn a_sequence_may_fill_the_context_and_not_exceed_it() {
    let (engine, mut steering) = steered(options());
    steering.let_go();
    let mut sequence = open(&engine, greedy()).unwrap();
    within(sequence.score(0, prompt(1, 2000), 0)).await.unwrap();
    let exceeded = |tokens| {
        Err(EngineError::ContextExceeded {
            tokens,
            context_length: 2048,
        })
    };
    let one_too_many = sequence.generate(2000, prompt(2, 40), 10);
    assert_eq!(within(one_too_many).await, exceeded(2049));
    let absurd = sequence.score(usize::MAX, prompt(2, 40), 1);
    assert_eq!(within(absurd).await, exceeded(usize::MAX));
    let fits = sequence.generate(2000, prompt(2, 40), 9);
    within(fits).await.unwrap();
    assert_eq!(sequence.cached_len(), 2048);
}

#[test]
fn options_without_which_nothing_runs_are_refused() {
    let model = || Box::new(Synthetic::new("".parse().unwrap()));
    let wrong = EngineOptions {
        max_step_tokens: 0,
        ..options()
    };
    let error = Engine::start(model(), wrong).unwrap_err();
    assert_eq!(error.to_string(), "max_step_tokens must be over 0");
}

#[tokio::test]
async fn an_abandoned_call_stops_and_its_sequence_goes_on_from_what_it_kept() {
    let (engine, mut steering) = steered(options());
    let sampler = sampler(1.0, 9);
    let mut sequence = open(&engine, sampler).unwrap();
    let tokens = prompt(1, 20);
    steering.order(Order::Run);
    let first = sequence.score(0, tokens.clone(), 1);
    within(first).await.unwrap();
    steering.begun().await;
    {
        let _abandoned = begin(sequence.generate(15, prompt(2, 8), 1000)).await;
        assert_eq!(steering.begun().await, [8]);
        steering.order(Order::Run);
        assert_eq!(steering.begun().await, [1]);
    }
    assert_eq!(sequence.cached_len(), 15);
    let next = begin(sequence.score(15, tokens[15..].to_vec(), 5)).await;
    steering.order(Order::Run);
    assert_eq!(steering.begun().await, [5], "the abandoned call is gone");
    steering.let_go();
    let choices = within(next).await.unwrap();
    assert_eq!(choices, reference(sampler, &tokens, 5));
    assert_eq!(sequence.cached_len(), 20);
}

#[tokio::test]
async fn any_number_of_abandoned_calls_costs_nothing() {
    let (engine, mut steering) = steered(EngineOptions {
        cache_bytes: 2 * BLOCK,
        max_sequences: 2,
        ..options()
    });
    let mut busy = open(&engine, greedy()).unwrap();
    let running = begin(busy.score(0, prompt(1, 32), 0)).await;
    assert_eq!(steering.begun().await, [32]);
    // More than the queue holds, while nobody takes from it.
    for i in 0..100 {
        let mut brief = open(&engine, greedy()).unwrap();
        drop(begin(brief.score(0, prompt(i, 20), 1)).await);
    }
    assert_eq!(engine.active_sequences(), 1);
    steering.let_go();
    within(running).await.unwrap();
    let mut next = open(&engine, greedy()).unwrap();
    within(next.score(0, prompt(2, 32), 0)).await.unwrap();
    assert_eq!(engine.cache().preemptions, 0, "nobody had to make room");
    assert_eq!(busy.cached_len(), 32);
    assert_eq!(steering.begun().await, [32]);
    assert!(steering.steps.is_empty(), "abandoned calls were computed");
}

#[tokio::test]
async fn a_failed_step_fails_its_own_jobs_only() {
    let (engine, mut steering) = steered(EngineOptions {
        max_step_tokens: 40,
        ..options()
    });
    let mut first = open(&engine, greedy()).unwrap();
    let mut second = open(&engine, greedy()).unwrap();
    steering.order(Order::Run);
    within(first.score(0, prompt(1, 8), 0)).await.unwrap();
    steering.begun().await;
    let failing = begin(first.score(4, prompt(2, 100), 1)).await;
    assert_eq!(steering.begun().await, [40]);
    let other = begin(second.score(0, prompt(3, 100), 1)).await;
    steering.order(Order::Run);
    assert_eq!(steering.begun().await, [40], "one prefill at a time");
    steering.order(Order::Fail);
    let failed = within(failing).await;
    assert_eq!(failed, Err(EngineError::Model("as ordered".to_owned())));
    steering.let_go();
    let choices = within(other).await.unwrap();
    assert_eq!(choices, reference(greedy(), &prompt(3, 100), 1));

    assert_eq!(first.cached_len(), 4);
    let again = within(first.score(4, prompt(2, 100), 1)).await.unwrap();
    let tokens = [&prompt(1, 4)[..], &prompt(2, 100)].concat();
    assert_eq!(again, reference(greedy(), &tokens, 1));
}

#[tokio::test]
async fn a_panic_of_the_model_stops_the_engine_for_all() {
    let (engine, mut steering) = steered(options());
    let mut first = open(&engine, greedy()).unwrap();
    let mut second = open(&engine, greedy()).unwrap();
    let computed = begin(first.score(0, prompt(1, 8), 1)).await;
    steering.begun().await;
    let queued = begin(second.score(0, prompt(2, 8), 1)).await;
    steering.order(Order::Panic);
    assert_eq!(within(computed).await, Err(EngineError::Stopped));
    assert_eq!(within(queued).await, Err(EngineError::Stopped));
    let later = within(first.score(0, prompt(1, 8), 1)).await;
    assert_eq!(later, Err(EngineError::Stopped));
    assert_eq!(open(&engine, greedy()).unwrap_err(), EngineError::Stopped);
    steering.dropped().await;
}

#[tokio::test]
async fn the_thread_ends_with_the_last_handle() {
    let (engine, mut steering) = steered(options());
    steering.let_go();
    let clone = engine.clone();
    let mut sequence = open(&engine, greedy()).unwrap();
    drop((engine, clone));
    within(sequence.score(0, prompt(1, 8), 1)).await.unwrap();
    drop(sequence);
    steering.dropped().await;
}

#[tokio::test]
async fn the_thread_ends_though_a_call_was_under_way() {
    let (engine, mut steering) = steered(options());
    {
        let mut sequence = open(&engine, greedy()).unwrap();
        let _abandoned = begin(sequence.generate(0, prompt(1, 8), 1000)).await;
        steering.begun().await;
    }
    drop(engine);
    steering.let_go();
    steering.dropped().await;
}
