//! How an orchestrator learns to write teams.
//!
//! `tasks → a teacher writes a team for each → pairs of task and specification → a model learns them → it writes teams`. The
//! pairs are plain JSON lines ([`mod@pair`]); there are three teachers ([`teach`]): a policy written by hand, a search in the
//! simulated world, and a strong model behind an endpoint. [`mod@sft`] is supervised learning; a [`Writer`] is a policy as an
//! orchestrator.

pub mod pair;
mod probe;
pub mod sft;
mod small;
pub mod teach;
pub mod trial;
mod writer;

pub use probe::{ProbeError, probe};
pub use small::small_model;
pub use writer::{Desk, MOST_TOKENS, Writer, brief};
