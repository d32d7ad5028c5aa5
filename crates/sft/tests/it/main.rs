//! The fine-tuning crate from outside.

#![allow(clippy::unwrap_used)]

mod composed;
