//! The executor over the synthetic model, over one that the tests steer step by step, and over a
//! real decoder.

mod batching;
mod faults;
mod forks;
mod leaks;
mod real;
mod room;
mod sharing;
mod support;
