//! Looks at what plain decoding costs.

use super::gate::promising;
use speculation::control::{Look, Plan};

/// Steps of so many that are plain, where what plain decoding costs is known after `teach` of them.
fn plain_steps(plan: &Plan, steps: usize, teach: usize) -> usize {
    let mut look = Look::new();
    let (mut plain, mut in_a_row) = (0, 0);
    for _ in 0..steps {
        look.consider(plan);
        in_a_row = if look.is_on() { in_a_row + 1 } else { 0 };
        plain += usize::from(look.is_on());
        look.step(in_a_row >= teach);
    }
    plain
}

#[test]
fn where_plain_is_not_known_it_looks_now_and_then() {
    let unseen = |rate| Plan {
        plain_known: false,
        ..promising(rate)
    };
    // Not known to be worse: it goes on, but for the looks, which are soon where it seems so.
    assert_eq!(plain_steps(&unseen(1.2), 1296, 1), 10);
    assert_eq!(plain_steps(&unseen(1.2), 1296, 2), 20);
    assert_eq!(plain_steps(&unseen(0.8), 1296, 1), 162);
    assert_eq!(plain_steps(&promising(0.8), 1296, 1), 0, "known");
}

#[test]
fn a_look_that_shows_nothing_ends() {
    let unseen = Plan {
        plain_known: false,
        ..promising(1.2)
    };
    assert_eq!(plain_steps(&unseen, 64, usize::MAX), 3);
}
