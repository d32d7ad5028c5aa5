//! `lemon serve`: the OpenAI-compatible API and the application.

use super::cluster::access;
use super::run::EndSignals;
use crate::args::{Cli, ServerArgs};
use crate::fault::Fault;
use crate::{Runtime, tell};
use lemon_exec::store::Store;
use lemon_server::{HttpServer, ServerConfig, ServerError};
use lemon_workers::{Before, Consent, ReadyRun, RunRequest, WorkerFiles};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Threads that serve: what takes long is done by the models' own threads, or elsewhere.
const MOST_THREADS: usize = 4;

pub fn serve(cli: &Cli, args: &ServerArgs) -> Result<u8, Fault> {
    let consent = if args.allow_tools { Consent::Given } else { Consent::Withheld };
    let config = cli.config(&args.endpoints)?.with_consent(consent);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map(Runtime).map_err(|error| Fault::new(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        let tell = tell(args.quiet);
        let request = RunRequest {
            kind: args.workers,
            files: WorkerFiles { script: args.script.clone(), ..WorkerFiles::default() },
            budget: args.budget.budget(None),
            no_reuse: args.no_reuse,
            ..RunRequest::default()
        };
        let ready = ReadyRun::new(&config, request, Before::default(), &[], tell).await?;
        let store = Arc::new(Store::open(&config.store_path(cli.store.as_deref()), config.store.sync)?);
        let results = match args.results.as_slice() {
            [] => ["runs", "results"].map(PathBuf::from).to_vec(),
            results => results.to_vec(),
        };
        let settings = ServerConfig {
            address: args.addr,
            hosts: args.host.clone(),
            origins: args.origin.clone(),
            require_key: args.require_key,
            most_runs: args.max_runs,
            most_connections: args.max_connections,
            most_body: args.max_body_kb.saturating_mul(1024),
            run_seconds: args.timeout,
            grace: Duration::from_secs(args.grace),
            teams: args.teams.clone(),
            policies: args.policies.clone(),
            results,
            otlp: args.otlp.clone(),
            cluster: args.nats.as_deref().map(|address| access(address, &args.project)).transpose()?,
            config,
        };
        let server = HttpServer::bind(settings, ready, store, tell).map_err(fault)?;
        let (address, signals) = (server.address(), EndSignals::listen());
        eprintln!("serving at http://{address}/ (OpenAI's protocol at http://{address}/v1)");
        server.serve(end(signals)).await;
        Ok(0)
    })
}

/// The first signal ends the server in good order; a second one ends the process.
async fn end(mut signals: EndSignals) {
    signals.next().await;
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(130);
    });
}

fn fault(error: ServerError) -> Fault {
    let fault = Fault::new(&error);
    match error.hint() {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}
