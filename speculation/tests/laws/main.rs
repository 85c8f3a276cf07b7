//! Laws and choices against definitions that are slow and obvious, and against their own
//! statistics.

mod adjustments;
mod book;
mod candidates;
mod choice;
mod draft_law;
mod law;
mod logprobs;
mod lossless;
mod prefix;
mod reference;
mod rounds;
mod statistics;
mod streams;
mod verifier;
