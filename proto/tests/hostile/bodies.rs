//! What is done with the bytes of a message that nobody vouches for. docs/fuzzing.md tells of its
//! like.

use prost::Message as _;
use proto::v1;
use speculation::{Adjustments, DraftLaw, LogprobsMode, Rule, Sampling, TOTAL_COUNT};

/// Ids of the row that requests are applied to.
const ROW: usize = 64;

/// Decodes the bytes as a request's decoding and as declared laws, and uses what is accepted.
pub fn messages(bytes: &[u8]) {
    if let Ok(decoding) = v1::Decoding::decode(bytes) {
        let sampling = decoding.sampling.clone().unwrap_or_default();
        let _ = Rule::try_from(decoding.rule());
        if let Ok(sampling) = Sampling::try_from(&sampling) {
            assert!((0.0..=100.0).contains(&sampling.options().temperature));
        }
        if let Ok(adjustments) = Adjustments::try_from(&decoding) {
            let mut logits = [0.5; ROW];
            adjustments.apply(&[1, 2, 3, u32::MAX], &mut logits);
            assert!(logits.iter().all(|logit| !logit.is_nan()), "{decoding:?}");
        }
    }
    if let Ok(laws) = v1::DraftLaws::decode(bytes)
        && let Ok(laws) = Vec::<DraftLaw>::try_from(&laws)
    {
        for law in laws {
            let counts = law.entries().iter().map(|entry| entry.1);
            assert_eq!(counts.sum::<u32>(), TOTAL_COUNT);
            assert!(law.probability(law.draw(0.5)) > 0.0);
        }
    }
    if let Ok(params) = v1::LogprobsParams::decode(bytes) {
        let _ = LogprobsMode::try_from(params.mode());
    }
}
