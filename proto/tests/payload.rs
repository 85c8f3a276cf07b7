//! What drafted tokens cost on the wire, at sizes of a busy server with a large vocabulary.

use proto::v1;

const DRAFTED: usize = 8;

/// Bytes that a drafted token may cost in coupled mode, in each direction.
const BUDGET: f64 = 10.0;

/// Ids at the top of a vocabulary of 152,000: the longest on the wire.
fn draft_ids() -> Vec<u32> {
    (152_000 - DRAFTED as u32..152_000).collect()
}

/// The message with its length-prefixed gRPC frame, per drafted token.
fn bytes_per_token(message: &impl prost::Message) -> f64 {
    const FRAME_HEADER: usize = 5;
    (message.encoded_len() + FRAME_HEADER) as f64 / DRAFTED as f64
}

#[test]
fn a_proposal_stays_within_budget() {
    let event = v1::DraftEvent {
        proposals: vec![v1::Proposal {
            sequence: 1_000_000,
            epoch: 3,
            base_len: 100_000,
            draft_ids: draft_ids(),
            compute_us: 20_000,
            laws: None,
            ..v1::Proposal::default()
        }],
        ..v1::DraftEvent::default()
    };
    let cost = bytes_per_token(&event);
    assert!(cost < BUDGET, "{cost} bytes per drafted token");
}

#[test]
fn a_verify_batch_stays_within_budget() {
    let batch = v1::VerifyBatch {
        step: 100_000_000,
        items: vec![v1::VerifyItem {
            sequence: 1_000_000,
            epoch: 3,
            base_len: 100_000,
            draft_ids: draft_ids(),
            laws: None,
        }],
    };
    let command = v1::TargetCommand {
        command: Some(v1::target_command::Command::Verify(batch)),
    };
    let cost = bytes_per_token(&command);
    assert!(cost < BUDGET, "{cost} bytes per drafted token");
}
