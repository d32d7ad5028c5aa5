//! Runs on worker processes: the same report as without them, whatever becomes of the workers and the server.

mod access;
mod again;
mod faults;
mod manifests;
mod page;

use crate::common::{Draws, Folder, Ran, finish, send_signal, signal, wait_until};
use crate::eval::{list, without_names};
use lemon_fakes::{Behaviour, DroppingProxy, FakeEndpoint, NatsServer, fault_rounds};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rules of one and of two rounds, programs, and rejected teams.
const EVAL: &[&str] = &[
    "eval",
    "--set",
    "gsm8k,humaneval",
    "--limit",
    "6",
    "--methods",
    "cot,sc-cot:3,debate,tree",
    "--seeds",
    "1,2",
    "-q",
    "--out",
    "out",
    "--json",
];

/// [`EVAL`] without programs: to run them takes most of its time.
fn eval_of_numbers() -> Vec<&'static str> {
    EVAL.iter().map(|word| if *word == "gsm8k,humaneval" { "gsm8k" } else { word }).collect()
}

/// Worker processes that end with the test.
struct Workers<'a> {
    folder: &'a Folder,
    address: String,
    processes: Vec<Child>,
    /// Those that are stopped, and until when.
    slow: Vec<(u32, Instant)>,
}

impl<'a> Workers<'a> {
    fn start(folder: &'a Folder, address: String, count: usize) -> Self {
        let mut workers = Workers { folder, address, processes: Vec::new(), slow: Vec::new() };
        (0..count).for_each(|_| workers.add());
        workers
    }

    fn add(&mut self) {
        let mut command = self.folder.command(&["worker", "--nats", &self.address, "--slots", "2", "-q"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(command.spawn().unwrap());
    }

    /// Kills one without warning and starts another in its place.
    fn replace(&mut self, at: usize) {
        let mut killed = self.processes.swap_remove(at % self.processes.len());
        killed.kill().unwrap();
        killed.wait().unwrap();
        self.slow.retain(|(process, _)| *process != killed.id());
        self.add();
    }

    /// Stops one until it is taken for dead, and a moment longer.
    fn slow(&mut self, at: usize) {
        let process = self.processes[at % self.processes.len()].id();
        send_signal("STOP", &process.to_string());
        self.slow.push((process, Instant::now() + SILENCE + Duration::from_secs(1)));
    }

    /// Lets those go on that were slow for long enough.
    fn wake(&mut self) {
        let now = Instant::now();
        self.slow.retain(|(process, until)| {
            let waits = now < *until;
            waits || !send_signal("CONT", &process.to_string())
        });
    }
}

/// How long a worker may be silent before its jobs go to others, after [`notice_soon`].
const SILENCE: Duration = Duration::from_secs(2);

/// Has the cluster notice soon that a worker is gone: what the first process of a project says counts for all.
#[track_caller]
fn notice_soon(folder: &Folder, address: &str) {
    let seconds = SILENCE.as_secs().to_string();
    folder.lemon_with(&[("LEMON_WORKER_SILENCE", &seconds)], &["cluster", "status", "--nats", address]).ok();
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It has ended already, then.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn with<'a>(args: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [args, more].concat()
}

/// What a command prints and the rows it keeps, without names and times.
#[track_caller]
fn outcome(folder: &Folder, ran: Ran) -> (Value, Value) {
    let report = without_names(ran.ok().json());
    let rows: Value = serde_json::from_str(&folder.read("out/eval.json")).unwrap();
    (report, without_names(rows))
}

/// The same on a cluster, while `disturb` does what it likes.
#[track_caller]
fn on_cluster(folder: &Folder, address: &str, args: &[&str], mut disturb: impl FnMut()) -> Ran {
    let args = with(args, &["--cluster", address]);
    let process = folder.start(&args);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let ran = finish(&args, process);
            over.store(true, Ordering::SeqCst);
            ran
        });
        while !over.load(Ordering::SeqCst) {
            disturb();
            std::thread::sleep(Duration::from_millis(20));
        }
        waiter.join().unwrap()
    })
}

#[test]
fn the_report_is_the_same_on_one_two_and_seven_workers() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let alone = outcome(&folder, folder.lemon(EVAL));
    assert_eq!(list(&alone.1["rows"]).len(), 4 * 2 * 12);
    for count in [1, 2, 7] {
        let _workers = Workers::start(&folder, server.address(), count);
        let together = outcome(&folder, on_cluster(&folder, &server.address(), EVAL, || {}));
        assert_eq!(together, alone, "{count} workers");
    }
    let status = folder.lemon(&["cluster", "status", "--nats", &server.address(), "--json"]).ok().json();
    assert_eq!((&status["queued"], &status["dead"]), (&serde_json::json!([0, 0]), &Value::from(0)));
}

