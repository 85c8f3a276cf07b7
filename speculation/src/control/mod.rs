//! The controller: what to draft, for whom, and when not to, from what was measured.
//!
//! Pure: it knows no clock. Who calls it measures, and hands in seconds; what comes back are
//! numbers of tokens. The same calls give the same answers, so that a simulation tests it
//! (`tests/control`).
//!
//! | what | of whom | measured from |
//! |---|---|---|
//! | [`StepCosts`] | a worker | the time of each step, by its size |
//! | [`Delay`] | a worker | round trips, less the time computed |
//! | [`Acceptance`] | a sequence, a draft worker | verdicts |
//! | [`Ranks`] | a draft worker | verdicts, where outcomes were followed |
//! | [`Confidence`] | a draft worker | verdicts, with the draft's own probabilities |
//! | [`Trust`] | the target, by [`Way`] | what sequences got, over what was planned |
//!
//! [`plan()`] finds what would give a sequence the most tokens per second if all others did the
//! same, [`Gate`] decides whether that is enough better than plain decoding, of which [`Look`] has the
//! cost measured now and then, [`trim`] cuts a batch
//! to what is worth its verification, and [`wait_for`] tells whether a batch should wait for
//! proposals that are under way.

mod acceptance;
mod change;
mod confidence;
mod costs;
mod delay;
mod ewma;
mod gate;
mod look;
mod monotone;
mod plan;
mod ranks;
mod rates;
mod trim;
mod trust;
mod wait;

pub use acceptance::{Acceptance, Round};
pub use confidence::Confidence;
pub use costs::{StepCosts, observe_verification};
pub use delay::Delay;
pub use ewma::Ewma;
pub use gate::{Gate, Mode};
pub use look::Look;
pub use plan::{Overlap, Plan, Situation, Way, plan};
pub use ranks::Ranks;
pub use rates::plain_groups;
pub(crate) use rates::{Ahead, Rates};
pub use trim::trim;
pub use trust::Trust;
pub use wait::{Arrival, Offer, wait_for};

/// The most tokens that are drafted after one prefix.
pub const MAX_DRAFT: usize = 16;

/// The widths of draft-ahead that are considered: how many candidates are followed at a position.
pub const WIDTHS: [usize; 4] = [1, 2, 4, 8];
