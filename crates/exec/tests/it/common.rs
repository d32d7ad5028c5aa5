//! What every test here needs: runners, workers that keep count, and questions to a trace.

use async_trait::async_trait;
use lemon_exec::orchestrator::Fixed;
use lemon_exec::store::{Store, Sync};
use lemon_exec::worker::{AskError, Endpoint, OpenAi, Reply, Request, Script, Scripted, Usage};
use lemon_exec::{Backend, Budget, Clock, Job, Level, Orchestrator, Price, Retry, Runner, Settings, Worker};
use lemon_fakes::FakeEndpoint;
use lemon_spec::Language;
use lemon_trace::{AgentSummary, Event, EventKind, Header, StopReason, Trace, VERSION};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub const QUESTION: &str = "A jacket costs 80 dollars and is 15 % off. What does it cost now?";
pub const PRICE: Price = Price { input: 1.0, output: 10.0 };

/// Waits of milliseconds, three attempts, nothing reused.
pub fn settings() -> Settings {
    let retry = Retry { attempts: 3, first_wait_s: 0.002, longest_wait_s: 2.5 };
    Settings { retry, reuse: false, ..Settings::default() }
}

pub fn budget(budget: Budget) -> Settings {
    Settings { budget, ..settings() }
}

/// A runner without a store, for a team from a text.
pub fn runner(worker: Arc<dyn Worker>, spec: &str) -> Runner {
    runner_by(worker, Arc::new(Fixed { text: spec.to_owned(), reviewer: None }))
}

pub fn runner_by(worker: Arc<dyn Worker>, orchestrator: Arc<dyn Orchestrator>) -> Runner {
    let language = Language::default();
    let level = |name: &String| Level { price: PRICE, ..Level::new(name) };
    let levels = language.capacities.iter().map(level).collect();
    let backend = Backend { worker, name: "test".into(), levels, clock: Clock::Real, code: None, tools: None };
    Runner {
        backend,
        orchestrator,
        language: Arc::new(language),
        store: None,
        reply_cache: None,
        reply_record: None,
        settings: settings(),
        on_delta: None,
    }
}

/// Every level at one fake endpoint.
pub fn http(fake: &FakeEndpoint, stream: bool) -> Arc<dyn Worker> {
    serve(Endpoint { stream, ..endpoint(fake) })
}

pub fn endpoint(fake: &FakeEndpoint) -> Endpoint {
    Endpoint {
        base_url: fake.base_url(),
        model: "fake".into(),
        api_key: None,
        timeout: Duration::from_secs(20),
        total_timeout: Duration::from_secs(20),
        stream: true,
        send_seed: true,
    }
}

pub fn serve(endpoint: Endpoint) -> Arc<dyn Worker> {
    Arc::new(OpenAi::new(vec![endpoint; 3]).unwrap())
}

pub fn scripted(script: &str) -> Arc<dyn Worker> {
    Arc::new(Scripted::new(Script::parse(script).unwrap()))
}

/// A store in a folder of its own.
pub fn store() -> (Arc<Store>, TempDir) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(&folder.path().join("lemon.db"), Sync::Normal).unwrap();
    (Arc::new(store), folder)
}

pub fn job() -> Job {
    Job { run_id: "run1".into(), task_id: "task1".into(), question: QUESTION.into(), seed: 7, ..Job::default() }
}

pub async fn run(runner: &Runner) -> Trace {
    runner.run(&job(), &CancellationToken::new(), None).await.unwrap()
}

pub async fn resume(runner: &Runner, trace: Trace) -> Trace {
    runner.resume(trace, &job().meta, &CancellationToken::new(), None).await.unwrap()
}

/// The trace of a run before its first event.
pub fn no_trace() -> Trace {
    let header = Header {
        version: VERSION,
        run_id: "run1".into(),
        task_id: "task1".into(),
        question: QUESTION.into(),
        started_at_ms: 1,
        seed: 7,
        workers: "test".into(),
    };
    Trace { header, events: Vec::new() }
}

/// A worker that is a function, and remembers which agents asked it.
pub struct Function<F> {
    pub reply: F,
    pub asked: Mutex<Vec<String>>,
}

impl<F: Fn(&Request) -> Result<Reply, AskError> + Send + std::marker::Sync> Function<F> {
    pub fn new(reply: F) -> Arc<Self> {
        Arc::new(Function { reply, asked: Mutex::default() })
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl<F: Fn(&Request) -> Result<Reply, AskError> + Send + std::marker::Sync> Worker for Function<F> {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        self.asked.lock().unwrap().push(request.agent.clone());
        (self.reply)(request)
    }
}

/// A reply of ten tokens in and ten out.
pub fn ten(text: impl Into<String>) -> Result<Reply, AskError> {
    let usage = Usage { tokens_in: 10, tokens_out: 10, counted: false };
    Ok(Reply {
        text: text.into(),
        usage,
        model: None,
        simulated_s: None,
        confidence: None,
        truncated: false,
        tool_calls: Vec::new(),
    })
}

#[track_caller]
pub fn agent(trace: &Trace, id: &str) -> AgentSummary {
    trace.summary().agent(id).unwrap_or_else(|| panic!("no agent `{id}` in the trace")).clone()
}

#[track_caller]
pub fn check_end(trace: &Trace, reason: StopReason, answer: Option<&str>) {
    let summary = trace.summary();
    assert_eq!((summary.stop_reason, summary.answer.as_deref()), (Some(reason), answer));
}

/// The numbers of the events that fit.
pub fn places(trace: &Trace, fits: impl Fn(&Event) -> bool) -> Vec<u32> {
    trace.events.iter().filter(|event| fits(event)).map(|event| event.id).collect()
}

/// The number of the one event that says how `id` ended.
#[track_caller]
pub fn returned(trace: &Trace, id: &str) -> u32 {
    let found = places(trace, |event| event.agent == id && matches!(event.kind, EventKind::Return { .. }));
    assert_eq!(found.len(), 1, "`{id}` ends once");
    found[0]
}

/// The number of the one event that says that `id` was asked.
#[track_caller]
pub fn delegated(trace: &Trace, id: &str) -> u32 {
    let found = places(trace, |event| matches!(&event.kind, EventKind::Delegate { to, .. } if to == id));
    assert_eq!(found.len(), 1, "`{id}` is asked once");
    found[0]
}
