//! The arguments of `lemon critic`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `lemon critic`
#[derive(Debug, Subcommand)]
pub enum CriticCommand {
    /// Fit a critic to recorded replies
    Fit(CriticFitArgs),
    /// Test critics on held-out tasks, beside fixed methods, a router and the best choice in hindsight
    Eval(CriticEvalArgs),
}

/// Which sets.
#[derive(Debug, Args)]
pub struct CriticSets {
    /// The task sets
    #[arg(
        long = "set",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "gsm8k,svamp,multiarith,aqua,mmlu,humaneval"
    )]
    pub sets: Vec<String>,
}

/// A language model in place of hashed words.
#[derive(Debug, Args)]
pub struct HeadArgs {
    /// Fit a head on this language model, which reads the question and the team: a folder such as models/orchestrator
    #[arg(long, value_name = "DIR")]
    pub on: Option<PathBuf>,
    /// Leave the model as it is, and fit the head alone
    #[arg(long, requires = "on")]
    pub frozen: bool,
    /// Passes over the tasks
    #[arg(long, value_name = "N", requires = "on", default_value_t = 4)]
    pub epochs: usize,
    /// The highest learning rate
    #[arg(long, value_name = "X", requires = "on", default_value_t = 5e-4)]
    pub learning_rate: f64,
}

/// `lemon critic fit`
#[derive(Debug, Args)]
pub struct CriticFitArgs {
    /// The folder of task sets, with outcomes/ in it
    #[arg(long, env = "LEMON_DATA", value_name = "DIR", required_unless_present = "pairs")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub sets: CriticSets,
    /// Fit a head to teams that `lemon teach` has run, in place of recorded replies
    #[arg(long, value_name = "FILE", requires = "on")]
    pub pairs: Option<PathBuf>,
    /// The file of the critic; with --on the folder of the head
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    pub head: HeadArgs,
    /// The seed of every random choice
    #[arg(long, env = "LEMON_SEED", value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Learn from the held-out tasks too
    #[arg(long)]
    pub all: bool,
    /// The model whose replies these are: the critic is then used with models of that name alone
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
}

/// `lemon critic eval`
#[derive(Debug, Args)]
pub struct CriticEvalArgs {
    /// The folder of task sets, with outcomes/ in it
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: PathBuf,
    #[command(flatten)]
    pub sets: CriticSets,
    /// Test this critic on all recorded test items that it was not fitted to, in place of fitting any; `bundled`: the one
    /// that ships with this program
    #[arg(long, value_name = "FILE", conflicts_with = "cross")]
    pub critic: Option<PathBuf>,
    /// Cross-validate in so many parts on the tasks to train on, and leave the held-out ones alone
    #[arg(long, value_name = "N")]
    pub cross: Option<usize>,
    /// Test these heads too, one for each seed, in turn: folders that `lemon critic fit --on` wrote
    #[arg(long, value_name = "DIR", value_delimiter = ',', conflicts_with_all = ["critic", "cross"])]
    pub head: Vec<PathBuf>,
    /// Hold the critic's first team to one reasoner, as `lemon run` does
    #[arg(long)]
    pub guard: bool,
    /// Hide how sure replies are, as with endpoints that do not say
    #[arg(long)]
    pub hide_sure: bool,
    /// Critics that are fitted and tested, or orders of the replies, with seeds from 1
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub seeds: u64,
    /// Rounds of calls at most
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub rounds: u32,
    /// What 1,000 tokens are worth, in rewards
    #[arg(long = "prices", value_name = "X", value_delimiter = ',')]
    pub prices: Vec<f64>,
    /// Write one line for each method, seed and task
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
