//! `lemon worker` and `lemon cluster`: runs on many machines.

use crate::args::{ClusterCommand, OnCluster, WorkerArgs};
use crate::fault::Fault;
use crate::{print_json, println, runtime, say, tell};
use axum::Router;
use axum::routing::get;
use lemon::jobs::cluster::{EnvBuilder, WorkerCluster};
use lemon_cluster::{Access, Link, Node, NodeOptions, NodeReport, Priority, Status};
use lemon_sandbox::Containment;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// `lemon worker`
pub fn worker(args: &WorkerArgs) -> Result<u8, Fault> {
    // Agents wait, but graders and simulated agents compute: all processors take part.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::new(format!("no runtime: {error}")))?;
    runtime.block_on(serve(args))
}

async fn serve(args: &WorkerArgs) -> Result<u8, Fault> {
    let link = Link::connect(&access(&args.nats.address, &args.nats.project)?).await.map_err(fault)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let options = NodeOptions {
        name: args.name.clone().unwrap_or_else(machine),
        slots: args.slots.map_or(processors, usize::from),
        tries: args.tries,
    };
    let builder =
        EnvBuilder { containment: Containment::unless(args.unsafe_no_sandbox), cache: cache(), tell: tell(args.quiet) };
    let node = Node::new(&link, Arc::new(builder), options.clone());
    let stop = CancellationToken::new();
    tokio::spawn(super::run::cancel_on_signal(stop.clone(), "runs under way are finished"));
    if let Some(address) = args.metrics {
        serve_metrics(address, node.clone()).await?;
    }
    if !args.quiet {
        say::talk(&format!("worker {} takes {} runs at a time", options.name, options.slots));
    }
    node.serve(&stop).await.map_err(fault)?;
    Ok(0)
}

/// `lemon cluster`
pub fn cluster(command: &ClusterCommand) -> Result<u8, Fault> {
    let ClusterCommand::Status { nats, json } = command;
    let status = async {
        let link = Link::connect(&Access::from_environment(&nats.address, &nats.project)?).await?;
        Status::read(&link).await
    };
    let status = runtime()?.block_on(status).map_err(fault)?;
    match json {
        true => print_json(&status),
        false => println(table(&status).trim_end()),
    }
}

/// The cluster that a command gives its runs to, if it names one.
pub async fn join(on: &OnCluster, priority: Priority) -> Result<Option<WorkerCluster>, Fault> {
    match &on.cluster {
        Some(address) => Ok(Some(WorkerCluster::connect(address, &on.project, priority).await?)),
        None => Ok(None),
    }
}

/// Leaves a cluster, and says what no worker could make.
pub async fn leave(cluster: Option<WorkerCluster>) -> Result<(), Fault> {
    let Some(cluster) = cluster else { return Ok(()) };
    for dead in cluster.close().await? {
        say::talk(&format!("warning: given up: {dead}"));
    }
    Ok(())
}

/// Access to the cluster at this address, as the environment says.
pub fn access(address: &str, project: &str) -> Result<Access, Fault> {
    Access::from_environment(address, project).map_err(fault)
}

fn fault(error: lemon_cluster::ClusterError) -> Fault {
    let fault = Fault::new(&error);
    match error.hint() {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    let Status { workers, coordinators, queued, running, dead, letters } = status;
    // Writing into a text never fails.
    let _ =
        writeln!(text, "{:<20} {:>6} {:>6} {:>10} {:>8} {:>8}", "worker", "slots", "busy", "done", "failed", "runs/s");
    for NodeReport { name, slots, busy, done, failed, per_s, .. } in workers {
        let _ = writeln!(text, "{name:<20} {slots:>6} {busy:>6} {done:>10} {failed:>8} {per_s:>8.1}");
    }
    let _ = writeln!(text, "\n{coordinators} coordinators; {} workers, {} slots", workers.len(), status.slots());
    let _ = writeln!(text, "training: {} queued, {} running", queued[0], running[0]);
    let _ = writeln!(text, "other:    {} queued, {} running", queued[1], running[1]);
    let _ = writeln!(text, "given up: {dead}");
    for letter in letters {
        let _ =
            writeln!(text, "  {}: {} (tried {} times, {})", letter.task_id, letter.error, letter.tries, letter.worker);
    }
    text
}

async fn serve_metrics(address: SocketAddr, node: Arc<Node>) -> Result<(), Fault> {
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|error| Fault::new(format!("{address} cannot be listened at: {error}")))?;
    let app = Router::new().route("/metrics", get(move || async move { metrics(&node.report()) }));
    tokio::spawn(async move {
        // It ends with the process.
        let _ = axum::serve(listener, app).await;
    });
    Ok(())
}

fn metrics(report: &NodeReport) -> String {
    let mut text = String::new();
    let figures = [
        ("lemon_worker_slots", "gauge", "Runs at a time.", report.slots as u64),
        ("lemon_worker_busy", "gauge", "Runs under way.", report.busy as u64),
        ("lemon_worker_done_total", "counter", "Runs done.", report.done),
        ("lemon_worker_failed_total", "counter", "Tries that failed.", report.failed),
        ("lemon_worker_dead_total", "counter", "Jobs given up.", report.dead),
    ];
    for (name, kind, help, value) in figures {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    text
}

/// The name of this machine; where the system has no such file, a name by this process.
fn machine() -> String {
    let name = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { format!("worker-{}", std::process::id()) } else { name.to_owned() }
}

/// Where models are kept that were fetched.
fn cache() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    base.unwrap_or_else(std::env::temp_dir).join("lemon").join("cluster")
}
