//! `lemon plan`: the team and its worst case are told, and no worker is asked.

use crate::common::{Folder, PAIR, endpoint, reply_of};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::Value;

const TASK: &str = "What is 2 + 2?";
const TEAM: &str = "agents:
  - {id: one, base: solver, role: First, capacity: small, share: answer}
  - {id: two, base: solver, role: Second, capacity: small}
  - {id: three, base: critic, role: Third, capacity: large, after: [one, two]}
answer: {from: [one, two, three], by: judge}
next: review
";
const PROMPTED: &str = "[orchestrator]\nkind = 'prompted'\nguard = false\n";

/// Nothing was sent, and nothing is on record.
#[track_caller]
fn untouched(folder: &Folder, endpoint: &FakeEndpoint) {
    assert_eq!(endpoint.calls(), 0);
    assert!(!folder.path(".lemon").exists(), "a plan leaves nothing behind");
}

#[test]
fn a_given_team() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "").file("team.yaml", TEAM);
    let mut text = folder.exchange(&["plan", TASK, "--spec", "pair.yaml"]);
    text += &folder.exchange(&["run", "--dry-run", TASK, "--spec", "team.yaml"]);
    text += &folder.exchange(&["plan", TASK, "--spec", "team.yaml", "--budget-tokens", "3000", "--quiet"]);
    text +=
        &folder.exchange(&["plan", TASK, "--spec", "pair.yaml", "--budget-calls", "1", "--timeout", "9", "--quiet"]);
    snapshot!("plan", text);
    untouched(&folder, &endpoint);
}

#[test]
fn as_json() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "").file("team.yaml", TEAM);
    let plan = folder.lemon(&["plan", TASK, "--spec", "team.yaml", "--json", "--budget-usd", "0.05"]).ok().json();
    snapshot!("plan_json", serde_json::to_string_pretty(&plan).unwrap());
    untouched(&folder, &endpoint);
}

/// What is told is what the ledger would hold: no call of the real run reserves more, and the sum bounds what it costs.
#[test]
fn the_worst_case_covers_what_a_run_reserves() {
    // Replies as long as they may be.
    let endpoint = FakeEndpoint::start(Behaviour::text("word ".repeat(39) + "7")).unwrap();
    let toml = |name: &str| {
        let url = endpoint.base_url();
        format!("[capacity.{name}]\nbase_url = '{url}'\nmodel = 'm-{name}'\nmax_tokens = 40\n")
    };
    let team = TEAM.replace("next: review\n", "");
    let folder =
        Folder::new().file("lemon.toml", ["small", "medium", "large"].map(toml).concat()).file("team.yaml", team);
    let plan = folder.lemon(&["plan", TASK, "--spec", "team.yaml", "--json"]).ok().json();
    untouched(&folder, &endpoint);
    folder.lemon(&["run", TASK, "--spec", "team.yaml", "--json"]);
    let worst = |id: &str| {
        let agents = plan["agents"].as_array().unwrap();
        agents.iter().find(|agent| agent["id"] == id).and_then(|agent| agent["tokens"].as_u64()).unwrap()
    };
    let run = folder.trace("last");
    let mut reserved = 0;
    for event in &run.events {
        if let lemon_trace::EventKind::Delegate { to, reserved: held, .. } = &event.kind {
            assert!(*held <= worst(to), "{to}: {held} of {}", worst(to));
            reserved += held;
        }
    }
    assert!(reserved > 0 && reserved <= plan["tokens"].as_u64().unwrap());
}

/// The team of the plan is the one that `lemon run` runs: the guard decides both.
#[test]
fn the_team_is_the_one_that_is_run() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    let task = "A baker makes 24 rolls and sells 3 boxes of 6. How many rolls are left?";
    let plan = folder.lemon(&["plan", task, "--json"]).ok().json();
    untouched(&folder, &endpoint);
    assert_eq!((&plan["written"], &plan["by"]), (&true.into(), &"guard".into()), "{plan}");
    let run = folder.lemon(&["run", task, "--json"]).ok().json();
    assert_eq!(plan["spec"], run["spec"]);
}

