//! Structured output: what a text must match, as a constraint on its tokens.
//!
//! [`Grammars`] knows a model's tokens; [`Grammars::compile`] makes a [`speculation::Constraint`] of
//! a [`Form`]. The work is done by the library `llguidance`, which is used nowhere else and whose
//! types no one else sees.
//!
//! Must not know models, requests, sampling, or how tokens are proposed and verified.

mod error;
mod form;
mod grammars;
mod lexer_work;
mod session;
mod tokenizer_json;

pub use error::{GrammarError, VocabularyError};
pub use form::{Form, MAX_SOURCE_LEN};
pub use grammars::{Grammars, Token};
