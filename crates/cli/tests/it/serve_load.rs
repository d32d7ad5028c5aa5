//! `lemon serve` under mixed load, with an endpoint that fails one call in four and a server that is killed again and again.
//!
//! `LEMON_LOAD_MINUTES=60 cargo test -p lemon-cli --test it -- serve_load:: --nocapture` is the long one: a few requests a second,
//! and the server is killed every five minutes. Without the variable it takes some seconds.

use crate::common::{Draws, Folder, wait_until};
use crate::served::{Served, begin_at, chat, joined, try_read};
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What every question names, so that its calls are known from those of others.
const CASE: &str = "case-";
/// A question that is asked again and again.
const AGAIN: &str = "Write the letter case-again to the town.";
const TEAM: &str = "agents:\n  - {id: one, base: solver, capacity: small}\n  - {id: two, base: solver, capacity: small}\n  \
                    - {id: check, base: critic, capacity: medium, after: [one, two]}\nanswer: {by: last, from: [check]}\n";
const WORDS: usize = 40;
const CLIENTS: usize = 5;

/// How long it takes, and how hard.
struct Load {
    lives: u64,
    life: Duration,
    /// Milliseconds that a client waits between two requests, at most.
    pause_ms: u64,
    latency_ms: u64,
    budget_tokens: u64,
    budget_usd: f64,
}

impl Load {
    fn of_the_environment() -> Self {
        let Ok(minutes) = std::env::var("LEMON_LOAD_MINUTES") else {
            let life = Duration::from_millis(1_500);
            return Load { lives: 3, life, pause_ms: 60, latency_ms: 20, budget_tokens: 16_000, budget_usd: 0.3 };
        };
        let minutes: u64 = minutes.parse().unwrap();
        let life = Duration::from_secs(5 * 60);
        // Most of the time there is something left, and at the end nothing.
        let (budget_tokens, budget_usd) = (20_000 * minutes, 0.3 * minutes as f64);
        Load { lives: minutes.div_ceil(5), life, pause_ms: 1_800, latency_ms: 200, budget_tokens, budget_usd }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Who {
    Ann,
    Bob,
    Anyone,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Ann => "ann",
            Who::Bob => "bob",
            Who::Anyone => "anyone",
        }
    }

    fn of(case: &str) -> Option<Who> {
        [Who::Ann, Who::Bob, Who::Anyone].into_iter().find(|who| case.split('-').nth(1) == Some(who.name()))
    }
}

/// The word of a text that names its case.
fn case_in(text: &str) -> Option<&str> {
    text.split_whitespace().find(|word| word.starts_with(CASE))
}

/// Tokens that the endpoint has used, by who asked.
type Used = Arc<Mutex<HashMap<Who, u64>>>;

/// Replies with the case of the question; every fourth call fails, in one of five ways.
fn endpoint(load: &Load, used: &Used) -> FakeEndpoint {
    let used = used.clone();
    let reply = move |request: &ChatRequest| {
        let text = request.text();
        let case = case_in(&text).unwrap_or("case-unknown");
        let fault = match request.number.is_multiple_of(4).then_some(request.number / 4 % 5) {
            None => None,
            Some(0) => Some(FakeReply::status(500)),
            Some(1) => Some(FakeReply::DropMidStream),
            Some(2) => Some(FakeReply::DropConnection),
            Some(3) => Some(FakeReply::Status { code: 429, retry_after: Some("0.05".into()), body: String::new() }),
            Some(_) => Some(FakeReply::GarbageChunk),
        };
        if let Some(who) = Who::of(case)
            && !matches!(fault, Some(FakeReply::Status { .. }))
        {
            *used.lock().unwrap().entry(who).or_default() += (request.prompt_tokens() + WORDS + 3) as u64;
        }
        fault.unwrap_or_else(|| FakeReply::Text(format!("A letter about {case} {}", "word ".repeat(WORDS))))
    };
    FakeEndpoint::start(Behaviour::function(reply).latency_ms(load.latency_ms).without_record()).unwrap()
}

/// What became of a request.
#[derive(Debug)]
enum Outcome {
    /// It was answered, by this run.
    Answered { run: String, content: String },
    /// The application took it as this run.
    Accepted { run: String },
    /// It was refused, or the run had no answer.
    Refused { status: u16, code: String },
    /// The connection broke off.
    Lost,
    /// The client went away before the answer.
    Left,
}

