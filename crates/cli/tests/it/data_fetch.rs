//! `lemon data fetch` against a file server on loopback: good, flaky, broken and malicious.

use crate::common::{Folder, PATIENCE, Ran, finish, signal, wait_until};
use crate::snapshot;
use lemon_task::sources;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What `sha256sum` says of the contents of [`content`].
const SUMS: [&str; 8] = [
    "38c177fd59f055b240505feceef33df9741a1efdf24d3a042845bcd6801c9ad8",
    "69872f5285b407f53f178e10cf594f4d61fced1a57493b42dda1cce1a4ee2a85",
    "22b550fd39fa2042e6de41941e51dfaee0cfde496b1c2de922e80ecf6f16e54c",
    "bbbed5b25a24c79d15571d96892bb05d58a4192ab74e587b0804e0baccf68573",
    "000037a3b1c77258f75dfbda8ae00d2b6f857a44ac07db07feba079a5da3f8a6",
    "e59490c6925ef8c468185cfc66ae0b4268bec56ac563c4ef62164a36097a92ca",
    "8cae2e96ec2037e7f41ee71b390f122c03be990fdad4d8fdf4a06b0a70d5cac0",
    "56d25694490ec93178681c94ccdbc584e6b2e5fe6c06814cb44ed078b4d24b23",
];

fn content(number: usize) -> Vec<u8> {
    format!("file {number}\n").repeat(2000).into_bytes()
}

/// A folder with a table of this many files: the first of gsm8k, the others of svamp.
fn folder(files: usize) -> Folder {
    let row = |(number, sha256)| {
        let set = if number == 0 { "gsm8k" } else { "svamp" };
        let (path, url) = (format!("{set}/{number}.txt"), format!("https://files.invalid/at/{number}"));
        json!({"set": set, "path": path, "url": url, "sha256": sha256, "bytes": 14_000, "license": "MIT"})
    };
    let table: Vec<Value> = SUMS.iter().enumerate().take(files).map(row).collect();
    Folder::new().file("table.json", json!(table).to_string())
}

fn args<'a>(mirror: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["data", "fetch", "sets", "--sources", "table.json", "--from", mirror], more].concat()
}

/// Fetches with `--json`; the exit code, and for each file its status or what it failed of.
#[track_caller]
fn fetch(folder: &Folder, server: &Server, more: &[&str]) -> (Ran, Vec<String>) {
    let ran = folder.lemon(&args(&server.url(), &[&["--json"], more].concat()));
    let report = ran.json();
    let state = |file: &Value| file.get("error").unwrap_or(&file["status"]).as_str().unwrap().to_owned();
    let states: Vec<_> = report["files"].as_array().unwrap().iter().map(state).collect();
    let sound = states.iter().all(|state| ["fetched", "kept"].contains(&state.as_str()));
    assert_eq!((ran.code, &report["sound"]), (Some(i32::from(!sound)), &json!(sound)), "{}", ran.stdout);
    (ran, states)
}

/// The names of the files under `sets`, hidden ones included.
fn names(folder: &Folder) -> Vec<String> {
    let root = folder.path("sets");
    let name = |path: PathBuf| path.strip_prefix(&root).ok().map(|path| path.to_string_lossy().into_owned());
    let mut names: Vec<String> = folder.all_bytes().into_iter().filter_map(|(path, _)| name(path)).collect();
    names.sort();
    names
}

/// The first answers to requests for file 0 are these; then, and for all others, the content.
#[track_caller]
fn check(first: &[Answer], expected: &str) {
    let answers = first.to_vec();
    let server = Server::start(move |path, count| match (path, answers.get(count)) {
        ("/at/0", Some(answer)) => answer.clone(),
        _ => good(path),
    });
    let folder = folder(2);
    let (ran, states) = fetch(&folder, &server, &[]);
    assert!(states[0].contains(expected), "{first:?}: {}\n{}", states[0], ran.stderr);
    assert_eq!(states[1], "fetched", "one failure does not stop the others");
    if expected == "fetched" {
        assert_eq!(std::fs::read(folder.path("sets/gsm8k/0.txt")).unwrap(), content(0));
    } else {
        assert_eq!(names(&folder), ["svamp/1.txt"], "{first:?}: nothing is left of what failed");
        assert!(ran.stderr.contains("error: 1 of 2 files could not be fetched:\n  gsm8k/0.txt: "), "{}", ran.stderr);
        // The same command goes on where it stopped.
        let second = Server::start(|path, _| good(path));
        assert_eq!(fetch(&folder, &second, &[]).1, ["fetched", "kept"]);
        assert_eq!(second.seen(), ["/at/0"]);
    }
    assert_eq!(names(&folder), ["gsm8k/0.txt", "svamp/1.txt"]);
}

