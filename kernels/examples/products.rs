//! Measures products on this machine, for each set of instructions that it has: microseconds for
//! some numbers of rows, beside the time in which memory delivers the weights.
//!
//! `cargo run --release -p kernels --example products [FORMAT…]`, with `RAYON_NUM_THREADS` threads.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use kernels::{Activations, Format, Input, Isa, Matrix, TILE};
use rayon::prelude::*;
use std::hint::black_box;
use std::time::Instant;

const ROWS: [usize; 7] = [1, 2, 3, 4, 8, 16, 28];
const SHAPES: [(usize, usize); 2] = [(8960, 1536), (1536, 8960)];
/// Weights in all, so that the caches do not hold them.
const BYTES: usize = 600 << 20;
/// The fastest of these counts: other programs only ever slow a run down.
const RUNS: usize = 5;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let buffer = vec![1u64; BYTES / 8];
    println!("{} threads", rayon::current_num_threads());
    for format in Format::ALL {
        if wanted.is_empty() || wanted.contains(&format!("{format:?}")) {
            for (outputs, inputs) in SHAPES {
                measure(format, outputs, inputs, &buffer);
            }
        }
    }
}

fn measure(format: Format, outputs: usize, inputs: usize, buffer: &[u64]) {
    let blocks = outputs * (inputs / format.block_columns());
    let bytes = blocks * format.block_bytes();
    let weights = vec![0x2a; bytes];
    let matrix = || Matrix::new(format, outputs, inputs, &weights).expect("whole blocks");
    let matrices: Vec<Matrix> = (0..BYTES / bytes).map(|_| matrix()).collect();
    let gigabytes = (BYTES as f64 / fastest(|| read(buffer))) / 1e9;
    let limit = bytes as f64 / gigabytes / 1e3;
    println!("\n{format:?} {outputs}x{inputs}: {limit:.0} us at {gigabytes:.1} GB/s");
    println!(
        "{:>12} {}",
        "rows",
        ROWS.map(|rows| format!("{rows:>7}")).concat()
    );
    for &isa in Isa::available().iter().skip(1) {
        let times = ROWS.map(|rows| {
            let values: Vec<f32> = (0..rows * inputs).map(|i| (i * 37 % 101) as f32).collect();
            let all = fastest(|| {
                for matrix in &matrices {
                    multiply(matrix, isa, &values);
                }
            });
            format!("{:>7.0}", all / matrices.len() as f64 * 1e6)
        });
        println!("{:>12} {}", format!("{isa:?}"), times.concat());
    }
}

fn multiply(matrix: &Matrix, isa: Isa, values: &[f32]) {
    let count = values.len() / matrix.inputs();
    let rounded = (!matrix.format().is_float()).then(|| Activations::new(values, matrix.inputs()));
    let input = rounded
        .as_ref()
        .map_or(Input::Exact(values), Input::Rounded);
    (0..matrix.tiles())
        .into_par_iter()
        .with_min_len(16)
        .for_each(|tile| {
            let mut out = [[0.0; TILE]; 28];
            matrix.multiply(isa, input, 0, tile, &mut out[..count]);
            black_box(&out);
        });
}

fn read(buffer: &[u64]) {
    let sum = |piece: &[u64]| {
        let lines = piece.as_chunks::<16>().0.iter();
        let sums = lines.fold([0u64; 16], |mut sums, line| {
            for (sum, value) in sums.iter_mut().zip(line) {
                *sum = sum.wrapping_add(*value);
            }
            sums
        });
        black_box(sums);
    };
    buffer.par_chunks(1 << 17).for_each(sum);
}

/// Seconds of the fastest run.
fn fastest(work: impl Fn()) -> f64 {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}
