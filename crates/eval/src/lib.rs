//! Methods side by side: the same tasks, the same workers, the same executor, with intervals and pictures.

mod compare;
mod estimate;
mod evaluate;
mod grader;
mod learn;
mod method;
pub mod report;
mod row;
mod search;
mod summary;
mod trial;

pub use compare::{Comparison, FlippedItem, Flips, MethodComparison, compare};
pub use estimate::Estimate;
pub use evaluate::{Case, Contestant, EvalError, Evaluator, Work};
pub use grader::{Graded, Grader};
pub use learn::learn;
pub use method::{Ask, Kind, METHODS, Method, MethodError, Source};
pub use row::{AgentRow, Evaluation, Name, Row, SetUp, TokenRow, Training};
pub use search::{Best, FoundTeam, Gap, SearchSettings, founders, mutant, search};
pub use summary::{BandReport, MethodReport, PairReport, Partial, Report, SetReport, TokenMeans};
