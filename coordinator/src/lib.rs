//! Joins draft and target workers and streams accepted tokens to clients.
