//! Whole runs: with everything in order, and with everything going wrong at random.

use super::{Chaos, End, Event, Law, PATIENCE, World};
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use service::Class;

const AGREEMENTS: [f64; 3] = [1.0, 0.6, 0.0];

fn law(seed: u64) -> Law {
    Law {
        seed,
        eos_every: 40,
        eos_at: None,
    }
}

fn without_end(seed: u64) -> Law {
    Law {
        eos_every: u64::MAX,
        ..law(seed)
    }
}

/// One request among `agreements` drafts, with nothing going wrong.
fn calm(law: Law, agreements: &[f64], budget: usize, max_draft: usize) -> World {
    let mut world = World::new(law.seed, law, agreements);
    world.admit(5, budget, max_draft);
    world.settle();
    assert_eq!(world.check(), 1);
    world
}

fn stats(world: &World) -> &super::super::Stats {
    match &world.clients[&1].end {
        Some(End::Finished(summary)) => &summary.stats,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_length_and_agreement_writes_the_plain_text() {
    for seed in 0..20 {
        for max_draft in 0..=8 {
            for agreement in [0.0, 0.5, 1.0] {
                calm(law(seed), &[agreement], 60, max_draft);
            }
        }
    }
}

#[test]
fn an_end_of_text_at_every_offset_ends_the_text_there() {
    for offset in 0..30 {
        for max_draft in 0..=8 {
            let law = Law {
                eos_at: Some(5 + offset),
                ..without_end(3)
            };
            let world = calm(law, &[1.0], 100, max_draft);
            assert_eq!(world.clients[&1].tokens.len(), offset + 1);
        }
    }
}

#[test]
fn every_budget_is_met_exactly() {
    for budget in 1..=30 {
        for max_draft in 0..=8 {
            let world = calm(without_end(4), &[1.0], budget, max_draft);
            assert_eq!(world.clients[&1].tokens.len(), budget);
        }
    }
}

#[test]
fn a_draft_that_is_the_target_is_always_accepted_and_one_that_never_agrees_never() {
    let world = calm(without_end(5), &[1.0], 400, 5);
    assert_eq!(stats(&world).accepted, stats(&world).drafted);
    assert!(stats(&world).rounds < 400 / 5, "{:?}", stats(&world));
    let world = calm(without_end(5), &[0.0], 400, 5);
    assert_eq!(stats(&world).accepted, 0);
    assert!(stats(&world).drafted > 1900);
}

#[test]
fn without_faults_no_work_is_wasted() {
    for seed in 0..40 {
        let world = calm(without_end(seed), &[0.7], 200, 5);
        assert_eq!(world.scheduler.stale_messages(), 0, "seed {seed}");
    }
}

#[test]
fn without_drafts_and_with_speculation_off_decoding_is_plain() {
    let world = calm(without_end(6), &[], 50, 4);
    assert_eq!((stats(&world).rounds, stats(&world).drafted), (49, 0));
    let world = calm(without_end(6), &[1.0], 50, 0);
    assert_eq!(stats(&world).drafted, 0);
    assert_eq!(world.drafts[0].told, 0, "no draft worker hears of it");
}

#[test]
fn garbage_from_a_draft_is_harmless() {
    let (mut malformed, mut unknown) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed, law(seed), &[0.8]);
        world.drafts[0].garbage = true;
        world.target.lawless = true;
        for _ in 0..3 {
            world.admit(3, 80, 4);
        }
        world.settle();
        assert_eq!(world.check(), 3);
        unknown += world.target.unknown;
        malformed += world.scheduler.malformed_proposals();
    }
    assert!(unknown > 40, "what was drawn cuts no proposal: {unknown}");
    assert!(malformed > 40, "they are counted: {malformed}");
}

/// One random step of the world, with things going wrong.
fn step(world: &mut World, chaos: &Chaos) {
    let mut happens = |percent: u32| world.random.random_range(0..100) < percent;
    let link_dies = happens(chaos.link_dies);
    let drops = happens(chaos.worker_drops_a_sequence);
    let returns = happens(chaos.old_message_returns);
    let leaves = happens(chaos.client_leaves);
    let stalls = happens(chaos.client_stalls);
    let jumps = happens(chaos.time_jumps);
    let link = world.random.random_range(0..=world.drafts.len());
    if link_dies {
        toggle(world, link);
    }
    if drops {
        match link.checked_sub(1) {
            None => world.target.drop_one(),
            Some(worker) => world.drafts[worker].drop_one(),
        }
    }
    if returns {
        old_message(world, link);
    }
    if leaves || stalls {
        client_acts(world, leaves);
    }
    if jumps {
        world.now += PATIENCE.draft.mul_f64(world.random.random_range(0.0..2.0));
        world.advance();
    }
    world.carry_one();
}

