//! How do many machines share the runs? One coordinator hands out jobs through NATS JetStream, any number of worker processes
//! make them, and the coordinator's store stays the one record.
//!
//! ```text
//! RolloutEnv ─► Coordinator ─► work-queue stream ─► Node (worker process) ─► run, grade
//!      ▲             ▲  ▲                              │    │
//!      │             │  └── asks: drafts, replies, ────┘    │
//!      │             │      budget (request and reply)      │
//!      └── trace ────┴──────────── done ◄──────────────────┘
//! ```
//!
//! | module | what it answers |
//! |---|---|
//! | [`Link`] | how is the server reached, and what lies there? |
//! | [`Coordinator`] | who hands out runs, and takes them back? |
//! | [`Node`] | who makes them? |
//! | [`Status`] | which workers are there, and what waits? |
//!
//! **Exactly once in effect.** A job is delivered at least once: a worker acknowledges it only when the coordinator has its
//! result. The coordinator takes the first result of a job and drops every other. A job says everything that its result
//! depends on; what it shares with other runs (orchestrator, reply cache, budget) stays with the coordinator, which is asked
//! for it. So a result does not depend on which worker makes it, or how often.
//!
//! **Who cannot make a job leaves it to others.** A worker of another version, or without the key of an endpoint, refuses a job. That
//! is noted beside the job and is no try. A job is given up when it was tried too often, or when all workers that are alive refuse it.

mod asks;
mod borrowing;
mod coordinator;
mod error;
mod exact;
mod fake;
mod lending;
mod link;
mod node;
mod objects;
mod refusals;
mod remote;
mod status;
mod wire;

pub use coordinator::{ClusterRuns, Coordinator, CoordinatorOptions, DeadJob, Priority};
pub use error::ClusterError;
pub use fake::fake_workers;
pub use link::{Access, Link};
pub use node::{BuildEnv, Node, NodeEnv, NodeOptions};
pub use objects::Blobs;
pub use status::{DeadLetter, NodeReport, Status};

#[cfg(test)]
mod tests;
