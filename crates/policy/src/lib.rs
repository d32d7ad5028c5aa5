//! How does a model write a team? The policy as an orchestrator, and what every training of one shares.
//!
//! `question and earlier results → prompt → tokens under the grammar → specification`. A [`Writer`] runs a policy as an
//! orchestrator; [`mod@fields`] is a policy without a language model; [`mod@pair`] is the file format that teachers write and
//! supervised fine-tuning reads; [`mod@checkpoint`] keeps the state of a training run.

pub mod checkpoint;
pub mod fields;
mod look;
pub mod pair;
mod skills;
mod small;
mod student;
mod writer;

pub use checkpoint::{KeepError, check_folder, damage};
pub use look::{Kind, Sight, is_option, look};
pub use small::small_model;
pub use student::{Encoded, Scribe, Student};
pub use writer::{Desk, LEAST_CONFIDENCE, MOST_TOKENS, Writer, brief};
