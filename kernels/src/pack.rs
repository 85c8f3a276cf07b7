//! Where each bit of a block lies, in a file and in a tile.
//!
//! Floats lie column by column: `[column][output]`.
//!
//! Of quants, a tile's block is lines of 64 bytes: a header with the small scales, then for each group of 32
//! columns the quants of 16 outputs. Byte `4·output + column` of a line belongs to four
//! neighbouring columns, a *quad*; a group has eight.
//!
//! - 4 bits: line i has quad i in the low halves of its bytes and quad i + 4 in the high ones.
//! - 5 bits: as 4, then a line with the fifth bit of quad i in bit i.
//! - 6 bits: as 4, then two lines with the upper bits of quads 0 to 3 and 4 to 7.
//! - 8 bits: line i has quad i.
//!
//! Small scales lie block by block: `[small block][output]`. Those of 8 bits fill four lines. The
//! 256 scales and minima of 6 bits fill three: the first 192 in the lower bits of the bytes, the
//! others by two bits in the upper bits of all three lines.

use crate::float::from_half;
use crate::format::{FLOATS, GROUP, SUPER};
use crate::{Format, TILE};

/// Writes a row as it is in a file as the given output of a tile, whose `lines` and `halves` are
/// zeroed before.
pub(crate) fn write_row(
    format: Format,
    output: usize,
    row: &[u8],
    lines: &mut [Line],
    halves: &mut [u16],
) {
    let bytes = format.block_bytes();
    let lines = lines.chunks_exact_mut(block_lines(format));
    if format.is_float() {
        let places = lines.zip(row.chunks_exact(bytes));
        return places.for_each(|(lines, block)| write_floats(output, block, lines));
    }
    let places = lines.zip(halves.chunks_exact_mut(format.halves() * TILE));
    for ((lines, halves), block) in places.zip(row.chunks_exact(bytes)) {
        Block::read(format, block).write(format, output, lines, halves);
    }
}

/// The numbers that an output of a tile stands for.
pub(crate) fn read_row(
    format: Format,
    output: usize,
    lines: &[Line],
    halves: &[u16],
    out: &mut [f32],
) {
    let lines = lines.chunks_exact(block_lines(format));
    let out = out.chunks_exact_mut(format.block_columns());
    if format.is_float() {
        let places = lines.zip(out);
        return places.for_each(|(lines, out)| read_floats(format, output, lines, out));
    }
    let places = lines.zip(halves.chunks_exact(format.halves() * TILE));
    for ((lines, halves), out) in places.zip(out) {
        Block::gather(format, output, lines, halves).dequantise(format, out);
    }
}

/// As many bytes as a cache line has.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

impl Line {
    pub(crate) const ZERO: Self = Self([0; 64]);
}

/// Columns of a quad.
pub(crate) const QUAD: usize = 4;
/// Where minima begin among the 6-bit scales of a tile's block.
pub(crate) const MINIMA: usize = SUPER / GROUP * TILE;

/// A block of one output, spread out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// As stored: with the offset, or those of 8 bits with their sign.
    quants: [u8; SUPER],
    scales: [i8; SUPER / 16],
    minima: [u8; SUPER / GROUP],
    halves: [u16; 2],
}

/// Lines of a tile's block before its quants.
pub(crate) const fn header_lines(format: Format) -> usize {
    match format {
        Format::Q4_K | Format::Q5_K => 3,
        Format::Q6_K => 4,
        _ => 0,
    }
}

/// Lines of a tile's group of quants.
pub(crate) const fn group_lines(format: Format) -> usize {
    format.bits()
}

/// Lines of a tile's block.
pub(crate) const fn block_lines(format: Format) -> usize {
    if format.is_float() {
        return TILE * format.block_bytes() / size_of::<Line>();
    }
    header_lines(format) + format.block_columns() / GROUP * group_lines(format)
}

impl Block {
    /// Reads a block as it is in a file.
    pub(crate) fn read(format: Format, bytes: &[u8]) -> Self {
        let mut block = Self {
            quants: [0; SUPER],
            scales: [1; SUPER / 16],
            minima: [1; SUPER / GROUP],
            halves: [0; 2],
        };
        match format {
            Format::Q6_K => block.read_q6k(bytes),
            Format::Q4_K | Format::Q5_K => block.read_q45k(format, bytes),
            _ => block.read_small(format, bytes),
        }
        block
    }

    fn read_small(&mut self, format: Format, bytes: &[u8]) {
        let quants = self.read_halves(format, bytes);
        if format.bits() == 8 {
            self.quants[..GROUP].copy_from_slice(quants);
            return;
        }
        let (fifth, low) = quants.split_at(if format.bits() == 5 { 4 } else { 0 });
        spread_nibbles(low, &mut self.quants);
        for (column, quant) in self.quants[..GROUP].iter_mut().enumerate() {
            if let Some(bits) = fifth.get(column / 8) {
                *quant |= (bits >> (column % 8) & 1) << 4;
            }
        }
    }

