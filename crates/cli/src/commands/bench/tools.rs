//! `lemon bench tools`: the processor time that a call of a tool takes beside the tool itself.
//!
//! A worker in this process asks for calls, and a tool that does nothing answers them. What a run with calls takes beyond one
//! without is what they cost: the loop, the ledger, the trace, the store, and the model call that reads each result.

use super::process::cpu_seconds;
use super::run_teams;
use crate::fault::Fault;
use crate::{print, print_json};
use async_trait::async_trait;
use lemon_exec::orchestrator::Fixed;
use lemon_exec::store::{Store, Sync};
use lemon_exec::worker::{AskError, Reply, Request, Speaker, Usage};
use lemon_exec::{Backend, Clock, Level, OfferedTool, RequestedCall, Runner, Settings, ToolRun, ToolRunner, Worker};
use lemon_spec::Language;
use lemon_tools::{ToolSet, ToolsConfig};
use lemon_workers::{AgentTools, Consent};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls of one agent in a run.
const CALLS: usize = 8;
/// Runs at a time.
const WIDTH: usize = 16;

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    /// Absent where the system does not tell processor times.
    cpu_ms_per_call: Option<f64>,
    calls: usize,
}

pub(super) async fn bench(calls: usize, json: bool) -> Result<u8, Fault> {
    let rows = measure(calls).await?;
    if json {
        return print_json(&json!({ "tools": rows }));
    }
    for Row { what, cpu_ms_per_call, calls } in &rows {
        let cpu = cpu_ms_per_call.map_or_else(|| "n/a".to_owned(), |ms| format!("{ms:.3} ms"));
        print(&format!("{what:<44} {cpu:>10} of CPU a call ({calls} calls)\n"))?;
    }
    Ok(0)
}

async fn measure(calls: usize) -> Result<Vec<Row>, Fault> {
    let nothing: Arc<dyn ToolRunner> = Arc::new(Nothing);
    let calculator = calculator()?;
    Ok(vec![
        row("a tool that does nothing, without a store", calls, &nothing, false).await?,
        row("a tool that does nothing, with the store", calls, &nothing, true).await?,
        row("the calculator, with the store", calls, &calculator, true).await?,
    ])
}

async fn row(what: &'static str, calls: usize, tools: &Arc<dyn ToolRunner>, stored: bool) -> Result<Row, Fault> {
    let runs = calls.div_ceil(CALLS);
    let folder = tempfile::tempdir().map_err(|error| Fault::new(format!("no temporary folder: {error}")))?;
    let mut seconds = Vec::new();
    for of_run in [0, CALLS] {
        let store = match stored {
            true => Some(Arc::new(Store::open(&folder.path().join(format!("{of_run}.db")), Sync::Normal)?)),
            false => None,
        };
        let runner = Arc::new(runner(of_run, tools.clone(), store));
        // The first runs pay for what is made once.
        run_teams(&runner, WIDTH, WIDTH).await?;
        let before = cpu_seconds();
        run_teams(&runner, runs, WIDTH).await?;
        // What the store's thread still has to write counts too.
        drop(runner);
        seconds.push(cpu_seconds().zip(before).map(|(after, before)| after - before));
    }
    let [without, with] = seconds[..] else { return Err(Fault::new("two measurements were made")) };
    let calls = runs * CALLS;
    let cpu_ms_per_call = with.zip(without).map(|(with, without)| 1000.0 * (with - without) / calls as f64);
    Ok(Row { what, cpu_ms_per_call, calls })
}

fn runner(calls: usize, tools: Arc<dyn ToolRunner>, store: Option<Arc<Store>>) -> Runner {
    let language = Arc::new(Language { tools: vec![CALCULATOR.to_owned()], ..Language::default() });
    let text = format!("agents:\n  - {{id: solve, base: solver, capacity: small, tools: [{CALCULATOR}]}}\n");
    Runner {
        backend: Backend {
            worker: Arc::new(Caller { calls, asked: AtomicUsize::new(0) }),
            name: "bench".to_owned(),
            levels: language.capacities.iter().map(Level::new).collect(),
            clock: Clock::Real,
            code: None,
            tools: Some(tools),
        },
        orchestrator: Arc::new(Fixed { text, reviewer: None }),
        language,
        store,
        reply_cache: None,
        reply_record: None,
        settings: Settings { tool_calls: CALLS as u32, ..Settings::default() },
        on_delta: None,
    }
}

const CALCULATOR: &str = "calculator";

fn calculator() -> Result<Arc<dyn ToolRunner>, Fault> {
    let config: ToolsConfig = toml::from_str("[calculator]\n").map_err(Fault::new)?;
    let set = ToolSet::new(&config, Path::new("")).map_err(|error| Fault::new(error.to_string()))?;
    Ok(Arc::new(AgentTools::new(set, Consent::Withheld)))
}

/// Asks for so many calls, one after another, and answers.
struct Caller {
    calls: usize,
    asked: AtomicUsize,
}

#[async_trait]
impl Worker for Caller {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        let results = request.messages.iter().filter(|message| message.role == Speaker::Tool).count();
        // No call is like another, so that no result is one that was kept.
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let arguments = json!({ "expression": format!("{number} * 3 + 1/7") }).to_string();
        let call = RequestedCall { id: String::new(), tool: CALCULATOR.to_owned(), arguments };
        let (text, tool_calls) = match results < self.calls {
            true => (String::new(), vec![call]),
            false => ("Answer: 42".to_owned(), Vec::new()),
        };
        let usage = Usage { tokens_in: 100, tokens_out: 20, counted: false };
        Ok(Reply { text, usage, model: None, simulated_s: None, confidence: None, truncated: false, tool_calls })
    }

    fn calls_tools(&self, _: usize) -> bool {
        true
    }
}

/// Does nothing.
struct Nothing;

#[async_trait]
impl ToolRunner for Nothing {
    async fn offered(&self, names: &[String]) -> Vec<Result<OfferedTool, String>> {
        let schema = json!({"type": "object", "properties": {"expression": {"type": "string"}}});
        let offer = |name: &String| {
            Ok(OfferedTool {
                name: name.clone(),
                description: "Does nothing.".to_owned(),
                schema: schema.clone(),
                price: 0.0,
                idempotent: true,
                read_only: true,
                approve: false,
            })
        };
        names.iter().map(offer).collect()
    }

    async fn call(&self, _: &OfferedTool, _: &Value) -> ToolRun {
        ToolRun { ok: true, text: "3".to_owned(), known: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_exec::fresh_id;

    #[tokio::test]
    async fn calls_are_made_and_measured() {
        let rows = measure(40).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.calls).collect::<Vec<_>>(), [40; 3]);
        let run = runner(CALLS, Arc::new(Nothing), None);
        let job = lemon_exec::Job { run_id: fresh_id(), question: "?".into(), ..lemon_exec::Job::default() };
        let trace = run.run(&job, &tokio_util::sync::CancellationToken::new(), None).await.unwrap();
        assert_eq!(trace.summary().agent("solve").unwrap().tool_calls, CALLS as u32);
    }
}
