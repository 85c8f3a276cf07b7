//! Proposes tokens with a small model.
