//! What goes wrong while teams run on other machines: nothing is lost, nothing counts twice, no budget is overrun.
//!
//! `LEMON_FAULT_ROUNDS=10 cargo test --workspace --test it -- cluster` is the campaign of 100 faults during one training.

use super::again::Again;
use super::{Workers, assert_same, left, notice_soon, on_cluster, with};
use crate::budgets::{self, served};
use crate::common::{Draws, Folder, finish, send_signal, wait_until};
use crate::eval::list;
use crate::train::TABLE;
use lemon_fakes::{Behaviour, DroppingProxy, FakeEndpoint, FakeReply, NatsServer, fault_rounds};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The kinds of faults, each as likely as the others.
const KINDS: [&str; 5] = ["worker killed", "server restarted", "connections dropped", "delivered twice", "worker slow"];
/// More than a training spends, also where calls of killed workers are made again.
const ENOUGH: &str = "400000";
const STEPS: u64 = 20;

/// An endpoint that takes a moment, and replies of a hundred words.
fn endpoint() -> FakeEndpoint {
    FakeEndpoint::start(budgets::behaviour().latency_ms(60)).unwrap()
}

/// The runs on record: task and seed of each.
fn runs(folder: &Folder) -> Vec<(String, u64)> {
    let store = rusqlite::Connection::open(folder.path(".lemon/lemon.db")).unwrap();
    let mut statement = store.prepare("SELECT header FROM runs").unwrap();
    let headers = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let run = |header: rusqlite::Result<String>| {
        let header: Value = serde_json::from_str(&header.unwrap()).unwrap();
        (header["task_id"].as_str().unwrap().to_owned(), header["seed"].as_u64().unwrap())
    };
    let mut runs: Vec<_> = headers.map(run).collect();
    runs.sort();
    runs
}

#[test]
fn a_training_ends_with_the_same_bytes_whatever_goes_wrong() {
    let Some(mut server) = NatsServer::start() else { return };
    let recipe = TABLE.replace("steps = 3", &format!("steps = {STEPS}")).replace("rounds = 1", "rounds = 2");
    let train = ["train", "--recipe", "table.toml", "--workers", "endpoints", "--budget-tokens", ENOUGH, "-q"];
    let quiet = endpoint();
    let alone = budgets::folder(&quiet).file("table.toml", &recipe);
    alone.lemon(&train).ok();

    let endpoint = endpoint();
    let folder = budgets::folder(&endpoint).file("table.toml", &recipe);
    notice_soon(&folder, &server.address());
    let (proxy, again) = (DroppingProxy::start(&server), Again::start(server.address()));
    let address = proxy.address();
    let mut workers = Workers::start(&folder, address.clone(), 3);
    let args = with(&train, &["--cluster", &address]);
    let process = folder.start(&args);
    let coordinator = process.id().to_string();
    let over = AtomicBool::new(false);
    let wanted = 10 * fault_rounds(1);
    let mut draws = Draws::new(7);
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    let mut stopped = 0;
    let ran = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let ran = finish(&args, process);
            over.store(true, Ordering::SeqCst);
            ran
        });
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
            workers.wake();
            // Spread over the steps: a training that is ahead of its faults is stopped meanwhile.
            let steps = std::fs::read_to_string(folder.path("train/metrics.jsonl")).unwrap_or_default().lines().count();
            let (done, due) = (met.values().sum::<u64>(), wanted * (steps as u64).min(STEPS) / STEPS);
            let ahead = done + wanted / STEPS < due;
            send_signal(if ahead { "STOP" } else { "CONT" }, &coordinator);
            if steps == 0 || done >= due || draws.below(3) > 0 {
                continue;
            }
            let kind = KINDS[draws.below(KINDS.len() as u64) as usize];
            match kind {
                "worker killed" => workers.replace(draws.below(3) as usize),
                "server restarted" => server.restart(),
                "connections dropped" => proxy.drop_all(),
                "delivered twice" => again.send(),
                _ => workers.slow(draws.below(3) as usize),
            }
            *met.entry(kind).or_default() += 1;
            stopped += u64::from(ahead);
        }
        waiter.join().unwrap()
    });
    ran.ok();
    println!("faults: {met:?}, {stopped} of them while the coordinator was stopped; sent twice: {:?}", again.sent());
    // The last step may end before its faults are drawn.
    assert!(met.values().sum::<u64>() + wanted / STEPS >= wanted, "{met:?}");
    let expected = left(&alone, "train");
    assert!(expected.keys().any(|file| file.starts_with(&format!("checkpoint-{STEPS:08}"))), "{:?}", expected.keys());
    assert_same(&left(&folder, "train"), &expected, "the training");
    assert_eq!(runs(&folder), runs(&alone), "each run is on record once");
    let spent: Value = serde_json::from_str(&folder.read("train/spending.json")).unwrap();
    let (by_endpoint, by_us) = (served(&endpoint).0, spent["tokens"].as_u64().unwrap());
    assert!(by_endpoint <= by_us && by_us <= ENOUGH.parse().unwrap(), "{by_endpoint} served, {by_us} on account");
    drop(workers);
    let status = folder.lemon(&["cluster", "status", "--nats", &server.address(), "--json"]).ok().json();
    assert_eq!(status["dead"], 0, "{status}");
}

const EVAL: [&str; 10] =
    ["eval", "--set", "gsm8k", "--workers", "endpoints", "--methods", "vanilla,chain:2", "--limit", "6", "--json"];

