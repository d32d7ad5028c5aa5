//! The public contract of the crate. One test program, because each program is optimised and linked separately.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod gguf;
mod gguf_file;
mod gguf_real;
mod grammar;
mod hostile;
mod spans;
mod table;
mod tokenizer;
mod tools;
mod untrained;
mod vocabularies;
