//! The arguments of `lemon data` and `lemon grade`.

use super::http_address;
use clap::{Args, Subcommand};
use lemon_task::SetName;
use std::path::PathBuf;

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
