//! The number formats of GGUF tensors. Numbers stand in blocks that share scales; every block here becomes `f32`.

use half::{bf16, f16};

/// A number format of GGUF tensors that can be read. The functions here that decode a format describe its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// Plain numbers of four bytes.
    F32,
    /// Plain numbers of two bytes, five bits of them the exponent.
    F16,
    /// Plain numbers of two bytes, eight bits of them the exponent.
    Bf16,
    /// Blocks of 32: a scale, 4 bits each around 8.
    Q4_0,
    /// Blocks of 32: a scale and a minimum, 4 bits each.
    Q4_1,
    /// Blocks of 32: a scale, 5 bits each around 16.
    Q5_0,
    /// Blocks of 32: a scale and a minimum, 5 bits each.
    Q5_1,
    /// Blocks of 32: a scale, a byte each.
    Q8_0,
    /// Blocks of 256: a scale and a minimum for each 32 in 6 bits, 4 bits each.
    Q4K,
    /// As `Q4K`, 5 bits each.
    Q5K,
    /// Blocks of 256: a scale for each 16 in 8 bits, 6 bits each around 32.
    Q6K,
}

/// The formats that can be read, for messages.
pub(super) const KNOWN: &str = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";

/// Numbers in a block of the simple formats, and of the K formats.
const SMALL: usize = 32;
const LARGE: usize = 256;

impl BlockType {
    /// The format with this number in the file.
    pub(super) fn of(kind: u32) -> Option<BlockType> {
        Some(match kind {
            0 => BlockType::F32,
            1 => BlockType::F16,
            2 => BlockType::Q4_0,
            3 => BlockType::Q4_1,
            6 => BlockType::Q5_0,
            7 => BlockType::Q5_1,
            8 => BlockType::Q8_0,
            12 => BlockType::Q4K,
            13 => BlockType::Q5K,
            14 => BlockType::Q6K,
            30 => BlockType::Bf16,
            _ => return None,
        })
    }

    /// How many numbers a block has, and how many bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            BlockType::F32 => (1, 4),
            BlockType::F16 | BlockType::Bf16 => (1, 2),
            BlockType::Q4_0 => (SMALL, 18),
            BlockType::Q4_1 => (SMALL, 20),
            BlockType::Q5_0 => (SMALL, 22),
            BlockType::Q5_1 => (SMALL, 24),
            BlockType::Q8_0 => (SMALL, 34),
            BlockType::Q4K => (LARGE, 144),
            BlockType::Q5K => (LARGE, 176),
            BlockType::Q6K => (LARGE, 210),
        }
    }

    /// The bytes of a row of so many numbers, which fill whole blocks.
    pub fn row_bytes(self, width: usize) -> usize {
        let (values, bytes) = self.block();
        width / values * bytes
    }

    /// The numbers of whole blocks.
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) {
        match self {
            BlockType::F32 => each(bytes, values, |it: &[u8; 4], [y]| *y = f32::from_le_bytes(*it)),
            BlockType::F16 => each(bytes, values, |it: &[u8; 2], [y]| *y = f16::from_le_bytes(*it).to_f32()),
            BlockType::Bf16 => each(bytes, values, |it: &[u8; 2], [y]| *y = bf16::from_le_bytes(*it).to_f32()),
            BlockType::Q4_0 => each(bytes, values, q4_0),
            BlockType::Q4_1 => each(bytes, values, q4_1),
            BlockType::Q5_0 => each(bytes, values, q5_0),
            BlockType::Q5_1 => each(bytes, values, q5_1),
            BlockType::Q8_0 => each(bytes, values, q8_0),
            BlockType::Q4K => each(bytes, values, q4_k),
            BlockType::Q5K => each(bytes, values, q5_k),
            BlockType::Q6K => each(bytes, values, q6_k),
        }
    }
}

/// The name of a format that cannot be read, for messages.
pub(super) fn unknown_name(kind: u32) -> String {
    let known = match kind {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16..=19 | 21 | 22 | 29 => "an IQ1, IQ2 or IQ3 format",
        20 => "IQ4_NL",
        23 => "IQ4_XS",
        24..=28 => "whole numbers or F64",
        34 | 35 => "a ternary format",
        39 => "MXFP4",
        _ => return format!("type {kind}"),
    };
    format!("type {kind} ({known})")
}

fn each<const B: usize, const V: usize>(bytes: &[u8], values: &mut [f32], decode: impl Fn(&[u8; B], &mut [f32; V])) {
    for (block, values) in bytes.as_chunks::<B>().0.iter().zip(values.as_chunks_mut::<V>().0) {
        decode(block, values);
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Sixteen bytes of two 4-bit numbers: the low ones are the first half of the block.
fn nibbles(packed: &[u8], values: &mut [f32; SMALL], number: impl Fn(usize, u8) -> f32) {
    let (low, high) = values.split_at_mut(SMALL / 2);
    for (at, ((low, high), byte)) in low.iter_mut().zip(high).zip(packed).enumerate() {
        *low = number(at, byte & 15);
        *high = number(at + SMALL / 2, byte >> 4);
    }
}

/// A scale; 4 bits each, around 8.
fn q4_0(block: &[u8; 18], values: &mut [f32; SMALL]) {
    let scale = half_at(block, 0);
    nibbles(&block[2..], values, |_, it| f32::from(it as i8 - 8) * scale);
}

/// A scale and a minimum; 4 bits each.
fn q4_1(block: &[u8; 20], values: &mut [f32; SMALL]) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[4..], values, |_, it| f32::from(it) * scale + least);
}

