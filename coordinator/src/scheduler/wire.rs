//! What drafted tokens cost on the network: the real frames, with the ids of a real vocabulary.

use super::proposals::Drafted;
use prost::Message as _;
use proto::v1::{
    DraftEvent, DraftLaws, Proposal, TargetCommand, VerificationRule, VerifyBatch, VerifyItem,
    target_command::Command,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use speculation::{DraftLaw, Law, Sampling, SamplingOptions, TokenId};

const VOCABULARY: TokenId = 151_936;
const K: usize = 5;
const SEQUENCES: usize = 20;
const SEED: u64 = 17;

/// The law of logits with an exponential tail: sure at a low temperature, flat at a high one.
fn law(random: &mut StdRng, temperature: f32) -> DraftLaw {
    let logits: Vec<f32> = (0..VOCABULARY)
        .map(|_| -1.5 * random.random_range(f32::MIN_POSITIVE..1.0).ln())
        .collect();
    let sampling = Sampling::new(SamplingOptions {
        temperature,
        ..SamplingOptions::default()
    });
    DraftLaw::quantize(&Law::new(&logits, &sampling.unwrap()))
}

fn proposals(random: &mut StdRng, temperature: Option<f32>) -> Vec<Proposal> {
    let proposal = |sequence: usize| {
        let laws: Vec<_> = match temperature {
            None => Vec::new(),
            Some(temperature) => (0..K).map(|_| law(random, temperature)).collect(),
        };
        let ids = (0..K).map(|index| match laws.get(index) {
            Some(law) => law.draw(random.random()),
            None => random.random_range(0..VOCABULARY),
        });
        Proposal {
            sequence: 100_000 + sequence as u64,
            epoch: 1,
            base_len: 20_000,
            draft_ids: ids.collect(),
            compute_us: 15_000,
            laws: (!laws.is_empty()).then(|| DraftLaws::from(&laws[..])),
            ..Proposal::default()
        }
    };
    (0..SEQUENCES).map(proposal).collect()
}

/// Bytes per drafted token: from the draft worker, and on to the target. Without laws, where there
/// is no `temperature`.
fn bytes_per_token(temperature: Option<f32>) -> [f64; 2] {
    let proposals = proposals(&mut StdRng::seed_from_u64(SEED), temperature);
    let rule = match temperature {
        None => VerificationRule::Coupled,
        Some(_) => VerificationRule::Block,
    };
    let items = proposals.iter().map(|proposal| {
        let drafted = Drafted::new(proposal.clone(), rule).expect("well-formed");
        VerifyItem {
            sequence: proposal.sequence,
            epoch: proposal.epoch,
            base_len: proposal.base_len,
            draft_ids: drafted.ids,
            laws: drafted.laws,
        }
    });
    let batch = VerifyBatch {
        step: 1_000_000,
        items: items.collect(),
    };
    let command = TargetCommand {
        command: Some(Command::Verify(batch)),
    };
    let event = DraftEvent {
        proposals,
        ..DraftEvent::default()
    };
    let tokens = (SEQUENCES * K) as f64;
    [event.encoded_len(), command.encoded_len()].map(|bytes| bytes as f64 / tokens)
}

#[test]
fn a_drafted_token_costs_few_bytes_in_both_directions() {
    let coupled = bytes_per_token(None);
    eprintln!("seed {SEED}: {coupled:.1?} bytes per drafted token without laws");
    assert!(coupled.into_iter().all(|bytes| bytes < 10.0));
    let temperatures = [0.3, 0.7, 1.0, 1.5, 100.0];
    let measured = temperatures.map(|temperature| bytes_per_token(Some(temperature)));
    for (temperature, bytes) in temperatures.iter().zip(&measured) {
        eprintln!("seed {SEED}: {bytes:.1?} bytes per drafted token at temperature {temperature}");
        assert!(bytes.iter().all(|bytes| *bytes < 60.0));
    }
}
