//! Methods side by side: the same tasks, the same workers, the same executor, with intervals and pictures.

mod clusters;
mod compare;
mod estimate;
mod evaluate;
pub mod folder;
mod method;
pub mod questions;
pub mod report;
mod row;
mod search;
mod summary;
mod trial;

pub use clusters::mark_clusters;
pub use compare::{EvalComparison, FlippedItem, Flips, MethodComparison, compare};
pub use estimate::SpendEstimate;
pub use evaluate::{CaseWriters, Evaluator, MethodRun, Work};
pub use method::{Ask, CHOSEN, Kind, METHODS, Method, MethodError, PublishedMethod, TeamSource, Variant};
pub use row::{AgentRow, Evaluation, Name, Row, SetUp, TokenRow, Training};
pub use search::{Best, FoundTeam, Gap, SearchSettings, mutant, search, seed_teams};
pub use summary::{BandReport, MethodReport, PairReport, Partial, Report, SetResults, TokenMeans};
