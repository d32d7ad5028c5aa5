//! Replies that runs share in memory: the same call to the same agent is made once.
//!
//! This is what makes counterfactuals cheap and exact. A changed team is run whole, with the same seed; whatever the change
//! cannot reach is the same call as before, byte for byte, and is answered from here.

use crate::worker::Reply;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;

/// Replies by the call they answered.
#[derive(Default)]
pub struct ReplyCache {
    places: Mutex<HashMap<[u8; 32], Place>>,
}

/// Where a reply stands, or will. Whoever makes the call holds it; others who want the same wait.
type Place = Arc<tokio::sync::Mutex<Option<Reply>>>;

/// What is known of a call.
pub(crate) enum Known {
    /// Its reply.
    Reply(Reply),
    /// Nothing yet: to be filled in, if there is a place. Dropped without, the next who waits takes it.
    Open(Option<OwnedMutexGuard<Option<Reply>>>),
}

impl ReplyCache {
    /// The reply to this very call, or the place for it. Waits while somebody else is making the call.
    pub(crate) async fn ask(&self, key: &[u8; 32]) -> Known {
        let place = self.places().entry(*key).or_default().clone();
        let held = place.lock_owned().await;
        match &*held {
            Some(reply) => Known::Reply(reply.clone()),
            None => Known::Open(Some(held)),
        }
    }

    /// How many calls it has been asked about.
    pub fn len(&self) -> usize {
        self.places().len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn places(&self) -> MutexGuard<'_, HashMap<[u8; 32], Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
