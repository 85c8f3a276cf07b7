//! Who may run now, who waits, and who is turned away, so that what runs is not slowed down by what
//! cannot. [`book`] decides; here are the waiting, the clock, and the words for it.

mod book;
mod pace;
#[cfg(test)]
mod tests;
mod turns;

pub(crate) use book::{Capacity, Refused};

use crate::access::Identity;
use crate::request::ValidRequest;
use book::{Book, Demand, Owner, Refusal};
use service::{Class, Error};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use turns::Ticket;

/// Where requests are let in. Clones are the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    book: Arc<Mutex<Book<Waiter>>>,
    max_wait: Duration,
}

type Waiter = oneshot::Sender<Result<Pass, Refusal>>;

/// The state of the gate, for whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdmissionStats {
    /// Choices that run.
    pub(crate) running: u32,
    /// Choices that wait to run.
    pub(crate) waiting: u32,
    /// The tokens of what runs, prompts and what may still be generated.
    pub(crate) tokens: u64,
    /// Requests that were turned away since the start.
    pub(crate) refused: Refused,
}

/// A request that came in and is being checked. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Arrival {
    gate: Gate,
    who: Identity,
    /// How many are not accounted for otherwise.
    choices: u32,
}

/// What a running request holds of the capacity: one place for each choice. Dropping it gives all
/// back that is left.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Gate,
    owner: Owner,
    choices: u32,
    tokens: u64,
    /// Those of one choice, which go back with it.
    choice_tokens: u64,
}

impl Gate {
    /// A gate that nobody has come to. One who waits does so for at most `max_wait`.
    pub(crate) fn new(capacity: Capacity, max_wait: Duration) -> Self {
        Self {
            book: Arc::new(Mutex::new(Book::new(capacity))),
            max_wait,
        }
    }

    /// Takes note of a request with so many choices, before anything is done for it.
    ///
    /// # Errors
    /// Where it could not even wait.
    pub(crate) fn arrive(&self, who: &Identity, choices: u32) -> Result<Arrival, Error> {
        let arrived = self.book().arrive(who, choices);
        arrived.map_err(|refusal| self.error(refusal, choices))?;
        Ok(Arrival {
            gate: self.clone(),
            who: who.clone(),
            choices,
        })
    }

    /// Turns away whoever waits, and whoever comes from now on.
    pub(crate) fn close(&self) {
        let waiters = self.book().close();
        for waiter in waiters {
            // Whoever has left does not mind.
            let _ = waiter.send(Err(Refusal::Draining));
        }
    }

    /// What it looks like now.
    pub(crate) fn stats(&self) -> AdmissionStats {
        let book = self.book();
        let all = book.all();
        AdmissionStats {
            running: all.running,
            waiting: all.waiting,
            tokens: all.tokens,
            refused: book.refused(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book<Waiter>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those that are let in. The books must not be locked: who has left gives its pass back.
    fn tell(&self, let_in: Vec<(Demand, Waiter)>) {
        for (demand, waiter) in let_in {
            let pass = Pass {
                gate: self.clone(),
                choices: demand.choices,
                tokens: demand.tokens,
                choice_tokens: demand.choice_tokens,
                owner: demand.owner,
            };
            drop(waiter.send(Ok(pass)));
        }
    }

    fn error(&self, refusal: Refusal, choices: u32) -> Error {
        let now = Instant::now().into_std();
        let overloaded = || Class::Overloaded {
            retry_after: self.book().retry_after(choices, now),
        };
        match refusal {
            Refusal::Full => Error::new(overloaded(), "too many requests are running or waiting"),
            Refusal::KeyFull => Error::new(
                overloaded(),
                "too many requests with this key are running or waiting",
            ),
            Refusal::Waited => {
                let message = format!("no place came free within {:?}", self.max_wait);
                Error::new(overloaded(), message)
            }
            Refusal::Draining => Error::new(Class::Unavailable, "the server is shutting down"),
            Refusal::TooManyChoices(most) => {
                let message =
                    format!("must be at most {most}, as many as may run at once, not {choices}");
                Error::invalid("n", message)
            }
            Refusal::TooManyTokens(most) => {
                let message = format!(
                    "with the prompt, and for each choice, is more than the {most} tokens that may \
                     be in flight at once"
                );
                Error::invalid("stop.max_tokens", message)
            }
        }
    }
}

impl Arrival {
    /// Waits until `request` may run: until `deadline`, and no longer than anybody waits.
    ///
    /// # Errors
    /// Why it may not. [`Class::Deadline`] where the client's deadline passes first.
    pub(crate) async fn admitted(
        mut self,
        request: &ValidRequest,
        priority: i32,
        deadline: Option<Instant>,
    ) -> Result<Pass, Error> {
        let choices = std::mem::take(&mut self.choices);
        let choice_tokens = request.max_tokens() as u64;
        let demand = Demand {
            owner: (Arc::clone(&self.who.name), Arc::clone(request.tenant())),
            limits: self.who.limits,
            choices,
            tokens: choice_tokens * u64::from(choices) + request.prompt_tokens() as u64,
            choice_tokens,
            priority,
        };
        let gate = &self.gate;
        let patience = Instant::now() + gate.max_wait;
        let (waiter, turn) = oneshot::channel();
        let entered = gate
            .book()
            .enter(&demand, waiter, Instant::now().into_std());
        let (ticket, let_in) = entered.map_err(|refusal| gate.error(refusal, choices))?;
        gate.tell(let_in);
        let _waiting = Waiting {
            gate,
            ticket,
            demand: &demand,
        };
        let until = deadline.map_or(patience, |deadline| deadline.min(patience));
        match tokio::time::timeout_at(until, turn).await {
            Ok(Ok(admitted)) => admitted.map_err(|refusal| gate.error(refusal, choices)),
            Ok(Err(_)) => Err(Error::new(Class::Internal, "the request was forgotten")),
            Err(_) if until < patience => Err(Error::new(
                Class::Deadline,
                "the deadline passed while the request waited for its turn",
            )),
            Err(_) => {
                let refusal = gate.book().refuse(Refusal::Waited);
                Err(gate.error(refusal, choices))
            }
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if self.choices > 0 {
            self.gate.book().leave(&self.who.name, self.choices);
        }
    }
}

/// One that waits. Dropping it gives its turn up, which does nothing once it was let in: then its
/// pass counts.
struct Waiting<'a> {
    gate: &'a Gate,
    ticket: Ticket,
    demand: &'a Demand,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let let_in = {
            let mut book = self.gate.book();
            // One that did not fit may have held up others.
            let gone = book.withdraw(self.ticket, self.demand);
            let now = Instant::now().into_std();
            if gone { book.let_in(now) } else { Vec::new() }
        };
        self.gate.tell(let_in);
    }
}

impl Pass {
    /// Gives back what one choice took.
    pub(crate) fn choice_ended(&mut self) {
        let last = self.choices <= 1;
        let tokens = if last {
            self.tokens
        } else {
            self.choice_tokens
        };
        self.give_back(self.choices.min(1), tokens);
    }

    fn give_back(&mut self, choices: u32, tokens: u64) {
        self.choices -= choices;
        self.tokens -= tokens;
        let now = Instant::now().into_std();
        let let_in = {
            let mut book = self.gate.book();
            book.release(&self.owner, choices, tokens, now);
            book.let_in(now)
        };
        self.gate.tell(let_in);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.choices > 0 {
            self.give_back(self.choices, self.tokens);
        }
    }
}
