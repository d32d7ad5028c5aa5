//! The arguments of `lemon tools` and `lemon mcp`.

use super::{BudgetArgs, Endpoints, Scope, WorkerKind, not_negative, worker_kind};
use clap::{Args, Subcommand};
use std::net::SocketAddr;

/// `lemon tools`
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that agents may call, and those that cannot be used
    List {
        /// Print JSON, with the schemas
        #[arg(long)]
        json: bool,
    },
    /// Call a tool once and print its result
    Call {
        /// The tool: `calculator`, `python`, or SERVER.TOOL
        name: String,
        /// Its arguments, a JSON object [default: none]
        #[arg(value_name = "JSON")]
        arguments: Option<String>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check every tool: does the sandbox work, does each server start, what does it offer
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `lemon mcp`
#[derive(Debug, Args)]
pub struct McpArgs {
    /// Serve streamable HTTP at this address, under /mcp [default: standard input and output]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub http: Option<SocketAddr>,
    #[command(flatten)]
    pub budget: BudgetArgs,
    /// Seconds one run may take at most
    #[arg(long, env = "LEMON_TIMEOUT", value_name = "S", value_parser = not_negative)]
    pub timeout: Option<f64>,
    /// Tokens that all runs of this server may spend together
    #[arg(long, value_name = "N")]
    pub total_tokens: Option<u64>,
    /// The kind of workers [default: as for `lemon run`]
    #[arg(long, env = "LEMON_WORKERS", value_name = "KIND", value_parser = worker_kind(Scope::Run))]
    pub workers: Option<WorkerKind>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}
