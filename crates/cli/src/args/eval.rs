//! The arguments of `lemon eval`, `lemon compare` and `lemon world`.

use super::{Endpoints, OnCluster, Scope, WorkerKind, worker_kind};
use clap::{Args, Subcommand, ValueEnum};
use lemon_spec::edit::Family;
use lemon_workers::OnMiss;
use lemon_world::{Preset, SamplePool};
use std::path::PathBuf;

/// `lemon eval`
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// The task sets: mmlu, gsm8k, aqua, multiarith, svamp, humaneval, humaneval-py, or a JSONL file of your own
    #[arg(long = "set", value_name = "NAME", value_delimiter = ',')]
    pub sets: Vec<String>,
    /// The split
    #[arg(long, default_value = "test", value_name = "NAME")]
    pub split: String,
    /// The folder of task sets [default: the sample that ships with this program]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The methods, with a number where they take one; `lemon eval --methods help` lists them
    #[arg(
        long,
        value_name = "NAME[:N]",
        value_delimiter = ',',
        default_value = "vanilla,cot,sc-cot,chain,tree,complete,debate"
    )]
    pub methods: Vec<String>,
    /// The capacity of every agent; without it they take turns, weakest first
    #[arg(long, value_name = "LEVEL")]
    pub capacity: Option<String>,
    /// The kind of workers
    #[arg(long, env = "LEMON_WORKERS", value_name = "KIND", default_value = "sim", value_parser = worker_kind(Scope::Tasks))]
    pub workers: WorkerKind,
    /// The simulated world
    #[arg(long, value_name = "NAME", default_value = "calibrated")]
    pub world: WorldName,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// The team of the method `file`
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// The folder of the model of the method `policy` [default: the small orchestrator that ships with this program]
    #[arg(long, value_name = "DIR")]
    pub policy: Option<PathBuf>,
    /// The file of the method `decision-critic` [default: the configured one, or the one that ships for the model]
    #[arg(long, value_name = "FILE")]
    pub critic: Option<PathBuf>,
    /// The price of the method `decision-critic`: the reward that 1,000 tokens are worth [default: the configured one, or 0.1]
    #[arg(long, value_name = "X", value_parser = super::not_negative)]
    pub price: Option<f64>,
    #[command(flatten)]
    pub rivals: RivalArgs,
    /// The folder of methods that `lemon baseline train` wrote; what is missing there is trained now
    #[arg(long, value_name = "DIR")]
    pub baselines: Option<PathBuf>,
    /// Run each method at these capacities, each as a method of its own: names, or `chosen` for the one of the highest reward
    /// on the training items
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', conflicts_with = "capacity")]
    pub tiers: Vec<String>,
    /// Only the first items of each set
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Intervals and tests over clusters of questions that look alike, whatever their names and numbers
    #[arg(long)]
    pub clusters: bool,
    /// The seed of every random choice
    #[arg(long, env = "LEMON_SEED", value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Several seeds: every method runs every item with each
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', conflicts_with = "seed")]
    pub seeds: Vec<u64>,
    /// Runs at a time [default: 64 simulated, 8 otherwise; within a budget as many as there are methods]
    #[arg(long, env = "LEMON_WIDTH", value_name = "N")]
    pub width: Option<usize>,
    /// Tokens that all runs together may spend; what was spent before --resume counts
    #[arg(long, env = "LEMON_BUDGET_TOKENS", value_name = "N")]
    pub budget_tokens: Option<u64>,
    /// US dollars that all runs together may spend; what was spent before --resume counts
    #[arg(long, env = "LEMON_BUDGET_USD", value_name = "X", value_parser = super::not_negative)]
    pub budget_usd: Option<f64>,
    /// Tokens each run may spend
    #[arg(long, value_name = "N")]
    pub run_tokens: Option<u64>,
    /// Where the report goes [default: a folder beside the store, named after the evaluation]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resume an evaluation
    #[arg(long, value_name = "EVAL", conflicts_with_all = ["sets", "split", "methods", "capacity", "world", "on_miss", "levels", "samples", "spec", "policy", "critic", "price", "encoder", "training_tokens", "baselines", "tiers", "limit", "seeds", "run_tokens"])]
    pub resume: Option<String>,
    /// Run code without a sandbox, on your own responsibility
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
    #[command(flatten)]
    pub cluster: OnCluster,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// How methods that learn are trained.
