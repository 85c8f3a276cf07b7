//! One sequence at the target: its length, its last token, and its cache in the engine.
//!
//! The cache holds all committed tokens but the last, which is the next round's first input, and
//! after a round possibly rejected ones, which the next round cuts off.

use crate::judge::Judge;
use engine::{EngineError, Sequence};
use proto::v1::VerifyItem;
use service::telemetry::traces::Span;
use speculation::{
    DraftLaw, LogprobsOptions, Rule, Sampler, TokenId, TokenLogprobs, Verdict, Verifier,
};
use worker::{Fault, Limits, Opening, Served};

/// One sequence at the target.
#[derive(Debug)]
pub(crate) struct Session {
    /// The trace that its spans belong to; empty where there is none.
    traceparent: String,
    sampler: Sampler,
    rule: Rule,
    logprobs: Option<LogprobsOptions>,
    /// Its cache, once it is opened.
    sequence: Option<Sequence>,
    /// Committed tokens; 0 until the prompt is prefilled.
    length: usize,
    /// The last of them.
    last: TokenId,
}

/// A verdict with the log-probabilities of the tokens that it commits, where they are wanted.
pub(crate) type Judged = (Verdict, Vec<TokenLogprobs>);

/// A proposal as far as it is worth a look.
#[derive(Debug, PartialEq, Eq)]
struct Proposal {
    draft: Vec<TokenId>,
    laws: Vec<DraftLaw>,
    /// How many of the drafted tokens the model can be fed. Where it is fewer than all, the next one
    /// is no token: it is judged, and rejected as any impossible one.
    fed: usize,
}

impl Session {
    pub(crate) fn new(
        opening: &Opening,
        logprobs: Option<LogprobsOptions>,
        traceparent: String,
    ) -> Self {
        Self {
            traceparent,
            sampler: opening.sampler,
            rule: opening.rule,
            logprobs,
            sequence: None,
            length: 0,
            last: 0,
        }
    }

    /// Opens the sequence, prefills its tokens and chooses the token that follows them.
    pub(crate) async fn open(
        &mut self,
        opening: Opening,
        served: &Served,
    ) -> Result<Judged, Fault> {
        self.sequence = Some(served.open(&opening).await?);
        let proposal = Proposal {
            draft: Vec::new(),
            laws: Vec::new(),
            fed: 0,
        };
        self.length = opening.tokens.len();
        let mut span = Span::of_peer("open", &self.traceparent);
        span.set("tokens", self.length as i64);
        let judged = self.judge(0, opening.tokens, proposal).await;
        span.set("cached_tokens", self.cached() as i64);
        judged
    }

    /// How many of its tokens were not computed for it, because the cache held them.
    pub(crate) fn cached(&self) -> usize {
        self.sequence.as_ref().map_or(0, Sequence::adopted)
    }

    /// Verifies one proposal and commits what the verdict says.
    pub(crate) async fn verify(
        &mut self,
        item: VerifyItem,
        limits: &Limits,
    ) -> Result<Judged, Fault> {
        let Some(keep) = self.length.checked_sub(1) else {
            return Err(Fault::desync("the prompt is not prefilled"));
        };
        let proposal = judged(item, self.length, limits)?;
        let mut tokens = Vec::with_capacity(proposal.fed + 1);
        tokens.push(self.last);
        tokens.extend_from_slice(&proposal.draft[..proposal.fed]);
        let mut span = Span::of_peer("verify", &self.traceparent);
        span.set("draft_tokens", proposal.draft.len() as i64);
        let judged = self.judge(keep, tokens, proposal).await;
        if let Ok((verdict, _)) = &judged {
            span.set("accepted_tokens", verdict.accepted as i64);
        }
        judged
    }

    /// Feeds `tokens`, of which the last ones are those of `proposal`, and commits the verdict.
    async fn judge(
        &mut self,
        keep: usize,
        tokens: Vec<TokenId>,
        proposal: Proposal,
    ) -> Result<Judged, Fault> {
        let Some(sequence) = &mut self.sequence else {
            return Err(Fault::desync("the sequence is not open"));
        };
        let Proposal { draft, laws, fed } = proposal;
        let verifier = Verifier::new(self.rule, self.sampler, self.length as u64, draft, laws);
        let judge = Judge::new(verifier, self.sampler.sampling, self.logprobs);
        let judge = sequence.read(keep, tokens, fed + 1, judge).await?;
        let Some(judged) = judge.finish() else {
            let detail = "a proposal was not judged to its end".to_owned();
            return Err(EngineError::Model(detail).into());
        };
        self.length += judged.0.accepted + 1;
        self.last = judged.0.next;
        Ok(judged)
    }
}

