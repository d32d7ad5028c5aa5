//! Programs that models might write, in the sandbox.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod cheating;
mod common;
mod containment;
mod human_eval;
mod refusal;
mod verdicts;
