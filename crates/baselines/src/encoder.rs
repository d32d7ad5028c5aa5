//! Sentence embeddings: all-MiniLM-L6-v2 where its folder is given; where not, those that ship, or hashed words.

mod bundled;
mod hashed;
mod minilm;
mod store;

pub use bundled::packed;
pub use minilm::MiniLm;

use crate::cards::{CARDS, Domain, RoleCard};
use crate::error::BaselineError;
use crate::masrouter;
use bundled::BundledVectors;
use hashed::hashed;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use store::VectorStore;

/// Numbers of an embedding.
pub const WIDTH: usize = 384;

/// Turns texts into vectors of length 1, each text once.
pub struct Encoder {
    source: VectorSource,
    known: Mutex<HashMap<String, Arc<[f32]>>>,
}

enum VectorSource {
    Hashed,
    Bundled(BundledVectors),
    /// The model, and the file that keeps its vectors.
    Model(Box<MiniLm>, Option<Mutex<VectorStore>>),
}

impl Encoder {
    fn of(source: VectorSource) -> Self {
        Encoder { source, known: Mutex::default() }
    }

    /// Hashed words: no model is needed, and words of the same meaning have nothing in common. Tables name it.
    pub fn hashed() -> Self {
        Encoder::of(VectorSource::Hashed)
    }

    /// The vectors that ship: those of the benchmarks' first questions.
    pub fn bundled() -> Self {
        Encoder::of(VectorSource::Bundled(BundledVectors::open()))
    }

    /// The model all-MiniLM-L6-v2 in this folder. Vectors are kept in `cache`, a file, where one is given.
    ///
    /// # Errors
    /// A file of the model cannot be used, or the cache cannot be read.
    pub fn minilm(folder: &Path, cache: Option<&Path>) -> Result<Self, BaselineError> {
        let model = MiniLm::load(folder)?;
        let store = cache.map(VectorStore::open).transpose()?.map(Mutex::new);
        Ok(Encoder::of(VectorSource::Model(Box::new(model), store)))
    }

    /// What makes the vectors, for tables and checkpoints.
    pub fn name(&self) -> &'static str {
        match self.source {
            VectorSource::Hashed => "hashed words",
            VectorSource::Bundled(_) => "all-MiniLM-L6-v2 in five bits",
            VectorSource::Model(..) => "all-MiniLM-L6-v2",
        }
    }

    /// Whether there is a vector for this text.
    pub fn knows(&self, text: &str) -> bool {
        match &self.source {
            VectorSource::Bundled(vectors) => vectors.get(text).is_some(),
            VectorSource::Hashed | VectorSource::Model(..) => true,
        }
    }

    /// The vector of a text.
    ///
    /// # Errors
    /// The model failed, the cache cannot be written, or no vector of this text ships.
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
        let (model, store) = match &self.source {
            VectorSource::Hashed => return Ok(hashed(text)),
            VectorSource::Bundled(vectors) => {
                let shown: String = text.chars().take(60).collect();
                let unknown = || BaselineError::Encoder(format!("no vector ships for \"{shown}\""));
                return vectors.get(text).ok_or_else(unknown);
            }
            VectorSource::Model(model, store) => (model, store),
        };
        let Some(store) = store else { return model.encode(text) };
        if let Some(vector) = store.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(vector);
        }
        let vector = model.encode(text)?;
        store.lock().unwrap_or_else(PoisonError::into_inner).add(text, &vector)
    }
}

/// Every text of this crate that methods read as a vector.
pub fn encoded_texts() -> Vec<String> {
    let cards = CARDS.iter().map(RoleCard::description);
    let kinds = Domain::ALL.iter().map(|domain| domain.description().to_owned());
    cards.chain(kinds).chain(masrouter::net::texts()).collect()
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
        assert_eq!(encoder.name(), "hashed words");
        assert_eq!(encoder.encode("").unwrap().iter().filter(|x| **x != 0.0).count(), 0);
    }

    #[test]
    fn every_text_of_this_crate_has_a_bundled_vector_and_others_are_refused() {
        let encoder = Encoder::bundled();
        for text in encoded_texts() {
            assert!(encoder.knows(&text), "run the example bundle_vectors again: {text:?}");
            let vector = encoder.encode(&text).unwrap();
            assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-5);
        }
        let [solver, analyst, doctor] = [0, 1, 13].map(|card| encoder.encode(&CARDS[card].description()).unwrap());
        assert!(cosine(&solver, &analyst) > cosine(&solver, &doctor) + 0.1, "meanings are in the vectors");
        let refused = encoder.encode("A question that is of no benchmark.").unwrap_err().to_string();
        assert!(refused.contains("no vector ships"), "{refused}");
    }
}
