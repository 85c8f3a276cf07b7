//! A suffix automaton over one sequence of tokens, built as they come.
//!
//! A state stands for the strings that end at the same places of the text (Blumer, Blumer, Haussler,
//! Ehrenfeucht, Chen and Seiferas, *The smallest automaton recognizing the subwords of a text*, 1985).
//! The suffix link of the state of the whole text leads to the longest suffix that occurred before.
//! Edges carry how often their token followed, so that what follows most often is at hand.

use crate::TokenId;
use std::collections::HashMap;

/// No state, no edge.
const NONE: u32 = u32::MAX;
/// The state of the empty string.
const ROOT: u32 = 0;

/// How many contexts of a new token count it, the longest first. Without a bound a text of one
/// repeated token would cost its square.
const COUNTED_CONTEXTS: usize = 16;

/// A token that followed a state's strings.
#[derive(Debug, Clone, Copy)]
struct Edge {
    token: TokenId,
    to: u32,
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// The length of its longest string.
    len: u32,
    /// The state of the longest suffix that ends at more places.
    link: u32,
    /// How often its strings were followed by something.
    total: u32,
    /// What followed most often; of several the most recent. Nothing did where the count is 0.
    likeliest: Edge,
    /// The first of what else followed.
    others: u32,
}

/// An edge that is not its state's likeliest. Few states have any.
#[derive(Debug, Clone, Copy)]
struct Other {
    edge: Edge,
    next: u32,
}

/// What followed an earlier occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// The token.
    pub(super) token: TokenId,
    /// The length of the string that it followed.
    pub(super) context: usize,
    /// How often it followed that string.
    pub(super) count: u32,
    /// How often anything did.
    pub(super) total: u32,
}

/// A place in the automaton: a string of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    state: u32,
    len: u32,
}

impl Place {
    /// The length of the string.
    pub(super) fn len(self) -> usize {
        self.len as usize
    }

    /// True for the empty string, which is everywhere.
    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// The index: all strings of the text, and what followed them.
///
/// Pushing a token takes amortised constant time. A text of n tokens has at most 2n states and 3n edges.
#[derive(Debug, Clone)]
pub(super) struct Automaton {
    states: Vec<State>,
    others: Vec<Other>,
    places_of_others: HashMap<(u32, TokenId), u32>,
    /// The state of the whole text.
    last: u32,
    /// What pushing did so far, in states and edges looked at.
    #[cfg(test)]
    pub(super) work: u64,
}

impl Automaton {
    /// The index of the empty text.
    pub(super) fn new() -> Self {
        Self {
            states: vec![State::new(0)],
            others: Vec::new(),
            places_of_others: HashMap::new(),
            last: ROOT,
            #[cfg(test)]
            work: 0,
        }
    }

    /// The length of the text.
    pub(super) fn len(&self) -> usize {
        self.state(self.last).len as usize
    }

    /// Appends `token` to the text.
    pub(super) fn push(&mut self, token: TokenId) {
        let whole = self.add(State::new(self.state(self.last).len + 1));
        let mut context = self.last;
        let known = loop {
            if context == NONE {
                break None;
            }
            self.step();
            if let Some(edge) = self.edge(context, token) {
                break Some(edge.to);
            }
            self.connect(
                context,
                Edge {
                    token,
                    to: whole,
                    count: 1,
                },
            );
            context = self.state(context).link;
        };
        self.states[whole as usize].link = match known {
            None => ROOT,
            Some(to) if self.state(to).len == self.state(context).len + 1 => to,
            Some(to) => self.split(context, token, to),
        };
        self.count(context, token);
        self.last = whole;
    }

    /// The longest suffix of the text that occurred before.
    pub(super) fn repeated(&self) -> Place {
        let state = match self.state(self.last).link {
            NONE => ROOT,
            link => link,
        };
        Place {
            state,
            len: self.state(state).len,
        }
    }

    /// The longest suffix of `tokens` that occurs in the text.
    pub(super) fn find(&self, tokens: &[TokenId]) -> Place {
        let mut place = Place {
            state: ROOT,
            len: 0,
        };
        for token in tokens {
            place = loop {
                if let Some(edge) = self.edge(place.state, *token) {
                    let (state, len) = (edge.to, place.len + 1);
                    break Place { state, len };
                }
                let link = self.state(place.state).link;
                if link == NONE {
                    break place;
                }
                let len = self.state(link).len;
                place = Place { state: link, len };
            };
        }
        place
    }