/// The queue has jobs that wait for a call of the one that died with its worker, and there is one slot.
#[test]
fn who_waits_for_a_call_of_a_dead_worker_makes_room_for_its_job() {
    let Some(server) = NatsServer::start() else { return };
    let (answers, metrics) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::<PathBuf>::new()));
    let (may_answer, told) = (answers.clone(), metrics.clone());
    let endpoint = FakeEndpoint::start(Behaviour::function(move |_| {
        // The evaluation before the first step shares no calls: the worker hangs in the step itself.
        let in_step = told.get().is_some_and(|path| path.exists());
        match may_answer.load(Ordering::SeqCst) || !in_step {
            true => FakeReply::Text("Answer: 7".into()),
            false => FakeReply::Hang,
        }
    }));
    let endpoint = endpoint.unwrap();
    let recipe = TABLE
        .replace("steps = 3", "steps = 1")
        .replace("tasks = 2\ngroup = 2", "tasks = 1\ngroup = 8")
        .replace("slots = 2", "slots = 1\nbases = 1\nduties = 1");
    let folder = budgets::folder(&endpoint).file("table.toml", &recipe);
    metrics.set(folder.path("train/metrics.jsonl")).unwrap();
    notice_soon(&folder, &server.address());
    let train = ["train", "--recipe", "table.toml", "--workers", "endpoints", "--budget-tokens", ENOUGH, "-q"];
    let worker = || {
        let mut command = folder.command(&["worker", "--nats", &server.address(), "--slots", "1", "-q"]);
        Ended(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let mut first = Some(worker());
    let mut second = None;
    on_cluster(&folder, &server.address(), &train, || {
        if first.is_some() && metrics.get().unwrap().exists() && endpoint.in_flight() > 0 {
            first = None;
            answers.store(true, Ordering::SeqCst);
            second = Some(worker());
        }
    })
    .ok();
    assert!(second.is_some(), "the first worker died in a call");
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It has ended already, then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn figures(report: &Value) -> Vec<(Value, Value)> {
    list(&report["methods"]).iter().map(|method| (method["accuracy"].clone(), method["runs"].clone())).collect()
}

#[test]
fn a_budget_holds_while_workers_are_killed() {
    let Some(server) = NatsServer::start() else { return };
    let whole = endpoint();
    let expected = budgets::folder(&whole).lemon(&EVAL).ok().json();
    let all = served(&whole).0;
    for round in 0..fault_rounds(1) {
        let endpoint = endpoint();
        let folder = budgets::folder(&endpoint);
        notice_soon(&folder, &server.address());
        let mut draws = Draws::new(200 + round);
        let mut workers = Workers::start(&folder, server.address(), 3);
        let mut killed = 0;
        let budget = all * 2 / 3;
        let args = with(&EVAL, &["--budget-tokens"]);
        let words = budget.to_string();
        let ran = on_cluster(&folder, &server.address(), &with(&args, &[&words]), || {
            if killed < 4 && endpoint.calls() > 2 * killed && draws.below(3) == 0 {
                workers.replace(draws.below(3) as usize);
                killed += 1;
            }
        });
        assert!(killed > 0, "a worker is killed");
        let ran = ran.code(1);
        assert!(served(&endpoint).0 <= budget, "{} of {budget}", served(&endpoint).0);
        assert!(ran.stderr.contains("error: the budget is used up: "), "{}", ran.stderr);
        let id = ran.json()["set_up"]["eval_id"].as_str().unwrap().to_owned();
        let more = (4 * all).to_string();
        let args = ["eval", "--resume", &id, "--json", "--budget-tokens", &more];
        let done = on_cluster(&folder, &server.address(), &args, || {}).ok().json();
        assert_eq!(figures(&done), figures(&expected), "round {round}");
        assert!(served(&endpoint).0 <= 4 * all);
    }
}

#[test]
fn what_runs_of_a_killed_coordinator_spend_stays_on_account() {
    let Some(server) = NatsServer::start() else { return };
    let whole = endpoint();
    budgets::folder(&whole).lemon(&EVAL).ok();
    let budget = served(&whole).0 / 2;
    let endpoint = endpoint();
    let folder = budgets::folder(&endpoint);
    notice_soon(&folder, &server.address());
    let workers = Workers::start(&folder, server.address(), 3);
    let (address, words) = (server.address(), budget.to_string());
    let args = with(&EVAL, &["--budget-tokens", &words, "--cluster", &address]);
    let mut process = folder.start(&args);
    wait_until("calls are under way", || endpoint.calls() > 2);
    process.kill().unwrap();
    finish(&args, process);
    let store = rusqlite::Connection::open(folder.path(".lemon/lemon.db")).unwrap();
    let id: String = store.query_row("SELECT batch FROM batches", [], |row| row.get(0)).unwrap();
    // On one machine, as on many: each goes on with what the one before left.
    for cluster in [&["--cluster", &address][..], &[]] {
        let args = with(&["eval", "--resume", &id, "--json"], cluster);
        let ran = folder.lemon(&args).code(1);
        assert!(ran.stderr.contains("the budget is used up: "), "{}", ran.stderr);
        assert!(served(&endpoint).0 <= budget, "{} of {budget}", served(&endpoint).0);
    }
    drop(workers);
    let done = folder.lemon(&["eval", "--resume", &id, "--json", "--budget-tokens", "1000000"]).ok().json();
    assert_eq!(figures(&done).len(), 2);
}
