//! What plain decoding costs is looked at while sequences draft, whatever else goes on.

use super::rates::{SECOND, loaded};
use super::{Micros, World};

/// What all sequences decode plainly for must not count as a step beside drafting.
#[test]
fn what_plain_decoding_takes_is_known_while_all_draft_ahead() {
    let mut world = World::new(loaded(0.9));
    for _ in 0..16 {
        world.admit(1_000_000);
    }
    world.run(5 * SECOND);
    let step = &world.scheduler.verifying.step;
    assert!(step.is_known(16), "{:?} of 16 rows", step.seconds(16));
}

/// A step during which prompts are prefilled tells nothing, and yet a look has to end.
#[test]
fn texts_go_on_drafting_while_new_prompts_come_without_a_pause() {
    const EVERY: Micros = 10_000;
    let mut setting = loaded(0.9);
    // Longer than from one prompt to the next, so that one is always on its way.
    setting.target_rtt = 20_000;
    let mut world = World::new(setting);
    let texts: Vec<_> = (0..8).map(|_| world.admit(1_000_000)).collect();
    let tokens = |world: &World| {
        let of = |id| world.clients[id].tokens.len();
        texts.iter().map(of).sum::<usize>()
    };
    world.run(2 * SECOND);
    let before = tokens(&world);
    world.run(4 * SECOND);
    let quiet = tokens(&world) - before;
    let mut busy = 0;
    for second in 0..12 {
        let before = tokens(&world);
        for _ in 0..SECOND / EVERY {
            world.admit(1);
            world.run(world.now + EVERY);
        }
        // Long enough after the beginning that a look at plain decoding is due.
        if second >= 10 {
            busy += tokens(&world) - before;
        }
    }
    println!("{quiet} tokens in two quiet seconds, {busy} beside prompts");
    assert!(2 * busy >= quiet, "{busy} tokens, {quiet} in quiet");
}
