//! The learning crate from outside.

#![allow(clippy::unwrap_used)]

mod composed;
mod everyday;
