//! The learned writer: a language model that reads a task and writes a specification.
//!
//! `task → prompt → tokens → model → text`, and back: `text → tokens → log-probabilities → gradients → checkpoint`. This is
//! the only crate that knows tensors. What crosses its border are plain vectors ([`Policy`]): token ids, log-probabilities,
//! weights and advantages. So another learner can stand behind the same wall.

pub mod bench;
mod border;
mod config;
mod draw;
mod error;
mod folder;
pub mod grammar;
mod language;
mod learn;
mod model;
mod muon;
mod ops;
mod optimiser;
mod parameters;
mod rows;
pub mod serve;
mod spans;
mod table;
#[cfg(test)]
mod tests;
pub mod tokenizer;
mod weights;
mod write;

pub use border::{
    Example, Finish, Objective, Policy, Request, Sample, SampleSettings, Sequence, StepReport, StepSettings,
};
pub use config::{Family, ModelConfig, RopeScaling};
pub use error::PolicyError;
pub use folder::Packed;
pub use grammar::Grammar;
pub use language::{DeviceChoice, LanguagePolicy, Precision};
pub use learn::{Term, Totals};
pub use muon::MuonSettings;
pub use optimiser::OptimiserSettings;
pub use parameters::{Learning, LoraSettings};
pub use spans::owners;
pub use table::{Context, TablePolicy};
pub use tokenizer::Tokenizer;
