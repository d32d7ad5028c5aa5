//! `lemon trace`: list, show, export and compare runs.

use crate::args::{Cli, Endpoints, TraceCommand};
use crate::fault::Fault;
use crate::{one_line, print, print_data, print_json, runtime, to_json};
use clap::ValueEnum;
use lemon::RunResult;
use lemon_exec::store::{RunRow, Store};
use lemon_server::{Collector, CollectorError};
use lemon_trace::Trace;
use lemon_trace::export::jsonl::write_jsonl;
use lemon_trace::export::otlp::otlp_json;
use lemon_trace::export::schema::{Content, schema};
use lemon_view::run::{html, svg};
use lemon_workers::Config;
use std::io::Write;
use std::path::Path;

/// The forms of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The published orchestration-trace schema, JSON
    Schema,
    /// One event a line
    Jsonl,
    /// OpenTelemetry GenAI spans, OTLP JSON
    Otlp,
    /// A picture of the team
    Svg,
    /// One self-contained page
    Html,
}

pub fn trace(cli: &Cli, command: &TraceCommand) -> Result<u8, Fault> {
    let config = cli.config(&Endpoints::default())?;
    let path = config.store_path(cli.store.as_deref());
    match command {
        TraceCommand::List { limit, json } => {
            // No store yet is no run yet.
            let runs = if path.exists() { Store::open_to_look(&path)?.runs(*limit)? } else { Vec::new() };
            match json {
                true => print_json(&runs),
                false => list(&runs),
            }
        }
        TraceCommand::Show { run, replies, json } => {
            let trace = load(&Store::open_to_look(&path)?, run)?;
            match json {
                true => print_json(&shown(&trace, &config, *replies)?),
                false if *replies => print(&format!("{}\n{}", trace.show(), trace.replies())),
                false => print(&trace.show()),
            }
        }
        TraceCommand::Export { run, format, out, send, content } => {
            let trace = load(&Store::open_to_look(&path)?, run)?;
            match send {
                Some(url) if *format == Format::Otlp => runtime()?.block_on(post(&trace, url)),
                Some(_) => Err(Fault::new("only the format otlp can be sent").hint("add --format otlp")),
                None => write(&trace, *format, *content, out.as_deref()),
            }
        }
        TraceCommand::Diff { a, b, json } => {
            let store = Store::open_to_look(&path)?;
            let diff = lemon_trace::diff(&load(&store, a)?, &load(&store, b)?);
            match json {
                true => print_json(&diff),
                false => print(&diff.to_string()),
            }
        }
    }
}

fn load(store: &Store, name: &str) -> Result<Trace, Fault> {
    Ok(store.trace(&store.find_run(name)?)?)
}

fn list(runs: &[RunRow]) -> Result<u8, Fault> {
    if runs.is_empty() {
        eprintln!("no runs yet");
    }
    for run in runs {
        let end = match (&run.stop_reason, run.running) {
            (Some(reason), _) => reason.as_str(),
            (None, true) => "running",
            (None, false) => "interrupted",
        };
        let question: String = one_line(&run.question).chars().take(60).collect();
        let tokens = run.tokens.map(|tokens| format!("{tokens} tok")).unwrap_or_default();
        let seconds = run.wall_s.map(|seconds| format!("{seconds:.1} s")).unwrap_or_default();
        let id = &run.run_id;
        print(&format!("{id}  {end:<20} {tokens:>10} {seconds:>8}  {question}\n"))?;
    }
    Ok(0)
}

fn shown(trace: &Trace, config: &Config, replies: bool) -> Result<serde_json::Value, Fault> {
    let mut result = RunResult::new(trace, &config.language()?, &config.capacity);
    if replies {
        result = result.with_replies(trace);
    }
    let mut value = serde_json::to_value(&result).map_err(Fault::new)?;
    value["question"] = serde_json::json!(trace.header.question);
    value["metrics"] = serde_json::json!(trace.metrics(None));
    Ok(value)
}

fn write(trace: &Trace, format: Format, content: bool, out: Option<&Path>) -> Result<u8, Fault> {
    let text = match format {
        Format::Schema => {
            let content = if content { Content::Included } else { Content::Omitted };
            to_json(&schema(trace, content))? + "\n"
        }
        Format::Jsonl => {
            let mut lines = Vec::new();
            write_jsonl(trace, &mut lines).map_err(Fault::new)?;
            String::from_utf8_lossy(&lines).into_owned()
        }
        Format::Otlp => otlp_json(trace) + "\n",
        Format::Svg => svg(trace),
        Format::Html => html(trace),
    };
    let Some(path) = out else { return print_data(&text) };
    let written = std::fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Fault::new(format!("{}: {error}", path.display())))?;
    eprintln!("wrote {}", path.display());
    Ok(0)
}

/// Sends a trace to a collector.
async fn post(trace: &Trace, url: &str) -> Result<u8, Fault> {
    let collector = Collector::new(url).map_err(Fault::new)?;
    collector.send(trace).await.map_err(|error| {
        let fault = Fault::new(&error).code(1);
        match error {
            CollectorError::Unreachable { .. } => fault.hint("is a collector listening there for OTLP over HTTP?"),
            _ => fault,
        }
    })?;
    eprintln!("sent {} to {}", trace.header.run_id, collector.url());
    Ok(0)
}
