use super::*;
use crate::access::Limits;
use std::time::Instant;

const NO_LIMITS: Limits = Limits {
    running: None,
    waiting: None,
    tokens: None,
};

impl Gate {
    /// A gate for so many running choices, at which nobody waits.
    pub(crate) fn of(running: u32) -> Self {
        let capacity = Capacity {
            running,
            waiting: 0,
            tokens: None,
        };
        Self::new(capacity, Duration::from_secs(60))
    }

    /// A pass for so many choices, which must be free.
    pub(crate) fn pass(&self, choices: u32) -> Pass {
        let mut arrival = self.arrive(&Identity::default(), choices).unwrap();
        arrival.choices = 0;
        let demand = demand("", "", choices, 0);
        let (waiter, mut turn) = oneshot::channel();
        let now = Instant::now();
        let (_, let_in) = self.book().enter(&demand, waiter, now).unwrap();
        self.tell(let_in);
        turn.try_recv().unwrap().unwrap()
    }
}

fn demand(key: &str, tenant: &str, choices: u32, tokens: u64) -> Demand {
    Demand {
        owner: (key.into(), tenant.into()),
        limits: NO_LIMITS,
        choices,
        tokens,
        choice_tokens: 0,
        priority: 0,
    }
}

/// Books in which requests are told apart by names, and those that run are kept.
struct Room {
    book: Book<&'static str>,
    running: Vec<(&'static str, Demand)>,
    now: Instant,
}

impl Room {
    fn new(running: u32, waiting: u32, tokens: Option<u64>) -> Self {
        Self {
            book: Book::new(Capacity {
                running,
                waiting,
                tokens,
            }),
            running: Vec::new(),
            now: Instant::now(),
        }
    }

    fn ask(&mut self, name: &'static str, demand: &Demand) -> Result<Ticket, Refusal> {
        let who = Identity {
            name: Arc::clone(&demand.owner.0),
            limits: demand.limits,
        };
        self.book.arrive(&who, demand.choices)?;
        let (ticket, let_in) = self.book.enter(demand, name, self.now)?;
        self.let_in(let_in);
        Ok(ticket)
    }

    fn let_in(&mut self, let_in: Vec<(Demand, &'static str)>) {
        let let_in = let_in.into_iter().map(|(demand, name)| (name, demand));
        self.running.extend(let_in);
    }

    /// Ends the one that has run longest; returns who are let in for it.
    fn end_one(&mut self) -> Vec<&'static str> {
        let (_, demand) = self.running.remove(0);
        let before = self.running.len();
        let Demand {
            choices, tokens, ..
        } = demand;
        self.book.release(&demand.owner, choices, tokens, self.now);
        let let_in = self.book.let_in(self.now);
        self.let_in(let_in);
        self.running[before..]
            .iter()
            .map(|(name, _)| *name)
            .collect()
    }

    /// Ends all, one by one; returns the order in which those that waited were let in.
    fn order(&mut self) -> Vec<&'static str> {
        let mut order = Vec::new();
        while !self.running.is_empty() {
            order.extend(self.end_one());
        }
        assert!(self.book.is_idle(), "{:?}", self.book);
        order
    }
}

#[test]
fn what_runs_and_what_waits_is_bounded_and_the_rest_is_refused() {
    let mut room = Room::new(2, 1, None);
    for name in ["a", "b", "c"] {
        room.ask(name, &demand("", "", 1, 5)).unwrap();
    }
    assert_eq!(room.running.len(), 2);
    assert_eq!(room.ask("d", &demand("", "", 1, 5)), Err(Refusal::Full));
    let too_many = room.ask("e", &demand("", "", 3, 5));
    assert_eq!(too_many, Err(Refusal::TooManyChoices(2)));
    assert_eq!(room.end_one(), ["c"]);
    room.ask("f", &demand("", "", 1, 5)).unwrap();
    assert_eq!(room.order(), ["f"]);
    assert_eq!(room.book.refused().full, 1);
}

#[test]
fn tokens_are_bounded_as_well_and_what_never_fits_is_wrong() {
    let mut room = Room::new(10, 1, Some(100));
    room.ask("a", &demand("", "", 1, 60)).unwrap();
    room.ask("b", &demand("", "", 1, 41)).unwrap();
    // It would fit, but has no place to wait for its turn.
    assert_eq!(room.ask("c", &demand("", "", 1, 1)), Err(Refusal::Full));
    let never = room.ask("d", &demand("", "", 1, 101));
    assert_eq!(never, Err(Refusal::TooManyTokens(100)));
    assert_eq!(room.order(), ["b"]);
}

