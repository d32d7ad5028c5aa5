//! Runs one task with one team and scores it. Evaluation, profiling, teaching and training all go through here.
//!
//! ```text
//! Case + Team + seed ──▶ RolloutEnv::rollout ──▶ Rollout { trace, summary, outcome }
//! Rollout + Edit     ──▶ RolloutEnv::counterfactual ──▶ Rollout with the same noise seed and reply cache
//! ```
//!
//! | module | what it answers |
//! |---|---|
//! | [`RolloutEnv`] | how a team is run: workers, language, store, settings, grader, reward |
//! | [`Outcome`] | is the result known, and if so, what is it? |
//! | [`UnknownReason`] | which failures leave the outcome unknown |
//! | [`Grader`] | is a reply right? |
//! | [`RemoteRuns`] | which other machines make the runs |
//! | [`reward`] | what a run earned, term by term; the registry of reward terms |
//!
//! A failed run is data, not an error. Errors are what stops the caller: the store or the sandbox failed.

mod case;
mod counterfactual;
mod earned;
mod env;
mod error;
mod grade_cache;
mod grader;
mod outcome;
mod places;
mod remote;
mod request;
pub mod reward;
mod team;

pub use case::Case;
pub use earned::Earned;
pub use env::{Rollout, RolloutEnv};
pub use error::RolloutError;
pub use grader::{Graded, Grader};
pub use outcome::{FailureMeaning, Outcome, Score, UnknownReason, meaning_of};
pub use remote::{RemoteRun, RemoteRuns, RemoteTrace};
pub use request::{Record, Replies, RolloutRequest, RunOptions};
pub use team::Team;

// Told by the tests of `lemon-credit` as well; one copy.
#[cfg(test)]
#[path = "../../credit/src/story.rs"]
mod story;
#[cfg(test)]
mod tests;
