//! The tokens a profile may spend, over all its runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A purse that many runs take from. What a run may need at most is taken before it begins and what it did not need is put
/// back after it: the purse is never overdrawn, however many run at once.
#[derive(Debug)]
pub struct Purse {
    left: Mutex<Option<u64>>,
}

impl Purse {
    /// A purse with so many tokens; `None`: without bottom.
    pub fn new(tokens: Option<u64>) -> Self {
        Purse { left: Mutex::new(tokens) }
    }

    /// Takes what a run may need at most. `false`: there is not enough left.
    pub fn take(&self, tokens: u64) -> bool {
        let mut left = self.left();
        match left.as_mut() {
            None => true,
            Some(left) if *left >= tokens => {
                *left -= tokens;
                true
            }
            Some(_) => false,
        }
    }

    /// Puts back what was taken and not spent.
    pub fn put_back(&self, tokens: u64) {
        if let Some(left) = self.left().as_mut() {
            *left = left.saturating_add(tokens);
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
