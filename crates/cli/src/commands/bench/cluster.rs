//! `lemon bench cluster`: what the coordinator of a cluster costs, and how busy it keeps the workers.
//!
//! The workers are processes of their own, so that the processor time shown is the coordinator's alone. Their agents are fakes
//! that wait. The last measurement has fake workers too, in this process: they answer every job at once.

use super::process::{cpu_seconds, thread_cpu_seconds};
use super::{CALLS, TEAM, this_program};
use crate::args::ClusterBenchArgs;
use crate::fault::Fault;
use crate::{print_json, println};
use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use lemon_cluster::{
    Access, Blobs, BuildEnv, ClusterRuns, Coordinator, CoordinatorOptions, Link, Node, NodeEnv, NodeOptions, Status,
    fake_workers,
};
use lemon_exec::orchestrator::{Fixed, Orchestrator};
use lemon_exec::worker::{AskError, Reply, Request, Usage};
use lemon_exec::{Backend, Clock, Level, Settings, Worker, fresh_id};
use lemon_rollout::{Grader, RolloutEnv, RunOptions};
use lemon_spec::Language;
use lemon_trace::StopReason;
use serde::Serialize;
use std::collections::HashMap;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Eight agents that answer at the same time.
const WIDE_TEAM: &str = "
agents:
  - {id: a1, base: solver, capacity: small}
  - {id: a2, base: solver, capacity: small}
  - {id: a3, base: solver, capacity: small}
  - {id: a4, base: solver, capacity: small}
  - {id: a5, base: solver, capacity: small}
  - {id: a6, base: solver, capacity: small}
  - {id: a7, base: solver, capacity: small}
  - {id: a8, base: solver, capacity: small}
answer: {from: [a1, a2, a3, a4, a5, a6, a7, a8], by: vote}
";

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    jobs: usize,
    slots: usize,
    seconds: f64,
    jobs_per_s: f64,
    /// The share of the slots' time that was used, where agents take time.
    busy_share: Option<f64>,
    coordinator_ms_per_job: Option<f64>,
}

pub fn bench(args: &ClusterBenchArgs) -> Result<u8, Fault> {
    let runtime = crate::runtime()?;
    let rows = runtime.block_on(measure(args))?;
    if args.json {
        return print_json(&rows);
    }
    println(&format!(
        "{:<34} {:>7} {:>6} {:>9} {:>9} {:>6} {:>20}",
        "", "jobs", "slots", "seconds", "jobs/s", "busy", "coordinator, ms/job"
    ))?;
    for row in rows {
        let share = row.busy_share.map_or("".to_owned(), |share| format!("{share:.3}"));
        let cpu = row.coordinator_ms_per_job.map_or("".to_owned(), |ms| format!("{ms:.3}"));
        println(&format!(
            "{:<34} {:>7} {:>6} {:>9.2} {:>9.0} {share:>6} {cpu:>20}",
            row.what, row.jobs, row.slots, row.seconds, row.jobs_per_s
        ))?;
    }
    Ok(0)
}

async fn measure(args: &ClusterBenchArgs) -> Result<Vec<Row>, Fault> {
    // Names of its own, so that a measurement meets no real work.
    let project = format!("bench-{}", fresh_id());
    let fault = |error: lemon_cluster::ClusterError| Fault::new(error);
    let access = Access::from_environment(&args.nats.address, &project).map_err(fault)?;
    let link = Link::connect(&access).await.map_err(fault)?;
    let slots = args.workers * args.slots;
    let mut rows = Vec::new();
    for (what, team, call_ms) in
        [("teams of eight, replies at once", TEAM, 0), ("teams of eight, calls take time", WIDE_TEAM, args.call_ms)]
    {
        let _workers = start(args, &project, call_ms)?;
        ready(&link, args.workers).await?;
        let coordinator = Coordinator::begin(&link, CoordinatorOptions::default()).await.map_err(fault)?;
        let env = Arc::new(env(coordinator.runs(b"bench").await.map_err(fault)?));
        run(&env, team, slots * 2, slots * 2).await?;
        let (cpu, began) = (cpu_seconds(), Instant::now());
        run(&env, team, args.jobs, slots * 4).await?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = cpu_seconds().zip(cpu).map(|(after, before)| (after - before) * 1000.0 / args.jobs as f64);
        let ideal = args.jobs as f64 * call_ms as f64 / 1000.0 / slots as f64;
        let busy_share = (call_ms > 0).then(|| ideal / seconds);
        let jobs_per_s = args.jobs as f64 / seconds;
        rows.push(Row { what, jobs: args.jobs, slots, seconds, jobs_per_s, busy_share, coordinator_ms_per_job: cpu });
        coordinator.close().await.map_err(fault)?;
    }
    rows.push(with_fakes(args, &project).await?);
    Ok(rows)
}

