//! The types of tensors, by the numbers that files give them.

use candle_core::quantized::GgmlDType;

/// The type that ggml numbers `number`, or what else it is.
pub(super) fn dtype(number: u32) -> Result<GgmlDType, String> {
    Ok(match number {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        other => {
            return Err(format!(
                "{} ({other}); supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and \
                 Q2_K to Q6_K",
                unsupported_name(other)
            ));
        }
    })
}

/// The names in ggml's `enum ggml_type`.
fn unsupported_name(number: u32) -> &'static str {
    match number {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24..=27 => "an integer",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => "unknown",
    }
}
