//! Vectors kept in a file, so that each text is encoded once on a machine.
//!
//! A record is a hash of the text (16 bytes), a factor (4) and one signed byte for each number: 404 bytes. What is read back
//! differs from the model's vector by at most half a step of 1/127 of its largest number.

use super::WIDTH;
use crate::error::BaselineError;
use lemon_num::{fnv1a, fnv1a_from};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const RECORD: usize = 16 + 4 + WIDTH;

type Hash = [u8; 16];

/// The vectors of a file.
pub struct VectorStore {
    path: PathBuf,
    file: File,
    vectors: HashMap<Hash, (f32, Vec<i8>)>,
}

impl VectorStore {
    /// The vectors of this file, which is made if it is not there. A record that was cut off is left out.
    pub fn open(path: &Path) -> Result<Self, BaselineError> {
        let failed = |error: std::io::Error| BaselineError::File(path.to_owned(), error.to_string());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes.len() - bytes.len() % RECORD;
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed)?;
        }
        let vectors = bytes.chunks_exact(RECORD).filter_map(record).collect();
        Ok(VectorStore { path: path.to_owned(), file, vectors })
    }

    /// The vector of a text, if it is here.
    pub fn get(&self, text: &str) -> Option<Vec<f32>> {
        self.vectors.get(&hash(text)).map(read_back)
    }

    /// Keeps the vector of a text, and gives it as it is read back: what is learned must not depend on who encoded a text first.
    pub fn add(&mut self, text: &str, vector: &[f32]) -> Result<Vec<f32>, BaselineError> {
        let most = vector.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let factor = if most > 0.0 { most / 127.0 } else { 1.0 };
        // Within ±127 by the choice of the factor.
        let numbers: Vec<i8> = vector.iter().map(|x| (x / factor).round() as i8).collect();
        let mut bytes = hash(text).to_vec();
        bytes.extend(factor.to_le_bytes());
        bytes.extend(numbers.iter().map(|number| number.to_le_bytes()[0]));
        let failed = |error: std::io::Error| BaselineError::File(self.path.clone(), error.to_string());
        self.file.write_all(&bytes).map_err(failed)?;
        let kept = (factor, numbers);
        let vector = read_back(&kept);
        self.vectors.insert(hash(text), kept);
        Ok(vector)
    }
}

fn read_back((factor, numbers): &(f32, Vec<i8>)) -> Vec<f32> {
    numbers.iter().map(|number| f32::from(*number) * factor).collect()
}

fn record(bytes: &[u8]) -> Option<(Hash, (f32, Vec<i8>))> {
    let (hash, rest) = bytes.split_first_chunk::<16>()?;
    let (factor, numbers) = rest.split_first_chunk::<4>()?;
    let numbers = numbers.iter().map(|byte| i8::from_le_bytes([*byte])).collect();
    Some((*hash, (f32::from_le_bytes(*factor), numbers)))
}

fn hash(text: &str) -> Hash {
    let (first, second) = (fnv1a(text.bytes()), fnv1a_from(0x006d_696e_696c_6d00, text.bytes()));
    let mut hash = [0; 16];
    hash[..8].copy_from_slice(&first.to_le_bytes());
    hash[8..].copy_from_slice(&second.to_le_bytes());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_kept_is_read_back_even_after_a_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors").join("v.bin");
        let vector: Vec<f32> = (0..WIDTH).map(|at| (at as f32).sin() * 0.1).collect();
        VectorStore::open(&path).unwrap().add("one", &vector).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"cut off").unwrap();
        let mut store = VectorStore::open(&path).unwrap();
        assert!(store.get("two").is_none());
        let added = store.add("two", &vector).unwrap();
        let found = VectorStore::open(&path).unwrap().get("two").unwrap();
        // A text has one vector, whether it is new or was here before.
        assert_eq!((store.get("two").unwrap(), &added), (found.clone(), &found));
        assert!(found.iter().zip(&vector).all(|(a, b)| (a - b).abs() < 0.1 / 127.0));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * RECORD as u64);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn numbers_are_off_by_half_a_step(scale in 0.0_f32..2.0, seed: u64) {
            let mut random = lemon_num::Random::new(seed);
            let vector: Vec<f32> = (0..WIDTH).map(|_| random.normal() as f32 * scale).collect();
            let folder = tempfile::tempdir().unwrap();
            let mut store = VectorStore::open(&folder.path().join("v")).unwrap();
            store.add("x", &vector).unwrap();
            let most = vector.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (a, b) in store.get("x").unwrap().iter().zip(&vector) {
                prop_assert!((a - b).abs() <= 0.51 * most / 127.0 + 1e-9);
            }
        }
    }
}
