//! What happened?
//!
//! A run is a list of [`Event`]s, each pointing back at the events that caused it: a temporal interaction graph. The list
//! is written as the run goes; everything else here (summary, metrics, exports, differences) is computed from it.

pub mod credit;
mod diff;
mod event;
pub mod export;
mod metrics;
mod names;
#[doc(hidden)]
pub mod sample;
mod show;
mod summary;
pub mod text;

pub use diff::{AgentDiff, Delta, Diff, Presence, ValueChange, diff};
pub use event::{
    AgentCall, AgentStatus, Candidate, Edge, EdgeKind, Event, EventKind, Failure, FailureKind, Header, LimitKind,
    NextCall, ORCHESTRATOR, Spend, StopReason, Trace, VERSION,
};
pub use metrics::Metrics;
pub use summary::{AgentSummary, Summary, Tokens};
pub use text::visible;