struct Request {
    who: Who,
    case: String,
    what: &'static str,
    outcome: Outcome,
}

/// What the clients have at hand.
struct Town {
    /// Where the server is, while there is one.
    address: Mutex<Option<String>>,
    keys: HashMap<Who, String>,
    until: Instant,
    pause_ms: u64,
}

/// A client that asks one thing after the other.
fn client(number: usize, town: &Town) -> Vec<Request> {
    let mut draws = Draws::new(number as u64 + 1);
    let mut requests = Vec::new();
    while Instant::now() < town.until {
        sleep(Duration::from_millis(draws.below(town.pause_ms) + town.pause_ms / 4));
        let Some(address) = town.address.lock().unwrap().clone() else { continue };
        let who = [Who::Ann, Who::Bob, Who::Anyone][draws.below(3) as usize];
        let case = format!("{CASE}{}-{number}-{}", who.name(), requests.len());
        let question = format!("Write the letter {case} to the town.");
        let what = ["chat", "stream", "team", "responses", "app", "leaves", "again", "look"][draws.below(8) as usize];
        let outcome = ask(&address, town.keys.get(&who), &question, &case, what);
        if let Some(outcome) = outcome {
            requests.push(Request { who, case, what, outcome });
        }
    }
    requests
}

fn ask(address: &str, key: Option<&String>, question: &str, case: &str, what: &str) -> Option<Outcome> {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let (path, body) = match what {
        "chat" => ("/v1/chat/completions", chat(question, json!({"user": case}))),
        "stream" | "leaves" => ("/v1/chat/completions", chat(question, json!({"stream": true}))),
        "team" => ("/v1/chat/completions", chat(question, json!({"model": "lemon/three", "seed": 1}))),
        "responses" => ("/v1/responses", json!({"model": "lemon", "input": question})),
        "app" => ("/api/runs", json!({"question": question, "team": {"kind": "file", "name": "three"}})),
        "again" => ("/v1/chat/completions", chat(AGAIN, json!({}))),
        _ => {
            let stream = begin_at(address, "GET", "/runs?q=letter&order=tokens", &headers, "").ok()?;
            let seen = try_read(stream)?;
            assert!(seen.status == 200, "{}", seen.body);
            return None;
        }
    };
    let Ok(stream) = begin_at(address, "POST", path, &headers, &body.to_string()) else { return Some(Outcome::Lost) };
    if what == "leaves" {
        sleep(Duration::from_millis(15));
        return Some(Outcome::Left);
    }
    let Some(response) = try_read(stream) else { return Some(Outcome::Lost) };
    if response.status == 202 {
        let run = response.json()["run_id"].as_str().unwrap().to_owned();
        return Some(Outcome::Accepted { run });
    }
    let refused = |status: u16, error: &Value| {
        Some(Outcome::Refused { status, code: error["code"].as_str().unwrap_or_default().to_owned() })
    };
    if response.status != 200 {
        return refused(response.status, &response.json()["error"]);
    }
    let run = response.header("x-lemon-run-id").unwrap().to_owned();
    let content = match what {
        "responses" => response.json()["output"][0]["content"][0]["text"].as_str().unwrap().to_owned(),
        "stream" => {
            let events = response.events();
            if let Some(last) = events.last().filter(|last| last["error"].is_object()) {
                return refused(200, &last["error"]);
            }
            joined(&events, "content")
        }
        _ => response.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
    };
    Some(Outcome::Answered { run, content })
}

fn spent(folder: &Folder) -> HashMap<String, (u64, f64)> {
    let keys = folder.lemon(&["keys", "list", "--json"]).ok().json();
    let spent = |key: &Value| (key["spent_tokens"].as_u64().unwrap(), key["spent_usd"].as_f64().unwrap());
    keys.as_array().unwrap().iter().map(|key| (key["name"].as_str().unwrap().to_owned(), spent(key))).collect()
}

fn memory_mib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? / 1024)
}

