//! Coordinator and workers in one process, with the real server.

use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::link::{Access, Link};
use crate::node::{BuildEnv, Node, NodeEnv, NodeOptions};
use crate::objects::Blobs;
use crate::status::Status;
use crate::wire::{DoneHead, JOB_HEADER, Job, OBJECT_HEADER, VERSION_HEADER, written};
use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use lemon_exec::orchestrator::Fixed;
use lemon_exec::worker::{AskError, Reply, Request, Usage, Worker};
use lemon_exec::{Backend, Clock, Level, Settings, SharedBudget};
use lemon_fakes::NatsServer;
use lemon_rollout::{Grader, RolloutEnv, RunOptions};
use lemon_spec::Language;
use lemon_trace::{Header, StopReason, Trace};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const TEAM: &str = "agents:\n  - {id: a1, base: solver, capacity: small}\n";

/// An agent that replies when it may.
struct Held {
    gate: Arc<Semaphore>,
    usage: Usage,
}

#[async_trait]
impl Worker for Held {
    async fn ask(&self, _: &Request) -> Result<Reply, AskError> {
        self.gate.acquire().await.unwrap().forget();
        Ok(Reply {
            text: "Answer: 42".to_owned(),
            usage: self.usage,
            model: None,
            simulated_s: None,
            confidence: None,
            truncated: false,
            tool_calls: Vec::new(),
        })
    }
}

fn env(gate: &Arc<Semaphore>, tokens_out: u64) -> RolloutEnv {
    let language = Arc::new(Language::default());
    let usage = Usage { tokens_in: 100, tokens_out, ..Usage::default() };
    let backend = Backend {
        worker: Arc::new(Held { gate: gate.clone(), usage }),
        name: "fake".into(),
        levels: language.capacities.iter().map(Level::new).collect(),
        clock: Clock::Real,
        code: None,
        tools: None,
    };
    RolloutEnv::new(backend, language, Settings { reuse: false, ..Settings::default() }, Grader::new(None))
}

