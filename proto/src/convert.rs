//! Conversions between messages and the types of `speculation`: checked once, at the edge.

use crate::v1;
use speculation::{
    AdjustmentOptions, Adjustments, DraftLaw, InvalidDraftLaw, InvalidSampling, LogprobsMode,
    LogprobsOptions, NoiseKey, Rule, Sampling, SamplingOptions, TokenLogprobs,
};

/// The most likely tokens that log-probabilities can be asked for.
pub const MAX_TOP_LOGPROBS: u32 = 20;

/// The most entries of `logit_bias`.
pub const MAX_BIASED_TOKENS: usize = 4096;

/// Unset fields take [`SamplingOptions::default`]. The error names the field within
/// `SamplingParams`; the caller knows where that message sits in its request.
impl TryFrom<&v1::SamplingParams> for Sampling {
    type Error = InvalidSampling;

    fn try_from(params: &v1::SamplingParams) -> Result<Self, InvalidSampling> {
        let default = SamplingOptions::default();
        Self::new(SamplingOptions {
            temperature: params.temperature.unwrap_or(default.temperature),
            top_k: params.top_k.unwrap_or(default.top_k),
            top_p: params.top_p.unwrap_or(default.top_p),
            min_p: params.min_p.unwrap_or(default.min_p),
            typical_p: params.typical_p.unwrap_or(default.typical_p),
        })
    }
}

/// What is not shaping the law: penalties, biases, what is impossible. The error names the field
/// within `SamplingParams`, where all that can be wrong in itself sits.
impl TryFrom<&v1::Decoding> for Adjustments {
    type Error = InvalidSampling;

    fn try_from(decoding: &v1::Decoding) -> Result<Self, InvalidSampling> {
        let unset = v1::SamplingParams::default();
        let params = decoding.sampling.as_ref().unwrap_or(&unset);
        let biased = params.logit_bias.len();
        if biased > MAX_BIASED_TOKENS {
            return Err(InvalidSampling {
                field: "logit_bias",
                requirement: "at most 4096 entries",
                value: biased as f32,
            });
        }
        let default = AdjustmentOptions::default();
        let or = |value: Option<f32>, default: f32| value.unwrap_or(default);
        Self::new(AdjustmentOptions {
            repetition_penalty: or(params.repetition_penalty, default.repetition_penalty),
            presence_penalty: or(params.presence_penalty, default.presence_penalty),
            frequency_penalty: or(params.frequency_penalty, default.frequency_penalty),
            penalty_window: params.penalty_window.unwrap_or_default() as usize,
            logit_bias: params
                .logit_bias
                .iter()
                .map(|(id, bias)| (*id, *bias))
                .collect(),
            allowed_tokens: params.allowed_token_ids.clone(),
            banned_tokens: params.banned_token_ids.clone(),
            bad_words: decoding
                .bad_words
                .iter()
                .map(|word| word.ids.clone())
                .collect(),
            min_tokens: decoding.min_tokens as usize,
            end_tokens: decoding.end_token_ids.clone(),
            prompt_len: decoding.prompt_len as usize,
        })
    }
}

/// The server's choice, which the caller must make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unspecified;

impl From<Rule> for v1::VerificationRule {
    fn from(rule: Rule) -> Self {
        match rule {
            Rule::Coupled => Self::Coupled,
            Rule::Token => Self::Token,
            Rule::Block => Self::Block,
        }
    }
}

impl TryFrom<v1::VerificationRule> for Rule {
    type Error = Unspecified;

    fn try_from(rule: v1::VerificationRule) -> Result<Self, Unspecified> {
        match rule {
            v1::VerificationRule::Unspecified => Err(Unspecified),
            v1::VerificationRule::Coupled => Ok(Self::Coupled),
            v1::VerificationRule::Token => Ok(Self::Token),
            v1::VerificationRule::Block => Ok(Self::Block),
        }
    }
}

impl From<LogprobsMode> for v1::LogprobsMode {
    fn from(mode: LogprobsMode) -> Self {
        match mode {
            LogprobsMode::Raw => Self::RawLogprobs,
            LogprobsMode::Processed => Self::ProcessedLogprobs,
        }
    }
}