    fn read_q45k(&mut self, format: Format, bytes: &[u8]) {
        let rest = self.read_halves(format, bytes);
        let (packed, quants) = rest.split_at(format.scale_bytes());
        for i in 0..4 {
            let (scale, minimum, low) = (packed[i], packed[i + 4], packed[i + 8]);
            self.scales[i] = (scale & 63) as i8;
            self.minima[i] = minimum & 63;
            self.scales[i + 4] = (low & 15 | scale >> 6 << 4) as i8;
            self.minima[i + 4] = low >> 4 | minimum >> 6 << 4;
        }
        let (fifth, low) = quants.split_at(quants.len() - SUPER / 2);
        for (low, quants) in low
            .chunks_exact(GROUP)
            .zip(self.quants.chunks_exact_mut(2 * GROUP))
        {
            spread_nibbles(low, quants);
        }
        for (column, quant) in self.quants.iter_mut().enumerate() {
            if let Some(bits) = fifth.get(column % GROUP) {
                *quant |= (bits >> (column / GROUP) & 1) << 4;
            }
        }
    }

    fn read_q6k(&mut self, bytes: &[u8]) {
        let (low, rest) = bytes.split_at(SUPER / 2);
        let (high, rest) = rest.split_at(SUPER / 4);
        let (scales, half) = rest.split_at(SUPER / 16);
        for (out, &scale) in self.scales.iter_mut().zip(scales) {
            *out = scale as i8;
        }
        self.halves[0] = u16::from_le_bytes([half[0], half[1]]);
        let halves = low.chunks_exact(SUPER / 4).zip(high.chunks_exact(GROUP));
        for ((low, high), quants) in halves.zip(self.quants.chunks_exact_mut(SUPER / 2)) {
            spread_nibbles(low, quants);
            for (column, quant) in quants.iter_mut().enumerate() {
                *quant |= (high[column % GROUP] >> (column / GROUP * 2) & 3) << 4;
            }
        }
    }

    /// Takes the half-precision numbers at the front; gives what follows.
    fn read_halves<'a>(&mut self, format: Format, bytes: &'a [u8]) -> &'a [u8] {
        let (halves, rest) = bytes.split_at(2 * format.halves());
        for (out, bytes) in self.halves.iter_mut().zip(halves.as_chunks().0) {
            *out = u16::from_le_bytes(*bytes);
        }
        rest
    }

    /// Writes the block as the given output of a tile, whose lines are zeroed before.
    pub(crate) fn write(
        &self,
        format: Format,
        output: usize,
        lines: &mut [Line],
        halves: &mut [u16],
    ) {
        for (halves, half) in halves.chunks_exact_mut(TILE).zip(self.halves) {
            halves[output] = half;
        }
        let (header, quants) = lines.split_at_mut(header_lines(format));
        match format {
            Format::Q4_K | Format::Q5_K => {
                for (i, (&scale, &minimum)) in self.scales.iter().zip(&self.minima).enumerate() {
                    put_six(header, place(i, output), scale as u8);
                    put_six(header, MINIMA + place(i, output), minimum);
                }
            }
            Format::Q6_K => {
                for (i, &scale) in self.scales.iter().enumerate() {
                    let place = place(i, output);
                    header[place / 64].0[place % 64] = scale as u8;
                }
            }
            _ => {}
        }
        let put = match group_lines(format) {
            4 => put_group::<4>,
            5 => put_group::<5>,
            6 => put_group::<6>,
            _ => put_group::<8>,
        };
        let groups = quants.chunks_exact_mut(group_lines(format));
        for (lines, quants) in groups.zip(self.quants.as_chunks::<GROUP>().0) {
            put(lines, output, quants);
        }
    }

    /// What [`write`](Self::write) wrote.
    pub(crate) fn gather(format: Format, output: usize, lines: &[Line], halves: &[u16]) -> Self {
        let mut block = Self::read(format, &[0; 256][..format.block_bytes()]);
        for (half, halves) in block.halves.iter_mut().zip(halves.chunks_exact(TILE)) {
            *half = halves[output];
        }
        let (header, quants) = lines.split_at(header_lines(format));
        match format {
            Format::Q4_K | Format::Q5_K => {
                for i in 0..SUPER / GROUP {
                    block.scales[i] = get_six(header, place(i, output)) as i8;
                    block.minima[i] = get_six(header, MINIMA + place(i, output));
                }
            }
            Format::Q6_K => {
                for (i, scale) in block.scales.iter_mut().enumerate() {
                    let place = place(i, output);
                    *scale = header[place / 64].0[place % 64] as i8;
                }
            }
            _ => {}
        }
        for (group, lines) in quants.chunks_exact(group_lines(format)).enumerate() {
            for column in 0..GROUP {
                let (quad, byte) = (column / QUAD, output * QUAD + column % QUAD);
                block.quants[group * GROUP + column] = get_quant(lines, quad, byte);
            }
        }
        block
    }

    /// The numbers that the block stands for.
    pub(crate) fn dequantise(&self, format: Format, out: &mut [f32]) {
        let [scale, minimum] = self.halves.map(from_half);
        let offset = format.offset();
        for (column, (out, &quant)) in out.iter_mut().zip(&self.quants).enumerate() {
            *out = match format {
                Format::Q8_0 => scale * f32::from(quant as i8),
                Format::Q4_0 | Format::Q5_0 => scale * f32::from(quant as i8 - offset as i8),
                Format::Q4_1 | Format::Q5_1 => scale * f32::from(quant) + minimum,
                Format::Q4_K | Format::Q5_K => {
                    let scale = scale * f32::from(self.scales[column / GROUP]);
                    let minimum = minimum * f32::from(self.minima[column / GROUP]);
                    scale * f32::from(quant) - minimum
                }
                Format::Q6_K => {
                    let scale = scale * f32::from(self.scales[column / 16]);
                    scale * f32::from(quant as i8 - offset as i8)
                }
                Format::F32 | Format::F16 | Format::BF16 => unreachable!("floats have no blocks"),
            };
        }
    }
}

