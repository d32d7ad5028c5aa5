//! The policy crate from outside.

#![allow(clippy::unwrap_used)]

mod everyday;