impl TryFrom<v1::LogprobsMode> for LogprobsMode {
    type Error = Unspecified;

    fn try_from(mode: v1::LogprobsMode) -> Result<Self, Unspecified> {
        match mode {
            v1::LogprobsMode::Unspecified => Err(Unspecified),
            v1::LogprobsMode::RawLogprobs => Ok(Self::Raw),
            v1::LogprobsMode::ProcessedLogprobs => Ok(Self::Processed),
        }
    }
}

impl From<&LogprobsOptions> for v1::LogprobsParams {
    fn from(options: &LogprobsOptions) -> Self {
        Self {
            top: options.top as u32,
            mode: v1::LogprobsMode::from(options.mode).into(),
        }
    }
}

impl From<TokenLogprobs> for v1::TokenLogprobs {
    fn from(logprobs: TokenLogprobs) -> Self {
        let (top_ids, top_logprobs) = logprobs.top.into_iter().unzip();
        Self {
            logprob: logprobs.logprob,
            top_ids,
            top_logprobs,
        }
    }
}

/// Ids as distances: most take two bytes then instead of three.
impl From<&[DraftLaw]> for v1::DraftLaws {
    fn from(laws: &[DraftLaw]) -> Self {
        let mut message = Self::default();
        for law in laws {
            let mut last = 0;
            message.sizes.push(law.entries().len() as u32);
            for (id, count) in law.entries() {
                message.id_gaps.push(id - last);
                message.counts.push(*count);
                last = *id;
            }
        }
        message
    }
}

/// # Errors
/// Where the lists do not fit each other, or make no laws.
impl TryFrom<&v1::DraftLaws> for Vec<DraftLaw> {
    type Error = InvalidDraftLaw;

    fn try_from(message: &v1::DraftLaws) -> Result<Self, InvalidDraftLaw> {
        let ids: u64 = message.sizes.iter().copied().map(u64::from).sum();
        let lengths = [message.id_gaps.len(), message.counts.len()];
        if lengths.iter().any(|length| *length as u64 != ids) {
            return Err(InvalidDraftLaw(
                "sizes, id_gaps and counts must fit each other",
            ));
        }
        let mut pairs = message.id_gaps.iter().zip(&message.counts);
        let law = |size: &u32| {
            let mut id = 0_u32;
            let entries = pairs.by_ref().take(*size as usize).map(|(gap, count)| {
                id = id
                    .checked_add(*gap)
                    .ok_or(InvalidDraftLaw("ids must be below 2^32"))?;
                Ok((id, *count))
            });
            DraftLaw::from_entries(entries.collect::<Result<_, _>>()?)
        };
        message.sizes.iter().map(law).collect()
    }
}

impl From<NoiseKey> for v1::NoiseKey {
    fn from(NoiseKey(key): NoiseKey) -> Self {
        Self {
            high: (key >> 64) as u64,
            low: key as u64,
        }
    }
}

