//! The executor over the synthetic model, and over one that the tests steer step by step.

mod batching;
mod faults;
mod room;
mod support;
