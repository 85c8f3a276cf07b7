//! Conversions between messages and the types of `speculation`: checked once, at the edge.

use crate::v1;
use speculation::{InvalidSampling, NoiseKey, Sampling, SamplingOptions};

impl From<&Sampling> for v1::SamplingParams {
    fn from(sampling: &Sampling) -> Self {
        let options = sampling.options();
        Self {
            temperature: Some(options.temperature),
            top_k: Some(options.top_k),
            top_p: Some(options.top_p),
            min_p: Some(options.min_p),
        }
    }
}

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
        })
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
    fn sampling_survives_the_wire() {
        for options in [
            SamplingOptions::default(),
            // Zeros are proto3's defaults: they must not turn into ours.
            SamplingOptions {
                temperature: 0.0,
                top_k: 0,
                top_p: f32::MIN_POSITIVE,
                min_p: 0.0,
            },
            SamplingOptions {
                temperature: 0.7,
                top_k: 20,
                top_p: 0.8,
                min_p: 0.05,
            },
        ] {
            let sampling = Sampling::new(options).expect("valid");
            assert_eq!(received(v1::SamplingParams::from(&sampling)), Ok(sampling));
        }
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
            assert_eq!(
                received(params).expect_err(field).field,
                field,
                "{params:?}"
            );
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
