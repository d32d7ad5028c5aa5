//! `lemon bench teams`: what this program adds to what the models take.
//!
//! The fake endpoint and each measurement run in processes of their own, so that the processor time and the memory shown
//! are those of running teams and of nothing else. The store is on, as it is for users.

mod answers;
mod api;
mod cluster;
mod load;
mod policy;
mod process;
mod serve;
mod serve_worker;
mod tools;

use crate::args::{BenchCommand, Cli};
use crate::fault::Fault;
use crate::{print, print_json, println, runtime};
use futures::stream::{self, StreamExt};
use lemon_exec::orchestrator::Fixed;
use lemon_exec::store::{RunMeta, Store, Sync};
use lemon_exec::worker::{Endpoint, OpenAi};
use lemon_exec::{Backend, Clock, Job, Level, Runner, Settings, fresh_id};
use lemon_spec::{Language, validate};
use lemon_trace::StopReason;
use process::cpu_seconds;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Four solvers, two critics, a judge and a writer: eight calls, four of them one after the other.
const TEAM: &str = "
agents:
  - {id: s1, base: solver, capacity: small}
  - {id: s2, base: solver, capacity: small}
  - {id: s3, base: solver, capacity: small}
  - {id: s4, base: solver, capacity: small}
  - {id: c1, base: critic, capacity: medium, after: [s1, s2]}
  - {id: c2, base: critic, capacity: medium, after: [s3, s4]}
  - {id: judge1, base: judge, capacity: large, after: [c1, c2]}
  - {id: writer, base: summariser, capacity: large, after: [judge1]}
";
const CALLS: usize = 8;
const PATH: u32 = 4;

#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    teams: usize,
    width: usize,
    makespan_s: f64,
    cpu_ms_per_call: Option<f64>,
    peak_mib: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    #[serde(flatten)]
    measured: Measured,
    critical_path_s: f64,
    ratio: f64,
}

pub fn bench(cli: &Cli, command: &BenchCommand) -> Result<u8, Fault> {
    match command {
        BenchCommand::Api(args) => api::bench(args),
        BenchCommand::Answers(args) => answers::answers(cli, args),
        BenchCommand::Policy { shapes, device, steps, fused_only, check, json } => {
            policy::bench(shapes, (*device).into(), *steps, *fused_only, *check, *json)
        }
        BenchCommand::Teams { latency_ms, teams, width, json } => compare(*latency_ms, *teams, *width, *json),
        BenchCommand::Tools { calls, json } => runtime()?.block_on(tools::bench(*calls, *json)),
        BenchCommand::Cluster(args) => cluster::bench(args),
        BenchCommand::ClusterWorker(args) => cluster::serve(args),
        BenchCommand::Serve(args) => serve::bench(args),
        BenchCommand::ServeWorker { model, threads, weights } => serve_worker::run(model, *threads, (*weights).into()),
        BenchCommand::FakeEndpoint { latency_ms } => {
            let behaviour =
                lemon_fakes::Behaviour::text("A fake reply.\nAnswer: 42").latency_ms(*latency_ms).without_record();
            lemon_fakes::run_forever(0, behaviour).map_err(Fault::new)?;
            Ok(0)
        }
        BenchCommand::Scenario { base_url, teams, width, warm } => println(
            &serde_json::to_string(&runtime()?.block_on(scenario(base_url, *teams, *width, *warm))?)
                .map_err(Fault::new)?,
        ),
    }
}

fn compare(latency_ms: u64, teams: usize, width: usize, json: bool) -> Result<u8, Fault> {
    let server = Server::start(latency_ms)?;
    let path_s = f64::from(PATH) * latency_ms as f64 / 1000.0;
    let row = |what, teams: usize, width: usize, warm: usize| -> Result<Row, Fault> {
        eprintln!("{what}: {teams} teams of {CALLS} agents, {width} at a time, {latency_ms} ms a call");
        let measured = measure(&server.base_url, teams, width, warm)?;
        let critical_path_s = path_s * teams.div_ceil(width) as f64;
        Ok(Row { what, ratio: measured.makespan_s / critical_path_s, critical_path_s, measured })
    };
    // Cold, every call of the first moment opens a connection; warm, connections are open, as they are in any longer run.
    let rows = [
        row("one at a time", 20, 1, 1)?,
        row("wide, cold", teams, width, 0)?,
        row("wide, warm", teams, width, width)?,
        row("a thousand at once", 1000, 1000, 0)?,
    ];
    let parse_us = parse_and_validate_us();
    if json {
        return print_json(&serde_json::json!({ "teams": rows, "parse_and_validate_64_agents_us": parse_us }));
    }
    print("                        makespan   critical path   ratio   CPU per call   peak memory\n")?;
    for row in &rows {
        let Measured { makespan_s, cpu_ms_per_call, peak_mib, .. } = row.measured;
        let unknown = || "n/a".to_owned();
        print(&format!(
            "{:<20} {:>9.3} s   {:>9.3} s   {:>5.3}   {:>12}   {:>11}\n",
            row.what,
            makespan_s,
            row.critical_path_s,
            row.ratio,
            cpu_ms_per_call.map_or_else(unknown, |ms| format!("{ms:.3} ms")),
            peak_mib.map_or_else(unknown, |mib| format!("{mib:.0} MiB")),
        ))?;
    }
    println(&format!("parse and validate a specification of 64 agents: {parse_us:.0} µs"))
}

