//! One sequence at the target: its length, its last token, and its cache in the engine.
//!
//! The cache holds all committed tokens but the last, which is the next round's first input, and
//! after a round possibly rejected ones, which the next round cuts off.

use engine::{EngineError, Sequence};
use proto::v1::VerifyItem;
use speculation::{TokenId, Verdict, verify};
use worker::{Fault, Limits};

/// One sequence at the target.
#[derive(Debug)]
pub(crate) struct Session {
    sequence: Sequence,
    /// Committed tokens; 0 until the prompt is prefilled.
    length: usize,
    /// The last of them.
    last: TokenId,
}

impl Session {
    pub(crate) fn new(sequence: Sequence) -> Self {
        Self {
            sequence,
            length: 0,
            last: 0,
        }
    }

    /// Prefills `tokens` and chooses the token that follows them.
    pub(crate) async fn prefill(&mut self, tokens: Vec<TokenId>) -> Result<TokenId, EngineError> {
        let length = tokens.len();
        let choices = self.sequence.score(0, tokens, 1).await?;
        let Some(first) = choices.first() else {
            return Err(EngineError::Model("no choice after the prompt".to_owned()));
        };
        self.length = length + 1;
        self.last = first.token;
        Ok(first.token)
    }

    /// Verifies one proposal and commits what the verdict says.
    pub(crate) async fn verify(
        &mut self,
        item: VerifyItem,
        limits: &Limits,
    ) -> Result<Verdict, Fault> {
        let Some(keep) = self.length.checked_sub(1) else {
            return Err(Fault::desync("the prompt is not prefilled"));
        };
        let draft = judged(item, self.length, limits)?;
        let mut tokens = Vec::with_capacity(draft.len() + 1);
        tokens.push(self.last);
        tokens.extend_from_slice(&draft);
        let rows = tokens.len();
        let choices = self.sequence.score(keep, tokens, rows).await?;
        let choices: Vec<TokenId> = choices.iter().map(|choice| choice.token).collect();
        let verdict = verify(&draft, &choices);
        self.length += verdict.accepted + 1;
        self.last = verdict.next;
        Ok(verdict)
    }
}

/// The part of a proposal that is worth a look, for a sequence of `length` committed tokens.
///
/// It ends before the first id that is no token, which the target would never choose: a draft's
/// error is a rejection. It also leaves room in the context for the token after it.
fn judged(item: VerifyItem, length: usize, limits: &Limits) -> Result<Vec<TokenId>, Fault> {
    let (base, mut draft) = (item.base_len as usize, item.draft_ids);
    if base != length {
        return Err(Fault::desync(format!(
            "base_len is {base}, {length} tokens are committed"
        )));
    }
    if draft.len() > limits.max_draft_tokens {
        return Err(Fault::invalid(format!(
            "draft_ids are {} tokens, over the limit of {}",
            draft.len(),
            limits.max_draft_tokens
        )));
    }
    let Some(room) = limits.context_length.checked_sub(length + 1) else {
        return Err(Fault::invalid(format!(
            "base_len: the context of {} is full",
            limits.context_length
        )));
    };
    let tokens = draft.iter().take_while(|&&id| limits.is_token(id)).count();
    draft.truncate(tokens.min(room));
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1::CloseReason;

    const LIMITS: Limits = Limits {
        tokenizer_size: 10,
        context_length: 8,
        max_sequences: 1,
        max_draft_tokens: 4,
    };

    fn item(base_len: u32, draft_ids: &[TokenId]) -> VerifyItem {
        VerifyItem {
            sequence: 1,
            epoch: 1,
            base_len,
            draft_ids: draft_ids.to_vec(),
        }
    }

    #[test]
    fn a_proposal_is_cut_before_what_is_no_token() {
        for (draft, kept) in [
            (&[1, 2, 9][..], 3),
            (&[1, 10, 2], 1),
            (&[u32::MAX, 1], 0),
            (&[], 0),
        ] {
            let judged = judged(item(3, draft), 3, &LIMITS).expect("valid");
            assert_eq!(judged, draft[..kept]);
        }
    }

    #[test]
    fn a_proposal_is_cut_to_leave_room_for_the_token_after_it() {
        for (length, kept) in [(3, 4), (4, 3), (6, 1), (7, 0)] {
            let judged = judged(item(length, &[1, 2, 3, 4]), length as usize, &LIMITS);
            assert_eq!(judged.expect("valid").len(), kept, "at {length}");
        }
        let full = judged(item(8, &[]), 8, &LIMITS).expect_err("no room");
        assert_eq!(full.reason, CloseReason::Invalid);
    }

    #[test]
    fn another_base_is_a_desync_and_too_long_a_proposal_invalid() {
        for base in [0, 2, 4, u32::MAX] {
            let fault = judged(item(base, &[]), 3, &LIMITS).expect_err("desync");
            assert_eq!(fault.reason, CloseReason::Desync);
        }
        let fault = judged(item(3, &[1; 5]), 3, &LIMITS).expect_err("too long");
        assert_eq!(fault.reason, CloseReason::Invalid);
    }
}