fn write_floats(output: usize, block: &[u8], lines: &mut [Line]) {
    let size = block.len() / FLOATS;
    for (column, float) in block.chunks_exact(size).enumerate() {
        let place = (column * TILE + output) * size;
        lines[place / 64].0[place % 64..][..size].copy_from_slice(float);
    }
}

fn read_floats(format: Format, output: usize, lines: &[Line], out: &mut [f32]) {
    let size = format.block_bytes() / FLOATS;
    for (column, out) in out.iter_mut().enumerate() {
        let place = (column * TILE + output) * size;
        let float = &lines[place / 64].0[place % 64..][..size];
        let half = u16::from_le_bytes([float[0], float[1]]);
        *out = match format {
            Format::F16 => from_half(half),
            Format::BF16 => f32::from_bits(u32::from(half) << 16),
            _ => f32::from_le_bytes([float[0], float[1], float[2], float[3]]),
        };
    }
}

/// The low halves of all bytes, then the high ones.
fn spread_nibbles(bytes: &[u8], quants: &mut [u8]) {
    let (low, high) = quants.split_at_mut(bytes.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// Where the scale of an output's small block lies.
fn place(small_block: usize, output: usize) -> usize {
    small_block * TILE + output
}

fn put_six(header: &mut [Line], place: usize, value: u8) {
    let (line, byte) = (place / 64, place % 64);
    if line < 3 {
        header[line].0[byte] |= value;
        return;
    }
    for (part, line) in header.iter_mut().enumerate() {
        line.0[byte] |= (value >> (2 * part) & 3) << 6;
    }
}

fn get_six(header: &[Line], place: usize) -> u8 {
    let (line, byte) = (place / 64, place % 64);
    if line < 3 {
        return header[line].0[byte] & 63;
    }
    let parts = header.iter().enumerate();
    parts
        .map(|(part, line)| line.0[byte] >> 6 << (2 * part))
        .sum()
}

/// Puts a group of an output's quants in its place.
fn put_group<const LINES: usize>(lines: &mut [Line], output: usize, quants: &[u8; GROUP]) {
    let mut lines = lines
        .iter_mut()
        .map(|line| &mut line.0.as_chunks_mut::<QUAD>().0[output]);
    let lines: [&mut [u8; QUAD]; LINES] = std::array::from_fn(|_| lines.next().expect("lines"));
    for (quad, values) in quants.as_chunks::<QUAD>().0.iter().enumerate() {
        for (column, &value) in values.iter().enumerate() {
            if LINES == 8 {
                lines[quad][column] = value;
                continue;
            }
            lines[quad % 4][column] |= (value & 15) << (quad / 4 * 4);
            match LINES {
                5 => lines[4][column] |= value >> 4 << quad,
                6 => lines[4 + quad / 4][column] |= value >> 4 << (quad % 4 * 2),
                _ => {}
            }
        }
    }
}

fn get_quant(group: &[Line], quad: usize, byte: usize) -> u8 {
    if group.len() == 8 {
        return group[quad].0[byte];
    }
    let low = group[quad % 4].0[byte] >> (quad / 4 * 4) & 15;
    let high = match group.len() {
        5 => group[4].0[byte] >> quad & 1,
        6 => group[4 + quad / 4].0[byte] >> (quad % 4 * 2) & 3,
        _ => 0,
    };
    low | high << 4
}
