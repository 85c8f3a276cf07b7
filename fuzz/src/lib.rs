//! The bodies of the fuzz targets: those of the engine's plain tests over the same corpus.

#[path = "../../engine/tests/hostile/bodies.rs"]
pub mod bodies;
#[path = "../../engine/tests/hostile/memory.rs"]
mod memory;
