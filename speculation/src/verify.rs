//! Verification by equality: the `coupled` rule, and greedy as its case without noise.
//!
//! The target commits the longest prefix of the draft that it would have chosen itself, and then
//! its own next choice. Its choices depend on the prefix, its logits, the key and the position
//! alone, so by induction the text is the one it decodes without any draft.

use crate::TokenId;

/// What the target says of a proposal: `draft[..accepted]` and then `next` are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How many drafted tokens are accepted, from the first.
    pub accepted: usize,
    /// The correction or, where all were accepted, the bonus token.
    pub next: TokenId,
}

/// Verifies `draft` against the target's own `choices`: `choices[i]` is what the target chooses
/// after the committed prefix and `draft[..i]`.
///
/// # Panics
/// Unless there is one choice more than drafted tokens.
pub fn verify(draft: &[TokenId], choices: &[TokenId]) -> Verdict {
    assert_eq!(choices.len(), draft.len() + 1, "one choice per row");
    let accepted = common_prefix(draft, choices);
    Verdict {
        accepted,
        next: choices[accepted],
    }
}

/// The length of the longest common prefix.
pub fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