#[test]
fn what_is_here_is_not_fetched_again() {
    let server = Server::start(|path, _| good(path));
    let folder = folder(8);
    assert_eq!(fetch(&folder, &server, &[]).1, ["fetched"; 8]);
    for number in 1..8 {
        assert_eq!(std::fs::read(folder.path(&format!("sets/svamp/{number}.txt"))).unwrap(), content(number));
    }
    assert_eq!((names(&folder).len(), server.seen().len()), (8, 8));
    let ran = folder.lemon(&args(&server.url(), &[])).ok();
    let expected = |(number, sum)| {
        let set = if number == 0 { "gsm8k" } else { "svamp" };
        format!("kept\t{set}/{number}.txt\t14000\t{sum}\tMIT\n")
    };
    assert_eq!(ran.stdout, SUMS.iter().enumerate().map(expected).collect::<String>());
    assert_eq!(server.seen().len(), 8);
}

#[test]
fn only_the_sets_asked_for() {
    let server = Server::start(|path, _| good(path));
    let folder = folder(3);
    assert_eq!(fetch(&folder, &server, &["--set", "gsm8k"]).1, ["fetched"]);
    assert_eq!(names(&folder), ["gsm8k/0.txt"]);
    assert_eq!(fetch(&folder, &server, &["--set", "gsm8k", "--set", "svamp"]).1, ["kept", "fetched", "fetched"]);
    let none = folder.lemon(&args(&server.url(), &["--set", "mmlu"])).code(2);
    none.complains(&["no file of the sets asked for"]);
    let unknown = folder.lemon(&args(&server.url(), &["--set", "gsm9k"])).code(2);
    unknown.complains(&["gsm9k", "expected one of mmlu, gsm8k, aqua, multiarith, svamp, humaneval, humaneval-py"]);
}

#[test]
fn what_passes_is_tried_again() {
    check(&[Answer::Status(503, ""), Answer::Status(502, "retry-after: 0\r\n")], "fetched");
    check(&[Answer::Status(429, "retry-after: 0\r\n"), Answer::CutOff(content(0))], "fetched");
    // Without a stated length, a body that was cut off is one that is too short.
    check(&[Answer::Unmeasured(b"file 0\n".to_vec()), Answer::Hangup], "fetched");
    check(&[Answer::Status(302, "location: /elsewhere/0\r\n")], "fetched");
}

#[test]
fn what_lasts_is_said_and_leaves_nothing() {
    check(&[Answer::Status(404, "")], "/at/0 answered 404 Not Found");
    check(&[Answer::Status(429, "retry-after: 3600\r\n")], "asks to wait 3600 s");
    check(&[Answer::Body(content(1))], "instead of 38c177fd");
    check(&[Answer::Body([content(0), content(0)].concat())], "longer than 14000 bytes");
    check(&[Answer::Endless], "longer than 14000 bytes");
    check(&[const { Answer::Status(500, "retry-after: 0\r\n") }; 4], "answered 500");
    check(&[const { Answer::Status(302, "location: /at/0\r\n") }; 6], "from one address to the next");
    check(&[Answer::Status(302, "location: file:///etc/passwd\r\n")], "cannot be reached");
    check(&[Answer::Status(304, "")], "answered 304");
    check(&vec![Answer::CutOff(content(0)); 4], "broke off");
}

/// An address without a server costs its attempts once, not for every file.
#[test]
fn no_server_answers() {
    let unserved = "127.0.0.1:1";
    let folder = folder(8);
    let ran = folder.lemon(&args(&format!("http://{unserved}"), &["--json"])).code(1);
    assert!(ran.stderr.contains(&format!("http://{unserved}/at/0 cannot be reached: ")), "{}", ran.stderr);
    assert!(ran.stderr.matches("; again in ").count() <= 3 * 4, "{}", ran.stderr);
    assert_eq!(ran.json()["files"][7]["error"], format!("http://{unserved} cannot be reached"));
    assert!(names(&folder).is_empty());
}

