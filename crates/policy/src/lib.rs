//! How does a model write a team? The policy as an orchestrator, and what every training of one shares.
//!
//! `question and earlier results → prompt → tokens under the grammar → specification`. A [`Writer`] runs a policy as an
//! orchestrator; [`mod@fields`] is a policy without a language model; a [`TeamHead`] estimates
//! on the same model what a team is worth; [`mod@pair`] is the file format that teachers write and supervised fine-tuning reads;
//! [`mod@checkpoint`] keeps the state of a training run.

pub mod checkpoint;
mod encoder;
mod features;
pub mod fields;
mod head;
pub mod pair;
mod skills;
mod small;
mod trainable;
mod writer;

pub use checkpoint::{KeepError, check_folder, damage};
pub use encoder::{LanguagePromptEncoder, specification_span, write_context};
pub use features::{TaskFeatures, TaskKind, featurize, is_option};
pub use head::{HeadEstimate, HeadReport, HeadRow, HeadSettings, HeadTask, TeamHead, TeamOutcome};
pub use small::small_model;
pub use trainable::{Encoded, PromptEncoder, TrainablePolicy};
pub use writer::{LEAST_CONFIDENCE, MOST_TOKENS, Writer};
