//! Simulated and recorded workers: what they decide, how often, and what they write.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are tests.

mod common;
mod damaged;
mod determinism;
mod duties;
mod figures;
mod frequency;
mod misses;
mod reading;
mod record;
mod recordings;
mod replay;
mod roles;
mod steadiness;
mod texts;
