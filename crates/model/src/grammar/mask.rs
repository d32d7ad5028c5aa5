//! A set of tokens.

use llguidance::toktrie::SimpleVob;
use std::fmt;
use std::sync::Arc;

/// The tokens that may come next, one bit for each token of the vocabulary: cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Mask {
    words: Arc<[u32]>,
}

impl Mask {
    /// Whether a token may come next.
    pub fn allows(&self, token: u32) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// The bits, the first token's lowest: as many words as the vocabulary needs.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// How many tokens may come next.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The tokens, in order.
    pub fn tokens(&self) -> impl Iterator<Item = u32> {
        let bits = |word: u32| (0..32).filter(move |bit| word >> bit & 1 == 1);
        (0_u32..).zip(self.words.iter()).flat_map(move |(place, word)| bits(*word).map(move |bit| place * 32 + bit))
    }

    /// The token, if there is just one.
    pub(super) fn only(&self) -> Option<u32> {
        let mut tokens = self.tokens();
        tokens.next().filter(|_| tokens.next().is_none())
    }
}

impl From<SimpleVob> for Mask {
    fn from(set: SimpleVob) -> Mask {
        // A set may have room beyond its length.
        Mask { words: set.as_slice().iter().copied().take(set.len().div_ceil(32)).collect() }
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Mask({} tokens)", self.count())
    }
}