#[derive(Debug, Clone, Default, Args)]
pub struct RivalArgs {
    /// The folder of the model all-MiniLM-L6-v2, for methods that read questions as vectors [default: vectors that ship, or hashed
    /// words where a question has none]
    #[arg(long, env = "LEMON_ENCODER", value_name = "DIR")]
    pub encoder: Option<PathBuf>,
    /// Worker tokens that each training spends, for methods that learn [default: each makes its own number of runs]
    #[arg(long, value_name = "N")]
    pub training_tokens: Option<u64>,
}

/// `lemon baseline`
#[derive(Debug, Subcommand)]
pub enum BaselineCommand {
    /// Train published methods on the 40 training items of each set, and keep what they learned
    Train(Box<BaselineTrainArgs>),
}

/// `lemon baseline train`
#[derive(Debug, Args)]
pub struct BaselineTrainArgs {
    /// The methods, with variants and capacities: agentprune, g-designer+long@small, …
    #[arg(value_name = "NAME", required = true)]
    pub methods: Vec<String>,
    /// The task sets
    #[arg(long = "set", value_name = "NAME", value_delimiter = ',', required = true)]
    pub sets: Vec<String>,
    /// The folder of task sets [default: the sample that ships with this program]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where they are kept: DIR/METHOD/seed-N
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    pub rivals: RivalArgs,
    /// The capacity of every agent; without it they take turns, weakest first
    #[arg(long, value_name = "LEVEL")]
    pub capacity: Option<String>,
    /// The kind of workers
    #[arg(long, env = "LEMON_WORKERS", value_name = "KIND", default_value = "sim", value_parser = worker_kind(Scope::Tasks))]
    pub workers: WorkerKind,
    /// The simulated world
    #[arg(long, value_name = "NAME", default_value = "calibrated")]
    pub world: WorldName,
    /// The seeds: each trains a model of its own
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,2,3")]
    pub seeds: Vec<u64>,
    /// Tokens that all runs together may spend; needed with endpoints
    #[arg(long, env = "LEMON_BUDGET_TOKENS", value_name = "N")]
    pub budget_tokens: Option<u64>,
    /// Run code without a sandbox, on your own responsibility
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
    /// Print the accounts as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// The simulated worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorldName {
    /// Workers as they are on record
    Calibrated,
    /// A choice, not a record: weaker workers and useful critics, for studies of teams
    Teams,
    /// A tiny model, and a model of 1.5 billion parameters asked in three ways, as recorded
    #[value(name = "real-1.5b")]
    Real,
}

impl From<WorldName> for Preset {
    fn from(name: WorldName) -> Self {
        match name {
            WorldName::Calibrated => Preset::Calibrated,
            WorldName::Teams => Preset::Teams,
            WorldName::Real => Preset::Real,
        }
    }
}

/// Which recorded replies `--workers replay` serves.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// With `--workers replay`: what becomes of calls that are not on record
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub on_miss: OnMissArg,
    /// With `--workers replay`: the recorded levels to serve, such as smol,brief,program,reasoned [default: all but variants]
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',')]
    pub levels: Vec<String>,
    /// With `--workers replay`: which of several recorded samples are served
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub samples: SamplesArg,
}

/// Which of several recorded samples are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SamplesArg {
    /// Every sample, whatever its temperature
    All,
    /// Those that were sampled, not the greedy one
    Sampled,
    /// The greedy one for the only agent of its level, sampled ones for several
    Auto,
}

impl From<SamplesArg> for SamplePool {
    fn from(samples: SamplesArg) -> Self {
        match samples {
            SamplesArg::All => SamplePool::All,
            SamplesArg::Sampled => SamplePool::Sampled,
            SamplesArg::Auto => SamplePool::Auto,
        }
    }
}

/// What becomes of a call that is not on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnMissArg {
    /// It fails, and says so
    Fail,
    /// The simulated world answers
    Sim,
    /// Items that are not on record are left out
    Skip,
}

impl From<OnMissArg> for OnMiss {
    fn from(given: OnMissArg) -> Self {
        match given {
            OnMissArg::Sim => OnMiss::Simulate,
            OnMissArg::Fail | OnMissArg::Skip => OnMiss::Fail,
        }
    }
}

