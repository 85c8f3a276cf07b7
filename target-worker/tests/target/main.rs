//! A target worker over gRPC, as a coordinator sees it.

mod demands;
mod exactness;
mod hostile;
mod program;
mod sequences;
mod support;
