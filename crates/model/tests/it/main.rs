//! What the policy promises to whoever learns with it. One program: each of these would be optimised and linked for itself.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod grammar;
mod hostile;
mod spans;
mod table;
mod tokenizer;
mod untrained;
mod vocabularies;
