//! The arguments of `lemon validate`, `lemon schema`, `lemon edits` and `lemon trace`.

use super::Endpoints;
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
        format: crate::commands::trace::Format,
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
    /// Compare what two runs did
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