#[test]
fn a_higher_priority_goes_first_then_owners_by_turns_then_first_come() {
    let mut room = Room::new(1, 10, None);
    room.ask("first", &demand("k", "", 1, 0)).unwrap();
    for (name, tenant, priority) in [
        ("a1", "a", 0),
        ("a2", "a", 0),
        ("a3", "a", 0),
        ("b1", "b", 0),
        ("low", "c", -1),
        ("b2", "b", 0),
        ("high", "a", 1),
    ] {
        let demand = Demand {
            priority,
            ..demand("k", tenant, 1, 0)
        };
        room.ask(name, &demand).unwrap();
    }
    assert_eq!(room.order(), ["high", "a1", "b1", "a2", "b2", "a3", "low"]);
}

#[test]
fn a_key_gets_no_more_turns_for_having_more_tenants() {
    let mut room = Room::new(2, 10, None);
    room.ask("x", &demand("many", "1", 1, 0)).unwrap();
    room.ask("y", &demand("many", "2", 1, 0)).unwrap();
    room.ask("m3", &demand("many", "3", 1, 0)).unwrap();
    room.ask("m4", &demand("many", "4", 1, 0)).unwrap();
    room.ask("one", &demand("one", "", 1, 0)).unwrap();
    assert_eq!(room.end_one(), ["one"]);
    assert_eq!(room.order(), ["m3", "m4"]);
}

#[test]
fn a_key_over_its_own_limits_holds_nobody_up() {
    let mut room = Room::new(10, 10, None);
    let own = |running, waiting, tokens| Demand {
        limits: Limits {
            running,
            waiting,
            tokens,
        },
        ..demand("small", "", 1, 6)
    };
    room.ask("a", &own(Some(1), Some(1), None)).unwrap();
    room.ask("b", &own(Some(1), Some(1), None)).unwrap();
    let third = room.ask("c", &own(Some(1), Some(1), None));
    assert_eq!(third, Err(Refusal::KeyFull));
    let waits = room.ask("d", &own(None, Some(1), Some(10)));
    assert_eq!(waits, Err(Refusal::KeyFull), "one waits");
    room.ask("other", &demand("other", "", 1, 6)).unwrap();
    let names: Vec<_> = room.running.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["a", "other"]);
    assert_eq!(room.order(), ["b"]);
    assert_eq!(room.book.refused().key_full, 2);
}

#[test]
fn a_large_request_is_not_passed_by_small_ones_but_may_give_up() {
    let mut room = Room::new(4, 10, None);
    for name in ["a", "b"] {
        room.ask(name, &demand("", "", 1, 0)).unwrap();
    }
    let large = demand("", "", 4, 0);
    let ticket = room.ask("large", &large).unwrap();
    room.ask("small", &demand("", "", 1, 0)).unwrap();
    assert_eq!(room.running.len(), 2, "the small one waits behind");
    assert!(room.book.withdraw(ticket, &large));
    assert!(!room.book.withdraw(ticket, &large));
    let let_in = room.book.let_in(room.now);
    room.let_in(let_in);
    assert_eq!(room.running.len(), 3);
    assert!(room.order().is_empty());
}

#[test]
fn once_closed_nobody_comes_in_and_nobody_waits() {
    let mut room = Room::new(1, 2, None);
    for name in ["a", "b"] {
        room.ask(name, &demand("", "", 1, 0)).unwrap();
    }
    room.book.arrive(&Identity::default(), 1).unwrap();
    assert_eq!(room.book.close(), ["b"]);
    let late = room.book.enter(&demand("", "", 1, 0), "c", room.now);
    assert_eq!(late.unwrap_err(), Refusal::Draining);
    assert_eq!(room.ask("d", &demand("", "", 1, 0)), Err(Refusal::Draining));
    assert_eq!(room.running.len(), 1, "what runs goes on");
    assert!(room.order().is_empty());
    assert_eq!(room.book.refused().draining, 3);
}

#[tokio::test]
async fn a_pass_gives_each_choice_back_and_then_the_rest() {
    let gate = Gate::of(3);
    let mut pass = gate.pass(3);
    pass.choice_ended();
    assert_eq!(gate.stats().running, 2);
    drop(pass);
    assert!(gate.book().is_idle());
}
