//! The arguments of `lemon policy`, `lemon sft` and `lemon teach`.

use super::{DeviceName, Endpoints, Scope, WorkerKind, WorldName, worker_kind};
use clap::{Args, Subcommand, ValueEnum};
use lemon_task::SetName;
use lemon_workers::{MOST_AGENTS, PolicySource};
use std::path::PathBuf;

/// Which model.
#[derive(Debug, Clone, Args)]
pub struct ModelArgs {
    /// The folder of a model, as on the Hugging Face hub [default: the small orchestrator that ships with this program]
    #[arg(long, env = "LEMON_POLICY", value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Where it runs
    #[arg(long, default_value = "auto", value_name = "WHERE")]
    pub device: DeviceName,
}

impl ModelArgs {
    /// The model in the words of the library.
    pub fn source(&self) -> PolicySource {
        PolicySource { folder: self.model.clone(), device: self.device.into() }
    }
}

/// `lemon policy`
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Write specifications for a task
    Sample(SampleArgs),
    /// The log-probability of every token of a specification
    Score(ScoreArgs),
    /// What a checkpoint is
    Info {
        #[command(flatten)]
        model: ModelArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `lemon policy sample`
#[derive(Debug, Args)]
pub struct SampleArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The task; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    pub task: String,
    /// How many
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub count: usize,
    /// 0 takes the most likely token each time
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    pub temperature: f32,
    /// Draw only from the likeliest tokens that together have this probability
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    pub top_p: f32,
    /// The seed of the first; the others follow it
    #[arg(long, env = "LEMON_SEED", default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Let the model write anything; what it writes need not be valid
    #[arg(long)]
    pub no_grammar: bool,
    /// Print JSON: `samples[{spec, tokens, logprobs, …}]`
    #[arg(long)]
    pub json: bool,
}

/// `lemon policy score`
#[derive(Debug, Args)]
pub struct ScoreArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// The task; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    pub task: String,
    /// The specification
    #[arg(long, value_name = "FILE")]
    pub spec: PathBuf,
    /// The temperature its probabilities are taken at
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    pub temperature: f32,
    /// Print JSON: `tokens[{text, logprob, forced, field}]`
    #[arg(long)]
    pub json: bool,
}

