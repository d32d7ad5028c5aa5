//! The statistics, and what reports and comparisons make of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod comparing;
mod made;
mod reporting;
