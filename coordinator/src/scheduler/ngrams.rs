//! Drafts without a model: what each sequence proposes from its own text and, where that is switched
//! on, from its tenant's past outputs. They cost no round trip.
//!
//! Knows committed tokens only. Whether a draft is used is decided elsewhere.

use crate::request::MAX_DRAFT_TOKENS;
use speculation::TokenId;
use speculation::ngram::{Histories, NgramDraft, Recall, Suffixes};

/// How many tenants' past outputs are kept.
const MAX_TENANTS: usize = 64;

/// What sequences share: the past outputs of their tenants.
#[derive(Debug)]
pub(super) struct Ngrams {
    enabled: bool,
    history_tokens: usize,
    histories: Histories,
}

/// One sequence's text, indexed.
#[derive(Debug)]
pub(super) struct SequenceNgrams {
    text: Suffixes,
    /// Set where past outputs are kept.
    past: Option<Recall>,
    draft: Option<NgramDraft>,
}

impl Ngrams {
    /// Drafts without a model where that is `enabled`: from each request's own prompt and output, and from
    /// `history_tokens` tokens of each tenant's past outputs.
    pub(super) fn new(enabled: bool, history_tokens: usize) -> Self {
        Self {
            enabled,
            history_tokens,
            histories: Histories::new(history_tokens, MAX_TENANTS),
        }
    }

    /// The index of a sequence of `tenant` that begins with `prompt`; none where drafts without a model
    /// are switched off. Takes up to 0.3 us for each token.
    pub(super) fn open(&self, tenant: &str, prompt: &[TokenId]) -> Option<SequenceNgrams> {
        if !self.enabled {
            return None;
        }
        let mut text = Suffixes::new();
        text.extend(prompt);
        let past = (self.history_tokens > 0).then(|| Recall::new(tenant, prompt));
        Some(SequenceNgrams {
            text,
            past,
            draft: None,
        })
    }

    /// Takes the output of a sequence that is complete into its tenant's past outputs.
    pub(super) fn finish(&mut self, sequence: &SequenceNgrams, output: &[TokenId]) {
        if let Some(past) = &sequence.past {
            self.histories.add(past.tenant(), output);
        }
    }
}

impl SequenceNgrams {
    /// Follows the text by `run`, the tokens that were committed, and drafts what may follow them. Takes
    /// some 1 us, and as much again for each token where past outputs are kept.
    pub(super) fn commit(&mut self, run: &[TokenId], ngrams: &Ngrams) {
        for token in run {
            self.text.push(*token);
            if let Some(past) = &mut self.past {
                past.push(*token, &ngrams.histories);
            }
        }
        self.draft = self.propose(ngrams);
    }

    /// What may follow all committed tokens.
    pub(super) fn draft(&self) -> Option<&NgramDraft> {
        self.draft.as_ref()
    }

    /// From the text itself, or from past outputs where more of that is likely to be accepted.
    fn propose(&self, ngrams: &Ngrams) -> Option<NgramDraft> {
        let max = MAX_DRAFT_TOKENS as usize;
        let own = self.text.propose(max);
        let past = self.past.as_ref();
        let past = past.and_then(|past| past.propose(max, &ngrams.histories));
        let expected = |draft: &Option<NgramDraft>| {
            let draft = draft.as_ref();
            draft.map_or(0.0, |draft| draft.survival.iter().sum())
        };
        if expected(&past) > expected(&own) {
            past
        } else {
            own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ngrams(history_tokens: usize) -> Ngrams {
        Ngrams::new(true, history_tokens)
    }

    fn ids(sequence: &SequenceNgrams) -> &[TokenId] {
        sequence.draft().map_or(&[], |draft| &draft.ids)
    }

    #[test]
    fn a_sequence_proposes_what_its_prompt_goes_on_with() {
        let ngrams = ngrams(0);
        let mut sequence = ngrams.open("", &[1, 2, 3, 4, 5, 9]).unwrap();
        assert!(ids(&sequence).is_empty());
        sequence.commit(&[2, 3], &ngrams);
        assert!(ids(&sequence).starts_with(&[4, 5, 9]));
    }

    #[test]
    fn past_outputs_serve_where_they_offer_more_than_the_text_and_only_their_tenant() {
        let mut ngrams = ngrams(1000);
        let output: Vec<TokenId> = (100..200).collect();
        let first = ngrams.open("a", &[1]).unwrap();
        ngrams.finish(&first, &output);
        let prompt = [1, 2, 3, 4, 102, 5];
        let (mut same, mut other) = (
            ngrams.open("a", &prompt).unwrap(),
            ngrams.open("b", &prompt).unwrap(),
        );
        for sequence in [&mut same, &mut other] {
            sequence.commit(&[2], &ngrams);
        }
        assert_eq!(ids(&same)[0], 3);
        for sequence in [&mut same, &mut other] {
            sequence.commit(&output[..3], &ngrams);
        }
        assert_eq!(ids(&same)[..2], [103, 104]);
        assert_eq!(ids(&other)[..1], [5]);
    }

    #[test]
    fn nothing_is_kept_of_past_outputs_unless_asked_for() {
        let mut ngrams = ngrams(0);
        let first = ngrams.open("a", &[1]).unwrap();
        ngrams.finish(&first, &[7, 8, 9]);
        let mut sequence = ngrams.open("a", &[2]).unwrap();
        sequence.commit(&[7, 8], &ngrams);
        assert!(ids(&sequence).is_empty());
    }

    #[test]
    fn there_is_no_index_where_it_is_switched_off() {
        let ngrams = Ngrams::new(false, 100);
        assert!(ngrams.open("", &[1, 2, 1, 2]).is_none());
    }
}
