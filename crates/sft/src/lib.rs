//! How does a policy learn from examples? Teachers, supervised fine-tuning, and pretraining of small workers.
//!
//! `tasks → a teacher writes a team for each → pairs of task and specification → a model learns them`. There are four
//! teachers ([`teach`]); [`mod@sft`] fine-tunes an orchestrator on their pairs; [`mod@pretrain`] trains small workers.

mod keep;
mod lessons;
pub mod pretrain;
mod probe;
pub mod sft;
pub mod teach;

pub use lessons::{is_for_validation, tokenize};
pub use probe::{ProbeError, Prober, probe};
