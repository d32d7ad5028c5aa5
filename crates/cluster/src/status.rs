//! Which workers and coordinators are there, what waits, and what was given up.

use crate::error::{ClusterError, jetstream};
use crate::link::{Link, PRIORITIES};
use crate::wire::Letter;
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

/// What a worker process says of itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// Its id: new with every start.
    pub id: String,
    /// Its name: that of the machine, unless it was given another.
    pub name: String,
    /// The version of the program and the protocol.
    pub version: String,
    /// Jobs at a time.
    pub slots: usize,
    /// Jobs under way.
    pub busy: usize,
    /// Jobs done.
    pub done: u64,
    /// Tries that failed.
    pub failed: u64,
    /// Jobs that were given up.
    pub dead: u64,
    /// Jobs a second, over the last minute or less.
    pub per_s: f64,
    /// When it began, in milliseconds of Unix time.
    pub since_ms: u64,
    /// When it said this.
    pub at_ms: u64,
}

/// A project at this moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Status {
    /// The worker processes that are alive.
    pub workers: Vec<NodeReport>,
    /// Coordinators that are alive.
    pub coordinators: usize,
    /// Jobs that no worker has, training first.
    pub queued: [u64; 2],
    /// Jobs that a worker has.
    pub running: [u64; 2],
    /// Jobs that were given up in the last days.
    pub dead: u64,
    /// The last of them.
    pub letters: Vec<DeadLetter>,
}

/// A job that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    pub task_id: String,
    pub run_id: String,
    /// How often it was delivered.
    pub tries: i64,
    /// Why the last try failed.
    pub error: String,
    /// The worker that gave it up.
    pub worker: String,
    /// When, in milliseconds of Unix time.
    pub at_ms: u64,
}

/// Workers that are asked about at a time.
const AT_ONCE: usize = 32;
/// Dead letters that are shown at most.
const MOST_LETTERS: u64 = 20;

impl Status {
    /// The project of this connection.
    ///
    /// # Errors
    /// The server cannot be used.
    pub async fn read(link: &Link) -> Result<Status, ClusterError> {
        let mut status = Status::default();
        let alive = link.alive().await?;
        let keys: Vec<String> = alive.keys().await.map_err(jetstream)?.try_collect().await.map_err(jetstream)?;
        status.coordinators = keys.iter().filter(|key| key.starts_with("session.")).count();
        let nodes = keys.into_iter().filter(|key| key.starts_with("node."));
        let bucket = &alive;
        let report = |key: String| async move { bucket.get(key).await.map_err(jetstream) };
        let reports: Vec<_> = stream::iter(nodes).map(report).buffered(AT_ONCE).try_collect().await?;
        // A worker of another version says other things.
        status.workers = reports.iter().flatten().filter_map(|report| serde_json::from_slice(report).ok()).collect();
        status.workers.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        for (at, priority) in PRIORITIES.iter().enumerate() {
            let mut consumer = link.consumer(priority).await?;
            let info = consumer.info().await.map_err(jetstream)?;
            (status.queued[at], status.running[at]) = (info.num_pending, info.num_ack_pending as u64);
        }
        let letters = link.letters().await?;
        let state = letters.cached_info().state.clone();
        status.dead = state.messages;
        let first = state.last_sequence.saturating_sub(MOST_LETTERS - 1).max(state.first_sequence).max(1);
        for sequence in first..=state.last_sequence {
            // A letter may have vanished meanwhile, or be of another version.
            if let Ok(message) = letters.get_raw_message(sequence).await
                && let Ok(letter) = serde_json::from_slice::<Letter>(&message.payload)
            {
                let Letter { task_id, run_id, tries, error, node, at_ms, .. } = letter;
                status.letters.push(DeadLetter { task_id, run_id, tries, error, worker: node, at_ms });
            }
        }
        Ok(status)
    }

    /// Jobs at a time that the workers can make.
    pub fn slots(&self) -> usize {
        self.workers.iter().map(|worker| worker.slots).sum()
    }
}
