//! The arguments of `lemon serve` and `lemon keys`.

use super::cluster::nats_address;
use super::{BudgetArgs, Endpoints, Scope, WorkerKind, not_negative, worker_kind};
use clap::{Args, Subcommand};
use lemon_server::keys::Period;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `lemon serve`
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Where to listen; other addresses than those of this machine need keys
    #[arg(long, env = "LEMON_ADDR", default_value = "127.0.0.1:8137", value_name = "ADDRESS:PORT")]
    pub addr: SocketAddr,
    /// A name the server may be called by, beside addresses and `localhost`
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// A site whose pages may ask the server, for instance https://chat.example.org
    #[arg(long, value_name = "URL")]
    pub origin: Vec<String>,
    /// Refuse clients without a key, on this machine too
    #[arg(long, env = "LEMON_REQUIRE_KEY")]
    pub require_key: bool,
    #[command(flatten)]
    pub budget: BudgetArgs,
    /// Seconds one run may take at most
    #[arg(long, env = "LEMON_TIMEOUT", default_value_t = 600.0, value_name = "S", value_parser = not_negative)]
    pub timeout: f64,
    /// Runs at a time
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub max_runs: usize,
    /// Connections at a time
    #[arg(long, default_value_t = 4_000, value_name = "N")]
    pub max_connections: usize,
    /// Kilobytes of a request at most
    #[arg(long, default_value_t = 4_096, value_name = "KB")]
    pub max_body_kb: usize,
    /// Seconds that runs may go on once the server was told to end
    #[arg(long, default_value_t = 30, value_name = "S")]
    pub grace: u64,
    /// The folder of team files: NAME.yaml is the model `lemon/NAME`
    #[arg(long, default_value = "teams", value_name = "DIR")]
    pub teams: PathBuf,
    /// The folder below which trained orchestrators lie: PATH there is the model `lemon/policy:PATH`
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub policies: PathBuf,
    /// A folder with evaluations and trainings to show [default: runs, results]
    #[arg(long, value_name = "DIR")]
    pub results: Vec<PathBuf>,
    /// Send finished runs to this OpenTelemetry collector, for instance http://localhost:4318
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp: Option<String>,
    /// Show this cluster on the System page and in the metrics: the address of its NATS server
    #[arg(long = "nats", env = "LEMON_NATS", hide_env_values = true, value_name = "URL", value_parser = nats_address)]
    pub nats: Option<String>,
    /// The project of the cluster
    #[arg(long, env = "LEMON_PROJECT", value_name = "NAME", default_value = "default")]
    pub project: String,
    /// Let tools run that may change something; without it they do not run
    #[arg(long, env = "LEMON_ALLOW_TOOLS")]
    pub allow_tools: bool,
    /// Make every call again, although its reply is on record
    #[arg(long)]
    pub no_reuse: bool,
    /// The kind of workers [default: as for `lemon run`]
    #[arg(long, env = "LEMON_WORKERS", value_name = "KIND", value_parser = worker_kind(Scope::Run))]
    pub workers: Option<WorkerKind>,
    /// What scripted workers say, in TOML
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Say nothing but where it listens
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

/// `lemon keys`
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key and print it: the only time it is seen
    Add {
        /// Its name
        name: String,
        /// US dollars it may spend
        #[arg(long, value_name = "X", value_parser = not_negative)]
        budget_usd: Option<f64>,
        /// Tokens it may spend: 1M is a million, 500k half of one
        #[arg(long, value_name = "N", value_parser = tokens)]
        budget_tokens: Option<u64>,
        /// What the budget is for: hour, day, month or ever
        #[arg(long, default_value = "ever", value_name = "PERIOD")]
        per: Period,
        /// Requests it may make in a minute
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        rpm: Option<u64>,
    },
    /// List the keys and what each has spent
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a key: requests that use it are refused from now on
    Remove {
        /// Its name
        name: String,
    },
}

/// Reads a number of tokens with `k` or `M` behind it.
fn tokens(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1_000_000),
            None => (text, 1),
        },
    };
    let number: u64 = digits.parse().map_err(|_| "expected a number such as 500, 500k or 1M".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "it is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn numbers_of_tokens_may_have_a_unit() {
        assert_eq!(["7", "500k", "1M", "2m"].map(|text| tokens(text).unwrap()), [7, 500_000, 1_000_000, 2_000_000]);
        for text in ["", "k", "-1", "1.5M", "1G", "99999999999999999999M", "18446744073709551615k"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
