//! Which draft worker has which number.

use crate::scheduler::WorkerId;
use std::collections::BTreeSet;

/// More draft workers than this are not taken in: a wrong answer to a lookup must cost no more.
pub(super) const MAX_WORKERS: usize = 256;

/// Draft workers and their numbers. Numbers are dense: one that is free is given again, to the worker
/// that had it last where that returns.
#[derive(Debug, Default)]
pub(super) struct Roster {
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    /// The worker that has it, or had it last.
    url: String,
    /// False where it is free.
    taken: bool,
}

/// What is different from before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Workers that are no more.
    pub(super) left: Vec<(WorkerId, String)>,
    /// New workers.
    pub(super) joined: Vec<(WorkerId, String)>,
    /// How many found no place.
    pub(super) refused: usize,
}

impl Roster {
    /// Has exactly the workers at `urls`, as far as there is place for them.
    pub(super) fn update(&mut self, urls: &BTreeSet<String>) -> Changes {
        let mut changes = Changes::default();
        for (worker, place) in self.places.iter_mut().enumerate() {
            if place.taken && !urls.contains(&place.url) {
                place.taken = false;
                changes.left.push((worker, place.url.clone()));
            }
        }
        let taken = self.places.iter().filter(|place| place.taken);
        let known: BTreeSet<_> = taken.map(|place| place.url.clone()).collect();
        let mut new: Vec<_> = urls.difference(&known).cloned().collect();
        // Those that return choose first: else a new one might have their place.
        new.retain(|url| match self.last_place_of(url) {
            Some(worker) => {
                self.take(worker, url, &mut changes);
                false
            }
            None => true,
        });
        for url in new {
            match self.free_place() {
                Some(worker) => self.take(worker, &url, &mut changes),
                None => changes.refused += 1,
            }
        }
        changes
    }

    fn last_place_of(&self, url: &str) -> Option<WorkerId> {
        self.places
            .iter()
            .position(|place| !place.taken && place.url == url)
    }

    fn free_place(&self) -> Option<WorkerId> {
        let free = self.places.iter().position(|place| !place.taken);
        free.or_else(|| Some(self.places.len()).filter(|next| *next < MAX_WORKERS))
    }

    fn take(&mut self, worker: WorkerId, url: &str, changes: &mut Changes) {
        let place = Place {
            url: url.to_owned(),
            taken: true,
        };
        if worker == self.places.len() {
            self.places.push(place);
        } else {
            self.places[worker] = place;
        }
        changes.joined.push((worker, url.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(urls: &[&str]) -> BTreeSet<String> {
        urls.iter().map(ToString::to_string).collect()
    }

    fn named(workers: &[(WorkerId, &str)]) -> Vec<(WorkerId, String)> {
        let workers = workers.iter();
        workers.map(|(id, url)| (*id, (*url).to_owned())).collect()
    }

    #[test]
    fn what_is_listed_still_keeps_its_number_and_what_changed_is_said_once() {
        let mut roster = Roster::default();
        let changes = roster.update(&set(&["a", "b", "c"]));
        assert_eq!(changes.joined, named(&[(0, "a"), (1, "b"), (2, "c")]));
        assert_eq!(roster.update(&set(&["a", "b", "c"])), Changes::default());
        let changes = roster.update(&set(&["a", "c", "d"]));
        assert_eq!(changes.left, named(&[(1, "b")]));
        assert_eq!(changes.joined, named(&[(1, "d")]), "numbers are dense");
        assert_eq!(roster.update(&set(&["a", "c", "d"])), Changes::default());
    }

    #[test]
    fn who_returns_has_its_number_again_unless_somebody_else_has_it() {
        let mut roster = Roster::default();
        roster.update(&set(&["m", "n"]));
        roster.update(&set(&[]));
        let changes = roster.update(&set(&["a", "n"]));
        assert_eq!(changes.joined, named(&[(1, "n"), (0, "a")]));
        let changes = roster.update(&set(&["a", "m", "n"]));
        assert_eq!(changes.joined, named(&[(2, "m")]));
    }

    #[test]
    fn there_are_never_more_than_have_place_and_those_that_are_there_stay() {
        let mut roster = Roster::default();
        let many = |from: usize| (from..from + MAX_WORKERS).map(|number| format!("{number:04}"));
        assert_eq!(roster.update(&many(100).collect()).refused, 0);
        let all: BTreeSet<_> = many(0).chain(many(100)).collect();
        let changes = roster.update(&all);
        assert_eq!((changes.left.len(), changes.joined.len()), (0, 0));
        assert_eq!(changes.refused, 100);
    }
}
