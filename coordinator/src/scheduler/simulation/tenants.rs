//! What one tenant asks for holds no other up.

use super::{Law, World};

fn world(agreements: &[f64]) -> World {
    let law = Law {
        seed: 5,
        eos_every: u64::MAX,
        eos_at: None,
    };
    World::new(1, law, agreements)
}

/// How many of the first `count` requests have ended.
fn ended(world: &World, count: usize) -> usize {
    let first = world.clients.values().take(count);
    first.filter(|client| client.end.is_some()).count()
}

#[test]
fn a_hundred_waiting_requests_do_not_delay_another_tenants_one() {
    let mut world = world(&[1.0]);
    for _ in 0..100 {
        world.admit_for("many", 4, 40, 4);
    }
    let one = world.admit_for("one", 4, 40, 4);
    while world.clients[&one].end.is_none() {
        assert!(world.carry_one(), "nothing moves");
    }
    let before = ended(&world, 100);
    println!("{before} of the others were first");
    assert!(before <= 3 * world.target.max_sequences, "{before}");
    world.settle();
    assert_eq!(world.check(), 101);
}

#[test]
fn a_tenants_own_requests_are_served_in_their_order() {
    let mut world = world(&[]);
    for _ in 0..40 {
        world.admit_for("one", 4, 20, 0);
    }
    while world.clients[&40].end.is_none() {
        assert!(world.carry_one(), "nothing moves");
    }
    assert!(ended(&world, 30) == 30);
    world.settle();
    assert_eq!(world.check(), 40);
}

#[test]
fn a_place_at_a_draft_worker_goes_to_the_tenant_that_has_none() {
    let mut world = world(&[0.5]);
    world.draft_dies(0);
    world.drafts[0].max_sequences = 2;
    world.restore();
    let first = world.admit_for("many", 4, 30, 4);
    for _ in 0..4 {
        world.admit_for("many", 4, 200, 4);
    }
    let one = world.admit_for("one", 4, 200, 4);
    let next = |world: &World| {
        let held = &world.drafts[0].held;
        held.len() == 2 && !held.contains_key(&first)
    };
    while !next(&world) {
        assert!(world.carry_one(), "nothing moves");
    }
    assert!(world.drafts[0].held.contains_key(&one));
    world.settle();
    assert_eq!(world.check(), 6);
}
