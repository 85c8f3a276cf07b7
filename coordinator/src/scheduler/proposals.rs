//! What a draft worker proposes, as far as it can be passed on.
//!
//! Under the rules that compare probabilities, a proposal may be cut or dropped for what does not
//! depend on the tokens that were drawn (its length, its form), and for nothing else: leaving out
//! what was drawn badly would change the law of the text. So ids that the target does not know are
//! passed on like any other, for the target to reject.

use proto::v1::{DraftLaws, Proposal, VerificationRule};
use speculation::ngram::NgramDraft;
use speculation::{DraftLaw, TokenId};

/// Drafted tokens, how sure the draft was of them, and the laws that they were drawn from.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Drafted {
    pub(super) ids: Vec<TokenId>,
    /// How sure the draft was of each, 255 for certain; empty where it did not say.
    pub(super) confidences: Vec<u8>,
    /// One law per token, where the rule asks for them; `None` where every token was certain.
    pub(super) laws: Option<DraftLaws>,
}

impl Drafted {
    /// What `proposal` holds for a sequence that is verified by `rule`. `None` where it is malformed.
    pub(super) fn new(proposal: Proposal, rule: VerificationRule) -> Option<Self> {
        let ids = proposal.draft_ids;
        let laws = match rule {
            // The target's own choices decide: laws would only be carried about.
            VerificationRule::Unspecified | VerificationRule::Coupled => None,
            VerificationRule::Token | VerificationRule::Block => proposal.laws,
        };
        // The laws bound their own size, so that no draft makes a batch larger than a message may be.
        let fit = laws.as_ref().is_none_or(|laws| {
            laws.sizes.len() == ids.len() && Vec::<DraftLaw>::try_from(laws).is_ok()
        });
        let mut confidences = proposal.confidences;
        if confidences.len() != ids.len() {
            confidences.clear();
        }
        fit.then_some(Self {
            ids,
            confidences,
            laws,
        })
    }

    /// What was drafted without a model: every token is certain.
    pub(super) fn certain(draft: &NgramDraft) -> Self {
        Self {
            ids: draft.ids.clone(),
            ..Self::default()
        }
    }

    /// Puts `ids` before its tokens.
    pub(super) fn put_before(&mut self, ids: Vec<TokenId>) {
        if !self.confidences.is_empty() {
            self.confidences.splice(0..0, ids.iter().map(|_| u8::MAX));
        }
        self.ids.splice(0..0, ids);
    }

    /// Takes the first `len` tokens away; they have no laws.
    pub(super) fn cut(&mut self, len: usize) {
        self.ids.drain(..len);
        self.confidences.drain(..len.min(self.confidences.len()));
    }

    /// Keeps the first `len` tokens and their laws.
    pub(super) fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.confidences.truncate(len);
        if self.ids.is_empty() {
            self.laws = None;
        }
        if let Some(laws) = &mut self.laws {
            laws.sizes.truncate(len);
            let entries = laws.sizes.iter().map(|size| *size as usize).sum();
            laws.id_gaps.truncate(entries);
            laws.counts.truncate(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laws() -> Vec<DraftLaw> {
        [
            vec![(5, 65_536)],
            vec![(3, 30_000), (4, 30_000), (100_000, 5_536)],
            vec![(0, 65_535), (u32::MAX, 1)],
        ]
        .map(|entries| DraftLaw::from_entries(entries).unwrap())
        .to_vec()
    }

    fn proposal(laws: Option<DraftLaws>) -> Proposal {
        Proposal {
            draft_ids: vec![5, 4, u32::MAX],
            laws,
            ..Proposal::default()
        }
    }

    #[test]
    fn laws_are_cut_with_their_tokens_at_every_length() {
        let laws = laws();
        let message = DraftLaws::from(&laws[..]);
        for len in 0..=4 {
            let rule = VerificationRule::Block;
            let mut drafted = Drafted::new(proposal(Some(message.clone())), rule).unwrap();
            drafted.truncate(len);
            assert_eq!(drafted.ids.len(), len.min(3));
            match drafted.laws {
                None => assert_eq!(len, 0),
                Some(cut) => assert_eq!(Vec::try_from(&cut), Ok(laws[..len.min(3)].to_vec())),
            }
        }
    }

    #[test]
    fn what_makes_no_laws_makes_no_proposal_where_laws_are_asked_for() {
        let message = DraftLaws::from(&laws()[..]);
        let (short, long) = (&laws()[..2], [laws(), laws()].concat());
        let mut torn = message.clone();
        torn.counts.pop();
        // As many ids as would make a batch larger than a message may be.
        let counts = [vec![65_472], vec![1; 64]].concat();
        let large = DraftLaws {
            sizes: vec![65; 3],
            id_gaps: vec![1; 3 * 65],
            counts: counts.repeat(3),
        };
        for wrong in [
            large,
            short.into(),
            long[..].into(),
            torn,
            DraftLaws::default(),
        ] {
            for rule in [VerificationRule::Token, VerificationRule::Block] {
                let drafted = Drafted::new(proposal(Some(wrong.clone())), rule);
                assert_eq!(drafted, None, "{wrong:?}");
            }
            let coupled = Drafted::new(proposal(Some(wrong)), VerificationRule::Coupled);
            assert_eq!(coupled.unwrap().laws, None);
        }
    }

    #[test]
    fn certain_tokens_need_no_laws_and_unknown_ids_are_kept() {
        for rule in [VerificationRule::Coupled, VerificationRule::Token] {
            let drafted = Drafted::new(proposal(None), rule).unwrap();
            assert_eq!((drafted.ids, drafted.laws), (vec![5, 4, u32::MAX], None));
        }
    }
}
