//! The controller in a simulated system: a target, a draft worker, the network, noise, and
//! conditions that change. It sees what a coordinator sees, and nothing of the conditions.

mod counts;
mod regimes;
mod system;
mod world;
