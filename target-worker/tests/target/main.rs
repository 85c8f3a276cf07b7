//! A target worker over gRPC, as a coordinator sees it.

mod exactness;
mod hostile;
mod program;
mod sequences;
mod support;