/// `lemon sft`
#[derive(Debug, Args)]
pub struct SftArgs {
    /// The lessons: a file that `lemon teach` wrote
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// The model to begin with: a folder, or `new` for a small one of our own
    #[arg(long, value_name = "DIR|new")]
    pub model: String,
    /// Where the run and its best model go; a run that was interrupted there continues
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Settings, in TOML; flags go before them
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Steps at most
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Lessons in a step
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Lessons in one pass through the model
    #[arg(long, value_name = "N")]
    pub micro_batch: Option<usize>,
    /// The highest learning rate
    #[arg(long, value_name = "X")]
    pub learning_rate: Option<f64>,
    /// Steps between two evaluations on the validation lessons
    #[arg(long, value_name = "N")]
    pub look_every: Option<u64>,
    /// Held-out evaluations without an improvement after which it stops; 0: never
    #[arg(long, value_name = "N")]
    pub patience: Option<u64>,
    /// The seed of every random choice
    #[arg(long, env = "LEMON_SEED", value_name = "N")]
    pub seed: Option<u64>,
    /// With `--model new`: the size of the vocabulary
    #[arg(long, default_value_t = 2_048, value_name = "N")]
    pub vocabulary: usize,
    /// With `--model new`: the width
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub hidden: usize,
    /// With `--model new`: the layers
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub layers: usize,
    /// Learn adapters of this rank instead of the whole model
    #[arg(long, value_name = "RANK")]
    pub lora: Option<usize>,
    /// Tasks whose teams are tried in the simulated world at every evaluation; 0: none
    #[arg(long, default_value_t = 60, value_name = "N")]
    pub probe: usize,
    /// Where it runs
    #[arg(long, default_value = "auto", value_name = "WHERE")]
    pub device: DeviceName,
    /// How the best model is written
    #[arg(long, default_value = "bf16", value_name = "HOW")]
    pub precision: PrecisionName,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `lemon teach`
#[derive(Debug, Args)]
pub struct TeachArgs {
    /// The teacher
    #[arg(long, value_name = "WHO", default_value = "rules")]
    pub teacher: TeacherName,
    /// With `--teacher rules`: what the rules are after
    #[arg(long, value_name = "WHAT", default_value = "thrift")]
    pub aim: AimName,
    /// The task sets [default: all six; with --data those that have more than a test split: gsm8k, mmlu, aqua]
    #[arg(long = "set", value_name = "NAME", value_delimiter = ',')]
    pub sets: Vec<SetName>,
    /// The folder of task sets; never their test splits [default: tasks of our own]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Tasks of each set
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub count: usize,
    /// With `--teacher rules`: so many everyday tasks of our own as well (texts, plans, facts, greetings, programs in free words)
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub everyday: usize,
    /// In place of sets: so many word problems that the bundled workers never learned from
    #[arg(long, value_name = "N", conflicts_with = "sets")]
    pub problems: Option<usize>,
    /// With `--problems`: only those of so many steps, 1 to 5
    #[arg(long, value_name = "N", requires = "problems")]
    pub problem_steps: Option<usize>,
    /// The kind of workers in the teams that are tried
    #[arg(long, value_name = "KIND", default_value = "sim", value_parser = worker_kind(Scope::Tasks))]
    pub workers: WorkerKind,
    /// With `--teacher search`: search for nothing, teach this team; a duty may be `<worked>`, `<brief>` or `<reworded>`, which are
    /// put in words for each task
    #[arg(long, value_name = "FILE")]
    pub team: Option<PathBuf>,
    /// With `--teacher search`: teams tried for each kind of task
    #[arg(long, default_value_t = 90, value_name = "N")]
    pub teams: usize,
    /// With `--teacher search`: one team for all tasks that ask for the same kind of thing, however difficult they seem
    #[arg(long)]
    pub one_for_all: bool,
    /// With `--teacher search`: of these, so many drawn at random: voting solvers of any capacity, some with a paraphrase, some with a plan
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub drawn: usize,
    /// With `--teacher search`: changes of the best that challenge it in the end, up to all the runs
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub challengers: usize,
    /// With `--teacher search`: agents of a team at most
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_AGENTS)))]
    pub most_agents: u8,
    /// With `--teacher search`: start with two agents and add the others where these disagree, if that earns more
    #[arg(long)]
    pub two_rounds: bool,
    /// With `--teacher search`: runs that a team is chosen by in the end
    #[arg(long, default_value_t = 1200, value_name = "N")]
    pub search_runs: usize,
    /// How often each team is run to see what it earns; 0: not at all
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub runs: u32,
    /// The seed of every random choice
    #[arg(long, env = "LEMON_SEED", default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Where the pairs go, one to a line
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The simulated world that teams are tried in
    #[arg(long, value_name = "NAME", default_value = "calibrated")]
    pub world: WorldName,
    /// Run code without a sandbox, on your own responsibility
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// What the rules are after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AimName {
    /// The most reward at no more tokens than one strong agent takes
    Thrift,
    /// The most reward
    Reward,
}

/// The teachers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TeacherName {
    /// A policy written by hand, from what can be seen of a task
    Rules,
    /// Teams that did best in the simulated world
    Search,
    /// A strong model behind an endpoint
    Endpoint,
    /// Teams drawn at random from those that make sense: a beginning for reinforcement learning
    Broad,
}

/// How numbers are written to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// As they were learned
    F32,
    /// Half the size
    Bf16,
}

impl From<PrecisionName> for lemon_model::Precision {
    fn from(name: PrecisionName) -> Self {
        match name {
            PrecisionName::F32 => lemon_model::Precision::F32,
            PrecisionName::Bf16 => lemon_model::Precision::Bf16,
        }
    }
}
