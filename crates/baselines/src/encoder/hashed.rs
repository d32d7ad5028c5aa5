//! The fallback without a model: words and pairs of words, hashed and projected at random.

use super::{WIDTH, normalise};
use lemon_num::{Random, fnv1a};

/// Words that nearly every question has; they count little, as an inverse document frequency would have it.
const FREQUENT: &str = " a an and are as at be by did do does each for from had has have he her his how i if in is it its \
                        many more much of on or she than that the their them then there they this to was were what when \
                        which who will with you your ";
const FREQUENT_WEIGHT: f32 = 0.2;
const PAIR_WEIGHT: f32 = 0.5;

/// The vector of a text: each word and each pair of neighbours adds a fixed random direction of its own.
pub fn hashed(text: &str) -> Vec<f32> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut vector = vec![0.0; WIDTH];
    let weight = |word: &str| if FREQUENT.contains(&format!(" {word} ")) { FREQUENT_WEIGHT } else { 1.0 };
    for word in &words {
        add(&mut vector, word, weight(word));
    }
    for pair in words.windows(2) {
        add(&mut vector, &pair.join(" "), PAIR_WEIGHT * pair.iter().map(|word| weight(word)).product::<f32>());
    }
    normalise(&mut vector);
    vector
}

/// Adds a direction of signs.
fn add(vector: &mut [f32], term: &str, weight: f32) {
    let mut random = Random::new(fnv1a(term.bytes()));
    for part in vector.chunks_mut(64) {
        let bits = random.next_u64();
        for (at, x) in part.iter_mut().enumerate() {
            *x += if bits >> at & 1 == 1 { weight } else { -weight };
        }
    }
}
