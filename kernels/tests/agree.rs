//! Products against their definition, and all instructions against the portable ones.

use kernels::{Activations, Format, Input, Isa, Matrix, TILE};

/// Numbers that look random; the same for the same seed.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// From −1 to 1.
    fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len)
            .map(|_| self.next() as f32 / (1u64 << 30) as f32 - 1.0)
            .collect()
    }
}

/// What repeats in a matrix's bytes, and where in it scales or the upper bits of floats lie.
fn halves(format: Format) -> (usize, std::ops::Range<usize>) {
    match format {
        Format::F32 => (4, 2..4),
        Format::F16 | Format::BF16 => (2, 0..2),
        Format::Q6_K => (210, 208..210),
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => (format.block_bytes(), 0..4),
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => (format.block_bytes(), 0..2),
    }
}

/// A matrix of any bits, its scales or the upper bits of its floats among `scales`.
fn matrix(
    noise: &mut Noise,
    format: Format,
    outputs: usize,
    inputs: usize,
    scales: &[u16],
) -> Matrix {
    let len = outputs * (inputs / format.block_columns()) * format.block_bytes();
    let mut bytes = noise.bytes(len);
    let (size, halves) = halves(format);
    for unit in bytes.chunks_exact_mut(size) {
        for half in unit[halves.clone()].chunks_exact_mut(2) {
            let scale = scales[noise.next() as usize % scales.len()];
            half.copy_from_slice(&scale.to_le_bytes());
        }
    }
    Matrix::new(format, outputs, inputs, &bytes).expect("whole blocks")
}

fn product(matrix: &Matrix, isa: Isa, values: &[f32]) -> Vec<Vec<f32>> {
    let count = values.len() / matrix.inputs();
    let rounded = (!matrix.format().is_float()).then(|| Activations::new(values, matrix.inputs()));
    let input = rounded
        .as_ref()
        .map_or(Input::Exact(values), Input::Rounded);
    let mut rows = vec![Vec::new(); count];
    let mut out = vec![[f32::NAN; TILE]; count];
    for tile in 0..matrix.tiles() {
        matrix.multiply(isa, input, 0, tile, &mut out);
        for (row, out) in rows.iter_mut().zip(&out) {
            row.extend(out);
        }
    }
    for row in &mut rows {
        row.truncate(matrix.outputs());
    }
    rows
}

fn bits(row: &[f32]) -> Vec<u32> {
    let bits = |value: &f32| if value.is_nan() { f32::NAN } else { *value }.to_bits();
    row.iter().map(bits).collect()
}

fn shapes(format: Format) -> impl Iterator<Item = (usize, usize)> {
    let shapes: [(usize, usize); 7] = [
        (16, 256),
        (35, 256),
        (48, 768),
        (20, 1280),
        (64, 288),
        (7, 32),
        (1, 800),
    ];
    shapes
        .into_iter()
        .filter(move |(_, inputs)| inputs.is_multiple_of(format.block_columns()))
}

/// 1, −0.37, 0.002.
const USUAL: [u16; 3] = [0x3c00, 0xb5ec, 0x1819];

#[test]
fn products_are_those_of_the_numbers_that_weights_stand_for() {
    let mut noise = Noise(1);
    for format in Format::ALL {
        for (outputs, inputs) in shapes(format) {
            let matrix = matrix(&mut noise, format, outputs, inputs, &USUAL);
            // Neighbouring blocks differ in size, and are rounded accordingly.
            let magnitude = |column: usize| [1.0, 0.03, 20.0][column / 32 % 3];
            let mut values = noise.floats(3 * inputs);
            for row in values.chunks_mut(inputs) {
                for (column, value) in row.iter_mut().enumerate() {
                    *value *= magnitude(column);
                }
            }
            let products = product(&matrix, Isa::best(), &values);
            let mut weights = vec![0.0; inputs];
            for output in 0..outputs {
                matrix.row(output, &mut weights);
                for (values, product) in values.chunks(inputs).zip(&products) {
                    let terms = weights.iter().zip(values);
                    let exact: f64 = terms.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    let terms = weights.iter().enumerate();
                    let squares = terms.map(|(i, w)| f64::from(w * magnitude(i)).powi(2));
                    let size = squares.sum::<f64>().sqrt();
                    let error = (f64::from(product[output]) - exact).abs();
                    assert!(
                        error <= 0.02 * size,
                        "{format:?} {outputs}x{inputs}: {error} of {size}"
                    );
                }
            }
        }
    }
}