impl From<v1::NoiseKey> for NoiseKey {
    fn from(key: v1::NoiseKey) -> Self {
        Self(u128::from(key.high) << 64 | u128::from(key.low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    fn received(params: v1::SamplingParams) -> Result<Sampling, InvalidSampling> {
        let bytes = params.encode_to_vec();
        Sampling::try_from(&v1::SamplingParams::decode(&*bytes).expect("own encoding"))
    }

    #[test]
    fn zeros_on_the_wire_are_zeros_and_not_the_defaults() {
        let options = SamplingOptions {
            temperature: 0.0,
            top_k: 0,
            top_p: f32::MIN_POSITIVE,
            min_p: 0.0,
            typical_p: f32::MIN_POSITIVE,
        };
        let params = v1::SamplingParams {
            temperature: Some(options.temperature),
            top_k: Some(options.top_k),
            top_p: Some(options.top_p),
            min_p: Some(options.min_p),
            typical_p: Some(options.typical_p),
            ..Default::default()
        };
        assert_eq!(received(params).expect("valid").options(), &options);
    }

    #[test]
    fn laws_survive_the_wire() {
        let laws = [
            vec![(0, 65_535), (151_935, 1)],
            vec![(7, 65_536)],
            vec![(3, 30_000), (4, 30_000), (100_000, 5_536)],
        ];
        let laws = laws.map(|entries| DraftLaw::from_entries(entries).expect("a law"));
        let bytes = v1::DraftLaws::from(&laws[..]).encode_to_vec();
        let message = v1::DraftLaws::decode(&*bytes).expect("own encoding");
        assert_eq!(
            Vec::<DraftLaw>::try_from(&message).as_deref(),
            Ok(&laws[..])
        );
    }

    #[test]
    fn lists_that_make_no_laws_are_refused() {
        let message = |sizes: &[u32], id_gaps: &[u32], counts: &[u32]| v1::DraftLaws {
            sizes: sizes.to_vec(),
            id_gaps: id_gaps.to_vec(),
            counts: counts.to_vec(),
        };
        for wrong in [
            message(&[2], &[1], &[65_536]),
            message(&[1], &[1, 2], &[65_536]),
            message(&[u32::MAX, u32::MAX], &[1, 2], &[65_536, 65_536]),
            message(&[2], &[u32::MAX, 1], &[1, 65_535]),
            message(&[2], &[5, 0], &[1, 65_535]),
            message(&[2], &[5, 1], &[0, 65_536]),
            message(&[1], &[5], &[65_535]),
            message(&[0], &[], &[]),
        ] {
            assert!(Vec::<DraftLaw>::try_from(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn adjustments_out_of_range_are_refused_by_name() {
        let with = |change: fn(&mut v1::SamplingParams)| {
            let mut params = v1::SamplingParams::default();
            change(&mut params);
            let decoding = v1::Decoding {
                sampling: Some(params),
                ..Default::default()
            };
            Adjustments::try_from(&decoding)
                .expect_err("out of range")
                .field
        };
        assert_eq!(
            with(|p| p.repetition_penalty = Some(0.0)),
            "repetition_penalty"
        );
        assert_eq!(with(|p| p.presence_penalty = Some(2.1)), "presence_penalty");
        assert_eq!(
            with(|p| p.frequency_penalty = Some(f32::NAN)),
            "frequency_penalty"
        );
        assert_eq!(with(|p| p.logit_bias.extend([(1, 101.0)])), "logit_bias");
        let many = |p: &mut v1::SamplingParams| p.logit_bias.extend((0..4097).map(|id| (id, 0.0)));
        assert_eq!(with(many), "logit_bias");
    }

    #[test]
    fn unset_fields_take_the_defaults_that_the_protocol_states() {
        let sampling = received(v1::SamplingParams::default()).expect("valid");
        assert_eq!(
            sampling.options(),
            &SamplingOptions {
                temperature: 1.0,
                top_k: 0,
                top_p: 1.0,
                min_p: 0.0,
                typical_p: 1.0,
            }
        );
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_name() {
        let unset = v1::SamplingParams::default;
        let with_temperature = |value| v1::SamplingParams {
            temperature: Some(value),
            ..unset()
        };
        let with_top_p = |value| v1::SamplingParams {
            top_p: Some(value),
            ..unset()
        };
        let with_min_p = |value| v1::SamplingParams {
            min_p: Some(value),
            ..unset()
        };
        for (field, params) in [
            ("temperature", with_temperature(-0.1)),
            ("temperature", with_temperature(f32::NAN)),
            ("temperature", with_temperature(f32::INFINITY)),
            ("top_p", with_top_p(0.0)),
            ("top_p", with_top_p(1.5)),
            ("top_p", with_top_p(f32::NAN)),
            ("min_p", with_min_p(-1.0)),
            ("min_p", with_min_p(f32::NAN)),
        ] {
            let error = received(params).expect_err(field);
            assert_eq!(error.field, field, "{error}");
        }
    }

    #[test]
    fn noise_keys_keep_all_bits_in_their_places() {
        let key = NoiseKey(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        let message = v1::NoiseKey::from(key);
        assert_eq!(message.high, 0x0123_4567_89ab_cdef);
        assert_eq!(message.low, 0xfedc_ba98_7654_3210);
        assert_eq!(NoiseKey::from(message), key);
    }
}
