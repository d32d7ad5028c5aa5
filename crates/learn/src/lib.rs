//! How an orchestrator learns to write teams.
//!
//! `tasks → a teacher writes a team for each → pairs of task and specification → a model learns them → it writes teams`. The
//! pairs are plain JSON lines ([`mod@pair`]); there are three teachers ([`teach`]): a policy written by hand, a search in the
//! simulated world, and a strong model behind an endpoint. [`mod@sft`] is supervised learning; a [`Writer`] is a policy as an
//! orchestrator.

mod checkpoint;
pub mod fields;
pub mod pair;
pub mod pretrain;
mod probe;
pub mod sft;
mod small;
mod student;
pub mod study;
pub mod teach;
pub mod train;
pub mod trial;
mod writer;

pub use checkpoint::{KeepError, check_folder, damage};
pub use probe::{ProbeError, probe};
pub use small::small_model;
pub use student::{Encoded, Scribe, Student};
pub use writer::{Desk, LEAST_CONFIDENCE, MOST_TOKENS, Writer, brief};
