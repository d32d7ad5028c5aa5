//! The trainable language model: checkpoints, tokenizers, grammar, sampling for training, scoring, gradients.
//!
//! `prompt → tokens → model → text`, and back: `text → tokens → log-probabilities → gradients → checkpoint`. This is the only
//! crate that uses tensors. Its interface ([`Policy`]) is plain vectors: token ids, log-probabilities, weights, advantages.
//! Another learner can implement the same trait. `lemon-engine` serves a trained model to many callers.

mod api;
pub mod bench;
mod config;
mod draw;
mod error;
mod files;
mod gguf;
mod gpu;
pub mod gpu_tensors;
pub mod grammar;
mod language;
mod learn;
mod model;
mod muon;
mod ops;
mod optimiser;
mod parameters;
mod rows;
pub mod simd;
mod spans;
mod table;
mod tensors;
#[cfg(test)]
mod tests;
pub mod tokenizer;
mod value;
mod weights;
mod write;

pub use api::{
    Example, Finish, Objective, Policy, Sample, SampleRequest, SampleSettings, Sequence, StepReport, StepSettings,
};
pub use config::{ModelConfig, ModelFamily, RopeScaling};
pub use error::PolicyError;
pub use files::{ModelFiles, Packed};
pub use gguf::BlockType;
pub use grammar::{Constraint, Grammar};
pub use language::{DeviceChoice, LanguagePolicy, Precision};
pub use learn::{Term, Totals};
pub use muon::MuonSettings;
pub use optimiser::OptimiserSettings;
pub use parameters::{Learning, LoraSettings};
pub use spans::owners;
pub use table::{Context, TablePolicy};
pub use tensors::{TensorReader, TensorRows, WeightOrigin};
pub use tokenizer::{CheckedGguf, Tokenizer, check_gguf};
pub use value::{ValueExample, ValueModel, ValueReading, ValueTarget, ValueText};
