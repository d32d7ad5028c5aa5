//! Replies that runs share in memory: the same call to the same agent is made once.
//!
//! This is what makes counterfactuals cheap and exact. A changed team is run whole, with the same seed; whatever the change
//! cannot reach is the same call as before, byte for byte, and is answered from here.

use crate::worker::Reply;
use async_trait::async_trait;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;

/// Replies by the call they answered.
#[derive(Default)]
pub struct ReplyCache {
    places: Mutex<HashMap<[u8; 32], Place>>,
    /// Where replies are that this cache does not hold.
    source: Option<Arc<dyn ReplySource>>,
}

/// A reply cache of another process, which runs on several machines share.
#[async_trait]
pub trait ReplySource: Send + Sync {
    /// The reply to this very call. `None`: the asker makes the call and says with [`ReplySource::put`] how that went; until
    /// then, others that ask wait.
    async fn ask(&self, key: &[u8; 32]) -> Option<Reply>;

    /// The reply to a call that this side was left to make. `None`: it has none, and the next that asks makes the call.
    fn put(&self, key: &[u8; 32], reply: Option<&Reply>);
}

/// The replies on record in another process, where this one keeps no store.
#[async_trait]
pub trait ReplyRecord: Send + Sync {
    /// The reply to this very call, if one is on record.
    async fn recall(&self, key: &[u8; 32]) -> Option<Reply>;

    /// Puts the reply to a call on record.
    fn remember(&self, key: &[u8; 32], reply: &Reply);
}

/// Where a reply is, or will be. The caller that makes the call holds the lock; callers of the same call wait.
type Place = Arc<tokio::sync::Mutex<Option<Reply>>>;

/// What is known of a call.
pub(crate) enum Known {
    Reply(Reply),
    /// Nothing yet: to be filled in, if there is a place. Dropped without, the next caller that waits takes it.
    Open(Option<OpenReply>),
}

/// The place of a reply that is not known yet. Its holder makes the call; dropped empty, the next caller that waits makes it.
pub struct OpenReply {
    place: OwnedMutexGuard<Option<Reply>>,
    source: Option<(Arc<dyn ReplySource>, [u8; 32])>,
}

impl OpenReply {
    /// Puts the reply there.
    pub fn fill(mut self, reply: Reply) {
        *self.place = Some(reply);
    }
}

impl Deref for OpenReply {
    type Target = Option<Reply>;

    fn deref(&self) -> &Option<Reply> {
        &self.place
    }
}

impl DerefMut for OpenReply {
    fn deref_mut(&mut self) -> &mut Option<Reply> {
        &mut self.place
    }
}

impl Drop for OpenReply {
    fn drop(&mut self) {
        if let Some((source, key)) = &self.source {
            source.put(key, self.place.as_ref());
        }
    }
}

impl ReplyCache {
    /// A cache in front of one of another process.
    pub fn in_front_of(source: Arc<dyn ReplySource>) -> Self {
        ReplyCache { places: Mutex::default(), source: Some(source) }
    }

    /// The reply to this very call, or the place for it. Waits while another caller makes the call.
    ///
    /// # Errors
    /// Not one: `Err` is the place of a reply that is not known yet.
    pub async fn claim(&self, key: &[u8; 32]) -> Result<Reply, OpenReply> {
        let place = self.places().entry(*key).or_default().clone();
        let mut place = place.lock_owned().await;
        if let Some(reply) = &*place {
            return Ok(reply.clone());
        }
        if let Some(source) = &self.source {
            if let Some(reply) = source.ask(key).await {
                *place = Some(reply.clone());
                return Ok(reply);
            }
            return Err(OpenReply { place, source: Some((source.clone(), *key)) });
        }
        Err(OpenReply { place, source: None })
    }

    /// As [`ReplyCache::claim`].
    pub(crate) async fn ask(&self, key: &[u8; 32]) -> Known {
        match self.claim(key).await {
            Ok(reply) => Known::Reply(reply),
            Err(open) => Known::Open(Some(open)),
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
