//! `lemon bench api`: what the server adds to what the model takes, in time, processor time and memory.
//!
//! The fake endpoint, the server and this load are processes of their own. The same load goes to the endpoint directly, then
//! through the server, then through another proxy, if one is named.

use super::load::{LoadTarget, failed};
use super::process::{self, cpu_seconds_of};
use super::{Server, this_program};
use crate::args::ApiArgs;
use crate::fault::Fault;
use crate::{print, print_json, runtime};
use futures::stream::{self, StreamExt};
use lemon_exec::fresh_id;
use lemon_exec::worker::{http_client, http_error};
use reqwest::{Client, RequestBuilder, Response};
use serde::Serialize;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Milliseconds that no idle connection waits to its end.
const FOR_EVER_MS: u64 = 3_600_000;

#[derive(Debug, Serialize)]
struct Load {
    what: &'static str,
    requests: usize,
    width: usize,
    p50_ms: f64,
    p99_ms: f64,
    requests_per_s: f64,
    /// Of the server; absent where it is not a process of this machine.
    cpu_ms_per_request: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Idle {
    connections: usize,
    before_mib: f64,
    with_them_mib: f64,
}

/// A `lemon serve` in a folder of its own.
struct Serving {
    process: Child,
    base: String,
    folder: PathBuf,
}

pub fn bench(args: &ApiArgs) -> Result<u8, Fault> {
    runtime()?.block_on(measure(args))
}

async fn measure(args: &ApiArgs) -> Result<u8, Fault> {
    let endpoint = Server::start(args.latency_ms)?;
    let spread = Duration::from_millis(args.latency_ms);
    let load = async |what, base: &str, model: &str, process: Option<u32>| -> Result<Load, Fault> {
        eprintln!("{what}: {} requests, {} at a time", args.requests, args.width);
        let target = LoadTarget::new(base, model)?;
        // What is made once is made, as it is in any longer run.
        target.ask(args.width, args.width, spread).await?;
        let (cpu, began) = (process.and_then(cpu_seconds_of), Instant::now());
        let mut times = target.ask(args.requests, args.width, spread).await?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = process.and_then(cpu_seconds_of).zip(cpu).map(|(after, before)| after - before);
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len() - 1)).copied();
        Ok(Load {
            what,
            requests: args.requests,
            width: args.width,
            p50_ms: at(0.5).unwrap_or_default() * 1000.0,
            p99_ms: at(0.99).unwrap_or_default() * 1000.0,
            requests_per_s: args.requests as f64 / seconds,
            cpu_ms_per_request: cpu.map(|cpu| cpu * 1000.0 / args.requests as f64),
        })
    };
    let mut loads = vec![load("the endpoint itself", &endpoint.base_url, "fake", Some(endpoint.process.id())).await?];
    let serving = Serving::start(&endpoint.base_url)?;
    loads.push(load("lemon serve", &serving.base, "lemon", Some(serving.process.id())).await?);
    drop((serving, endpoint));
    if let Some(base) = &args.against {
        loads.push(load("the other proxy", base, &args.against_model, args.against_pid).await?);
    }
    let idle = match args.connections {
        0 => None,
        connections => Some(hold(connections).await?),
    };
    if args.json {
        return print_json(&json!({ "loads": loads, "idle": idle }));
    }
    print("                            p50        p99   requests/s   CPU of the server per request\n")?;
    for Load { what, p50_ms, p99_ms, requests_per_s, cpu_ms_per_request, .. } in &loads {
        let cpu = cpu_ms_per_request.map_or_else(|| "n/a".to_owned(), |ms| format!("{ms:.3} ms"));
        print(&format!("{what:<20} {p50_ms:>7.1} ms {p99_ms:>7.1} ms   {requests_per_s:>10.0}   {cpu:>10}\n"))?;
    }
    if let Some(Idle { connections, before_mib, with_them_mib }) = idle {
        print(&format!(
            "{connections} streams that wait: {before_mib:.0} MiB before, {with_them_mib:.0} MiB with them\n"
        ))?;
    }
    Ok(0)
}

/// A question whose answer is to come in pieces.
fn request(client: &Client, base: &str, question: &str) -> RequestBuilder {
    let body = json!({ "model": "lemon", "messages": [{ "role": "user", "content": question }], "stream": true });
    let request = client.post(format!("{base}/chat/completions")).header("content-type", "application/json");
    request.header("authorization", "Bearer sk-none").body(body.to_string())
}

/// How much memory streams take whose model never answers.
async fn hold(connections: usize) -> Result<Idle, Fault> {
    eprintln!("{connections} streams that wait");
    let client = http_client().map_err(Fault::new)?;
    let endpoint = Server::start(FOR_EVER_MS)?;
    let serving = Serving::start(&endpoint.base_url)?;
    let memory = || {
        process::bytes_now(serving.process.id())
            .map(process::mib)
            .ok_or_else(|| failed("this system does not tell the memory of a process"))
    };
    ask_health(&client, &serving.base).await?;
    let before_mib = memory()?;
    let open = |number: usize| {
        let request = request(&client, &serving.base, &format!("Question {number}: what is the answer?"));
        async move { request.send().await.map_err(|error| failed(http_error(&error))) }
    };
    // The responses have begun, and their bodies are not read to an end.
    let held: Vec<Result<Response, Fault>> =
        stream::iter(0..connections).map(open).buffer_unordered(64).collect().await;
    let held: Vec<Response> = held.into_iter().collect::<Result<_, _>>()?;
    // So that what is still being started is there.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let with_them_mib = memory()?;
    drop(held);
    Ok(Idle { connections, before_mib, with_them_mib })
}

async fn ask_health(client: &Client, base: &str) -> Result<(), Fault> {
    let url = base.replace("/v1", "/healthz");
    client.get(url).send().await.map(|_| ()).map_err(|error| failed(http_error(&error)))
}

impl Serving {
    fn start(endpoint: &str) -> Result<Self, Fault> {
        let fault = |error: std::io::Error| Fault::new(format!("the server cannot be started: {error}"));
        let folder = std::env::temp_dir().join(format!("lemon-bench-{}", fresh_id()));
        std::fs::create_dir_all(&folder).map_err(fault)?;
        // One capacity without a limit of its own, so that the server is measured and not a queue before the endpoint.
        let config = format!(
            "[capacity.small]\nbase_url = \"{endpoint}\"\nmodel = \"fake\"\nmax_concurrency = 10000\ntimeout_s = 3600\n"
        );
        std::fs::write(folder.join("lemon.toml"), config).map_err(fault)?;
        let mut process = this_program()?
            .args(["serve", "--addr", "127.0.0.1:0", "--quiet", "--max-runs", "100000", "--max-connections", "100000"])
            .args(["--grace", "0", "--timeout", "3600"])
            .current_dir(&folder)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let mut line = String::new();
        if let Some(errors) = process.stderr.take() {
            BufReader::new(errors).read_line(&mut line).map_err(fault)?;
        }
        let base = line.trim().rsplit(' ').next().unwrap_or_default().trim_end_matches(')').to_owned();
        Ok(Serving { process, base, folder })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that cannot be ended has ended, and what cannot be removed now is removed by the system.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