#[test]
fn another_file_is_there() {
    let server = Server::start(|path, _| if path == "/at/2" { Answer::Status(404, "") } else { good(path) });
    let folder = folder(3).file("sets/gsm8k/0.txt", "mine").file("sets/svamp/1.txt", content(1));
    let exchange = folder.tidy(&folder.lemon(&args(&server.url(), &[])).code(1).exchange());
    snapshot!("data_fetch", exchange);
    assert_eq!(folder.read("sets/gsm8k/0.txt"), "mine");
    let (ran, states) = fetch(&folder, &server, &["--set", "gsm8k"]);
    assert_eq!(states, ["another file is there: 4 bytes instead of 14000"]);
    assert!(
        ran.stderr.contains("hint: move the files that are there away, or replace them with --force"),
        "{}",
        ran.stderr
    );
    // Not even --force gives it up for something worse.
    let broken = Server::start(|_, _| Answer::Body(content(1)));
    fetch(&folder, &broken, &["--set", "gsm8k", "--force"]);
    assert_eq!(folder.read("sets/gsm8k/0.txt"), "mine");
    assert_eq!(fetch(&folder, &server, &["--set", "gsm8k", "--force"]).1, ["fetched"]);
    assert_eq!(std::fs::read(folder.path("sets/gsm8k/0.txt")).unwrap(), content(0));
}

#[test]
fn places_that_cannot_be_written() {
    let server = Server::start(|path, _| good(path));
    let folder = folder(2).file("sets/gsm8k", "a file").file("sets/svamp/1.txt/in", "a folder");
    let (_, states) = fetch(&folder, &server, &["--force"]);
    assert!(states.iter().all(|state| state.starts_with("what is there cannot be read: ")), "{states:?}");
    let folder = folder.file("elsewhere", "");
    folder.lemon(&["data", "fetch", "elsewhere"]).code(2).complains(&["elsewhere cannot be used"]);
}

#[test]
fn bad_tables_and_mirrors() {
    let folder =
        folder(1).file("list.json", "[1]").file("away.json", folder(1).read("table.json").replace("gsm8k/", "../"));
    let run = |more: &[&str]| folder.lemon(&[&["data", "fetch", "sets"], more].concat()).code(2);
    run(&["--sources", "list.json"]).complains(&["list.json cannot be used", "{set, path, url"]);
    run(&["--sources", "away.json"]).complains(&["`../0.txt`: the path must be relative"]);
    run(&["--sources", "none.json"]).complains(&["none.json"]);
    run(&["--from", "ftp://host"]).complains(&["http:// or https://"]);
    assert!(!folder.path("sets").exists());
}