/// `lemon compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// An evaluation: its id, its folder, or its eval.json
    pub a: String,
    /// Another
    pub b: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lemon world`
#[derive(Debug, Subcommand)]
pub enum WorldCommand {
    /// Fit the simulated workers to recorded outcomes and print the figures as TOML
    Fit {
        /// The folder of task sets, with outcomes/ in it
        #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
        data: PathBuf,
        /// Which world
        #[arg(long, value_name = "NAME", default_value = "calibrated")]
        world: WorldName,
    },
    /// Compare the simulated workers with the record they were fitted to
    Check {
        /// The folder of task sets, with outcomes/ in it
        #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
        data: PathBuf,
        /// Which world
        #[arg(long, value_name = "NAME", default_value = "calibrated")]
        world: WorldName,
        /// Figures of your own, as `lemon world fit` prints them [default: those that ship with this program]
        #[arg(long, value_name = "FILE")]
        figures: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Search for the best team of a set in each third of difficulty
    Teams {
        /// The task set
        #[arg(long, value_name = "NAME", default_value = "gsm8k")]
        set: String,
        /// The split
        #[arg(long, default_value = "test", value_name = "NAME")]
        split: String,
        /// The folder of task sets [default: the sample that ships with this program]
        #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
        data: Option<PathBuf>,
        /// The simulated world
        #[arg(long, value_name = "NAME", default_value = "calibrated")]
        world: WorldName,
        /// What a thousand tokens of the smallest capacity cost, in right answers
        #[arg(long, value_name = "X", default_value_t = 0.01)]
        price: f64,
        /// Teams tried
        #[arg(long, value_name = "N", default_value_t = 200)]
        teams: usize,
        /// The seed of every random choice
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `lemon credit`
#[derive(Debug, Args)]
pub struct CreditArgs {
    /// A run: its team is profiled on its own task, and the credit is added to its trace
    #[arg(value_name = "RUN", conflicts_with_all = ["spec", "limit"])]
    pub run: Option<String>,
    /// A team, profiled on many tasks
    #[arg(long, value_name = "FILE", required_unless_present = "run")]
    pub spec: Option<PathBuf>,
    /// The tasks: a file of JSON lines {"question", "answer"}
    #[arg(long, value_name = "FILE", conflicts_with = "set")]
    pub tasks: Option<PathBuf>,
    /// The tasks: a task set
    #[arg(long, value_name = "NAME")]
    pub set: Option<String>,
    /// The split
    #[arg(long, default_value = "test", value_name = "NAME")]
    pub split: String,
    /// The folder of task sets [default: the sample that ships with this program]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Only the first tasks
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// The kind of workers
    #[arg(long, env = "LEMON_WORKERS", value_name = "KIND", default_value = "sim", value_parser = worker_kind(Scope::Tasks))]
    pub workers: WorkerKind,
    /// The simulated world
    #[arg(long, value_name = "NAME", default_value = "calibrated")]
    pub world: WorldName,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// The seed of every random choice
    #[arg(long, env = "LEMON_SEED", value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Draw fresh noise for simulated agents whose inputs changed, as language models do, instead of common random numbers
    #[arg(long)]
    pub fresh_draws: bool,
    /// How often every task is run, each time with another seed [default: 1 for many tasks, 30 for one]
    #[arg(long, value_name = "N")]
    pub repeats: Option<u64>,
    /// Tokens to spend at most, over everything; with endpoints this or --budget-usd is needed
    #[arg(long, env = "LEMON_BUDGET_TOKENS", value_name = "N")]
    pub budget_tokens: Option<u64>,
    /// US dollars to spend at most, over everything
    #[arg(long, env = "LEMON_BUDGET_USD", value_name = "X", value_parser = super::not_negative)]
    pub budget_usd: Option<f64>,
    /// The team of a second round, for `next: review` [default: one verifier that reads the answers]
    #[arg(long, value_name = "FILE")]
    pub review: Option<PathBuf>,
    /// Which counterfactuals to run where the budget does not allow all
    #[arg(long, value_name = "POLICY", default_value = "information")]
    pub choose: ChoosePolicy,
    /// Only edits of these families: tool,message [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "apply")]
    pub families: Vec<Family>,
    /// Write the improved team here: found on half of the tasks, confirmed on the other half
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "picture"])]
    pub apply: Option<PathBuf>,
    /// Write a picture of the team by worth and cost (SVG) here
    #[arg(long, value_name = "FILE")]
    pub picture: Option<PathBuf>,
    /// Runs at a time [default: 64 simulated, 8 otherwise]
    #[arg(long, env = "LEMON_WIDTH", value_name = "N")]
    pub width: Option<usize>,
    /// Run code without a sandbox, on your own responsibility
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
    #[command(flatten)]
    pub cluster: OnCluster,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// How counterfactuals are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChoosePolicy {
    /// What tells most per token
    Information,
    /// Families by their counterfactual differences so far, as the paper does
    #[value(alias = "contrast")]
    Effect,
}