fn toggle(world: &mut World, link: usize) {
    match link.checked_sub(1) {
        None if world.target.up => world.target_dies(),
        None => world.target_up(),
        Some(worker) if world.drafts[worker].up => world.draft_dies(worker),
        Some(worker) => world.draft_up(worker),
    }
}

fn old_message(world: &mut World, link: usize) {
    match link.checked_sub(1) {
        None => {
            if let Some(event) = world.target.said.choose(&mut world.random).cloned() {
                world.event(Event::Target(event));
            }
        }
        Some(worker) => {
            let event = world.drafts[worker].said.choose(&mut world.random).cloned();
            if let Some(event) = event {
                world.event(Event::Draft(worker, event));
            }
        }
    }
}

fn client_acts(world: &mut World, leaves: bool) {
    let running: Vec<_> = world
        .clients
        .iter()
        .filter(|(_, client)| client.end.is_none())
        .map(|(id, _)| *id)
        .collect();
    let Some(id) = running.choose(&mut world.random).copied() else {
        return;
    };
    if leaves {
        world.end(id, End::Left);
        world.event(Event::ClientGone(id));
        return;
    }
    let client = world.clients.get_mut(&id).unwrap();
    client.full = !client.full;
    let event = if client.full {
        Event::ClientFull(id)
    } else {
        Event::ClientReady(id)
    };
    world.event(event);
}

/// Chaos for a while, then peace until all is done.
fn chaotic(law: Law, agreements: &[f64], chaos: &Chaos) -> World {
    println!("seed {}", law.seed);
    let mut world = World::new(law.seed, law, agreements);
    world.target.max_sequences = world.random.random_range(1..=4);
    world.drafts[0].max_sequences = 2;
    world.target_dies();
    for worker in 0..agreements.len() {
        world.draft_dies(worker);
    }
    world.restore();
    for _ in 0..world.random.random_range(50..1500) {
        if world.clients.len() < 8 && world.random.random_bool(0.05) {
            let (prompt, budget) = (
                world.random.random_range(1..9),
                world.random.random_range(1..90),
            );
            let max_draft = world.random.random_range(0..=16);
            world.admit(prompt, budget, max_draft);
        }
        step(&mut world, chaos);
    }
    world.restore();
    let full: Vec<_> = world
        .clients
        .iter()
        .filter(|(_, client)| client.full)
        .map(|(id, _)| *id)
        .collect();
    for id in full {
        world.event(Event::ClientReady(id));
    }
    world.settle();
    world
}

#[test]
fn no_schedule_of_draft_faults_and_clients_changes_or_loses_a_text() {
    let chaos = Chaos {
        client_leaves: 0,
        worker_drops_a_sequence: 0,
        ..chaos()
    };
    for seed in 0..150 {
        let mut world = chaotic(
            law(seed),
            &AGREEMENTS,
            &Chaos {
                link_dies: 0,
                ..chaos.clone()
            },
        );
        world.check();
        assert!(
            world
                .clients
                .values()
                .all(|client| matches!(client.end, Some(End::Finished(_)))),
            "seed {seed}"
        );
        world.target_dies();
    }
}

#[test]
fn no_schedule_of_faults_lets_a_draft_that_is_the_target_be_rejected() {
    for seed in 2000..2200 {
        let world = chaotic(without_end(seed), &[1.0, 1.0, 1.0], &chaos());
        world.check();
        for client in world.clients.values() {
            if let Some(End::Finished(summary)) = &client.end {
                let stats = &summary.stats;
                assert_eq!(stats.accepted, stats.drafted, "seed {seed}");
            }
        }
    }
}

#[test]
fn no_schedule_of_faults_changes_a_text_or_leaves_anything_behind() {
    let (mut complete, mut failed) = (0, 0);
    for seed in 1000..1400 {
        let world = chaotic(law(seed), &AGREEMENTS, &chaos());
        complete += world.check();
        for client in world.clients.values() {
            if let Some(End::Failed(error)) = &client.end {
                failed += 1;
                let expected = matches!(
                    error.class,
                    Class::Unavailable | Class::Overloaded { .. } | Class::Internal
                );
                assert!(expected, "seed {seed}: {error:?}");
            }
        }
    }
    println!("{complete} texts complete, {failed} failed");
    assert!(complete > 10 * failed, "faults that pass are survived");
}

fn chaos() -> Chaos {
    Chaos {
        link_dies: 2,
        worker_drops_a_sequence: 2,
        old_message_returns: 5,
        client_leaves: 1,
        client_stalls: 3,
        time_jumps: 3,
    }
}