/// What a command comes to with 1, 2 and 7 workers, some of them killed at random.
#[track_caller]
fn with_killed_workers(folder: &Folder, args: &[&str], mut check: impl FnMut(Ran, &str)) {
    let Some(server) = NatsServer::start() else { return };
    notice_soon(folder, &server.address());
    for round in 0..fault_rounds(1) {
        for count in [1, 2, 7] {
            let mut draws = Draws::new(round * 10 + count);
            let mut workers = Workers::start(folder, server.address(), count as usize);
            let mut killed = 0;
            let ran = on_cluster(folder, &server.address(), args, || {
                if killed < 3 && draws.below(10) == 0 {
                    workers.replace(draws.below(count) as usize);
                    killed += 1;
                }
            });
            check(ran, &format!("{count} workers, {killed} killed, round {round}"));
        }
    }
}

#[test]
fn an_evaluation_is_the_same_whatever_workers_are_killed() {
    let folder = Folder::new();
    let alone = outcome(&folder, folder.lemon(EVAL));
    with_killed_workers(&folder, EVAL, |ran, what| assert_eq!(outcome(&folder, ran), alone, "{what}"));
}

/// What a training leaves, but for times and for what was spent: calls of killed workers are paid twice.
fn left(folder: &Folder, run: &str) -> BTreeMap<String, Vec<u8>> {
    let root = folder.path(run);
    let name = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    let all = folder.all_bytes().into_iter().filter(|(path, _)| path.starts_with(&root));
    let named = all.map(|(path, bytes)| (name(&path), bytes));
    let counts = |file: &str| file.starts_with("checkpoint-") || ["metrics.jsonl", "recipe.toml"].contains(&file);
    named.filter(|(file, _)| counts(file)).collect()
}

#[track_caller]
fn assert_same(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>, what: &str) {
    assert!(expected.keys().any(|file| file.starts_with("checkpoint-")), "{:?}", expected.keys());
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    expected.iter().for_each(|(file, bytes)| assert!(found[file] == *bytes, "{file}: {what}"));
}