#[test]
fn all_instructions_give_the_same_bits_for_any_number_of_rows() {
    // Zero, the smallest and the largest of either sign, infinity, and no number.
    let extreme = [0, 1, 0x8001, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0x7e00];
    let mut noise = Noise(2);
    for format in Format::ALL {
        for (outputs, inputs) in shapes(format) {
            for scales in [&USUAL[..], &extreme[..]] {
                let matrix = matrix(&mut noise, format, outputs, inputs, scales);
                let mut values = noise.floats(40 * inputs);
                values[inputs..2 * inputs].fill(0.0);
                values[2 * inputs..3 * inputs].fill(-3.0);
                values[3 * inputs] = 1e30;
                values[4 * inputs] = f32::NAN;
                let expected = product(&matrix, Isa::Portable, &values);
                for &isa in Isa::available() {
                    for count in 1..=40 {
                        let start = if count % 2 == 0 { 0 } else { 40 - count };
                        let piece = &values[start * inputs..(start + count) * inputs];
                        for (row, product) in product(&matrix, isa, piece).iter().enumerate() {
                            assert_eq!(
                                bits(product),
                                bits(&expected[start + row]),
                                "{isa:?} {format:?} {outputs}x{inputs}, row {row} of {count}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_largest_quants_do_not_overflow() {
    for format in Format::ALL.into_iter().filter(|format| !format.is_float()) {
        for fill in [0xff, 0x80, 0x00, 0x7f] {
            let mut bytes =
                vec![fill; TILE * 8 * 256 / format.block_columns() * format.block_bytes()];
            for block in bytes.chunks_exact_mut(format.block_bytes()) {
                for half in block[halves(format).1].chunks_exact_mut(2) {
                    half.copy_from_slice(&0x3c00u16.to_le_bytes());
                }
            }
            let matrix = Matrix::new(format, TILE, 2048, &bytes).unwrap();
            let mut weights = vec![0.0; 2048];
            matrix.row(0, &mut weights);
            for sign in [1.0, -1.0] {
                let values = vec![sign; 5 * 2048];
                let exact = sign * weights.iter().sum::<f32>();
                for &isa in Isa::available() {
                    for row in product(&matrix, isa, &values) {
                        let error = (row[0] - exact).abs() / exact.abs().max(1.0);
                        assert!(
                            error < 1e-5,
                            "{isa:?} {format:?} {fill:#x}: {} not {exact}",
                            row[0]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn bytes_of_another_size_are_refused() {
    for (outputs, inputs, bytes) in [
        (16, 255, 0),
        (16, 0, 0),
        (0, 256, 0),
        (1, 256, 143),
        (usize::MAX, 256, 144),
        (1, usize::MAX - 255, 0),
    ] {
        let refusal = Matrix::new(Format::Q4_K, outputs, inputs, &vec![0; bytes]).err();
        assert!(refusal.is_some(), "{outputs}x{inputs} of {bytes} bytes");
    }
}

#[test]
fn a_matrix_takes_no_more_than_its_bytes_in_a_file() {
    for format in Format::ALL {
        let len = 32 * 256 / format.block_columns() * format.block_bytes();
        let matrix = Matrix::new(format, 32, 256, &vec![0; len]).unwrap();
        assert_eq!(matrix.bytes(), len, "{format:?}");
    }
}
