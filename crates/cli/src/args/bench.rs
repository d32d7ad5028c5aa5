//! The arguments of `lemon bench`.

use super::cluster::Nats;
use super::{DeviceName, Endpoints};
use clap::Subcommand;
use std::path::PathBuf;

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
        /// The sizes: 3m, 12m, 42m, 285m, 7b (adapters only) [default: 3m on the CPU; 42m and 285m on a GPU]
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
    /// Measure the processor time that a call of a tool takes beside the tool itself
    Tools {
        /// Calls
        #[arg(long, default_value_t = 16_000, value_name = "N", value_parser = at_least_one)]
        calls: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure what `lemon serve` adds to what the model takes
    Api(ApiArgs),
    /// Compare answers with one plain call to the same model, question by question
    Answers(Box<AnswersArgs>),
    /// Measure what the coordinator of a cluster costs, and how busy it keeps the workers
    Cluster(ClusterBenchArgs),
    /// A worker of that measurement, in a process of its own
    #[command(hide = true)]
    ClusterWorker(ClusterWorkerArgs),
    /// Measure how fast a model of this machine is served, beside llama.cpp if asked for
    Serve(ServeArgs),
    /// The engine for one round of `serve`, in a process of its own
    #[command(hide = true)]
    ServeWorker {
        /// The model
        #[arg(long)]
        model: PathBuf,
        /// Threads
        #[arg(long)]
        threads: usize,
        /// How weights are stored
        #[arg(long)]
        weights: WeightsName,
    },
    /// The fake endpoint, in a process of its own
    #[command(hide = true)]
    FakeEndpoint {
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

/// `lemon bench cluster`
#[derive(Debug, clap::Args)]
pub struct ClusterBenchArgs {
    #[command(flatten)]
    pub nats: Nats,
    /// Worker processes
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = at_least_one)]
    pub workers: usize,
    /// Runs at a time of each
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = at_least_one)]
    pub slots: usize,
    /// Runs of each measurement
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = at_least_one)]
    pub jobs: usize,
    /// Milliseconds of a call, where calls take time
    #[arg(long, default_value_t = 50, value_name = "MS")]
    pub call_ms: u64,
    /// Fake workers in this process
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = at_least_one)]
    pub fakes: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lemon bench cluster-worker`
#[derive(Debug, clap::Args)]
pub struct ClusterWorkerArgs {
    #[command(flatten)]
    pub nats: Nats,
    /// Runs at a time
    #[arg(long)]
    pub slots: usize,
    /// Milliseconds of a call
    #[arg(long)]
    pub call_ms: u64,
}

/// `lemon bench api`.
#[derive(Debug, clap::Args)]
pub struct ApiArgs {
    /// Milliseconds the fake endpoint takes for each call
    #[arg(long, default_value_t = 50, value_name = "MS")]
    pub latency_ms: u64,
    /// Requests
    #[arg(long, default_value_t = 4_000, value_name = "N", value_parser = at_least_one)]
    pub requests: usize,
    /// Requests at a time
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = at_least_one)]
    pub width: usize,
    /// Streams that wait for a model that does not answer; 0 leaves them out
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    pub connections: usize,
    /// The address of another proxy with an endpoint of the same latency, up to /v1
    #[arg(long, value_name = "URL")]
    pub against: Option<String>,
    /// The model there
    #[arg(long, default_value = "fake", value_name = "NAME")]
    pub against_model: String,
    /// Its process, for its processor time
    #[arg(long, value_name = "PID")]
    pub against_pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("expected a whole number of at least 1".to_owned()),
    }
}

/// `lemon bench serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// The model: a GGUF file, or a folder as on the Hugging Face hub (without --against)
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// The program to compare with, in the same minute and on the same prompts
    #[arg(long, value_name = "PROGRAM")]
    pub against: Option<Rival>,
    /// The Python that has the package `xllamacpp`
    #[arg(long, env = "LEMON_PYTHON", default_value = "python3", value_name = "FILE")]
    pub python: PathBuf,
    /// Rounds; medians are shown
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: usize,
    /// Threads of each program [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Texts at once in the second measurement
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub texts: usize,
    /// How the engine stores weights
    #[arg(long, default_value = "stored", value_name = "FORM")]
    pub weights: WeightsName,
    /// The instructions that the engine may use: avx512, avx2 or portable [default: the best of this processor]
    #[arg(long, value_name = "SET")]
    pub simd: Option<String>,
    /// Remove the file from the page cache before each start (Linux)
    #[arg(long)]
    pub cold: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How the engine stores weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WeightsName {
    /// As in the file
    Stored,
    /// One byte each
    Int8,
    /// Four bytes each
    F32,
}

impl From<WeightsName> for lemon_engine::WeightForm {
    fn from(name: WeightsName) -> Self {
        match name {
            WeightsName::Stored => Self::Stored,
            WeightsName::Int8 => Self::Int8,
            WeightsName::F32 => Self::F32,
        }
    }
}

/// A program that serves models as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Rival {
    /// llama.cpp, from the Python package `xllamacpp`
    #[value(name = "llama.cpp")]
    LlamaCpp,
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