#[test]
fn a_server_that_restarts_and_connections_that_drop_change_nothing() {
    let Some(mut server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let alone = outcome(&folder, folder.lemon(EVAL));
    notice_soon(&folder, &server.address());
    for round in 0..fault_rounds(1) {
        let mut draws = Draws::new(100 + round);
        let proxy = DroppingProxy::start(&server);
        let address = proxy.address();
        let _workers = Workers::start(&folder, address.clone(), 2);
        let mut faults = 0;
        let together = outcome(
            &folder,
            on_cluster(&folder, &address, EVAL, || {
                if faults < 4 && draws.below(10) == 0 {
                    faults += 1;
                    match draws.below(3) {
                        0 => server.restart(),
                        _ => proxy.drop_all(),
                    }
                }
            }),
        );
        assert_eq!(together, alone, "round {round}");
    }
}

#[test]
fn counterfactuals_are_the_same_whatever_workers_are_killed() {
    let team = "agents:\n  - {id: a, base: solver, capacity: small}\n  - {id: b, base: solver, capacity: medium}\n  \
                - {id: c, base: critic, capacity: large, after: [a, b]}\n";
    let folder = Folder::new().file("team.yaml", team);
    let args = ["credit", "--spec", "team.yaml", "--set", "gsm8k", "--limit", "4", "--json", "-q"];
    let alone = folder.lemon(&args).ok().json();
    // Which of two runs pays for a call that both make depends on timing; what was found does not.
    let found = |report: &Value| -> Vec<Value> {
        let mut effects = list(&report["effects"]).to_vec();
        for effect in &mut effects {
            ["spent", "reused"].iter().for_each(|name| drop(effect.as_object_mut().unwrap().remove(*name)));
        }
        effects
    };
    assert!(!found(&alone).is_empty());
    with_killed_workers(&folder, &args, |ran, what| {
        let together = ran.ok().json();
        assert_eq!((found(&together), &together["reuse"]), (found(&alone), &alone["reuse"]), "{what}");
    });
}

#[test]
fn a_training_is_the_same_whatever_workers_are_killed() {
    let folder = Folder::new().file("table.toml", crate::train::TABLE);
    let train = ["train", "--recipe", "table.toml", "-q", "--out"];
    folder.lemon(&with(&train, &["alone"])).ok();
    with_killed_workers(&folder, &with(&train, &["together"]), |ran, what| {
        ran.ok();
        assert_same(&left(&folder, "together"), &left(&folder, "alone"), what);
        std::fs::remove_dir_all(folder.path("together")).unwrap();
    });
}

#[test]
fn a_study_of_simulated_worlds_is_the_same_whatever_workers_are_killed() {
    let folder = Folder::new().file("table.toml", crate::train::TABLE);
    let study =
        ["ablate", "table", "--recipe", "table.toml", "--arms", "full,one-agent", "--seeds", "1", "-q", "--rows"];
    let rows = |ran: Ran, file: &str| {
        ran.ok();
        let mut rows: Vec<Value> = folder.read(file).lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        rows.iter_mut().for_each(|row| drop(row["stamp"].as_object_mut().unwrap().remove("seconds")));
        std::fs::remove_file(folder.path(file)).unwrap();
        // Arms end in any order.
        rows.sort_by_key(|row| row["arm"].to_string());
        rows
    };
    let alone = rows(folder.lemon(&with(&study, &["rows.jsonl"])), "rows.jsonl");
    assert_eq!(alone.len(), 2);
    with_killed_workers(&folder, &with(&study, &["rows.jsonl"]), |ran, what| {
        assert_eq!(rows(ran, "rows.jsonl"), alone, "{what}");
    });
}

#[test]
fn a_job_that_no_worker_can_make_is_given_up_and_told() {
    let Some(server) = NatsServer::start() else { return };
    let endpoint = FakeEndpoint::start(Behaviour::text("Answer: 1")).unwrap();
    // The workers lack the key that the coordinator has.
    let capacity = |name: &str| {
        let url = endpoint.base_url();
        format!("[capacity.{name}]\nbase_url = \"{url}\"\nmodel = \"fake\"\napi_key_env = \"FAKE_KEY\"\n")
    };
    let folder = Folder::new().file("lemon.toml", ["small", "medium", "large"].map(capacity).concat());
    let _workers = Workers::start(&folder, server.address(), 1);
    let address = server.address();
    let args = [
        "eval",
        "--set",
        "gsm8k",
        "--limit",
        "1",
        "--methods",
        "cot",
        "--workers",
        "endpoints",
        "-q",
        "--cluster",
        &address,
    ];
    let ran = folder.lemon_with(&[("FAKE_KEY", "secret")], &args).code(1);
    assert!(ran.stderr.contains("given up: gsm8k/test/") && ran.stderr.contains("FAKE_KEY"), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 of 1 runs are missing"), "{}", ran.stderr);
    let status = folder.lemon(&["cluster", "status", "--nats", &address, "--json"]).ok().json();
    assert_eq!(status["dead"], Value::from(1));
    assert!(!status.to_string().contains("secret"));
    assert_eq!(endpoint.calls(), 0);
}

#[test]
fn a_model_is_fetched_once_by_its_content() {
    let Some(server) = NatsServer::start() else { return };
    let level = |name: &str| format!("[capacity.{name}]\nlocal = \"tiny.gguf\"\nmax_tokens = 8\n");
    let levels = ["small", "medium", "large"].map(level).concat();
    let here = || Folder::new().file("tiny.gguf", crate::found::LLAMA).file("lemon.toml", &levels);
    let (alone, folder) = (here(), here());
    let args = ["eval", "--set", "gsm8k", "--limit", "2", "--methods", "vanilla", "--workers", "local", "--json", "-q"];
    let tokens = |ran: Ran| list(&ran.ok().json()["methods"])[0]["tokens"].clone();
    let expected = tokens(alone.lemon(&args));
    // Another machine: it has no such file.
    let there = Folder::new();
    let workers = Workers::start(&there, server.address(), 1);
    let fetched = || {
        let files = there.all_bytes().into_iter().filter(|(path, _)| path.ends_with("tiny.gguf"));
        files.map(|(path, bytes)| (std::fs::metadata(&path).unwrap().modified().unwrap(), bytes)).collect::<Vec<_>>()
    };
    assert_eq!(tokens(on_cluster(&folder, &server.address(), &args, || {})), expected);
    let first = fetched();
    assert!(first.len() == 1 && first[0].1 == crate::found::LLAMA, "{} files", first.len());
    // Another process finds it on its machine.
    drop(workers);
    let _workers = Workers::start(&there, server.address(), 1);
    assert_eq!(tokens(on_cluster(&folder, &server.address(), &args, || {})), expected);
    assert_eq!(fetched(), first);
}

#[test]
fn replies_on_record_answer_on_a_cluster_too() {
    let Some(server) = NatsServer::start() else { return };
    let endpoint = FakeEndpoint::start(crate::budgets::behaviour()).unwrap();
    let folder = crate::budgets::folder(&endpoint);
    let args =
        ["eval", "--set", "gsm8k", "--limit", "3", "--methods", "vanilla,chain:2", "--workers", "endpoints", "--json"];
    let _workers = Workers::start(&folder, server.address(), 2);
    let accuracies = |ran: Ran| -> Vec<Value> {
        list(&ran.ok().json()["methods"]).iter().map(|method| method["accuracy"].clone()).collect()
    };
    let first = accuracies(on_cluster(&folder, &server.address(), &args, || {}));
    let calls = endpoint.calls();
    assert!(calls > 0);
    // Those of a cluster and of one process stand in the same record.
    assert_eq!(accuracies(on_cluster(&folder, &server.address(), &args, || {})), first);
    assert_eq!(accuracies(folder.lemon(&args)), first);
    assert_eq!(endpoint.calls(), calls, "no call is made twice");
}

#[test]
fn an_interrupted_evaluation_leaves_nothing_behind_and_goes_on() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let (eval, address) = (eval_of_numbers(), server.address());
    let args = with(&eval, &["--cluster", &address]);
    // Without workers nothing happens.
    let process = folder.start(&args);
    let queued = || {
        let status = folder.lemon(&["cluster", "status", "--nats", &address, "--json"]).ok().json();
        status["queued"][1].as_u64().unwrap()
    };
    wait_until("jobs are queued", || queued() > 0);
    send_signal("INT", &process.id().to_string());
    let ran = finish(&args, process);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(queued(), 0);
    let name = ran.stderr.split("--resume ").nth(1).unwrap().split('`').next().unwrap().trim().to_owned();
    let alone = outcome(&folder, folder.lemon(&eval));
    let _workers = Workers::start(&folder, address.clone(), 2);
    let args = ["eval", "--resume", &name, "-q", "--json", "--out", "out", "--cluster", &address];
    assert_eq!(outcome(&folder, folder.lemon(&args)), alone);
}

#[test]
fn a_coordinator_that_is_killed_leaves_jobs_that_workers_drop() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let (eval, address) = (eval_of_numbers(), server.address());
    let args = with(&eval, &["--cluster", &address]);
    let mut process = folder.start(&args);
    let status = || folder.lemon(&["cluster", "status", "--nats", &address, "--json"]).ok().json();
    wait_until("jobs are queued", || status()["queued"][1].as_u64().unwrap() > 0);
    process.kill().unwrap();
    let error = finish(&args, process).stderr;
    assert!(!error.contains("panicked"), "{error}");
    let store = rusqlite::Connection::open(folder.path(".lemon/lemon.db")).unwrap();
    let name: String = store.query_row("SELECT batch FROM batches", [], |row| row.get(0)).unwrap();
    drop(store);
    // Its jobs are made or dropped; whichever it is, the evaluation that goes on has its own.
    let _workers = Workers::start(&folder, address.clone(), 2);
    let alone = outcome(&folder, folder.lemon(&eval));
    let args = ["eval", "--resume", &name, "-q", "--json", "--out", "out", "--cluster", &address];
    assert_eq!(outcome(&folder, folder.lemon(&args)), alone);
}

#[test]
fn a_worker_says_how_it_goes_in_prometheus_form() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let metrics = format!("127.0.0.1:{port}");
    let mut process =
        folder.start(&["worker", "--nats", &server.address(), "--slots", "3", "--metrics", &metrics, "-q"]);
    let read = || {
        let mut stream = std::net::TcpStream::connect(&metrics).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    wait_until("it serves metrics", || read().is_some_and(|text| text.contains("lemon_worker_slots 3\n")));
    // It finishes what it has and ends.
    signal(&process, "TERM");
    assert!(process.wait().unwrap().code().is_some());
    let status = folder.lemon(&["cluster", "status", "--nats", &server.address()]).ok().stdout;
    assert!(status.contains("0 workers, 0 slots"), "{status}");
}
