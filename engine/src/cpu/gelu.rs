//! The gate of Gemma.

use crate::kernels::{dispatched, exp, mul_add};

/// √(2/π).
const SCALE: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

dispatched! {
    /// `out ← gelu(gate) · up`, with GELU approximated by tanh:
    /// `gelu(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`,
    /// [Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415), section 2.
    gelu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) = gelu_mul_row
}

#[inline(always)]
fn gelu_mul_row<const FUSED: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        let inner = SCALE * gate * mul_add::<FUSED>(CUBIC * gate, gate, 1.0);
        // (1 + tanh u) / 2 = 1 / (1 + e^−2u)
        *out = gate / (1.0 + exp::<FUSED>(-2.0 * inner)) * up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_follows_its_formula() {
        let gates: Vec<f32> = (-200..200).map(|i| i as f32 / 10.0).collect();
        let up: Vec<f32> = (0..gates.len()).map(|i| 1.0 + i as f32 / 100.0).collect();
        let mut out = vec![0.0; gates.len()];
        gelu_mul(&gates, &up, &mut out);
        for ((gate, up), out) in gates.into_iter().zip(up).zip(out) {
            let (x, up) = (f64::from(gate), f64::from(up));
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            let exact = x / 2.0 * (1.0 + inner.tanh()) * up;
            let error = (f64::from(out) - exact).abs();
            assert!(
                error < 1e-5 * (1.0 + exact.abs()),
                "{gate}: {out}, not {exact}"
            );
        }
    }
}
