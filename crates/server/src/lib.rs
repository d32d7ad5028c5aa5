//! `lemon serve`: LEMON as an OpenAI-compatible model, and as a web application.
//!
//! ```text
//! connection ─► listen: limits, timeouts ─► guard: Host, Origin, key ─► api or app ─► AppState::start ─► LiveRun
//! ```
//!
//! [`AppState`] has what every handler needs: the workers, the store, the keys, the runs under way. A run is started with
//! [`AppState::start`], watched with [`LiveRun::subscribe`] and ended early with [`LiveRun::cancel`]; [`LiveRuns::get`] finds
//! one by its name. [`api`] speaks OpenAI's protocol, [`app`] has the pages and what they ask.

pub mod api;
pub mod app;
mod cluster;
mod guard;
pub mod keys;
mod listen;
mod metrics;
mod otlp;
mod refusal;
mod runs;
mod state;
mod workers;

pub use guard::Caller;
pub use listen::{HttpServer, ServerError};
pub use otlp::{Collector, CollectorError};
pub use refusal::Refusal;
pub use runs::{LiveEvent, LiveRun, LiveRuns, Subscription};
pub use state::{AppState, Origin, RunOrder, ServerConfig};
pub use workers::{ServedModel, TeamChoice};
