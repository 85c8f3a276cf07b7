//! What is chosen does not depend on how the work is cut and batched.

use crate::support::{
    Order, begin, engine, greedy, open, open_adjusted, options, prompt, reference,
    reference_adjusted, sampler, steered, within,
};
use engine::EngineOptions;
use rand::{Rng, SeedableRng, rngs::StdRng};
use speculation::{AdjustmentOptions, TokenId};

#[tokio::test]
async fn each_row_is_chosen_at_its_own_position() {
    let engine = engine(options());
    let sampler = sampler(1.0, 77);
    let mut sequence = open(&engine, sampler).unwrap();
    let tokens = prompt(1, 40);
    let choices = within(sequence.score(0, tokens.clone(), 40)).await.unwrap();
    assert_eq!(choices, reference(sampler, &tokens, 40));
    assert_eq!(sequence.cached_len(), 40);
}

#[tokio::test]
async fn a_prompt_in_pieces_gives_what_it_gives_whole() {
    for max_step_tokens in [1, 7, 64] {
        let (engine, mut steering) = steered(EngineOptions {
            max_step_tokens,
            ..options()
        });
        steering.let_go();
        let mut sequence = open(&engine, greedy()).unwrap();
        let tokens = prompt(2, 150);
        let choices = within(sequence.score(0, tokens.clone(), 20)).await.unwrap();
        assert_eq!(choices, reference(greedy(), &tokens, 20));
        let mut left = 150;
        while left > 0 {
            let step = steering.begun().await;
            assert!(step[0] <= max_step_tokens, "a step of {step:?}");
            left -= step[0];
        }
    }
}

#[tokio::test]
async fn a_prefill_chooses_nothing() {
    let engine = engine(options());
    let mut sequence = open(&engine, greedy()).unwrap();
    let tokens = prompt(3, 100);
    let none = within(sequence.score(0, tokens.clone(), 0)).await.unwrap();
    assert_eq!(none, []);
    assert_eq!(sequence.cached_len(), 100);
}

#[tokio::test]
async fn decoding_on_its_own_is_scoring_again_and_again() {
    let engine = engine(options());
    let sampler = sampler(0.8, 5);
    let mut sequence = open(&engine, sampler).unwrap();
    let mut tokens = prompt(4, 10);
    let choices = within(sequence.generate(0, tokens.clone(), 25))
        .await
        .unwrap();
    assert_eq!(sequence.cached_len(), 10 + 25 - 1);
    for choice in &choices {
        assert_eq!([*choice], *reference(sampler, &tokens, 1));
        tokens.push(choice.token);
    }
    assert_eq!(choices.len(), 25);
}

#[tokio::test]
async fn what_is_asked_for_under_a_hold_is_computed_together() {
    let (engine, mut steering) = steered(options());
    steering.let_go();
    let mut sequences: Vec<_> = (0..8).map(|_| open(&engine, greedy()).unwrap()).collect();
    // Often, since an engine that is not held might be slow enough to take all calls by luck.
    for length in 0..300 {
        let mut calls = Vec::new();
        let hold = engine.hold();
        for sequence in &mut sequences {
            calls.push(begin(sequence.score(length, vec![5], 1)).await);
        }
        drop(hold);
        assert_eq!(steering.begun().await, [1; 8], "at length {length}");
        for call in calls {
            within(call).await.unwrap();
        }
    }
}

#[tokio::test]
async fn work_goes_on_after_a_hold_under_which_nothing_was_asked_for() {
    let (engine, mut steering) = steered(options());
    let mut sequence = open(&engine, greedy()).unwrap();
    let call = begin(sequence.generate(0, prompt(1, 5), 3)).await;
    assert_eq!(steering.begun().await, [5]);
    let hold = engine.hold();
    steering.let_go();
    drop(hold);
    assert_eq!(within(call).await.unwrap().len(), 3);
}

#[tokio::test]
async fn sequences_in_one_batch_do_not_touch_each_other() {
    let (engine, mut steering) = steered(options());
    let samplers: Vec<_> = (0..4).map(|key| sampler(1.0, key)).collect();
    let mut sequences: Vec<_> = samplers
        .iter()
        .map(|&sampler| open(&engine, sampler).unwrap())
        .collect();
    let mut calls = Vec::new();
    for (i, sequence) in sequences.iter_mut().enumerate() {
        calls.push(begin(sequence.generate(0, prompt(i, 5 + i), 6)).await);
        if i == 0 {
            assert_eq!(steering.begun().await, [5]);
        }
    }
    steering.order(Order::Run);
    assert_eq!(steering.begun().await, [1, 6, 7, 8], "all in one batch");
    steering.let_go();
    for (i, call) in calls.into_iter().enumerate() {
        let choices = within(call).await.unwrap();
        let mut tokens = prompt(i, 5 + i);
        tokens.extend(choices[..5].iter().map(|choice| choice.token));
        assert_eq!(choices, reference(samplers[i], &tokens, 6), "sequence {i}");
    }
}

