//! Jobs that some workers cannot make: which, and why. Their deliveries do not count as tries, because others can make them.

use crate::error::{ClusterError, jetstream};
use crate::link::Link;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How often a count is written again that another worker changes at the same time.
const ATTEMPTS: usize = 16;

/// What workers have said of a job that they cannot make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusals {
    /// Deliveries that were refused.
    pub count: i64,
    /// The workers that refused it.
    nodes: BTreeSet<String>,
}

impl Refusals {
    /// What was said of a job so far.
    pub async fn of(link: &Link, job: &str) -> Result<Refusals, ClusterError> {
        let bucket = link.refused().await?;
        match bucket.get(job).await.map_err(jetstream)? {
            Some(entry) => read(&entry),
            None => Ok(Refusals::default()),
        }
    }

    /// Adds that this worker refuses a job.
    pub async fn add(link: &Link, job: &str, node: &str) -> Result<Refusals, ClusterError> {
        let bucket = link.refused().await?;
        let mut failure = jetstream("no refusal can be noted");
        for _ in 0..ATTEMPTS {
            let entry = bucket.entry(job).await.map_err(jetstream)?;
            let (mut refusals, revision) = match &entry {
                Some(entry) => (read(&entry.value)?, entry.revision),
                None => (Refusals::default(), 0),
            };
            refusals.count += 1;
            refusals.nodes.insert(node.to_owned());
            let written = serde_json::to_vec(&refusals).map_err(jetstream)?;
            // Refused where another worker was faster.
            match bucket.update(job, written.into(), revision).await {
                Ok(_) => return Ok(refusals),
                Err(error) => failure = jetstream(error),
            }
        }
        Err(failure)
    }

    /// Whether all workers that are alive have refused it.
    pub async fn are_of_all(&self, link: &Link) -> Result<bool, ClusterError> {
        let alive = link.alive().await?;
        let keys: Vec<String> = alive.keys().await.map_err(jetstream)?.try_collect().await.map_err(jetstream)?;
        Ok(keys.iter().filter_map(|key| key.strip_prefix("node.")).all(|node| self.nodes.contains(node)))
    }
}

fn read(entry: &[u8]) -> Result<Refusals, ClusterError> {
    serde_json::from_slice(entry).map_err(|error| jetstream(format!("the refusals of a job: {error}")))
}
