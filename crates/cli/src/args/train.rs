//! The arguments of `lemon train` and `lemon ablate`.

use super::{Endpoints, OnCluster, ReplayArgs, Scope, WorkerKind, worker_kind};
use clap::Args;
use std::path::PathBuf;

/// `lemon train`
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The recipe: `quick` (a table, in a minute or two), `language` (a language model), `full`, or a TOML file
    #[arg(long, default_value = "quick", value_name = "NAME|FILE")]
    pub recipe: String,
    /// The folder of task sets: train on other splits, evaluate on the test splits [default: tasks of our own]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The kind of workers
    #[arg(long, value_name = "KIND", default_value = "sim", value_parser = worker_kind(Scope::Tasks))]
    pub workers: WorkerKind,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// The seed of every random choice [default: the recipe's]
    #[arg(long, env = "LEMON_SEED", value_name = "N")]
    pub seed: Option<u64>,
    /// Steps at most [default: the recipe's]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Train adapters of this rank instead of the whole model; the recipe starts from a model [default: the recipe's]
    #[arg(long, value_name = "RANK")]
    pub lora: Option<usize>,
    /// Worker tokens at most, of rollouts and counterfactuals together: training ends with the step that reaches them;
    /// held-out evaluations come on top [default: the recipe's]
    #[arg(long, value_name = "N")]
    pub worker_tokens: Option<u64>,
    /// Tokens that everything together may spend, held-out evaluations and the warm start included: training pauses before the
    /// call that would exceed them; --resume continues with more
    #[arg(long, env = "LEMON_BUDGET_TOKENS", value_name = "N")]
    pub budget_tokens: Option<u64>,
    /// US dollars that everything together may spend
    #[arg(long, env = "LEMON_BUDGET_USD", value_name = "X", value_parser = super::not_negative)]
    pub budget_usd: Option<f64>,
    /// Where everything is kept: checkpoints, metrics, the model, a page
    #[arg(long, value_name = "DIR", default_value = "train")]
    pub out: PathBuf,
    /// Continue the training in that folder
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
    #[command(flatten)]
    pub cluster: OnCluster,
    /// Print what came of it as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `lemon ablate`
#[derive(Debug, Args)]
pub struct AblateArgs {
    /// Which study: `demo` (a small one, in minutes), `table` (all arms with a table policy), `map` (where credit pays),
    /// `language` (a small language model), `stop` (when to add a round), `estimators` (bias and variance of every estimator)
    #[arg(value_name = "STUDY")]
    pub study: String,
    /// The arms to compare [default: those of the study]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// Only regimes whose names contain this, as `slots=6`
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Seeds of each arm [default: those of the study]
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub first_seed: u64,
    /// The folder of task sets [default: tasks of our own]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The kind of workers: the simulated world of each regime, or models that are asked
    #[arg(long, value_name = "KIND", default_value = "sim", value_parser = worker_kind(Scope::Tasks))]
    pub workers: WorkerKind,
    #[command(flatten)]
    pub replay: ReplayArgs,
    #[command(flatten)]
    pub endpoints: Endpoints,
    #[command(flatten)]
    pub cluster: OnCluster,
    /// Trains with each of these values of a recipe's key, as `update.learning_rate=0.1,0.3`
    #[arg(long, value_name = "KEY=VALUES")]
    pub sweep: Option<String>,
    /// Lets rows of different builds and devices stand in one report
    #[arg(long)]
    pub pool: bool,
    /// Groups that each estimator sees, in the study `estimators`
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    pub groups: usize,
    /// A recipe for all arms to change, in place of the study's own; its world is the only one that is run
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// The file of runs, one to a line; what is there already is not run again
    #[arg(long, value_name = "FILE", default_value = "study.jsonl")]
    pub rows: PathBuf,
    /// Where tables and figures go [default: only the file of runs]
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Runs at a time [default: one for each core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}
