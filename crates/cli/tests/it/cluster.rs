//! Runs on worker processes: the same report as without them, whatever becomes of the workers and the server.

use crate::common::{Draws, Folder, Ran, finish, send_signal, signal, wait_until};
use crate::eval::{list, without_names};
use lemon_fakes::{Behaviour, DroppingProxy, FakeEndpoint, NatsServer, fault_rounds};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// Worker processes that end with the test.
struct Workers<'a> {
    folder: &'a Folder,
    address: String,
    processes: Vec<Child>,
}

impl<'a> Workers<'a> {
    fn start(folder: &'a Folder, address: String, count: usize) -> Self {
        let mut workers = Workers { folder, address, processes: Vec::new() };
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
        self.add();
    }
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

#[test]
fn workers_that_are_killed_change_nothing() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let alone = outcome(&folder, folder.lemon(EVAL));
    for round in 0..fault_rounds(1) {
        let mut draws = Draws::new(round);
        let mut workers = Workers::start(&folder, server.address(), 3);
        let mut killed = 0;
        let together = outcome(
            &folder,
            on_cluster(&folder, &server.address(), EVAL, || {
                if killed < 4 && draws.below(10) == 0 {
                    workers.replace(draws.below(3) as usize);
                    killed += 1;
                }
            }),
        );
        assert_eq!(together, alone, "round {round}");
    }
}

#[test]
fn a_server_that_restarts_and_connections_that_drop_change_nothing() {
    let Some(mut server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let alone = outcome(&folder, folder.lemon(EVAL));
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
fn counterfactuals_are_the_same_on_a_cluster() {
    let Some(server) = NatsServer::start() else { return };
    let team = "agents:\n  - {id: a, base: solver, capacity: small}\n  - {id: b, base: solver, capacity: medium}\n  \
                - {id: c, base: critic, capacity: large, after: [a, b]}\n";
    let folder = Folder::new().file("team.yaml", team);
    let args = ["credit", "--spec", "team.yaml", "--set", "gsm8k", "--limit", "4", "--json", "-q"];
    let alone = folder.lemon(&args).ok().json();
    let _workers = Workers::start(&folder, server.address(), 3);
    let together = on_cluster(&folder, &server.address(), &args, || {}).ok().json();
    // Which of two runs pays for a call that both make depends on timing; what was found does not.
    let found = |report: &Value| -> Vec<Value> {
        let mut effects = list(&report["effects"]).to_vec();
        for effect in &mut effects {
            ["spent", "reused"].iter().for_each(|name| drop(effect.as_object_mut().unwrap().remove(*name)));
        }
        effects
    };
    assert!(!found(&alone).is_empty());
    assert_eq!((found(&together), &together["reuse"]), (found(&alone), &alone["reuse"]));
}

#[test]
fn a_training_is_the_same_on_a_cluster() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new().file("table.toml", crate::train::TABLE);
    let train = |out: &'static str| ["train", "--recipe", "table.toml", "-q", "--out", out];
    folder.lemon(&train("alone")).ok();
    let _workers = Workers::start(&folder, server.address(), 3);
    on_cluster(&folder, &server.address(), &train("together"), || {}).ok();
    assert_eq!(folder.read("together/metrics.jsonl"), folder.read("alone/metrics.jsonl"));
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
fn an_interrupted_evaluation_leaves_nothing_behind_and_goes_on() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let args = with(EVAL, &["--cluster"]);
    let address = server.address();
    let args = with(&args, &[&address]);
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
    let alone = outcome(&folder, folder.lemon(EVAL));
    let _workers = Workers::start(&folder, address.clone(), 2);
    let args = ["eval", "--resume", &name, "-q", "--json", "--out", "out", "--cluster", &address];
    assert_eq!(outcome(&folder, folder.lemon(&args)), alone);
}

#[test]
fn a_coordinator_that_is_killed_leaves_jobs_that_workers_drop() {
    let Some(server) = NatsServer::start() else { return };
    let folder = Folder::new();
    let address = server.address();
    let args = with(EVAL, &["--cluster", &address]);
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
    let alone = outcome(&folder, folder.lemon(EVAL));
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

#[test]
fn manifests_are_yaml() {
    for text in
        [include_str!("../../../../docs/scale/compose.yaml"), include_str!("../../../../docs/scale/kubernetes.yaml")]
    {
        let events = saphyr_parser::Parser::new_from_str(text).collect::<Result<Vec<_>, _>>().unwrap();
        let scalar = |wanted: &str| {
            let is = |event: &saphyr_parser::Event<'_>| matches!(event, saphyr_parser::Event::Scalar(text, ..) if text == wanted);
            events.iter().any(|(event, _)| is(event))
        };
        assert!(scalar("worker") && scalar("--nats") && scalar("nats://nats:4222"));
    }
}
