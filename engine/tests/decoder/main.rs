//! The decoder, from a file to logits.

mod invariance;
mod oracle;
mod support;
