//! Task sets and graders.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop there")]

mod choices;
mod code;
mod common;
mod numbers;
mod properties;
mod public_data;
mod reading;
mod sources;