fn writer() -> FakeEndpoint {
    let behaviour = Behaviour::function(|request| match request.last("system").contains("You are: ") {
        true => FakeReply::Text(reply_of(request)),
        false => FakeReply::Text(PAIR.to_owned()),
    });
    FakeEndpoint::start(behaviour).unwrap()
}

#[test]
fn a_team_that_has_to_be_paid_for_is_not_written() {
    let endpoint = writer();
    let folder = Folder::with_endpoint(&endpoint, PROMPTED);
    snapshot!("plan_unwritten", folder.exchange(&["plan", TASK]));
    let plan = folder.lemon(&["run", "--dry-run", TASK, "--json"]).ok().json();
    assert_eq!(plan["written"], false);
    let tokens = |of: &str| plan["writer"][of]["tokens"].as_u64().unwrap();
    assert!(tokens("first_try") > 1024 && tokens("second_try") > tokens("first_try"));
    assert!(plan["writer"]["first_try"]["usd"].as_f64().unwrap() > 0.0);
    let refused = folder.lemon(&["plan", TASK, "--budget-tokens", "100", "--quiet"]).code(1);
    refused.complains(&["writing the team takes", "the budget has 100", "hint: give more with --budget-tokens"]);
    untouched(&folder, &endpoint);
}

/// `--write` pays for the one call, and a run goes on with what was paid for.
#[test]
fn a_team_that_was_paid_for_is_run_by_resume() {
    let endpoint = writer();
    let folder = Folder::with_endpoint(&endpoint, PROMPTED);
    let plan = folder.lemon(&["plan", TASK, "--write", "--json"]).ok();
    assert_eq!(endpoint.calls(), 1, "one call writes the team, and no agent is asked");
    let (run_id, json) = (plan.json()["run_id"].clone(), plan.json());
    assert_eq!(json["agents"].as_array().map(Vec::len), Some(2), "{json}");
    assert!(json["spent_on_writing"].as_u64().unwrap() > 0);
    assert!(plan.stderr.contains("runs this very team"), "{}", plan.stderr);
    let run = folder.lemon(&["run", "--resume", run_id.as_str().unwrap(), "--json"]).ok().json();
    assert_eq!((&run["stop_reason"], &run["spec"]), (&"answered".into(), &json["spec"]), "{run}");
    assert_eq!(endpoint.calls(), 3, "the team is not written again");
    assert_eq!(folder.runs().len(), 1);
}

/// A script costs nothing, so it writes at once.
#[test]
fn scripts_write() {
    let script = format!("[[reply]]\nagent = 'orchestrator'\ntext = '''\n{PAIR}'''\n[[reply]]\ntext = 'Answer: 4'\n");
    let folder = Folder::new().file("script.toml", script);
    let plan = folder.lemon(&["plan", TASK, "--workers", "scripted", "--script", "script.toml", "--json"]).ok().json();
    assert_eq!((&plan["written"], &plan["usd"]), (&true.into(), &Value::Null), "{plan}");
    assert!(!folder.path(".lemon").exists());
}

#[test]
fn what_is_no_plan() {
    let endpoint = endpoint();
    let folder =
        Folder::with_endpoint(&endpoint, "").file("bad.yaml", "agents: [{id: a, base: genius, capacity: small}]");
    let ran = folder.lemon(&["plan", TASK, "--spec", "bad.yaml"]).code(1);
    assert!(ran.stderr.contains("unknown base role `genius`") && ran.stdout.is_empty(), "{}", ran.stderr);
    folder.lemon(&["plan"]).code(2).complains(&["there is no task"]);
    folder.lemon(&["plan", " "]).code(2).complains(&["the task is empty"]);
    folder.lemon(&["plan", TASK, "--record", "tape.jsonl"]).code(2).complains(&["a plan is made for one task"]);
    folder.lemon(&["run", TASK, "--write"]).code(2).complains(&["--write needs --dry-run"]);
    untouched(&folder, &endpoint);
}
