//! Laws and choices against definitions that are slow and obvious, and against their own
//! statistics.

mod choice;
mod law;
mod lossless;
mod reference;
mod statistics;
