//! The arguments of `lemon models`.

use super::http_address;
use clap::{Args, Subcommand};
use lemon_workers::models::Reference;

/// `lemon models`
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Fetch a checkpoint from the Hugging Face hub into its cache, and print the folder it is in
    Pull(PullArgs),
    /// List the models that are here: bundled and pulled
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `lemon models pull`
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The checkpoint: OWNER/NAME, or OWNER/NAME@REVISION
    #[arg(value_name = "NAME")]
    pub checkpoint: Reference,
    /// The hub, or a mirror of it
    #[arg(long, env = "HF_ENDPOINT", value_name = "URL", value_parser = http_address)]
    pub endpoint: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