#[test]
fn four_at_a_time() {
    let (begun, open, peak) = (AtomicUsize::new(0), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = peak.clone();
    let server = Server::start(move |path, _| {
        seen.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        begun.fetch_add(1, Ordering::SeqCst);
        let began = Instant::now();
        // No request is served before four have come.
        while begun.load(Ordering::SeqCst) < 4 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        open.fetch_sub(1, Ordering::SeqCst);
        good(path)
    });
    assert_eq!(fetch(&folder(8), &server, &[]).1, ["fetched"; 8]);
    assert_eq!(peak.load(Ordering::SeqCst), 4);
}

/// Starts a download that never ends by itself and waits until part of it is on the disk.
fn stalled(folder: &Folder, server: &Server) -> std::process::Child {
    let process = folder.start(&args(&server.url(), &["--json"]));
    let written = || std::fs::metadata(folder.path("sets/gsm8k/.0.txt.part")).is_ok_and(|part| part.len() > 0);
    wait_until("half a file and a whole one", || written() && folder.path("sets/svamp/1.txt").exists());
    process
}

fn stalls_once() -> Server {
    Server::start(|path, count| if (path, count) == ("/at/0", 0) { Answer::Stall(content(0)) } else { good(path) })
}

#[test]
fn killed_and_begun_again() {
    let (server, folder) = (stalls_once(), folder(2));
    let mut process = stalled(&folder, &server);
    // Meanwhile the folder is taken.
    folder.lemon(&args(&server.url(), &[])).code(2).complains(&["another process is fetching into sets"]);
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(names(&folder), ["gsm8k/.0.txt.part", "svamp/1.txt"]);
    assert_eq!(fetch(&folder, &server, &[]).1, ["fetched", "kept"]);
    assert_eq!(names(&folder), ["gsm8k/0.txt", "svamp/1.txt"]);
}

#[test]
fn interrupted_in_good_order() {
    for name in ["INT", "TERM"] {
        let (server, folder) = (stalls_once(), folder(2));
        let process = stalled(&folder, &server);
        signal(&process, name);
        let report = finish(&["data", "fetch"], process).code(1).json();
        assert_eq!(report["files"][0]["error"], "interrupted");
        assert_eq!(names(&folder), ["svamp/1.txt"]);
        assert_eq!(fetch(&folder, &server, &[]).1, ["fetched", "kept"]);
    }
}

#[test]
fn the_built_in_table() {
    let server = Server::start(|_, _| Answer::Status(404, ""));
    let folder = Folder::new();
    let url = format!("{}/mirror/", server.url());
    let ran = folder.lemon(&["data", "fetch", "sets", "--from", &url, "--json"]).code(1);
    assert_eq!(ran.json()["files"].as_array().map(Vec::len), Some(179));
    assert!(ran.stderr.contains("multiarith: 1 files, 248.06 KiB, license: none stated"), "{}", ran.stderr);
    assert!(ran.stderr.contains("… and 169 more"), "{}", ran.stderr);
    let wanted = "/mirror/openai/human-eval/6d43fb980f9fee3c892a914eda09951f772ad10d/data/HumanEval.jsonl.gz";
    assert!(server.seen().iter().any(|path| path == wanted));
}

/// Everything, from a mirror that has the true files; then `lemon data check` reads it.
#[test]
fn the_true_files() {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let data = std::env::var_os("LEMON_TEST_DATA").map_or_else(beside, PathBuf::from);
    if !data.join("gsm8k").is_dir() {
        println!("skipped: no public data in {}", data.display());
        return;
    }
    let paths: HashMap<String, String> = sources().into_iter().map(|file| (file.url_at(""), file.path)).collect();
    let server = Server::start(move |path, _| match paths.get(path).map(|path| std::fs::read(data.join(path))) {
        Some(Ok(bytes)) => Answer::Body(bytes),
        _ => Answer::Status(404, ""),
    });
    let folder = Folder::new();
    folder.lemon(&["data", "fetch", "sets", "--from", &server.url()]).ok();
    let report = folder.lemon(&["data", "check", "sets", "--json"]).ok().json();
    let sets = report["sets"].as_array().unwrap();
    let records: Vec<_> = sets.iter().map(|set| (set["set"].as_str().unwrap(), &set["records"])).collect();
    let expected = [15858, 8792, 508, 600, 1000, 164, 161].map(Value::from);
    let names = ["mmlu", "gsm8k", "aqua", "multiarith", "svamp", "humaneval", "humaneval-py"];
    assert_eq!(records, names.into_iter().zip(&expected).collect::<Vec<_>>());
    assert!(sets.iter().all(|set| set["problems"] == json!([])), "{report}");
}

/// What a server does with a request.
#[derive(Clone, Debug)]
enum Answer {
    Body(Vec<u8>),
    /// A body that ends with the connection.
    Unmeasured(Vec<u8>),
    /// Half of it, though the whole was promised.
    CutOff(Vec<u8>),
    /// Half of it, and then silence.
    Stall(Vec<u8>),
    Status(u16, &'static str),
    Endless,
    Hangup,
}

/// The content that the last part of the path numbers.
fn good(path: &str) -> Answer {
    Answer::Body(content(path.rsplit('/').next().unwrap().parse().unwrap()))
}

/// A file server: one request a connection, answered by rule.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// The rule is given the path, and how often it was asked for before.
    fn start(rule: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (seen, rule) = (server.seen.clone(), Arc::new(rule));
        // Ends with the test process; so do its connections.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, rule) = (seen.clone(), rule.clone());
                std::thread::spawn(move || {
                    let path = read_request(&stream)?;
                    let count = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(path.clone());
                        seen.iter().filter(|other| **other == path).count() - 1
                    };
                    // A client may hang up whenever it likes.
                    answer(stream, rule(&path, count)).ok()
                });
            }
        });
        server
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// The path of a request.
fn read_request(stream: &TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    lines.find(String::is_empty)?;
    Some(path)
}

fn answer(mut stream: TcpStream, answer: Answer) -> std::io::Result<()> {
    let ok = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
    let measured = |body: &[u8]| format!("{ok}content-length: {}\r\n\r\n", body.len());
    match answer {
        Answer::Body(body) => stream.write_all(&[measured(&body).as_bytes(), &body].concat()),
        Answer::Unmeasured(body) => stream.write_all(&[ok.as_bytes(), b"\r\n", &body].concat()),
        Answer::CutOff(body) => stream.write_all(&[measured(&body).as_bytes(), &body[..body.len() / 2]].concat()),
        Answer::Stall(body) => {
            stream.write_all(&[measured(&body).as_bytes(), &body[..body.len() / 2]].concat())?;
            // Until the client has gone.
            stream.read(&mut [0]).map(drop)
        }
        Answer::Status(status, headers) => {
            let head = format!("HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-length: 0\r\n{headers}\r\n");
            stream.write_all(head.as_bytes())
        }
        Answer::Endless => {
            stream.write_all(format!("{ok}\r\n").as_bytes())?;
            loop {
                stream.write_all(&[b'x'; 4096])?;
            }
        }
        Answer::Hangup => Ok(()),
    }
}
