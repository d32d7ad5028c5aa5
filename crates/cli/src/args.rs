//! The command line. It is parsed first; each command then resolves its configuration once.

mod bench;
mod cluster;
pub mod critic;
mod data;
mod eval;
mod inspect;
pub mod models;
pub mod policy;
pub mod pretrain;
mod run;
mod serve;
mod tools;
pub mod train;

pub use bench::{AnswersArgs, ApiArgs, BenchCommand, ClusterBenchArgs, ClusterWorkerArgs, Rival, ServeArgs};
pub use cluster::{ClusterCommand, OnCluster, WorkerArgs};
pub use data::{DataCommand, FetchArgs, GradeArgs};
pub use eval::{
    BaselineCommand, BaselineTrainArgs, ChoosePolicy, CompareArgs, CreditArgs, EvalArgs, OnMissArg, ReplayArgs,
    RivalArgs, WorldCommand, WorldName,
};
pub use inspect::{EditsArgs, SchemaArgs, TraceCommand, ValidateArgs};
pub use lemon_workers::{Scope, WorkerKind};
pub use run::RunArgs;
pub use serve::{KeysCommand, ServerArgs};
pub use tools::{McpArgs, ToolsCommand};

use crate::fault::Fault;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use lemon_exec::Budget;
use lemon_workers::{Config, EndpointFlags};
use policy::{PolicyCommand, SftArgs, TeachArgs};
use std::path::PathBuf;

/// LEMON answers a task with one model call or with a team of agents, inside a hard budget.
///
/// An orchestrator writes the team. The team runs on your endpoints or on models of this machine. A trace records every event.
#[derive(Debug, Parser)]
#[command(name = "lemon", version, max_term_width = 100)]
pub struct Cli {
    /// The configuration [default: lemon.toml in this folder, if there is one]
    #[arg(long, global = true, env = "LEMON_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The store of runs [default: .lemon/lemon.db]
    #[arg(long, global = true, env = "LEMON_STORE", value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The configuration, with these endpoint flags applied.
    ///
    /// # Errors
    /// The file cannot be read, or says something that cannot be understood.
    pub fn config(&self, endpoints: &Endpoints) -> Result<Config, Fault> {
        let Endpoints { base_url, model, api_key_env, device } = endpoints.clone();
        let device = device.map(Into::into);
        let config = Config::load(self.config.as_deref())?.with_store(self.store.as_deref());
        Ok(config.with_endpoint(EndpointFlags { base_url, model, api_key_env, device }))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented lemon.toml into this folder
    Init(InitArgs),
    /// Check each endpoint (reachable, key accepted, usage reported), and list other models on this machine
    Doctor(DoctorArgs),
    /// Run a task, or many
    Run(Box<RunArgs>),
    /// Write the team of a task and print the most it can cost; nothing is sent to the workers
    Plan(Box<RunArgs>),
    /// Check a specification and report every fault
    Validate(ValidateArgs),
    /// Print the JSON Schema of specifications, for endpoints with structured output
    Schema(SchemaArgs),
    /// List every edit that applies to a specification, with the spans it changes
    Edits(EditsArgs),
    /// List, show, export and compare runs
    #[command(subcommand)]
    Trace(TraceCommand),
    /// The tools that agents may call: list them, call one, check them
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Serve LEMON to other programs as an MCP server: run, check and profile teams, read runs
    Mcp(McpArgs),
    /// Serve teams as an OpenAI-compatible model, with a web application
    Serve(Box<ServerArgs>),
    /// Keys for `lemon serve`, with budgets
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Download task sets, and check the files in a folder
    #[command(subcommand)]
    Data(DataCommand),
    /// Grade replies made elsewhere
    Grade(GradeArgs),
    /// Run methods side by side on a task set: accuracy with intervals, tokens, paired tests, an HTML page
    Eval(Box<EvalArgs>),
    /// Make runs for other machines, as a worker of a cluster
    Worker(WorkerArgs),
    /// Show the workers of a cluster, its queue and its failed jobs
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Train published methods that learn to design teams
    #[command(subcommand)]
    Baseline(BaselineCommand),
    /// Compare two evaluations on the items they share
    Compare(CompareArgs),
    /// Measure what each decision of a team is worth: change it, and run what the change can reach
    Credit(Box<CreditArgs>),
    /// Fit a critic of decisions to recorded replies, and test it on held-out tasks
    #[command(subcommand)]
    Critic(critic::CriticCommand),
    /// Fit and check the simulated workers, and search for their best teams
    #[command(subcommand)]
    World(WorldCommand),
    /// Make pairs of tasks and specifications to learn from
    Teach(Box<TeachArgs>),
    /// Teach a model to write teams, from pairs of tasks and specifications
    Sft(Box<SftArgs>),
    /// Train small workers on word problems, and on what a team asks about them
    Pretrain(Box<pretrain::PretrainArgs>),
    /// Train the orchestrator: group-relative rewards, and credit for every single decision
    Train(Box<train::TrainArgs>),
    /// Compare ways to train: many runs, intervals, paired tests, figures
    Ablate(Box<train::AblateArgs>),
    /// Sample specifications from the orchestrator's model, score one, show what the model is
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Fetch models from the Hugging Face hub, and list those on this machine
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Measure this program on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Where a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum DeviceName {
    /// On an NVIDIA GPU if there is one and this build can use it, else on the CPU
    #[default]
    Auto,
    /// On the CPU
    Cpu,
    /// On an NVIDIA GPU
    Cuda,
}

impl From<DeviceName> for lemon_model::DeviceChoice {
    fn from(name: DeviceName) -> Self {
        match name {
            DeviceName::Auto => lemon_model::DeviceChoice::Auto,
            DeviceName::Cpu => lemon_model::DeviceChoice::Cpu,
            DeviceName::Cuda => lemon_model::DeviceChoice::Cuda,
        }
    }
}

/// `lemon init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Overwrite a lemon.toml that is there
    #[arg(long)]
    pub force: bool,
}

/// Where models are served, over what the configuration says.
#[derive(Debug, Clone, Default, Args)]
pub struct Endpoints {
    /// The address of an OpenAI-compatible endpoint, up to /v1, for every capacity
    #[arg(long, env = "LEMON_BASE_URL", hide_env_values = true, value_name = "URL", value_parser = http_address)]
    pub base_url: Option<String>,
    /// The model there, for every capacity
    #[arg(long, env = "LEMON_MODEL", value_name = "NAME")]
    pub model: Option<String>,
    /// The environment variable that holds the key of that endpoint
    #[arg(long, env = "LEMON_API_KEY_ENV", value_name = "VARIABLE")]
    pub api_key_env: Option<String>,
    /// Where models of this process run [default: auto]
    #[arg(long, env = "LEMON_DEVICE", value_enum, value_name = "WHERE")]
    pub device: Option<DeviceName>,
}

/// `lemon doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub endpoints: Endpoints,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn http_address(text: &str) -> Result<String, String> {
    match text.starts_with("http://") || text.starts_with("https://") {
        true => Ok(text.to_owned()),
        false => Err("it must begin with http:// or https://".into()),
    }
}

