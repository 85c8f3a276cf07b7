//! Drafts without a model: what each sequence proposes from its own text and, where that is switched
//! on, from its tenant's past outputs. They cost no round trip.
//!
//! Knows committed tokens only. Whether a draft is used is decided elsewhere.

use speculation::TokenId;
use speculation::ngram::{Histories, NgramDraft, Recall, Suffixes};

/// How many tenants' past outputs are kept.
const MAX_TENANTS: usize = 64;

/// Whether to draft without a model, and from what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NgramOptions {
    /// From a request's own prompt and output.
    pub(crate) enabled: bool,
    /// And from so many tokens of each tenant's past outputs.
    pub(crate) history_tokens: usize,
}

/// What sequences share: the past outputs of their tenants.
#[derive(Debug)]
pub(super) struct Ngrams {
    options: NgramOptions,
    histories: Histories,
}

/// One sequence's text, indexed.
#[derive(Debug)]
pub(super) struct SequenceNgrams {
    text: Suffixes,
    /// Set where past outputs are kept.
    past: Option<Recall>,
}

impl Ngrams {
    pub(super) fn new(options: NgramOptions) -> Self {
        Self {
            options,
            histories: Histories::new(options.history_tokens, MAX_TENANTS),
        }
    }

    /// The index of a sequence of `tenant` that begins with `prompt`; none where drafts without a model
    /// are switched off. Takes up to 0.3 us for each token.
    pub(super) fn open(&self, tenant: &str, prompt: &[TokenId]) -> Option<SequenceNgrams> {
        if !self.options.enabled {
            return None;
        }
        let mut text = Suffixes::new();
        text.extend(prompt);
        let past = (self.options.history_tokens > 0).then(|| Recall::new(tenant, prompt));
        Some(SequenceNgrams { text, past })
    }

    /// Takes the output of a sequence that is complete into its tenant's past outputs.
    pub(super) fn finish(&mut self, sequence: &SequenceNgrams, output: &[TokenId]) {
        if let Some(past) = &sequence.past {
            self.histories.add(past.tenant(), output);
        }
    }
}

impl SequenceNgrams {
    /// Follows the text by `run`, the tokens that were committed.
    pub(super) fn commit(&mut self, run: &[TokenId], ngrams: &Ngrams) {
        for token in run {
            self.text.push(*token);
            if let Some(past) = &mut self.past {
                past.push(*token, &ngrams.histories);
            }
        }
    }

    /// What may follow all committed tokens, at most `max` of them: from the text itself, or from past
    /// outputs where more of that is likely to be accepted.
    pub(super) fn propose(&self, max: usize, ngrams: &Ngrams) -> Option<NgramDraft> {
        let own = self.text.propose(max);
        let past = self.past.as_ref();
        let past = past.and_then(|past| past.propose(max, &ngrams.histories));
        match (own, past) {
            (Some(own), Some(past)) if past.expected(max) > own.expected(max) => Some(past),
            (None, past) => past,
            (own, _) => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ngrams(history_tokens: usize) -> Ngrams {
        Ngrams::new(NgramOptions {
            enabled: true,
            history_tokens,
        })
    }

    fn ids(sequence: &SequenceNgrams, ngrams: &Ngrams) -> Vec<TokenId> {
        sequence
            .propose(16, ngrams)
            .map_or(Vec::new(), |draft| draft.ids)
    }

    #[test]
    fn a_sequence_proposes_what_its_prompt_goes_on_with() {
        let ngrams = ngrams(0);
        let mut sequence = ngrams.open("", &[1, 2, 3, 4, 5, 9]).unwrap();
        assert!(ids(&sequence, &ngrams).is_empty());
        sequence.commit(&[2, 3], &ngrams);
        assert!(ids(&sequence, &ngrams).starts_with(&[4, 5, 9]));
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
        assert_eq!(ids(&same, &ngrams)[0], 3);
        for sequence in [&mut same, &mut other] {
            sequence.commit(&output[..3], &ngrams);
        }
        assert_eq!(ids(&same, &ngrams)[..2], [103, 104]);
        assert_eq!(ids(&other, &ngrams)[..1], [5]);
    }

    #[test]
    fn nothing_is_kept_of_past_outputs_unless_asked_for() {
        let mut ngrams = ngrams(0);
        let first = ngrams.open("a", &[1]).unwrap();
        ngrams.finish(&first, &[7, 8, 9]);
        let mut sequence = ngrams.open("a", &[2]).unwrap();
        sequence.commit(&[7, 8], &ngrams);
        assert!(ids(&sequence, &ngrams).is_empty());
    }

    #[test]
    fn there_is_no_index_where_it_is_switched_off() {
        let ngrams = Ngrams::new(NgramOptions {
            enabled: false,
            history_tokens: 100,
        });
        assert!(ngrams.open("", &[1, 2, 1, 2]).is_none());
    }
}