/// Many fake workers on a thread of their own.
async fn with_fakes(args: &ClusterBenchArgs, project: &str) -> Result<Row, Fault> {
    let fault = |error: lemon_cluster::ClusterError| Fault::new(error);
    let access = Access::from_environment(&args.nats.address, project).map_err(fault)?;
    let link = Link::connect(&access).await.map_err(fault)?;
    // What a worker would send: one trace of this team.
    let local = env_without_cluster(0);
    let events = trace_of(&local).await?;
    let stop = CancellationToken::new();
    let (fakes, over) = (args.fakes, stop.clone());
    let thread = std::thread::spawn(move || -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(async move {
            let link = Link::connect(&access).await.map_err(|error| error.to_string())?;
            fake_workers(&link, fakes, Arc::new(events), &over).await.map_err(|error| error.to_string())
        })
    });
    let coordinator = Coordinator::begin(&link, CoordinatorOptions::default()).await.map_err(fault)?;
    let env = Arc::new(env(coordinator.runs(b"bench").await.map_err(fault)?));
    run(&env, TEAM, fakes, fakes).await?;
    let jobs = args.jobs * 5;
    // The coordinator has this thread to itself.
    let (cpu, began) = (thread_cpu_seconds(), Instant::now());
    run(&env, TEAM, jobs, fakes * 2).await?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = thread_cpu_seconds().zip(cpu).map(|(after, before)| (after - before) * 1000.0 / jobs as f64);
    coordinator.close().await.map_err(fault)?;
    stop.cancel();
    let ended = thread.join().unwrap_or_else(|_| Err("the fake workers broke off".to_owned()));
    ended.map_err(Fault::new)?;
    let jobs_per_s = jobs as f64 / seconds;
    let what = "fake workers that answer at once";
    Ok(Row { what, jobs, slots: fakes, seconds, jobs_per_s, busy_share: None, coordinator_ms_per_job: cpu })
}

/// Runs so many teams, `width` at a time.
async fn run(env: &Arc<RolloutEnv>, team: &'static str, jobs: usize, width: usize) -> Result<(), Fault> {
    let one = |number: usize| {
        let env = env.clone();
        tokio::spawn(async move {
            let options = RunOptions::default();
            env.execute_question("bench", "What is 6 times 7?", fixed(team), number as u64, &options).await
        })
    };
    let mut ends = stream::iter(0..jobs).map(one).buffer_unordered(width);
    while let Some(end) = ends.next().await {
        let trace = end.map_err(|error| Fault::new(format!("a team broke off: {error}")))??;
        if trace.summary().stop_reason != Some(StopReason::Answered) {
            return Err(Fault { code: 1, ..Fault::new("a team did not answer: the measurement is void") });
        }
    }
    Ok(())
}

async fn trace_of(env: &RolloutEnv) -> Result<Vec<String>, Fault> {
    let options = RunOptions::default();
    let trace = env.execute_question("bench", "What is 6 times 7?", fixed(TEAM), 0, &options).await?;
    if trace.events.len() < CALLS {
        return Err(Fault::new("the fake team did not run"));
    }
    trace.events.iter().map(|event| serde_json::to_string(event).map_err(Fault::new)).collect()
}

fn fixed(team: &str) -> Arc<dyn Orchestrator> {
    Arc::new(Fixed { text: team.to_owned(), reviewer: None })
}

fn env(runs: ClusterRuns) -> RolloutEnv {
    let mut env = env_without_cluster(0);
    env.remote = Some(Arc::new(runs));
    env
}

/// Agents that wait and then say the same.
fn env_without_cluster(call_ms: u64) -> RolloutEnv {
    let language = Arc::new(Language::default());
    let level = |name: &String| Level { gate: Arc::new(Semaphore::new(4096)), ..Level::new(name) };
    let backend = Backend {
        worker: Arc::new(Waiting(Duration::from_millis(call_ms))),
        name: "fake".into(),
        levels: language.capacities.iter().map(level).collect(),
        clock: Clock::Real,
        code: None,
        tools: None,
    };
    RolloutEnv::new(backend, language, Settings { reuse: false, ..Settings::default() }, Grader::new(None))
}

/// A fake agent.
struct Waiting(Duration);

#[async_trait]
impl Worker for Waiting {
    async fn ask(&self, _: &Request) -> Result<Reply, AskError> {
        if !self.0.is_zero() {
            tokio::time::sleep(self.0).await;
        }
        Ok(Reply {
            text: "6 * 7 = 42.\nAnswer: 42".to_owned(),
            usage: Usage { tokens_in: 100, tokens_out: 12, ..Usage::default() },
            model: None,
            simulated_s: None,
            confidence: None,
            truncated: false,
            tool_calls: Vec::new(),
        })
    }
}

/// A worker process of a measurement.
pub fn serve(args: &crate::args::ClusterWorkerArgs) -> Result<u8, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Fault::new)?;
    runtime.block_on(async {
        let access = Access::from_environment(&args.nats.address, &args.nats.project).map_err(Fault::new)?;
        let link = Link::connect(&access).await.map_err(Fault::new)?;
        let options = NodeOptions { name: "bench".to_owned(), slots: args.slots, ..NodeOptions::default() };
        let node = Node::new(&link, Arc::new(FakeEnv(args.call_ms)), options);
        node.serve(&CancellationToken::new()).await.map_err(Fault::new)?;
        Ok(0)
    })
}

struct FakeEnv(u64);

#[async_trait]
impl BuildEnv for FakeEnv {
    async fn build(&self, _: &[u8], _: &Blobs) -> Result<NodeEnv, String> {
        Ok(NodeEnv { env: env_without_cluster(self.0), cases: HashMap::new() })
    }
}

/// Worker processes, ended with this value.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // One that cannot be ended has ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn start(args: &ClusterBenchArgs, project: &str, call_ms: u64) -> Result<Workers, Fault> {
    let mut workers = Workers(Vec::new());
    for _ in 0..args.workers {
        let process = this_program()?
            .args(["bench", "cluster-worker", "--nats", &args.nats.address, "--project", project])
            .args(["--slots", &args.slots.to_string(), "--call-ms", &call_ms.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Fault::new(format!("a worker cannot be started: {error}")))?;
        workers.0.push(process);
    }
    Ok(workers)
}

/// Waits until the workers are there; those of the measurement before may be shown as well for a while.
async fn ready(link: &Link, workers: usize) -> Result<(), Fault> {
    let began = Instant::now();
    while Status::read(link).await.map_err(Fault::new)?.workers.len() < workers {
        if began.elapsed() > Duration::from_secs(30) {
            return Err(Fault::new("the workers do not come"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}
