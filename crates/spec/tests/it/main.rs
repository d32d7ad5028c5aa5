//! The language as its users meet it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod explain;
mod grammar;
mod hostile;
mod properties;
mod roles;
mod validate;
