//! What must hold in the end, whatever happened.

use super::{Client, EOS, End, Summary, World};
use crate::commit::{FinishReason, Matched, Origin};
use crate::request::Choice;
use speculation::TokenId;

impl World {
    /// What plain decoding writes.
    fn plain(&self, choice: &Choice) -> (Vec<TokenId>, FinishReason) {
        let request = &choice.generation;
        let mut tokens = request.prompt.clone();
        loop {
            let next = self.law.next(&tokens);
            tokens.push(next);
            let text = &tokens[request.prompt.len()..];
            if next == EOS {
                let reason = FinishReason::Stop(Matched::Token(EOS));
                return (text.to_vec(), reason);
            }
            if text.len() == request.max_tokens {
                return (text.to_vec(), FinishReason::Length);
            }
        }
    }

    /// Checks all that must hold in the end, whatever happened. Returns how many texts are complete.
    pub(super) fn check(&self) -> usize {
        let mut complete = 0;
        for client in self.clients.values() {
            let (plain, reason) = self.plain(&client.choice);
            match client.end.as_ref().expect("every request ends") {
                End::Finished(summary) => {
                    complete += 1;
                    assert_eq!((&client.tokens, &summary.reason), (&plain, &reason));
                    check_summary(client, summary);
                }
                End::Failed(_) | End::Left => {
                    assert!(
                        plain.starts_with(&client.tokens),
                        "what was written was right"
                    );
                }
            }
        }
        assert!(self.scheduler.sequences.is_empty());
        assert!(self.scheduler.drafts.iter().all(|draft| draft.is_empty()));
        assert!(
            self.target.held.is_empty(),
            "the target is told of every end"
        );
        assert!(
            self.drafts.iter().all(|draft| draft.held.is_empty()),
            "and so are drafts"
        );
        complete
    }
}

fn check_summary(client: &Client, summary: &Summary) {
    let stats = &summary.stats;
    let generation = &client.choice.generation;
    let shown = client.tokens.iter().copied().filter(|token| *token != EOS);
    let tokenizer = &generation.model.tokenizer;
    let text = tokenizer.decode(&shown.collect::<Vec<_>>(), true);
    assert_eq!(client.text, text.unwrap());
    let drafted = client
        .origins
        .iter()
        .filter(|origin| **origin == Origin::Draft);
    assert_eq!(summary.completion_tokens, client.tokens.len());
    assert_eq!(summary.prompt_tokens, generation.prompt.len());
    assert_eq!(
        stats.accepted as usize,
        drafted.count(),
        "only what was delivered counts"
    );
    assert!(stats.accepted <= stats.drafted);
    let by_length = stats
        .histogram
        .iter()
        .zip(0..)
        .map(|(rounds, length)| rounds * length);
    assert_eq!(by_length.sum::<u32>(), stats.accepted);
    assert!(stats.histogram.iter().sum::<u32>() <= stats.rounds);
}
