//! Constraints as those who decode see them: masks, pushes and pops over a small vocabulary.

mod forms;
mod schemas;
mod states;
mod tokenizers;
mod walks;
