//! From the blocks of a file to panels, and from panels to bytes.

use super::super::elementwise::multiversion;
use super::super::int8::Bytes;
use super::{Half, Kind, UNIT_LINES};
use lemon_model::BlockType;

/// Stores the blocks of one output in their lane of a panel.
pub(super) fn pack_row(stored: BlockType, row: &[u8], lane: usize, lines: &mut [Bytes], scales: &mut [Half]) {
    match stored {
        BlockType::Q4K => each::<144, 32, 10>(row, lines, scales, |block, lines, scales| {
            put_words(&block[16..], lane, lines);
            put_k_scales(block, lane, scales);
        }),
        BlockType::Q5K => each::<176, 40, 10>(row, lines, scales, |block, lines, scales| {
            let (four, fifth) = lines.split_at_mut(32);
            put_words(&block[48..], lane, four);
            put_words(&block[16..48], lane, fifth);
            put_k_scales(block, lane, scales);
        }),
        BlockType::Q6K => each::<210, 48, 9>(row, lines, scales, |block, lines, scales| {
            put_words(&block[..192], lane, lines);
            for (half, pair) in scales.iter_mut().zip(block[192..].as_chunks::<2>().0) {
                half.0[lane] = *pair;
            }
        }),
        BlockType::Q4_0 => each::<18, 4, 1>(row, lines, scales, |block, lines, scales| {
            put_words(&block[2..], lane, lines);
            scales[0].0[lane] = [block[0], block[1]];
        }),
        BlockType::Q4_1 => each::<20, 4, 2>(row, lines, scales, |block, lines, scales| {
            put_words(&block[4..], lane, lines);
            scales[0].0[lane] = [block[0], block[1]];
            scales[1].0[lane] = [block[2], block[3]];
        }),
        BlockType::Q8_0 => each::<34, 8, 1>(row, lines, scales, |block, lines, scales| {
            let mut bytes = [0; 32];
            for (byte, stored) in bytes.iter_mut().zip(&block[2..]) {
                *byte = stored ^ 128;
            }
            put_words(&bytes, lane, lines);
            scales[0].0[lane] = [block[0], block[1]];
        }),
        BlockType::Q5_0 => each::<22, 8, 1>(row, lines, scales, |block, lines, scales| {
            let fifth = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
            put_words(&five_bits(&block[6..], fifth).map(|it| it + (128 - 16)), lane, lines);
            scales[0].0[lane] = [block[0], block[1]];
        }),
        BlockType::Q5_1 => each::<24, 8, 2>(row, lines, scales, |block, lines, scales| {
            let fifth = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
            put_words(&five_bits(&block[8..], fifth), lane, lines);
            scales[0].0[lane] = [block[0], block[1]];
            scales[1].0[lane] = [block[2], block[3]];
        }),
        // They have no blocks: `Kind::of` refuses them.
        BlockType::F32 | BlockType::F16 | BlockType::Bf16 => {}
    }
}

fn each<const BYTES: usize, const LINES: usize, const HALVES: usize>(
    row: &[u8],
    lines: &mut [Bytes],
    scales: &mut [Half],
    put: impl Fn(&[u8; BYTES], &mut [Bytes; LINES], &mut [Half; HALVES]),
) {
    let parts = lines.as_chunks_mut::<LINES>().0.iter_mut().zip(scales.as_chunks_mut::<HALVES>().0);
    for (block, (lines, scales)) in row.as_chunks::<BYTES>().0.iter().zip(parts) {
        put(block, lines, scales);
    }
}

/// Four bytes for each line.
#[inline(always)]
fn put_words(bytes: &[u8], lane: usize, lines: &mut [Bytes]) {
    for (line, four) in lines.iter_mut().zip(bytes.as_chunks::<4>().0) {
        line.0.as_chunks_mut::<4>().0[lane] = *four;
    }
}

/// Eight scales and eight minima of 6 bits, out of twelve bytes; and the scales of both.
#[inline(always)]
fn put_k_scales(block: &[u8], lane: usize, scales: &mut [Half; 10]) {
    let packed = &block[4..16];
    for pair in 0..4 {
        let both: [(u8, u8); 2] = std::array::from_fn(|at| match 2 * pair + at {
            group @ 0..4 => (packed[group] & 63, packed[group + 4] & 63),
            group => {
                let low = packed[group + 4];
                (low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
            }
        });
        scales[pair].0[lane] = both.map(|(scale, _)| scale);
        scales[4 + pair].0[lane] = both.map(|(_, least)| least);
    }
    scales[8].0[lane] = [block[0], block[1]];
    scales[9].0[lane] = [block[2], block[3]];
}

/// The numbers of a small block of 5 bits.
fn five_bits(packed: &[u8], fifth: u32) -> [u8; 32] {
    std::array::from_fn(|at| {
        let four = packed[at % 16] >> (at / 16 * 4) & 15;
        four | ((fifth >> at & 1) as u8) << 4
    })
}

multiversion! {
    /// The numbers of a unit as bytes: line q has four inputs of each output, from input 4q on.
    pub(super) fn unpack(kind: Kind, packed: &[Bytes], lines: &mut [Bytes; UNIT_LINES]) {
        match kind {
            Kind::Q4K => {
                let parts = lines.as_chunks_mut::<16>().0.iter_mut().zip(packed.as_chunks::<8>().0);
                parts.for_each(|(lines, packed)| halves(packed, lines));
            }
            Kind::Q5K => {
                let (four, fifth) = packed.split_at(32);
                let parts = lines.as_chunks_mut::<16>().0.iter_mut().zip(four.as_chunks::<8>().0);
                parts.for_each(|(lines, packed)| halves(packed, lines));
                for (group, lines) in lines.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    for (line, fifth) in lines.iter_mut().zip(fifth) {
                        for (byte, bits) in line.0.iter_mut().zip(fifth.0) {
                            *byte |= (bits >> group & 1) << 4;
                        }
                    }
                }
            }
            Kind::Q6K => {
                let (four, two) = packed.split_at(32);
                let parts = lines.as_chunks_mut::<32>().0.iter_mut();
                for ((lines, four), two) in parts.zip(four.as_chunks::<16>().0).zip(two.as_chunks::<8>().0) {
                    for at in 0..8 {
                        for byte in 0..64 {
                            let (a, b, high) = (four[at].0[byte], four[8 + at].0[byte], two[at].0[byte]);
                            lines[at].0[byte] = a & 15 | high << 4 & 48;
                            lines[8 + at].0[byte] = b & 15 | high << 2 & 48;
                            lines[16 + at].0[byte] = a >> 4 | high & 48;
                            lines[24 + at].0[byte] = b >> 4 | high >> 2 & 48;
                        }
                    }
                }
            }
            Kind::Q4Centred | Kind::Q4Min => {
                let parts = lines.as_chunks_mut::<8>().0.iter_mut().zip(packed.as_chunks::<4>().0);
                parts.for_each(|(lines, packed)| halves(packed, lines));
            }
            Kind::Q8Centred | Kind::Q5Min => lines[..packed.len()].copy_from_slice(packed),
        }
    }
}

/// The low halves of bytes, then the high ones.
#[inline(always)]
fn halves(packed: &[Bytes], lines: &mut [Bytes]) {
    let (low, high) = lines.split_at_mut(packed.len());
    for ((low, high), packed) in low.iter_mut().zip(high).zip(packed) {
        for ((low, high), byte) in low.0.iter_mut().zip(&mut high.0).zip(packed.0) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}
