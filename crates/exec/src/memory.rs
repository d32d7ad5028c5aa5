//! Replies that runs share in memory: the same call to the same agent is made once.
//!
//! This is what makes counterfactuals cheap and exact. A changed team is run whole, with the same seed; whatever the change
//! cannot reach is the same call as before, byte for byte, and is answered from here.

use crate::worker::Reply;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Replies by the call they answered.
#[derive(Default)]
pub struct Memory {
    replies: Mutex<HashMap<[u8; 32], Reply>>,
}

impl Memory {
    /// The reply to this very call.
    pub(crate) fn get(&self, key: &[u8; 32]) -> Option<Reply> {
        self.replies().get(key).cloned()
    }

    pub(crate) fn add(&self, key: [u8; 32], reply: &Reply) {
        self.replies().insert(key, reply.clone());
    }

    /// How many replies it holds.
    pub fn len(&self) -> usize {
        self.replies().len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn replies(&self) -> MutexGuard<'_, HashMap<[u8; 32], Reply>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
