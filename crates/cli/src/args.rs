//! The words of the command line. Parsed first; resolved by the commands.

mod eval;
pub mod models;
pub mod policy;
pub mod pretrain;
pub mod train;

pub use eval::{ChoosePolicy, CompareArgs, CreditArgs, EvalArgs, EvalWorkers, OnMiss, WorldCommand, WorldName};

use clap::{Args, Parser, Subcommand, ValueEnum};
use lemon_task::SetName;
use policy::{PolicyCommand, SftArgs, TeachArgs};
use std::path::PathBuf;

/// LEMON: it learns to write the team.
///
/// A question becomes a team of language-model agents; the team runs on your endpoints inside a hard budget; everything
/// that happened is on record.
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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented lemon.toml into this folder
    Init(InitArgs),
    /// Check each endpoint: is it reachable, does the key work, does it report usage; say what else is on this machine
    Doctor(DoctorArgs),
    /// Run a task, or many
    Run(Box<RunArgs>),
    /// Write the team of a task and say what running it can cost at most; nothing is sent to the workers
    Plan(Box<RunArgs>),
    /// Check a specification and say everything that is wrong with it
    Validate(ValidateArgs),
    /// Print the JSON Schema of specifications, for endpoints with structured output
    Schema(SchemaArgs),
    /// List every edit that applies to a specification, with the spans it changes
    Edits(EditsArgs),
    /// Look at runs: list, show, export, diff
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Task sets: download them, and say which are in a folder and whether they are whole
    #[command(subcommand)]
    Data(DataCommand),
    /// Grade replies made elsewhere
    Grade(GradeArgs),
    /// Run methods side by side on a task set: accuracy with intervals, tokens, paired tests, a page to look at
    Eval(Box<EvalArgs>),
    /// Say what two evaluations found differently, on the items they share
    Compare(CompareArgs),
    /// What is each decision of a team worth? Change it, run what the change can reach, and see
    Credit(Box<CreditArgs>),
    /// The simulated workers: fit them, check them, search for their best teams
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
    /// The orchestrator's own model: have it write, score what it might have written, say what it is
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Checkpoints to work with: fetch them from the Hugging Face hub, say which are here
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
    /// The address of an OpenAI-compatible endpoint, up to /v1, for every capacity level
    #[arg(long, env = "LEMON_BASE_URL", hide_env_values = true, value_name = "URL", value_parser = http_address)]
    pub base_url: Option<String>,
    /// The model there, for every capacity level
    #[arg(long, env = "LEMON_MODEL", value_name = "NAME")]
    pub model: Option<String>,
    /// The environment variable that holds the key of that endpoint
    #[arg(long, env = "LEMON_API_KEY_ENV", value_name = "VARIABLE")]
    pub api_key_env: Option<String>,
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

/// `lemon run`
#[derive(Debug, Default, Args)]
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
    /// Take a run or a batch of tasks up again; `last` is the newest run
    #[arg(long, value_name = "RUN")]
    pub resume: Option<String>,
    /// With --resume: an answer that was cut off at `max_tokens` goes on where it stopped
    #[arg(long = "continue", requires = "resume", conflicts_with_all = ["task", "tasks"])]
    pub go_on: bool,
    /// Go on with other models than the run was started with (with --resume)
    #[arg(long, requires = "resume")]
    pub anyway: bool,
    /// Tokens the run may spend
    #[arg(long, env = "LEMON_BUDGET_TOKENS", value_name = "N")]
    pub budget_tokens: Option<u64>,
    /// US dollars the run may spend
    #[arg(long, env = "LEMON_BUDGET_USD", value_name = "X", value_parser = not_negative)]
    pub budget_usd: Option<f64>,
    /// Calls the run may make
    #[arg(long, env = "LEMON_BUDGET_CALLS", value_name = "N")]
    pub budget_calls: Option<u64>,
    /// Seconds the run may take
    #[arg(long, env = "LEMON_TIMEOUT", value_name = "S", value_parser = not_negative)]
    pub timeout: Option<f64>,
    /// Tokens a reply may have at most [default: `max_tokens` of each capacity level]
    #[arg(long, env = "LEMON_MAX_TOKENS", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,
    /// Tasks at a time [default: 8]
    #[arg(long, env = "LEMON_WIDTH", value_name = "N")]
    pub width: Option<usize>,
    /// The seed of every random choice [default: 0]
    #[arg(long, env = "LEMON_SEED", value_name = "N")]
    pub seed: Option<u64>,
    /// Who answers [default: what is configured, or else a server that runs here, a pulled checkpoint, or the box]
    #[arg(long, env = "LEMON_WORKERS", value_name = "KIND")]
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

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerKind {
    /// The configured endpoints
    Endpoints,
    /// Models in this process: those of `local = …` in the configuration, or pulled ones, or those in the box
    Local,
    /// The small models that ship with this program: they solve arithmetic word problems only
    #[value(name = "box")]
    InTheBox,
    /// A cassette
    Replay,
    /// A script; no model is called
    Scripted,
}

