//! Simulated workers. They check what the scheduler sends as strictly as real ones.

mod draft;
mod target;

use super::{RULES, SequenceId};
use proto::v1::{
    CloseReason, Closed, Decoding, TargetCommand, TokenLogprobs, VerificationRule, VerifyBatch,
    VerifyItem, target_command::Command,
};
use speculation::{DraftLaw, TOTAL_COUNT, TokenId};
use std::collections::BTreeMap;

pub(super) use draft::FakeDraft;
pub(super) use target::FakeTarget;

/// The sequences at a worker.
type Held = BTreeMap<SequenceId, Sequence>;

/// A sequence at a worker.
#[derive(Debug)]
pub(super) struct Sequence {
    epoch: u32,
    tokens: Vec<TokenId>,
    rule: VerificationRule,
    logprobs: bool,
}

/// The last epoch of each sequence, over all connections.
type Epochs = BTreeMap<SequenceId, u32>;

fn check_epoch(epochs: &mut Epochs, sequence: SequenceId, epoch: u32) {
    let last = epochs.insert(sequence, epoch);
    assert!(last < Some(epoch), "epochs grow: {epoch} after {last:?}");
}

fn closed(sequence: SequenceId, epoch: u32, reason: CloseReason) -> Closed {
    Closed {
        sequence,
        epoch,
        reason: reason.into(),
        detail: "simulated".to_owned(),
        field: String::new(),
    }
}

/// What the target says of `token` at position `at`.
pub(super) fn logprobs(token: TokenId, at: usize) -> TokenLogprobs {
    TokenLogprobs {
        logprob: -(token as f32),
        top_ids: vec![at as TokenId],
        top_logprobs: vec![0.0],
    }
}

/// The law that a draft drew `token` from at position `at`: no other has it.
fn law_of(token: TokenId, at: usize) -> DraftLaw {
    let rest = at as u32 + 1;
    let mut entries = vec![(token, TOTAL_COUNT - rest), (token ^ 1, rest)];
    entries.sort_unstable();
    DraftLaw::from_entries(entries).unwrap()
}

/// The rule of a sequence that is opened as its request says.
fn check_decoding(decoding: Option<&Decoding>, id: SequenceId) -> VerificationRule {
    let decoding = decoding.expect("always sent");
    let key = decoding.key.expect("always sent");
    assert_eq!(key.low, id, "the sequence's own noise");
    assert_eq!(decoding.rule(), RULES[id as usize % RULES.len()]);
    decoding.rule()
}

/// Laws come as the draft made them, each with its token, where the rule asks for them.
fn check_laws(item: &VerifyItem, rule: VerificationRule, lawless: bool) {
    let Some(laws) = &item.laws else {
        let needed = rule != VerificationRule::Coupled && !item.draft_ids.is_empty();
        assert!(!needed || lawless, "laws are passed on");
        return;
    };
    assert_ne!(rule, VerificationRule::Coupled, "laws of no use are not");
    let ids = item.draft_ids.iter().zip(item.base_len as usize..);
    let expected: Vec<_> = ids.map(|(token, at)| law_of(*token, at)).collect();
    assert_eq!(Vec::<DraftLaw>::try_from(laws), Ok(expected));
}

/// The batch that a command holds.
pub(super) fn batch(command: &TargetCommand) -> Option<&VerifyBatch> {
    match &command.command {
        Some(Command::Verify(batch)) => Some(batch),
        _ => None,
    }
}
