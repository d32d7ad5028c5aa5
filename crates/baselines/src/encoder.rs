//! Sentence embeddings: all-MiniLM-L6-v2 where its folder is given, hashed words where not.

mod hashed;
mod minilm;
mod store;

pub use minilm::MiniLm;

use crate::error::BaselineError;
use hashed::hashed;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use store::VectorStore;

/// Numbers of an embedding.
pub const WIDTH: usize = 384;

/// Turns texts into vectors of length 1, each text once.
pub struct Encoder {
    model: Option<MiniLm>,
    known: Mutex<HashMap<String, Arc<[f32]>>>,
    store: Option<Mutex<VectorStore>>,
}

impl Encoder {
    /// Hashed words: no model is needed, and words of the same meaning have nothing in common. Tables name it.
    pub fn hashed() -> Self {
        Encoder { model: None, known: Mutex::default(), store: None }
    }

    /// The model all-MiniLM-L6-v2 in this folder. Vectors are kept in `cache`, a file, where one is given.
    ///
    /// # Errors
    /// A file of the model cannot be used, or the cache cannot be read.
    pub fn minilm(folder: &Path, cache: Option<&Path>) -> Result<Self, BaselineError> {
        let model = MiniLm::load(folder)?;
        let store = cache.map(VectorStore::open).transpose()?.map(Mutex::new);
        Ok(Encoder { model: Some(model), known: Mutex::default(), store })
    }

    /// What makes the vectors, for tables and checkpoints.
    pub fn name(&self) -> &'static str {
        if self.model.is_some() { "all-MiniLM-L6-v2" } else { "hashed words" }
    }

    /// The vector of a text.
    ///
    /// # Errors
    /// The model failed, or the cache cannot be written.
    pub fn encode(&self, text: &str) -> Result<Arc<[f32]>, BaselineError> {
        let known = |encoder: &Self| encoder.known.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned();
        if let Some(vector) = known(self) {
            return Ok(vector);
        }
        let vector: Arc<[f32]> = self.make(text)?.into();
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned(), vector.clone());
        Ok(vector)
    }

    fn make(&self, text: &str) -> Result<Vec<f32>, BaselineError> {
        let Some(model) = &self.model else { return Ok(hashed(text)) };
        let Some(store) = &self.store else { return model.encode(text) };
        if let Some(vector) = store.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(vector);
        }
        let vector = model.encode(text)?;
        store.lock().unwrap_or_else(PoisonError::into_inner).add(text, &vector)?;
        Ok(vector)
    }
}

/// Scales a vector to length 1; one of length 0 stays.
fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn hashed_words_are_alike_where_words_are() {
        let encoder = Encoder::hashed();
        let [a, b, c] = ["How many apples are left?", "How many pears are left?", "Which king signed the treaty?"]
            .map(|text| encoder.encode(text).unwrap());
        assert!((cosine(&a, &a) - 1.0).abs() < 1e-5 && a.len() == WIDTH);
        assert!(cosine(&a, &b) > cosine(&a, &c) + 0.2, "{} {}", cosine(&a, &b), cosine(&a, &c));
        assert_eq!(encoder.encode("").unwrap().iter().filter(|x| **x != 0.0).count(), 0);
    }
}