impl WorkerKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            WorkerKind::Endpoints => "endpoints",
            WorkerKind::Local => "local",
            WorkerKind::InTheBox => "box",
            WorkerKind::Replay => "replay",
            WorkerKind::Scripted => "scripted",
        }
    }
}

/// `lemon validate`
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The specification; `-` reads standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub endpoints: Endpoints,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lemon schema`
#[derive(Debug, Args)]
pub struct SchemaArgs {
    #[command(flatten)]
    pub endpoints: Endpoints,
}

/// `lemon edits`
#[derive(Debug, Args)]
pub struct EditsArgs {
    /// The specification; `-` reads standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub endpoints: Endpoints,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lemon trace`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// List runs, newest first
    List {
        /// How many at most
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a run: the team, what each agent did and cost
    Show {
        /// The run: its id, the beginning of it, or `last`
        #[arg(default_value = "last")]
        run: String,
        /// Print all that each agent said, too
        #[arg(long)]
        replies: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a run in a form other tools read, or a picture or page to look at
    Export {
        /// The run: its id, the beginning of it, or `last`
        #[arg(default_value = "last")]
        run: String,
        /// The form
        #[arg(long, short, value_enum)]
        format: Format,
        /// The file [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Send it to an OpenTelemetry collector instead (format otlp), for instance http://localhost:4318
        #[arg(long, value_name = "URL", conflicts_with = "out")]
        send: Option<String>,
        /// Include the texts (format schema; the others always do, except otlp)
        #[arg(long)]
        content: bool,
    },
    /// Say what two runs did differently
    Diff {
        /// One run
        a: String,
        /// The other
        b: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The forms of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The published orchestration-trace schema, JSON
    Schema,
    /// One event a line
    Jsonl,
    /// OpenTelemetry GenAI spans, OTLP JSON
    Otlp,
    /// A picture of the team
    Svg,
    /// One self-contained page
    Html,
}

/// `lemon data`
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Read everything in a folder and say what is there: records, checksums, faults
    Check {
        /// The folder, laid out as gsm8k/test.jsonl, mmlu/val/*.csv and so on
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Download the public task sets; only files with the known checksums get their place
    Fetch(FetchArgs),
}

/// `lemon data fetch`
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// The folder, made if there is none; files that are there and right are kept
    pub dir: PathBuf,
    /// Only this set; repeat it for more [default: all]
    #[arg(long = "set", value_name = "NAME")]
    pub sets: Vec<SetName>,
    /// A mirror, in the place of scheme and host of every source
    #[arg(long, value_name = "URL", value_parser = http_address)]
    pub from: Option<String>,
    /// A table of your own: a JSON list of {set, path, url, sha256, bytes, license}
    #[arg(long, value_name = "FILE")]
    pub sources: Option<PathBuf>,
    /// Replace files that are there and differ
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lemon grade`
#[derive(Debug, Args)]
pub struct GradeArgs {
    /// The task set: mmlu, gsm8k, aqua, multiarith, svamp, humaneval, humaneval-py
    #[arg(long, value_name = "NAME")]
    pub set: String,
    /// The folder of task sets [default: the sample that ships with this program]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The split
    #[arg(long, default_value = "test", value_name = "NAME")]
    pub split: String,
    /// The replies: a file of JSON lines {"item", "reply"}, item = position in the set from 0
    #[arg(long, value_name = "FILE")]
    pub replies: PathBuf,
    /// Run code without a sandbox, on your own responsibility
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lemon bench`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Run teams of eight agents against a fake endpoint on loopback and compare with what the critical path allows
    Teams {
        /// Milliseconds the fake endpoint takes for each call
        #[arg(long, default_value_t = 50, value_name = "MS")]
        latency_ms: u64,
        /// Teams in the wide run
        #[arg(long, default_value_t = 400, value_name = "N")]
        teams: usize,
        /// Teams at a time in the wide run
        #[arg(long, default_value_t = 100, value_name = "N")]
        width: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Train and write with models of several sizes, fused operations and composed ones side by side
    Policy {
        /// The sizes: 3m, 42m, 285m, 7b (adapters only) [default: 3m on the CPU; 42m and 285m on a GPU]
        #[arg(long, value_name = "SIZE", value_delimiter = ',')]
        shapes: Vec<String>,
        /// Where
        #[arg(long, default_value = "auto", value_name = "WHERE")]
        device: DeviceName,
        /// Steps that are timed
        #[arg(long, default_value_t = 10, value_name = "N")]
        steps: usize,
        /// Leave the composed operations out
        #[arg(long)]
        fused_only: bool,
        /// Compare every operation with plain arithmetic first
        #[arg(long)]
        check: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare answers with one plain call to the same model, question by question
    Answers(Box<AnswersArgs>),
    /// The fake endpoint, in a process of its own
    #[command(hide = true)]
    Serve {
        /// Milliseconds for each call
        #[arg(long)]
        latency_ms: u64,
    },
    /// One measurement, in a process of its own
    #[command(hide = true)]
    Scenario {
        /// The endpoint
        #[arg(long)]
        base_url: String,
        /// Teams
        #[arg(long)]
        teams: usize,
        /// Teams at a time
        #[arg(long)]
        width: usize,
        /// Teams run before, all at once, to open connections
        #[arg(long)]
        warm: usize,
    },
}

fn http_address(text: &str) -> Result<String, String> {
    match text.starts_with("http://") || text.starts_with("https://") {
        true => Ok(text.to_owned()),
        false => Err("it must begin with http:// or https://".into()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        Ok(_) => Err("it must be 0 or more".into()),
        Err(_) => Err("it is not a number".into()),
    }
}

/// `lemon bench answers`.
#[derive(Debug, clap::Args)]
pub struct AnswersArgs {
    /// Questions with checks: JSON lines {"id", "question", "check"}
    #[arg(long, value_name = "FILE")]
    pub questions: Vec<PathBuf>,
    /// Task sets as well: gsm8k, svamp, multiarith, aqua, mmlu, humaneval
    #[arg(long = "set", value_name = "SET", value_delimiter = ',')]
    pub sets: Vec<String>,
    /// The folder of the task sets [default: the sample that ships with this program]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The split of the task sets
    #[arg(long, default_value = "test", value_name = "SPLIT")]
    pub split: String,
    /// Items of each set at most, spread evenly over it
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// What is compared with `plain`: lemon (what `lemon run` does), prompted, or a method of `lemon eval`
    #[arg(long, value_name = "METHOD", value_delimiter = ',', default_values = ["lemon", "prompted"])]
    pub methods: Vec<String>,
    /// Tokens that the whole comparison may spend
    #[arg(long, value_name = "N")]
    pub budget_tokens: Option<u64>,
    /// Questions at a time
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub width: usize,
    /// The seed of every random choice
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Write the table as Markdown into this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print every question with its checks as JSON lines
    #[arg(long)]
    pub json: bool,
    /// Run code without a sandbox, on your own responsibility
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
}
