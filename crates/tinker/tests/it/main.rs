//! The policy against a fake server, against what a real one said, and against a real one where it is installed.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are tests.

mod common;
mod connections;
mod faults;
mod learning;
mod opening;
mod recorded;
mod refused;
mod sampler;
mod sampling;
mod sessions;
mod skyrl;
mod vllm;