/// Runs one scenario in a process of its own.
fn measure(base_url: &str, teams: usize, width: usize, warm: usize) -> Result<Measured, Fault> {
    let output = this_program()?
        .args(["bench", "scenario", "--base-url", base_url])
        .args(["--teams", &teams.to_string(), "--width", &width.to_string(), "--warm", &warm.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Fault::new(format!("the measurement cannot be started: {error}")))?;
    serde_json::from_slice(&output.stdout).map_err(|error| Fault::new(format!("the measurement failed: {error}")))
}

async fn scenario(base_url: &str, teams: usize, width: usize, warm: usize) -> Result<Measured, Fault> {
    let folder = std::env::temp_dir().join(format!("lemon-bench-{}", fresh_id()));
    let store = Arc::new(Store::open(&folder.join("bench.db"), Sync::Normal)?);
    let runner = Arc::new(runner(base_url, store)?);
    run_teams(&runner, warm, warm.max(1)).await?;
    let (cpu, began) = (cpu_seconds(), Instant::now());
    run_teams(&runner, teams, width).await?;
    let makespan_s = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds().zip(cpu).map(|(after, before)| after - before);
    drop(runner);
    // Only a temporary folder; what cannot be removed now is removed by the system.
    let _ = std::fs::remove_dir_all(&folder);
    let calls = (teams * CALLS) as f64;
    Ok(Measured {
        teams,
        width,
        makespan_s,
        cpu_ms_per_call: cpu.map(|cpu| cpu * 1000.0 / calls),
        peak_mib: process::peak_bytes(std::process::id()).map(process::mib),
    })
}

fn runner(base_url: &str, store: Arc<Store>) -> Result<Runner, Fault> {
    let endpoint = Endpoint {
        base_url: base_url.to_owned(),
        model: "fake".into(),
        api_key: None,
        timeout: Duration::from_secs(60),
        total_timeout: Duration::from_secs(60),
        stream: true,
        send_seed: true,
    };
    let language = Arc::new(Language::default());
    let level = |name: &String| Level { gate: Arc::new(Semaphore::new(1024)), ..Level::new(name) };
    let worker = OpenAi::new(vec![endpoint; language.capacities.len()]).map_err(Fault::new)?;
    Ok(Runner {
        backend: Backend {
            worker: Arc::new(worker),
            name: "endpoints".into(),
            levels: language.capacities.iter().map(level).collect(),
            clock: Clock::Real,
            code: None,
            tools: None,
        },
        orchestrator: Arc::new(Fixed { text: TEAM.into(), reviewer: None }),
        language,
        store: Some(store),
        reply_cache: None,
        reply_record: None,
        settings: Settings::default(),
        on_delta: None,
    })
}

async fn run_teams(runner: &Arc<Runner>, teams: usize, width: usize) -> Result<(), Fault> {
    let cancel = CancellationToken::new();
    let team = |number: usize| {
        let (runner, cancel) = (runner.clone(), cancel.clone());
        // A task of its own, as each run of a batch is.
        tokio::spawn(async move {
            let run_id = format!("bench-{}", fresh_id());
            // Every question differs, so that no reply is reused.
            let question = format!("Question {number} of {run_id}: what is the answer?");
            let job = Job { task_id: run_id.clone(), run_id, question, seed: 0, meta: RunMeta::default() };
            runner.run(&job, &cancel, None).await.map(|trace| trace.summary().stop_reason)
        })
    };
    let mut ends = stream::iter(0..teams).map(team).buffer_unordered(width);
    while let Some(end) = ends.next().await {
        let end = end.map_err(|error| Fault::new(format!("a team broke off: {error}")))?;
        if end? != Some(StopReason::Answered) {
            return Err(Fault { code: 1, ..Fault::new("a team did not answer: the measurement is void") });
        }
    }
    Ok(())
}

/// The median time of parsing and validating a specification of 64 agents.
fn parse_and_validate_us() -> f64 {
    let language = Language::default();
    let text = layered_team(64);
    let mut times: Vec<f64> = (0..200)
        .map(|_| {
            let began = Instant::now();
            let valid = validate(std::hint::black_box(&text), &language).is_ok();
            std::hint::black_box(valid);
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A realistic specification: layers of eight, each agent reading two of the layer before.
fn layered_team(agents: usize) -> String {
    let agent = |number: usize| {
        let layer = (number / 8 * 8).saturating_sub(8);
        let parents = match number {
            0..8 => String::new(),
            _ => format!("agent-{}, agent-{}", layer + number % 8, layer + (number + 1) % 8),
        };
        format!(
            "  - id: agent-{number}\n    base: solver\n    role: Percentages tutor\n    \
             duty: Set up the equation for part {number} of the task, solve it and state the unit.\n    \
             capacity: medium\n    after: [{parents}]\n    share: answer\n"
        )
    };
    let agents: String = (0..agents).map(agent).collect();
    format!("agents:\n{agents}answer: {{from: [agent-56, agent-57], by: vote}}\nnext: stop\n")
}

/// The fake endpoint, ended with this value.
struct Server {
    process: Child,
    base_url: String,
}

impl Server {
    fn start(latency_ms: u64) -> Result<Self, Fault> {
        let fault = |error: std::io::Error| Fault::new(format!("the fake endpoint cannot be started: {error}"));
        let mut process = this_program()?
            .args(["bench", "fake-endpoint", "--latency-ms", &latency_ms.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let mut base_url = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut base_url).map_err(fault)?;
        }
        Ok(Server { process, base_url: base_url.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that cannot be ended has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn this_program() -> Result<Command, Fault> {
    std::env::current_exe()
        .map(Command::new)
        .map_err(|error| Fault::new(format!("this program cannot be found: {error}")))
}