/// A scale, the fifth bits, and 4 bits each, around 16.
fn q5_0(block: &[u8; 22], values: &mut [f32; SMALL]) {
    let scale = half_at(block, 0);
    let fifth = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    nibbles(&block[6..], values, |at, it| f32::from((it | fifth_bit(fifth, at)) as i8 - 16) * scale);
}

/// A scale, a minimum, the fifth bits, and 4 bits each.
fn q5_1(block: &[u8; 24], values: &mut [f32; SMALL]) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    let fifth = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    nibbles(&block[8..], values, |at, it| f32::from(it | fifth_bit(fifth, at)) * scale + least);
}

fn fifth_bit(bits: u32, at: usize) -> u8 {
    ((bits >> at & 1) as u8) << 4
}

/// A scale; a byte each.
fn q8_0(block: &[u8; 34], values: &mut [f32; SMALL]) {
    let scale = half_at(block, 0);
    for (y, byte) in values.iter_mut().zip(&block[2..]) {
        *y = f32::from(*byte as i8) * scale;
    }
}

/// The 6-bit scale and minimum of a group of 32 out of eight, from the twelve bytes they are packed in.
fn scale_and_least(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, least) = match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => {
            let both = packed[group + 4];
            (both & 15 | packed[group - 4] >> 6 << 4, both >> 4 | packed[group] >> 6 << 4)
        }
    };
    (f32::from(scale), f32::from(least))
}

/// Scales of the scales and minima, twelve bytes of both, and 4 bits each: 32 bytes hold two groups of 32.
fn q4_k(block: &[u8; 144], values: &mut [f32; LARGE]) {
    let (d, d_least) = (half_at(block, 0), half_at(block, 2));
    for (group, values) in values.as_chunks_mut::<SMALL>().0.iter_mut().enumerate() {
        let (scale, least) = scale_and_least(&block[4..16], group);
        let (scale, least, shift) = (d * scale, d_least * least, group % 2 * 4);
        for (y, byte) in values.iter_mut().zip(&block[16 + group / 2 * SMALL..]) {
            *y = f32::from(byte >> shift & 15) * scale - least;
        }
    }
}

/// As the 4-bit form, with 32 bytes of fifth bits: bit g of a byte belongs to group g.
fn q5_k(block: &[u8; 176], values: &mut [f32; LARGE]) {
    let (d, d_least) = (half_at(block, 0), half_at(block, 2));
    let (fifth, packed) = (&block[16..48], &block[48..]);
    for (group, values) in values.as_chunks_mut::<SMALL>().0.iter_mut().enumerate() {
        let (scale, least) = scale_and_least(&block[4..16], group);
        let (scale, least, shift) = (d * scale, d_least * least, group % 2 * 4);
        for ((y, byte), fifth) in values.iter_mut().zip(&packed[group / 2 * SMALL..]).zip(fifth) {
            *y = f32::from(byte >> shift & 15 | (fifth >> group & 1) << 4) * scale - least;
        }
    }
}

/// 128 bytes of 4 bits, 64 of 2 bits more, a signed scale for every 16, and a scale of those; around 32.
fn q6_k(block: &[u8; 210], values: &mut [f32; LARGE]) {
    let d = half_at(block, 208);
    let scales = &block[192..208];
    for (group, values) in values.as_chunks_mut::<SMALL>().0.iter_mut().enumerate() {
        // A half of the block has four groups: two in the low bits of 64 bytes, two in the high ones.
        let (half, part) = (group / 4, group % 4);
        let low = &block[half * 64 + part % 2 * SMALL..];
        let high = &block[128 + half * SMALL..];
        let (low_shift, high_shift) = (part / 2 * 4, part * 2);
        for (part, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let scale = d * f32::from(scales[group * 2 + part] as i8);
            for ((y, low), high) in values.iter_mut().zip(&low[part * 16..]).zip(&high[part * 16..]) {
                let number = low >> low_shift & 15 | (high >> high_shift & 3) << 4;
                *y = f32::from(number as i8 - 32) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};
    use lemon_num::Random;

    #[test]
    fn every_format_decodes_as_another_implementation_does() {
        let formats = [
            (0, GgmlDType::F32),
            (1, GgmlDType::F16),
            (2, GgmlDType::Q4_0),
            (3, GgmlDType::Q4_1),
            (6, GgmlDType::Q5_0),
            (7, GgmlDType::Q5_1),
            (8, GgmlDType::Q8_0),
            (12, GgmlDType::Q4K),
            (13, GgmlDType::Q5K),
            (14, GgmlDType::Q6K),
            (30, GgmlDType::BF16),
        ];
        let values = Random::new(7).normals(8 * LARGE, 1.0);
        for (kind, dtype) in formats {
            let ours = BlockType::of(kind).unwrap();
            assert_eq!(ours.block(), (dtype.block_size(), dtype.type_size()), "{dtype:?}");
            let tensor = Tensor::from_vec(values.clone(), (8, LARGE), &Device::Cpu).unwrap();
            let packed = QTensor::quantize(&tensor, dtype).unwrap();
            let theirs = packed.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let bytes = packed.data().unwrap();
            assert_eq!(bytes.len(), ours.row_bytes(LARGE) * 8);
            let mut found = vec![f32::NAN; values.len()];
            ours.decode(&bytes, &mut found);
            for (at, (found, theirs)) in found.iter().zip(&theirs).enumerate() {
                assert!((found - theirs).abs() <= 1e-6 * theirs.abs().max(1.0), "{dtype:?} at {at}: {found}, {theirs}");
            }
        }
    }
}
