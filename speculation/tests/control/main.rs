//! The controller: each of its pieces against what it promises, and all of them together in a
//! simulated system whose conditions change.

mod acceptance;
mod confidence;
mod costs;
mod gate;
mod look;
mod plan;
mod ranks;
mod simulation;
mod trim;
mod trust;
mod wait;
