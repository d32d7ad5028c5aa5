//! Traces: summaries, text, exports.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod jsonl;
mod otlp;
mod schema;
mod summary;
mod text;
