//! What is each part of the method worth? Many training runs, compared.
//!
//! A study trains the same recipe with one thing changed at a time, with many seeds ([`run`]). It records one line for each run
//! ([`row`]), and writes tables and figures of them.

pub mod arms;
pub mod compare;
mod curve;
pub mod estimators;
pub mod figures;
mod plans;
mod regime;
pub mod row;
pub mod run;
#[cfg(test)]
mod samples;
mod write;

pub use plans::named;
pub use write::{MixedRows, REFERENCES, ReportError, write};
