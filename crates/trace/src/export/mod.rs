//! The forms in which a trace leaves for other tools. Pages and pictures are made by `lemon-view`.

pub mod jsonl;
pub mod otlp;
pub mod schema;
