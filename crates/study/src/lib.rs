//! Many training runs, compared.
//!
//! A study trains the same thing in several ways, with many seeds ([`run`]), keeps one line of each run ([`row`]), and makes
//! tables and figures of them.

pub mod arms;
pub mod compare;
mod curve;
pub mod figures;
mod plans;
mod regime;
pub mod row;
pub mod run;
#[cfg(test)]
mod samples;
mod write;

// Its figures name this crate so.
use crate as study;
pub use plans::named;
pub use write::{REFERENCES, write};