    /// What followed the string at `place` most often, what followed that, and so on. Goes on from the
    /// text's end as from its longest suffix that occurred before. Ends where nothing followed.
    pub(super) fn steps(&self, place: Place) -> impl Iterator<Item = Step> {
        let mut place = place;
        std::iter::from_fn(move || {
            if self.state(place.state).total == 0 {
                place = self.shortened(place)?;
            }
            let state = self.state(place.state);
            let edge = state.likeliest;
            let step = Step {
                token: edge.token,
                context: place.len as usize,
                count: edge.count,
                total: state.total,
            };
            place = Place {
                state: edge.to,
                len: place.len + 1,
            };
            (edge.count > 0).then_some(step)
        })
    }

    fn shortened(&self, place: Place) -> Option<Place> {
        let link = self.state(place.state).link;
        (link != NONE).then(|| Place {
            state: link,
            len: self.state(link).len.min(place.len),
        })
    }

    /// Gives the strings of `to` that are no longer than `context` and `token` together a state of
    /// their own: from now on they end at more places than the longer ones.
    fn split(&mut self, mut context: u32, token: TokenId, to: u32) -> u32 {
        let len = self.state(context).len + 1;
        let copy = self.add(State {
            len,
            others: NONE,
            ..*self.state(to)
        });
        let mut other = self.state(to).others;
        while other != NONE {
            let Other { edge, next } = self.others[other as usize];
            self.add_other(copy, edge);
            other = next;
        }
        self.states[to as usize].link = copy;
        while context != NONE {
            match self.edge_mut(context, token) {
                Some(edge) if edge.to == to => edge.to = copy,
                _ => break,
            }
            context = self.state(context).link;
        }
        copy
    }

    /// Counts that `token` followed the string of `context` and its suffixes, which all have the edge.
    fn count(&mut self, mut context: u32, token: TokenId) {
        for _ in 0..COUNTED_CONTEXTS {
            if context == NONE {
                return;
            }
            self.step();
            let Self {
                states,
                others,
                places_of_others: places,
                ..
            } = self;
            let state = &mut states[context as usize];
            state.total += 1;
            if state.likeliest.token == token {
                state.likeliest.count += 1;
            } else if let Some(place) = places.get(&(context, token)).copied() {
                let other = &mut others[place as usize].edge;
                other.count += 1;
                if other.count >= state.likeliest.count {
                    std::mem::swap(other, &mut state.likeliest);
                    places.remove(&(context, token));
                    places.insert((context, other.token), place);
                }
            }
            context = state.link;
        }
    }

    /// Adds an edge that `state` does not have.
    fn connect(&mut self, state: u32, edge: Edge) {
        let entry = &mut self.states[state as usize];
        entry.total += 1;
        if entry.likeliest.count == 0 {
            entry.likeliest = edge;
        } else if entry.likeliest.count == edge.count {
            let older = std::mem::replace(&mut entry.likeliest, edge);
            self.add_other(state, older);
        } else {
            self.add_other(state, edge);
        }
    }

    fn add_other(&mut self, state: u32, edge: Edge) {
        self.step();
        let place = self.others.len() as u32;
        let entry = &mut self.states[state as usize];
        let next = std::mem::replace(&mut entry.others, place);
        self.others.push(Other { edge, next });
        self.places_of_others.insert((state, edge.token), place);
    }

    fn add(&mut self, state: State) -> u32 {
        self.states.push(state);
        // Contexts are far below 2^31.
        (self.states.len() - 1) as u32
    }

    /// What it holds on the heap, in bytes; tables of hashes have a byte of their own for each entry.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
            + self.others.capacity() * size_of::<Other>()
            + self.places_of_others.capacity() * 8 / 7 * (size_of::<((u32, TokenId), u32)>() + 1)
    }

    fn state(&self, state: u32) -> &State {
        &self.states[state as usize]
    }

    fn edge(&self, state: u32, token: TokenId) -> Option<Edge> {
        let entry = self.state(state);
        if entry.likeliest.count > 0 && entry.likeliest.token == token {
            return Some(entry.likeliest);
        }
        if entry.others == NONE {
            return None;
        }
        let place = self.places_of_others.get(&(state, token))?;
        Some(self.others[*place as usize].edge)
    }

    fn edge_mut(&mut self, state: u32, token: TokenId) -> Option<&mut Edge> {
        self.step();
        let entry = &mut self.states[state as usize];
        if entry.likeliest.count > 0 && entry.likeliest.token == token {
            return Some(&mut entry.likeliest);
        }
        let place = self.places_of_others.get(&(state, token))?;
        Some(&mut self.others[*place as usize].edge)
    }

    #[cfg(test)]
    fn step(&mut self) {
        self.work += 1;
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "counts in tests only")]
    fn step(&mut self) {}
}

impl State {
    fn new(len: u32) -> Self {
        let nothing = Edge {
            token: 0,
            to: ROOT,
            count: 0,
        };
        Self {
            len,
            link: NONE,
            total: 0,
            likeliest: nothing,
            others: NONE,
        }
    }
}
