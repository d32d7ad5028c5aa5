//! Evaluations, their statistics and their reports.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod comparing;
mod evaluate;
mod made;
mod recorded;
mod report;
mod reporting;
