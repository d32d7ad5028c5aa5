//! The arguments of `lemon worker` and `lemon cluster`, and those of commands that other machines run for.

use clap::{Args, Subcommand};
use std::net::SocketAddr;

/// Where the cluster is.
#[derive(Debug, Clone, Args)]
pub struct Nats {
    /// The NATS server with JetStream: nats://HOST:PORT or tls://HOST:PORT, several separated by commas
    #[arg(long = "nats", env = "LEMON_NATS", hide_env_values = true, value_name = "URL", value_parser = nats_address)]
    pub address: String,
    /// The project: a part of every name on the server, so that projects can share it
    #[arg(long, env = "LEMON_PROJECT", value_name = "NAME", default_value = "default")]
    pub project: String,
}

/// Whether other machines make the runs.
#[derive(Debug, Clone, Args)]
pub struct OnCluster {
    /// Have the workers of a cluster make the runs: the address of its NATS server
    #[arg(long, env = "LEMON_CLUSTER", hide_env_values = true, value_name = "URL", value_parser = nats_address)]
    pub cluster: Option<String>,
    /// The project of the cluster
    #[arg(long, env = "LEMON_PROJECT", value_name = "NAME", default_value = "default")]
    pub project: String,
}

/// `lemon worker`
#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    pub nats: Nats,
    /// Runs at a time [default: the processors of this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub slots: Option<u16>,
    /// The name that the status shows [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// How often a job is tried before it is given up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub tries: u32,
    /// Serve Prometheus metrics at this address, under /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Run code without a sandbox, on your own responsibility
    #[arg(long)]
    pub unsafe_no_sandbox: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// `lemon cluster`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show workers, slots, the queue, rates and failures
    Status {
        #[command(flatten)]
        nats: Nats,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn nats_address(text: &str) -> Result<String, String> {
    let known = |address: &str| ["nats://", "tls://"].iter().any(|scheme| address.trim().starts_with(scheme));
    match text.split(',').all(known) {
        true => Ok(text.to_owned()),
        false => Err("it must begin with nats:// or tls://".into()),
    }
}