#[tokio::test]
async fn a_long_prefill_does_not_hold_up_decoding() {
    let (engine, mut steering) = steered(EngineOptions {
        max_step_tokens: 64,
        ..options()
    });
    let mut long = open(&engine, greedy()).unwrap();
    let mut short = open(&engine, greedy()).unwrap();
    let prefill = begin(long.score(0, prompt(1, 1500), 1)).await;
    assert_eq!(steering.begun().await, [64]);
    let decoding = begin(short.generate(0, prompt(2, 3), 8)).await;
    steering.order(Order::Run);
    assert_eq!(steering.begun().await, [61, 3]);
    for _ in 1..8 {
        steering.order(Order::Run);
        assert_eq!(steering.begun().await, [63, 1]);
    }
    steering.order(Order::Run);
    within(decoding).await.unwrap();
    assert_eq!(steering.begun().await, [64], "the prefill is not done");
    steering.let_go();
    within(prefill).await.unwrap();
}

#[tokio::test]
async fn decoding_sequences_take_turns_where_a_step_cannot_hold_all() {
    let (engine, mut steering) = steered(EngineOptions {
        max_step_tokens: 2,
        ..options()
    });
    let mut sequences = [(); 3].map(|()| open(&engine, greedy()).unwrap());
    let mut calls = Vec::new();
    for sequence in &mut sequences {
        calls.push(begin(sequence.generate(0, prompt(1, 1), 8)).await);
    }
    steering.let_go();
    for call in calls {
        within(call).await.unwrap();
    }
    // 24 rows by two, but for the ends. With one left for last it were 16 steps.
    let steps = steering.steps.len();
    assert!(steps <= 13, "{steps} steps");
}

/// Any mix of rollback, scoring and decoding, from several sequences at once, against one forward
/// over all tokens. Every other sequence has penalties: what was cut off must not be penalized.
#[tokio::test]
async fn random_calls_give_what_a_fresh_sequence_gives() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let engine = engine(EngineOptions {
        max_step_tokens: 24,
        ..options()
    });
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..6 {
        let sampler = sampler(0.7, number);
        let adjustments = AdjustmentOptions {
            presence_penalty: (number % 2) as f32,
            frequency_penalty: (number % 2) as f32 / -4.0,
            penalty_window: 60,
            prompt_len: 10,
            ..AdjustmentOptions::default()
        };
        let mut sequence = open_adjusted(&engine, sampler, adjustments.clone()).unwrap();
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
        tasks.spawn(async move {
            let mut cached: Vec<TokenId> = Vec::new();
            for _ in 0..60 {
                let keep = random.random_range(0..=cached.len().min(300));
                let len = random.random_range(1..80);
                let new: Vec<TokenId> = (0..len).map(|_| random.random_range(0..512)).collect();
                cached.truncate(keep);
                cached.extend(&new);
                if random.random() {
                    let rows = random.random_range(0..=len);
                    let choices = sequence.score(keep, new, rows).await.unwrap();
                    let expected = reference_adjusted(sampler, adjustments.clone(), &cached, rows);
                    assert_eq!(choices, expected);
                } else {
                    let count = random.random_range(1..8);
                    let choices = sequence.generate(keep, new, count).await.unwrap();
                    cached.extend(choices[..count - 1].iter().map(|choice| choice.token));
                    let expected = reference_adjusted(sampler, adjustments.clone(), &cached, count);
                    assert_eq!(choices, expected);
                }
                assert_eq!(sequence.cached_len(), cached.len());
            }
        });
    }
    within(tasks.join_all()).await;
}

#[tokio::test]
async fn padding_is_never_chosen() {
    let engine = engine(EngineOptions {
        tokenizer_size: 400,
        ..options()
    });
    let mut sequence = open(&engine, sampler(1.0, 1)).unwrap();
    let choices = within(sequence.generate(0, prompt(1, 5), 100))
        .await
        .unwrap();
    assert!(choices.iter().all(|choice| choice.token < 400));
}