/// Starts the server, waits until it has lived long enough, and kills it; as often as the load says.
fn lives(folder: &Folder, load: &Load, town: &Town, endpoint: &FakeEndpoint) {
    let mut draws = Draws::new(7);
    for life in 1..=load.lives {
        let served = Served::start(folder, &[]);
        *town.address.lock().unwrap() = Some(served.address.clone());
        sleep(load.life);
        // In the middle of calls.
        let least = draws.below(3) as usize + 1;
        wait_until("calls are made", || endpoint.in_flight() >= least || Instant::now() > town.until);
        let memory = memory_mib(served.process());
        *town.address.lock().unwrap() = None;
        let in_flight = endpoint.in_flight();
        served.kill();
        println!(
            "life {life}: {} calls so far, killed with {in_flight} in flight and {memory:?} MiB",
            endpoint.calls()
        );
        for (key, (tokens, usd)) in spent(folder) {
            println!("  {key}: {tokens} tokens, {usd:.4} USD on record");
        }
    }
}

#[test]
fn mixed_load_survives_crashes() {
    let load = Load::of_the_environment();
    let used = Used::default();
    let endpoint = endpoint(&load, &used);
    let folder = Folder::with_endpoint(&endpoint, "").file("teams/three.yaml", TEAM);
    let (tokens, usd) = (load.budget_tokens.to_string(), load.budget_usd.to_string());
    let add = |args: &[&str]| folder.lemon(&[&["keys", "add"], args].concat()).ok().stdout.trim().to_owned();
    let keys = HashMap::from([
        (Who::Ann, add(&["ann", "--budget-tokens", &tokens])),
        (Who::Bob, add(&["bob", "--budget-usd", &usd, "--rpm", "600"])),
    ]);
    // A client waits for its last answer, and the server lives a little longer than the clients.
    let until = Instant::now() + load.life * load.lives as u32;
    let town = Town { address: Mutex::default(), keys, until, pause_ms: load.pause_ms };
    let requests: Vec<Request> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| (number, &town)).collect();
        let clients: Vec<_> =
            clients.into_iter().map(|(number, town)| scope.spawn(move || client(number, town))).collect();
        lives(&folder, &load, &town, &endpoint);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    // What was interrupted is taken up, and ends.
    let served = Served::start(&folder, &[]);
    wait_until("all runs are over", || served.counter("lemon_runs_under_way") == 0.0);
    assert_eq!(served.end(), Some(0));
    check_runs(&folder, &requests);
    check_budgets(&folder, &load, &used.lock().unwrap());
    resume_some(&folder);
}

/// Every accepted request is on record once and has ended, and what its client was told is what is on record.
fn check_runs(folder: &Folder, requests: &[Request]) {
    let listed = folder.lemon(&["trace", "list", "--limit", "1000000", "--json"]).ok().json();
    let runs = listed.as_array().unwrap();
    let by_id: HashMap<&str, &Value> = runs.iter().map(|run| (run["run_id"].as_str().unwrap(), run)).collect();
    let open: Vec<&Value> = runs.iter().filter(|run| run["stop_reason"].is_null()).collect();
    assert!(open.is_empty(), "{open:?}");
    let mut of_case: HashMap<&str, usize> = HashMap::new();
    runs.iter().for_each(|run| *of_case.entry(case_in(run["question"].as_str().unwrap()).unwrap()).or_default() += 1);
    let again = case_in(AGAIN).unwrap();
    let twice: Vec<_> = of_case.iter().filter(|(case, count)| **case != again && **count > 1).collect();
    assert!(twice.is_empty(), "made twice: {twice:?}");
    let mut told: HashSet<&str> = HashSet::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for Request { who, case, what, outcome } in requests {
        let kind = match outcome {
            Outcome::Answered { run, content } => {
                let case = if *what == "again" { again } else { case };
                assert!(content.contains(case), "{what} {case}: {content}");
                let on_record = by_id.get(run.as_str()).unwrap_or_else(|| panic!("{case}: {run} is not on record"));
                // A budget that is met in the middle leaves the answer of those who had replied.
                let met = *who != Who::Anyone && on_record["stop_reason"] == "cancelled";
                assert!(met || on_record["stop_reason"] == "answered", "{on_record}");
                assert!(told.insert(run), "{run} answered two requests");
                "answered".to_owned()
            }
            Outcome::Accepted { run } => {
                assert!(by_id.contains_key(run.as_str()), "{case}: {run} was accepted and is not on record");
                assert!(told.insert(run), "{run} was accepted twice");
                "accepted".to_owned()
            }
            Outcome::Refused { status, code } => {
                let known = ["insufficient_quota", "rate_limit_exceeded", "no_answer", "answer_replaced"];
                assert!(known.contains(&code.as_str()), "{what} {case}: {status} {code}");
                assert!(*who != Who::Anyone || code != "insufficient_quota", "{case}: {code}");
                format!("refused: {status} {code}")
            }
            Outcome::Lost => "lost with the server".to_owned(),
            Outcome::Left => "left".to_owned(),
        };
        *counts.entry(kind).or_default() += 1;
    }
    let store = rusqlite::Connection::open(folder.path(".lemon/lemon.db")).unwrap();
    let count = |sql: &str| store.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let taken_up = count("SELECT count(DISTINCT run) FROM events WHERE json_extract(event, '$.type') = 'resume'");
    // No agent's end is on record twice.
    let ended = "SELECT count(*) FROM (SELECT 1 FROM events WHERE json_extract(event, '$.type') = 'return'
                 AND json_extract(event, '$.status') = 'done' GROUP BY run, json_extract(event, '$.agent') HAVING count(*) > 1)";
    assert_eq!(count(ended), 0);
    println!("{} requests: {counts:?}; {} runs on record, {taken_up} of them taken up", requests.len(), runs.len());
    assert!(counts.get("answered").is_some_and(|count| *count > 20) && counts.contains_key("accepted"), "{counts:?}");
}

