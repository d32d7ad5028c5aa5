//! Here is a plan: run it.
//!
//! Deciding stands apart from doing. [`RunState`] knows what comes next and what an agent is told, without IO, clock or
//! randomness; [`Ledger`] knows what may be spent; an [`Orchestrator`] decides what to write or which model to ask. [`Runner`] does
//! what they say: it asks [workers](worker), retries, keeps the [store], and records everything as a trace.

pub mod answer;
mod call;
pub mod code;
mod compute;
mod driver;
mod examples;
mod forecast;
pub mod form;
mod go_on;
mod ledger;
pub mod orchestrator;
mod prompt;
mod recorder;
mod reply_cache;
mod resume;
mod runner;
mod settings;
mod shared;
mod state;
pub mod store;
mod tokens;
pub mod tool;
mod tool_loop;
pub mod worker;
mod write;

pub use code::{CodeError, CodeJob, CodeRun, CodeRunner};
pub use forecast::{BudgetFit, CallForecast, Forecast, LIKELY_REPLY, forecast_call};
pub use form::Form;
pub use ledger::{Budget, Ledger, LedgerVerdict, Price, Reservation, Want};
pub use orchestrator::Orchestrator;
pub use recorder::Observer;
pub use reply_cache::{OpenReply, ReplyCache, ReplyRecord, ReplySource};
pub use runner::{Job, OnDelta, RunError, Runner};
pub use settings::{OnParentFailure, Retry, Settings};
pub use shared::{BudgetMet, CommitSpend, Lending, SharedBudget};
pub use state::{AgentOutcome, Aggregation, Delivery, Member, RunState, Standing, Step};
pub use tool::{OfferedTool, RequestedCall, ToolRun, ToolRunner};
pub use worker::{Backend, Clock, Level, Worker};

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds of Unix time.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A unique name: eight letters and digits, from the system's randomness. Names are the one thing a seed does not
/// determine, because two runs of the same seed are two runs.
pub fn fresh_id() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bits = RandomState::new().build_hasher().finish();
    let letter = |_| {
        let letter = LETTERS[(bits % 32) as usize]; // in range: there are 32
        bits /= 32;
        char::from(letter)
    };
    (0..8).map(letter).collect()
}
