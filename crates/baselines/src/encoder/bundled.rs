//! Vectors that ship: those of every text of this crate, and of questions of the benchmarks, made by all-MiniLM-L6-v2: the items that
//! methods learn from, and the first hundred that are scored, of each set.
//!
//! `cargo run -p lemon-baselines --example bundle_vectors` makes the file. It holds no text: a record is a hash of the text (8 bytes), a
//! factor (4), and five bits for each number, 252 bytes. What is read back has a cosine of about 0.998 with the model's vector.

use super::{WIDTH, normalise};
use lemon_num::fnv1a;
use std::collections::HashMap;

static BYTES: &[u8] = include_bytes!("vectors.bin");

const PACKED: usize = WIDTH * BITS / 8;
const RECORD: usize = 8 + 4 + PACKED;
const BITS: usize = 5;
/// Numbers are kept as whole multiples of the factor, from minus this to this.
const MOST: f32 = 15.0;

/// The factor of a vector, and its packed numbers.
type Packed = (f32, &'static [u8]);

/// The vectors, by the hashes of their texts.
pub struct BundledVectors(HashMap<[u8; 8], Packed>);

impl BundledVectors {
    /// Those that ship.
    pub fn open() -> Self {
        BundledVectors(BYTES.chunks_exact(RECORD).filter_map(record).collect())
    }

    /// The vector of a text, if it is here.
    pub fn get(&self, text: &str) -> Option<Vec<f32>> {
        let (factor, packed) = self.0.get(&hash(text))?;
        let mut vector = unpacked(packed, *factor);
        normalise(&mut vector);
        Some(vector)
    }
}

/// The record of a text.
pub fn packed(text: &str, vector: &[f32]) -> Vec<u8> {
    let most = vector.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let factor = if most > 0.0 { most / MOST } else { 1.0 };
    let mut bytes = hash(text).to_vec();
    bytes.extend(factor.to_le_bytes());
    // Eight numbers are five bytes.
    for numbers in vector.chunks(8) {
        // From 0 to 30 by the choice of the factor.
        let codes = numbers.iter().map(|x| (x / factor + MOST).round() as u64);
        let bits = codes.enumerate().fold(0_u64, |bits, (at, code)| bits | code << (at * BITS));
        bytes.extend(&bits.to_le_bytes()[..BITS]);
    }
    bytes
}

fn record(bytes: &'static [u8]) -> Option<([u8; 8], Packed)> {
    let (hash, rest) = bytes.split_first_chunk::<8>()?;
    let (factor, packed) = rest.split_first_chunk::<4>()?;
    Some((*hash, (f32::from_le_bytes(*factor), packed)))
}

fn unpacked(packed: &[u8], factor: f32) -> Vec<f32> {
    let bits =
        packed.chunks(BITS).map(|bytes| bytes.iter().rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte)));
    let code = |bits: u64, at: usize| (bits >> (at * BITS) & 31) as f32;
    bits.flat_map(|bits| (0..8).map(move |at| (code(bits, at) - MOST) * factor)).collect()
}

fn hash(text: &str) -> [u8; 8] {
    fnv1a(text.bytes()).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn numbers_are_off_by_half_a_step(scale in 0.0_f32..2.0, seed: u64) {
            let mut random = lemon_num::Random::new(seed);
            let vector: Vec<f32> = (0..WIDTH).map(|_| random.normal() as f32 * scale).collect();
            let bytes = packed("x", &vector);
            prop_assert_eq!(bytes.len(), RECORD);
            let factor = f32::from_le_bytes(bytes[8..12].try_into().unwrap());
            let found = unpacked(&bytes[12..], factor);
            for (a, b) in found.iter().zip(&vector) {
                prop_assert!((a - b).abs() <= 0.51 * factor, "{} {}", a, b);
            }
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let cosine = dot(&found, &vector) / (dot(&found, &found) * dot(&vector, &vector)).sqrt().max(1e-12);
            prop_assert!(scale < 1e-3 || cosine > 0.995, "{}", cosine);
        }
    }

    #[test]
    fn the_file_has_whole_records_of_different_texts_and_stays_small() {
        assert!(BYTES.len().is_multiple_of(RECORD) && BYTES.len() < 1 << 20, "{}", BYTES.len());
        assert_eq!(BundledVectors::open().0.len(), BYTES.len() / RECORD);
    }
}