/// What a worker process can do.
enum Builder {
    /// It makes runs whose agents wait at this gate, and cost so many tokens.
    Makes(Arc<Semaphore>, u64),
    /// It has no key.
    HasNoKey,
    /// It makes runs where the recipe names an object with this content, which it fetches as a file.
    Fetches(PathBuf, &'static [u8]),
}

#[async_trait]
impl BuildEnv for Builder {
    async fn build(&self, recipe: &[u8], blobs: &Blobs) -> Result<NodeEnv, String> {
        let open = Arc::new(Semaphore::new(1_000));
        let env = match self {
            Builder::Makes(gate, tokens) => env(gate, *tokens),
            Builder::HasNoKey => return Err("FAKE_KEY is not set".to_owned()),
            Builder::Fetches(path, content) => {
                let name = std::str::from_utf8(recipe).map_err(|error| error.to_string())?;
                blobs.get_file(name, path).await.map_err(|error| error.to_string())?;
                assert_eq!(std::fs::read(path).unwrap(), *content);
                env(&open, 10)
            }
        };
        Ok(NodeEnv { env, cases: HashMap::new() })
    }
}

async fn link(server: &NatsServer) -> Link {
    let silence = Some(Duration::from_secs(2));
    Link::connect(&Access { address: server.address(), silence, ..Access::default() }).await.unwrap()
}

/// A worker process of one slot that gives a job up after two tries, until the guard is dropped.
async fn worker(server: &NatsServer, builder: Builder) -> (Arc<Node>, tokio_util::sync::DropGuard) {
    let options = NodeOptions { tries: 2, ..NodeOptions::default() };
    let node = Node::new(&link(server).await, Arc::new(builder), options);
    let (served, stop) = (node.clone(), CancellationToken::new());
    let over = stop.clone();
    tokio::spawn(async move { served.serve(&over).await });
    (node, stop.drop_guard())
}

/// A run on the cluster.
fn run(coordinator: &Coordinator, recipe: &'static [u8], seed: u64) -> JoinHandle<Option<Trace>> {
    let coordinator = coordinator.clone();
    tokio::spawn(async move {
        let mut env = env(&Arc::new(Semaphore::new(0)), 0);
        env.remote = Some(Arc::new(coordinator.runs(recipe).await.unwrap()));
        let team = Arc::new(Fixed { text: TEAM.to_owned(), reviewer: None });
        let options = RunOptions::default();
        env.execute_question("task", "What is 6 times 7?", team, seed, &options).await.ok()
    })
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(60), "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[track_caller]
fn answered(trace: Option<Trace>) -> Trace {
    let trace = trace.expect("the run was given up");
    assert_eq!(trace.summary().stop_reason, Some(StopReason::Answered));
    trace
}

#[tokio::test]
async fn a_worker_without_a_key_leaves_a_job_to_one_that_has_it() {
    let Some(server) = NatsServer::start() else { return };
    let coordinator = Coordinator::begin(&link(&server).await, CoordinatorOptions::default()).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let (able, _able) = worker(&server, Builder::Makes(gate.clone(), 10)).await;
    let first = run(&coordinator, b"recipe", 1);
    until("the able worker has a job", async || able.report().busy == 1).await;
    // The other is idle, and has the next job again and again.
    let (keyless, _keyless) = worker(&server, Builder::HasNoKey).await;
    let second = run(&coordinator, b"recipe", 2);
    until("the job is refused more often than it may be tried", async || keyless.report().failed >= 4).await;
    assert_eq!(coordinator.dead(), []);
    gate.add_permits(2);
    answered(first.await.unwrap());
    answered(second.await.unwrap());
    until("both are acknowledged", async || able.report().done == 2).await;
    assert_eq!((coordinator.dead(), keyless.report().done), (Vec::new(), 0));
}

#[tokio::test]
async fn a_job_that_all_workers_refuse_is_given_up() {
    let Some(server) = NatsServer::start() else { return };
    let coordinator = Coordinator::begin(&link(&server).await, CoordinatorOptions::default()).await.unwrap();
    let workers = [worker(&server, Builder::HasNoKey).await, worker(&server, Builder::HasNoKey).await];
    let trace = run(&coordinator, b"recipe", 1).await.unwrap();
    assert!(trace.is_none_or(|trace| trace.summary().stop_reason != Some(StopReason::Answered)));
    let dead = coordinator.dead();
    assert!(dead.len() == 1 && dead[0].tries >= 2 && dead[0].error.contains("FAKE_KEY"), "{dead:?}");
    assert!(workers.iter().all(|(worker, _)| worker.report().failed > 0), "each was asked");
}

#[tokio::test]
async fn a_job_of_another_version_waits_for_a_worker_of_that_version() {
    let Some(server) = NatsServer::start() else { return };
    let link = link(&server).await;
    let coordinator = Coordinator::begin(&link, CoordinatorOptions::default()).await.unwrap();
    let session = coordinator.session();
    let alive = link.alive().await.unwrap();
    alive.put("node.other", Bytes::from_static(b"another version writes what it likes")).await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_ID, format!("{session}-0").as_str());
    headers.insert(VERSION_HEADER, "0.0.1/1");
    let subject = link.subject(&format!("jobs.low.{session}"));
    link.jetstream.publish_with_headers(subject, headers, "{}".into()).await.unwrap().await.unwrap();
    let (node, _node) = worker(&server, Builder::HasNoKey).await;
    until("it is refused more often than it may be tried", async || node.report().failed >= 4).await;
    assert_eq!(Status::read(&link).await.unwrap().dead, 0);
    // No worker is left that could make it.
    alive.delete("node.other").await.unwrap();
    until("it is given up", async || Status::read(&link).await.unwrap().dead == 1).await;
    let letter = Status::read(&link).await.unwrap().letters.remove(0);
    assert!(letter.error.starts_with("the job is of version 0.0.1/1, this worker of "), "{letter:?}");
}

#[tokio::test]
async fn what_calls_cost_above_what_was_reserved_for_them_is_on_account() {
    let Some(server) = NatsServer::start() else { return };
    let budget = Arc::new(SharedBudget::new(Some(1_000_000), None, CancellationToken::new()));
    let options = CoordinatorOptions { budget: Some(budget.clone()), ..CoordinatorOptions::default() };
    let coordinator = Coordinator::begin(&link(&server).await, options).await.unwrap();
    let (_node, _stop) = worker(&server, Builder::Makes(Arc::new(Semaphore::new(3)), 50_000)).await;
    for seed in 0..3 {
        let trace = answered(run(&coordinator, b"recipe", seed).await.unwrap());
        assert_eq!(trace.summary().tokens.total, 50_100);
    }
    until("everything is on account", async || budget.spent().0 == 3 * 50_100).await;
}

#[tokio::test]
async fn a_server_that_lost_its_data_gets_jobs_and_objects_back() {
    let Some(mut server) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let content: &[u8] = b"the weights of a model";
    std::fs::write(folder.path().join("sent"), content).unwrap();
    let coordinator = Coordinator::begin(&link(&server).await, CoordinatorOptions::default()).await.unwrap();
    let name = coordinator.blobs().put_file(&folder.path().join("sent")).await.unwrap();
    let made = run(&coordinator, name.leak().as_bytes(), 1);
    let watching = link(&server).await;
    until("the job is queued", async || Status::read(&watching).await.unwrap().queued == [0, 1]).await;
    server.restart_empty();
    let (node, _stop) = worker(&server, Builder::Fetches(folder.path().join("fetched"), content)).await;
    answered(made.await.unwrap());
    assert_eq!((node.report().failed, coordinator.dead()), (0, Vec::new()));
    // An object alone may be gone too: it is older than the server keeps it, say.
    let objects = watching.objects().await.unwrap();
    let lost = coordinator.blobs().put(b"a recipe").await.unwrap();
    objects.delete(&lost).await.unwrap();
    assert!(watching_blobs(&watching).get(&lost).await.is_err());
    assert!(coordinator.put_back(&lost).await.unwrap());
    assert_eq!(watching_blobs(&watching).get(&lost).await.unwrap(), b"a recipe");
    assert!(!coordinator.put_back("of another process").await.unwrap());
}

fn watching_blobs(link: &Link) -> Blobs {
    Blobs::new(link)
}

#[tokio::test]
async fn a_large_result_is_acknowledged_once_it_is_read() {
    let Some(server) = NatsServer::start() else { return };
    let link = link(&server).await;
    let coordinator = Coordinator::begin(&link, CoordinatorOptions::default()).await.unwrap();
    let made = run(&coordinator, b"recipe", 1);
    let consumer = link.consumer("low").await.unwrap();
    let mut messages = consumer.messages().await.unwrap();
    let message = messages.next().await.unwrap().unwrap();
    let job: Job = serde_json::from_slice(&message.payload).unwrap();
    // The result that a worker would send, as an object that the server has lost on the way.
    let trace = env(&Arc::new(Semaphore::new(1)), 10);
    let team = Arc::new(Fixed { text: TEAM.to_owned(), reviewer: None });
    let trace = trace.execute_question("task", "What is 6 times 7?", team, 1, &RunOptions::default()).await.unwrap();
    let header = Header { run_id: job.run_id.clone(), ..trace.header };
    let head = DoneHead { job: job.id.clone(), header, events: trace.events.len(), graded: None, bits: None };
    let lines: Vec<String> = std::iter::once(written(&head)).chain(trace.events.iter().map(written)).collect();
    let body = lines.join("\n");
    let name = blake3::hash(body.as_bytes()).to_hex().to_string();
    let send = async || {
        let mut headers = HeaderMap::new();
        headers.insert(JOB_HEADER, job.id.as_str());
        headers.insert(OBJECT_HEADER, name.as_str());
        let subject = link.subject(&format!("session.{}.done", job.session));
        let sent = link.client.request_with_headers(subject, headers, Bytes::new());
        tokio::time::timeout(Duration::from_secs(2), sent).await.is_ok_and(|answer| answer.is_ok())
    };
    assert!(!send().await, "a result that cannot be read is not acknowledged");
    assert!(!made.is_finished());
    let blobs = Blobs::new(&link);
    assert_eq!(blobs.put(body.as_bytes()).await.unwrap(), name);
    assert!(send().await);
    assert_eq!(answered(made.await.unwrap()).events, trace.events);
    // It is of no use to another process; and sent once more, it is acknowledged.
    until("the object is removed", async || Blobs::new(&link).get(&name).await.is_err()).await;
    assert!(send().await);
}