/// What a run may spend.
#[derive(Debug, Clone, Default, Args)]
pub struct BudgetArgs {
    /// Tokens a run may spend
    #[arg(long, env = "LEMON_BUDGET_TOKENS", value_name = "N")]
    pub budget_tokens: Option<u64>,
    /// US dollars a run may spend
    #[arg(long, env = "LEMON_BUDGET_USD", value_name = "X", value_parser = not_negative)]
    pub budget_usd: Option<f64>,
    /// Calls a run may make
    #[arg(long, env = "LEMON_BUDGET_CALLS", value_name = "N")]
    pub budget_calls: Option<u64>,
}

impl BudgetArgs {
    /// The budget, with the time a run may take.
    pub fn budget(&self, seconds: Option<f64>) -> Budget {
        Budget { tokens: self.budget_tokens, usd: self.budget_usd, calls: self.budget_calls, seconds }
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        Ok(_) => Err("it must be 0 or more".into()),
        Err(_) => Err("it is not a number".into()),
    }
}

/// Reads the name of a worker kind that commands of this scope offer.
fn worker_kind(scope: Scope) -> impl TypedValueParser<Value = WorkerKind> {
    let value = |kind: WorkerKind| {
        let entry = kind.entry();
        PossibleValue::new(entry.name).help(entry.about).aliases(entry.aliases.iter().copied())
    };
    PossibleValuesParser::new(WorkerKind::all(scope).map(value)).try_map(move |name| WorkerKind::named(scope, &name))
}
