//! A draft worker over gRPC, as a coordinator sees it.

mod ahead;
mod demands;
mod hostile;
mod lean;
mod program;
mod proposals;
mod sequences;
mod support;
