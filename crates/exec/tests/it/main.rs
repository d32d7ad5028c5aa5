//! The executor against real sockets, scripted workers and random teams.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are tests.

mod billing;
mod budget;
mod cassette;
mod common;
mod crash;
mod deltas;
mod faults;
mod orchestrators;
mod programs;
mod random_teams;
mod recovery;
mod reuse;
mod same_seed;
mod schedule;
mod search;
mod simulated_clock;
mod state;
mod state_random;
mod store;
mod tools;
mod truncated;
mod waiting;
