//! Replies on record answer the same call again, and no other.

use crate::common::*;
use lemon_exec::worker::{AskError, Reply, Request, Worker};
use lemon_exec::{Budget, Job, Price, ReplyCache, Runner, Settings};
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const PAIR: &str = "
agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: critic, capacity: small, after: [a]}
";

struct Reuse {
    runner: Runner,
    calls: Arc<AtomicUsize>,
    _folder: TempDir,
}

impl Reuse {
    fn new() -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let worker = Function::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            ten("Answer: 68")
        });
        let (store, _folder) = store();
        let mut runner = runner(worker, PAIR);
        runner.store = Some(store);
        runner.settings = Settings { reuse: true, ..settings() };
        Reuse { runner, calls, _folder }
    }

    /// A run, and the calls it made.
    async fn run(&self, job: Job) -> (Trace, usize) {
        let before = self.calls.load(Ordering::SeqCst);
        let trace = self.runner.run(&job, &CancellationToken::new(), None).await.unwrap();
        check_end(&trace, StopReason::Answered, Some("68"));
        (trace, self.calls.load(Ordering::SeqCst) - before)
    }
}

/// A worker that hears the level and nothing else, and counts its calls.
struct HearsLittle(AtomicUsize);

#[async_trait::async_trait]
impl Worker for HearsLittle {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let text = format!("Answer: {}", request.level);
        Ok(Reply { text, ..ten("")? })
    }

    fn cache_key(&self, request: &Request) -> Option<Vec<u8>> {
        Some(vec![request.level as u8])
    }
}

#[tokio::test]
async fn calls_of_one_cache_key_are_one_call() {
    let team = "
agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: expert, capacity: small, duty: Do it otherwise.}
  - {id: c, base: solver, capacity: large}
answer: {from: [a, b, c], by: vote}
";
    let worker = Arc::new(HearsLittle(AtomicUsize::new(0)));
    let mut runner = runner(Function::new(|_| ten("never asked")), team);
    runner.backend.worker = worker.clone();
    for (memory, calls) in [(None, 3), (Some(Arc::new(ReplyCache::default())), 2)] {
        worker.0.store(0, Ordering::SeqCst);
        runner.reply_cache = memory;
        let trace = runner.run(&job(), &CancellationToken::new(), None).await.unwrap();
        check_end(&trace, StopReason::Answered, Some("0"));
        assert_eq!(worker.0.load(Ordering::SeqCst), calls);
    }
}

fn named(run_id: &str) -> Job {
    Job { run_id: run_id.into(), ..job() }
}

#[tokio::test]
async fn the_same_run_again_costs_nothing() {
    let mut reuse = Reuse::new();
    assert_eq!(reuse.run(named("first")).await.1, 2);
    // Not even a budget of nothing stands in its way.
    reuse.runner.settings.budget = Budget { tokens: Some(0), usd: Some(0.0), calls: Some(0), seconds: None };
    let (trace, calls) = reuse.run(named("second")).await;
    let summary = trace.summary();
    assert_eq!((calls, summary.calls, summary.tokens.total, summary.usd), (0, 0, 0, 0.0));
    for agent in &summary.agents {
        assert_eq!((agent.status, agent.reused, agent.attempts), (Some(AgentStatus::Done), true, 0));
    }
}

#[tokio::test]
async fn anything_that_could_change_a_reply_makes_it_a_call_of_its_own() {
    let mut reuse = Reuse::new();
    assert_eq!(reuse.run(named("first")).await.1, 2);
    assert_eq!(reuse.run(Job { seed: 8, ..named("seed") }).await.1, 2);
    assert_eq!(reuse.run(Job { question: "Another?".into(), ..named("question") }).await.1, 2);
    reuse.runner.backend.levels[0].temperature = Some(0.7);
    assert_eq!(reuse.run(named("temperature")).await.1, 2);
    reuse.runner.backend.levels[0].max_tokens = 512;
    assert_eq!(reuse.run(named("max_tokens")).await.1, 2);
    reuse.runner.backend.levels[0].identity = "another model".into();
    assert_eq!(reuse.run(named("identity")).await.1, 2);
    // What cannot change it does not.
    reuse.runner.backend.levels[0].price = Price { input: 99.0, output: 99.0 };
    reuse.runner.settings.max_parallel = 1;
    assert_eq!(reuse.run(named("price")).await.1, 0);
    reuse.runner.settings.reuse = false;
    assert_eq!(reuse.run(named("off")).await.1, 2);
}

#[tokio::test]
async fn only_the_changed_part_of_a_team_is_asked() {
    let reuse = Reuse::new();
    reuse.run(named("first")).await;
    let meta = lemon_exec::store::RunMeta { withhold: vec![("a".into(), "b".into())], ..Default::default() };
    let (trace, calls) = reuse.run(Job { meta, ..named("withheld") }).await;
    assert_eq!(calls, 1, "`a` is asked the same, `b` is not");
    assert_eq!((agent(&trace, "a").reused, agent(&trace, "b").reused), (true, false));
}

#[tokio::test]
async fn failures_are_not_reused() {
    let (store, _folder) = store();
    let once = AtomicUsize::new(0);
    let worker = Function::new(move |_| match once.fetch_add(1, Ordering::SeqCst) {
        0 => Err(AskError::free(FailureKind::Refused, "the first time")),
        _ => ten("Answer: 68"),
    });
    let mut runner = runner(worker.clone(), "agents: [{id: solve, base: solver, capacity: small}]");
    runner.store = Some(store);
    runner.settings = Settings { reuse: true, ..settings() };
    let trace = runner.run(&named("first"), &CancellationToken::new(), None).await.unwrap();
    check_end(&trace, StopReason::AllAgentsFailed, None);
    let trace = runner.run(&named("second"), &CancellationToken::new(), None).await.unwrap();
    check_end(&trace, StopReason::Answered, Some("68"));
    assert_eq!(worker.asked().len(), 2);
    assert_eq!(places(&trace, |event| matches!(event.kind, EventKind::Return { reused: true, .. })).len(), 0);
}
