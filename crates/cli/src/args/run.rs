//! The arguments of `lemon run` and `lemon plan`.

use super::{BudgetArgs, Endpoints, Scope, WorkerKind, not_negative, worker_kind};
use clap::Args;
use std::path::PathBuf;

/// `lemon run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The task; `-` reads it from standard input
    #[arg(value_name = "TASK", conflicts_with_all = ["tasks", "resume"])]
    pub task: Option<String>,
    /// Many tasks: a file of JSON lines {"id", "question"}
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub tasks: Option<PathBuf>,
    /// With --tasks: end with exit code 1 if a line of the file was skipped
    #[arg(long)]
    pub strict: bool,
    /// The team; without it the configured orchestrator writes one
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// The form of the answer: open, short, choice, number, code or json [default: as the question reads]
    #[arg(long, value_name = "FORM")]
    pub form: Option<lemon_exec::Form>,
    /// Write the team and say what it can cost at most, as `lemon plan` does; nothing is sent to the workers
    #[arg(long, conflicts_with_all = ["tasks", "resume", "record"])]
    pub dry_run: bool,
    /// With `lemon plan` or --dry-run: have the team written even where that takes a paid call to a model
    #[arg(long, conflicts_with_all = ["tasks", "resume", "record"])]
    pub write: bool,
    /// Resume a run or a batch of tasks; `last` is the newest run
    #[arg(long, value_name = "RUN")]
    pub resume: Option<String>,
    /// With --resume: continue an answer that was cut off at `max_tokens` where it stopped
    #[arg(long = "continue", requires = "resume", conflicts_with_all = ["task", "tasks"])]
    pub go_on: bool,
    /// With --resume: use other models than the run was started with
    #[arg(long, requires = "resume")]
    pub anyway: bool,
    /// Let tools run that may change something; without it a person is asked on a terminal, or they do not run
    #[arg(long, env = "LEMON_ALLOW_TOOLS")]
    pub allow_tools: bool,
    /// With --resume: make a call of a tool that waits for approval: AGENT/CALL, as `lemon trace show` names it
    #[arg(long, requires = "resume", value_name = "CALL")]
    pub approve: Vec<String>,
    /// With --resume: tell the agent that the call is denied
    #[arg(long, requires = "resume", value_name = "CALL")]
    pub deny: Vec<String>,
    #[command(flatten)]
    pub budget: BudgetArgs,
    /// Seconds the run may take
    #[arg(long, env = "LEMON_TIMEOUT", value_name = "S", value_parser = not_negative)]
    pub timeout: Option<f64>,
    /// Tokens a reply may have at most [default: `max_tokens` of each capacity]
    #[arg(long, env = "LEMON_MAX_TOKENS", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,
    /// Tasks at a time [default: 8]
    #[arg(long, env = "LEMON_WIDTH", value_name = "N")]
    pub width: Option<usize>,
    /// The seed of every random choice [default: 0]
    #[arg(long, env = "LEMON_SEED", value_name = "N")]
    pub seed: Option<u64>,
    /// The kind of workers [default: the configured ones, or else a server that runs here, a pulled checkpoint, or the bundled
    /// models]
    #[arg(long, env = "LEMON_WORKERS", value_name = "KIND", value_parser = worker_kind(Scope::Run))]
    pub workers: Option<WorkerKind>,
    /// What scripted workers say, in TOML
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// The cassette to replay
    #[arg(long, value_name = "FILE")]
    pub cassette: Option<PathBuf>,
    /// Record every call into a new cassette
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Ask again even where the same call is on record
    #[arg(long)]
    pub no_reuse: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
    /// Print the result as JSON (with --tasks one object a line)
    #[arg(long)]
    pub json: bool,
    /// Print all that each agent said, too: in the JSON, or on standard error
    #[arg(long)]
    pub replies: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}