/// Tokens of calls that were in flight when the server was killed, as the runs count them.
fn lost(folder: &Folder) -> HashMap<Who, u64> {
    let store = rusqlite::Connection::open(folder.path(".lemon/lemon.db")).unwrap();
    let sql = "SELECT json_extract(header, '$.question'), json_extract(event, '$.lost_tokens') FROM events JOIN runs USING (run)
               WHERE json_extract(event, '$.type') = 'resume'";
    let mut statement = store.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?))).unwrap();
    let mut lost = HashMap::new();
    for (question, tokens) in rows.map(Result::unwrap) {
        if let Some(who) = case_in(&question).and_then(Who::of) {
            *lost.entry(who).or_default() += tokens.unwrap_or_default() as u64;
        }
    }
    lost
}

/// No key has used more than is on record for it, and nothing on record is more than it may spend.
fn check_budgets(folder: &Folder, load: &Load, used: &HashMap<Who, u64>) {
    let spent = spent(folder);
    let lost = lost(folder);
    let listed = folder.lemon(&["trace", "list", "--limit", "1000000", "--json"]).ok().json();
    for who in [Who::Ann, Who::Bob] {
        let (tokens, usd) = spent[who.name()];
        let used = used.get(&who).copied().unwrap_or_default();
        let mine = |run: &&Value| {
            let question = run["question"].as_str().unwrap();
            // The question that is asked again is asked by everyone.
            case_in(question).and_then(Who::of) == Some(who)
        };
        let runs: u64 =
            listed.as_array().unwrap().iter().filter(mine).map(|run| run["tokens"].as_u64().unwrap_or_default()).sum();
        println!("{}: used {used} tokens, runs say {runs}, on record {tokens} tokens and {usd:.4} USD", who.name());
        assert!(used <= tokens, "{who:?}: used {used}, on record {tokens}");
        // A run counts a call in flight as all that was reserved for it; its key may know that it has ended.
        let counted = runs.saturating_sub(lost.get(&who).copied().unwrap_or_default());
        assert!(counted <= tokens, "{who:?}: by runs {counted}, on record {tokens}");
        match who {
            Who::Ann => assert!(tokens <= load.budget_tokens, "{tokens} of {}", load.budget_tokens),
            _ => assert!(usd <= load.budget_usd + 1e-9, "{usd} of {}", load.budget_usd),
        }
    }
}

/// A run whose client was gone was cancelled; who wants its answer still gets it.
fn resume_some(folder: &Folder) {
    let runs = folder.runs();
    let cancelled = runs.iter().filter(|run| run["stop_reason"] == "cancelled").take(3);
    for run in cancelled {
        let id = run["run_id"].as_str().unwrap();
        let answer = folder.lemon(&["run", "--resume", id, "-q"]).ok().stdout;
        let case = case_in(run["question"].as_str().unwrap()).unwrap();
        assert!(answer.contains(case), "{id}: {answer}");
        println!("resumed by hand: {id}");
    }
}
