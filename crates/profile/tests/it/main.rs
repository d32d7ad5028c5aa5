//! The counterfactual engine against truths that are known another way.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are tests.

mod budget;
mod common;
mod enumerable;
mod fork;
mod improving;
mod known;
mod oracle;
mod reuse;
mod token_budget;
mod truth;
mod unknown;
mod variance;
