//! What an evaluation records: one row a run, graded. Everything a report says is computed from the rows.

use lemon_trace::{AgentStatus, Metrics, StopReason};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A short text that many rows share: a hundred thousand rows must fit into memory.
pub type Name = Arc<str>;

/// An evaluation: how it was set up, and its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How it was set up.
    pub set_up: SetUp,
    /// Methods that learned something before they were scored, and what that cost.
    #[serde(default)]
    pub training: Vec<Training>,
    /// The runs, by method, then seed, then item.
    pub rows: Vec<Row>,
}

impl Evaluation {
    /// An evaluation of these rows, which come as runs end and are put in order.
    pub fn new(set_up: SetUp, training: Vec<Training>, mut rows: Vec<Row>) -> Self {
        let place = |list: &[String], name: &str| list.iter().position(|other| *other == name);
        rows.sort_by_cached_key(|row| {
            (place(&set_up.methods, &row.method), row.seed, place(&set_up.sets, &row.set), row.item, row.run_id.clone())
        });
        Evaluation { set_up, training, rows }
    }
}

/// How an evaluation was set up: what is needed to repeat it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SetUp {
    /// Its name.
    pub eval_id: String,
    /// When it began, in milliseconds of Unix time.
    pub started_at_ms: u64,
    /// The sets and splits: `gsm8k/test`.
    pub sets: Vec<String>,
    /// Items, over all sets.
    pub items: usize,
    /// Clusters of items that look alike, where those are what intervals and tests are over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<usize>,
    /// The methods, in the order they were asked for.
    pub methods: Vec<String>,
    /// The capacity of the methods that do not choose one themselves; `None`: mixed.
    pub capacity: Option<String>,
    /// Who worked: `sim`, `replay`, `endpoints`, …, with the preset or the models.
    pub workers: String,
    /// The seeds.
    pub seeds: Vec<u64>,
}

/// What a method learned before it was scored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Training {
    /// The method.
    pub method: String,
    /// Runs it took.
    pub runs: u64,
    /// Tokens of the workers in them. They are not part of any row.
    pub tokens: u64,
    /// The specification it arrived at; of a method that designs a team for each task, the one for the first task.
    pub spec: String,
    /// The seed it learned with.
    #[serde(default)]
    pub seed: u64,
    /// Items it learned from.
    #[serde(default)]
    pub items: usize,
    /// Tokens of a model that proposes teams, besides.
    #[serde(default)]
    pub optimiser_tokens: u64,
    /// Seconds.
    #[serde(default)]
    pub seconds: f64,
    /// The capacity that was chosen on the training items, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// What made the vectors of texts, where the method reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<String>,
}

impl Training {
    /// All tokens that learning took: of the workers, and of a model that proposes teams.
    pub fn all_tokens(&self) -> u64 {
        self.tokens.saturating_add(self.optimiser_tokens)
    }
}

/// One run, graded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Row {
    /// The set and split: `gsm8k/test`.
    pub set: Name,
    /// The position of the item in its set.
    pub item: usize,
    /// The item's id.
    pub item_id: Name,
    /// The cluster of its set that it belongs to, where items that look alike count as one draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<usize>,
    /// The method.
    pub method: Name,
    /// The seed.
    pub seed: u64,
    /// The run, by which its trace is found in the store.
    pub run_id: String,
    /// Whether the answer is right.
    pub right: bool,
    /// Whether it is by the rule of the public repositories.
    pub legacy_right: bool,
    /// What it earned: the total of the reward channels by their default weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The answer the grader found.
    pub answer: Option<Name>,
    /// Why the run ended.
    pub stop_reason: Option<StopReason>,
    /// Tokens by what they went into.
    pub tokens: TokenRow,
    /// Money; absent where a level that was used has no price.
    pub usd: Option<f64>,
    /// Seconds.
    pub wall_s: f64,
    /// Calls begun, each attempt counted.
    pub calls: u64,
    /// The agents, in the order they came into being.
    pub agents: Vec<AgentRow>,
    /// How they worked together.
    pub metrics: Metrics,
}

/// Tokens of a run by what they went into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenRow {
    /// All.
    pub total: u64,
    /// Writing specifications.
    pub orchestrator: u64,
    /// Agents, those of failed attempts included.
    pub workers: u64,
    /// Of all: attempts that failed and were tried again.
    pub retried: u64,
    /// Of all: calls that failed for good, rejected specifications, and what a crash lost.
    pub failed: u64,
}

/// What became of one agent of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentRow {
    /// Its id.
    pub id: Name,
    /// The base role.
    pub base: Name,
    /// Who it is.
    pub role: Name,
    /// The level of model.
    pub capacity: Name,
    /// The agents it reads.
    pub after: Vec<Name>,
    /// How it ended.
    pub status: Option<AgentStatus>,
    /// The answer extracted from its reply.
    pub answer: Option<Name>,
    /// Whether that answer is right, where it gave one and that can be told without running code.
    pub right: Option<bool>,
    /// Tokens.
    pub tokens: u64,
}