/// The part of a proposal that is worth a look, for a sequence of `length` committed tokens.
///
/// It ends with the first id that is no token, which no target can accept: a draft's error is a
/// rejection. It also leaves room in the context for the token after it.
fn judged(item: VerifyItem, length: usize, limits: &Limits) -> Result<Proposal, Fault> {
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
    let mut laws = match &item.laws {
        Some(laws) => Vec::try_from(laws).map_err(|error: speculation::InvalidDraftLaw| {
            Fault::invalid(format!("laws: {error}"))
        })?,
        None => Vec::new(),
    };
    check_laws(&draft, &laws)?;
    let tokens = draft.iter().take_while(|&&id| limits.is_token(id)).count();
    draft.truncate((tokens + 1).min(room));
    laws.truncate(draft.len());
    Ok(Proposal {
        fed: tokens.min(draft.len()),
        draft,
        laws,
    })
}

/// Refuses laws that the tokens cannot have been drawn from.
fn check_laws(draft: &[TokenId], laws: &[DraftLaw]) -> Result<(), Fault> {
    if laws.is_empty() {
        return Ok(());
    }
    if laws.len() != draft.len() {
        return Err(Fault::invalid(format!(
            "laws are {}, draft_ids are {}",
            laws.len(),
            draft.len()
        )));
    }
    let mut pairs = draft.iter().zip(laws);
    match pairs.position(|(token, law)| law.probability(*token) == 0.0) {
        None => Ok(()),
        Some(index) => Err(Fault::invalid(format!(
            "draft_ids[{index}] has probability 0 under its law"
        ))),
    }
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
            laws: None,
        }
    }

    fn law(entries: &[(TokenId, u32)]) -> DraftLaw {
        DraftLaw::from_entries(entries.to_vec()).expect("a law")
    }

    #[test]
    fn a_proposal_ends_with_what_is_no_token_which_is_judged_and_not_fed() {
        for (draft, kept, fed) in [
            (&[1, 2, 9][..], 3, 3),
            (&[1, 10, 2], 2, 1),
            (&[u32::MAX, 1], 1, 0),
            (&[], 0, 0),
        ] {
            let judged = judged(item(3, draft), 3, &LIMITS).expect("valid");
            assert_eq!((&judged.draft[..], judged.fed), (&draft[..kept], fed));
        }
    }

    #[test]
    fn laws_must_fit_the_tokens() {
        let even = law(&[(1, 32_768), (12, 32_768)]);
        let with = |draft: &[TokenId], laws: &[DraftLaw]| {
            let mut item = item(3, draft);
            item.laws = Some(laws.into());
            judged(item, 3, &LIMITS)
        };
        let kept = with(&[1, 12, 1], &[even.clone(), even.clone(), even.clone()]).expect("valid");
        assert_eq!((kept.draft.len(), kept.laws.len(), kept.fed), (2, 2, 1));
        for (draft, laws) in [(&[1, 1][..], &[even.clone()][..]), (&[2], &[even])] {
            let fault = with(draft, laws).expect_err("laws that do not fit");
            assert_eq!(fault.reason, CloseReason::Invalid);
        }
        let mut broken = item(3, &[1]);
        broken.laws = Some(proto::v1::DraftLaws {
            sizes: vec![9],
            ..Default::default()
        });
        let fault = judged(broken, 3, &LIMITS).expect_err("no law");
        assert!(fault.detail.starts_with("laws"), "{fault}");
    }

    #[test]
    fn a_proposal_is_cut_to_leave_room_for_the_token_after_it() {
        for (length, kept) in [(3, 4), (4, 3), (6, 1), (7, 0)] {
            let judged = judged(item(length, &[1, 2, 3, 4]), length as usize, &LIMITS);
            assert_eq!(judged.expect("valid").draft.len(), kept, "at {length}");
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
