//! The command line as people and scripts use it: the real binary, in a folder of its own, against loopback endpoints.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are tests.

mod bench;
mod budget;
mod common;
mod compare;
mod configuration;
mod credit;
mod credit_faults;
mod data_fetch;
mod doctor;
mod eval;
mod eval_faults;
mod export;
mod grading;
mod in_the_box;
mod interrupted;
mod key;
mod live;
mod models;
mod plan;
mod policy;
mod pretrain;
mod prompted;
mod recorded;
mod results;
mod send;
mod specs;
mod tasks;
mod together;
mod train;
mod usage;
mod workers;
mod world;
