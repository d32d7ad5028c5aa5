//! The arguments of `lemon models`.

use super::http_address;
use clap::{Args, Subcommand};
use lemon_workers::models::Reference;

/// `lemon models`
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Fetch a checkpoint or a GGUF file from the Hugging Face hub into its cache, and print where it is
    Pull(PullArgs),
    /// List the models that are here: pulled, Ollama's, LM Studio's, bundled. Every name works as --model NAME
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the small models that `lemon models pull NAME` knows by a short name, with their checksums
    Catalogue {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `lemon models pull`
#[derive(Debug, Args)]
pub struct PullArgs {
    /// OWNER/NAME, OWNER/NAME/FILE.gguf, each with or without @REVISION, or a name that `lemon models catalogue` shows
    #[arg(value_name = "NAME")]
    pub checkpoint: Reference,
    /// The hub, or a mirror of it
    #[arg(long, env = "HF_ENDPOINT", value_name = "URL", value_parser = http_address)]
    pub endpoint: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
