//! `lemon credit` as a newcomer, a script and the owner of a run use it: in the simulated world.

use crate::common::{Folder, PAIR};
use crate::eval::list;
use crate::snapshot;
use lemon_trace::EventKind;
use serde_json::Value;
use std::collections::BTreeSet;

const SEVEN: &str = include_str!("../../../../examples/seven.yaml");
const FAMILIES: [&str; 9] = ["dependency", "duty", "capacity", "agent", "share", "answer", "stop", "message", "role"];

fn folder() -> Folder {
    Folder::with_pair().file("seven.yaml", SEVEN)
}

/// Sums with known answers, as JSON lines.
fn sums(count: usize) -> String {
    let line = |n: usize| format!("{{\"question\": \"What is {n} + {}?\", \"answer\": {}}}\n", 3 * n, 4 * n);
    (1..=count).map(line).collect()
}

/// The id of the newest run of an evaluation of this team.
fn evaluated(folder: &Folder, spec: &str) -> String {
    folder.lemon(&["eval", "--set", "gsm8k", "--methods", "file", "--spec", spec, "--limit", "3", "-q"]).ok();
    folder.runs()[0]["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_newcomer() {
    let folder = folder();
    let ran = folder.lemon(&["credit", "--spec", "seven.yaml", "--set", "gsm8k"]).ok();
    snapshot!("credit", ran.exchange());
    assert!(!folder.path(".lemon").exists(), "counterfactuals leave nothing behind");
}

/// The field names are an interface, and the same question has the same answer to the last byte.
#[test]
fn as_json() {
    let folder = folder();
    let args = ["credit", "--spec", "seven.yaml", "--set", "gsm8k", "--json", "-q"];
    let ran = folder.lemon(&args).ok();
    assert_eq!((&ran.stdout, ran.stderr.as_str()), (&folder.lemon(&args).ok().stdout, ""));
    let other = folder.lemon(&[&args[..], &["--seed", "1"]].concat()).ok();
    assert_ne!(other.stdout, ran.stdout);
    let found = ran.json();
    let effects = list(&found["effects"]);
    let families: BTreeSet<&str> = effects.iter().map(|effect| effect["family"].as_str().unwrap()).collect();
    assert_eq!(families, FAMILIES.into());
    for effect in effects {
        for text in ["unit", "target", "family", "change", "verdict", "advice"] {
            assert!(effect[text].as_str().is_some_and(|text| !text.is_empty()), "{text}: {effect}");
        }
        for number in ["effect", "standard_error", "tokens", "cost"] {
            assert!(effect[number].is_f64(), "{number}: {effect}");
        }
        assert_eq!((&effect["n"], list(&effect["interval"]).len()), (&24.into(), 2), "{effect}");
    }
    let lowered = |effect: &&Value| effect["family"] == "capacity" && effect["target"] == "check";
    assert_eq!(effects.iter().find(lowered).unwrap()["change"], "check runs one capacity level lower");
    assert_eq!((&found["complete"], &found["baseline"]["runs"]), (&true.into(), &24.into()));
    assert!(found["baseline"]["rewards"]["success"].is_f64());
    assert_eq!(list(&found["cascades"]).len(), FAMILIES.len());
    assert!(found["reuse"]["calls_reused"].as_u64() > found["reuse"]["calls"].as_u64(), "{}", found["reuse"]);
}

/// Ids as long as they may be: the columns stay where they are, and both ends of a message can be read.
#[test]
fn long_names_are_aligned() {
    let long = "an_agent_whose_name_says_everything_about_it";
    let spec = PAIR.replace("one", long).replace("two", &format!("{long}_too"));
    let folder = Folder::new().file("long.yaml", spec);
    let text = folder.lemon(&["credit", "--spec", "long.yaml", "--set", "svamp", "-q"]).ok().stdout;
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("family")).take(8).collect();
    let ends = |line: &&str| line.find("    24  ").map(|at| line[..at].chars().count());
    let places: BTreeSet<Option<usize>> = table[1..].iter().map(ends).collect();
    assert!(places.len() == 1 && !places.contains(&None), "{text}");
    assert_eq!(table.iter().filter(|line| line.contains("an_agent_whos… → an_agent_whos…")).count(), 2, "{text}");
}

#[test]
fn tasks_of_ones_own() {
    let folder = folder().file("sums.jsonl", sums(5) + "not json\n");
    let args = ["credit", "--spec", "pair.yaml", "--tasks", "sums.jsonl", "--json"];
    let ran = folder.lemon(&args).ok();
    assert!(ran.stderr.contains("warning: sums.jsonl, line 6: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 agents, ") && ran.stderr.contains("5 tasks, 1 run of each; no model is called"));
    assert_eq!(ran.json()["baseline"]["runs"], 5);
    let repeated = folder.lemon(&[&args[..], &["--limit", "2", "--repeats", "3"]].concat()).ok().json();
    assert_eq!(repeated["baseline"]["runs"], 6);
}

/// Every run has its place for credit: text, page, picture, spans and the published form show it, once.
#[test]
fn a_run_gets_credit() {
    let folder = folder();
    let run = evaluated(&folder, "seven.yaml");
    let before = folder.lemon(&["trace", "show", &run]).ok().stdout;
    let export = |format: &str| folder.lemon(&["trace", "export", &run, "--format", format]).ok().stdout;
    assert!(!export("html").contains("class=\"balance\""));
    let first = folder.lemon(&["credit", &run]).ok();
    assert_eq!(first.stderr.lines().count(), 1, "{}", first.stderr);
    let shown = folder.lemon(&["trace", "show", &run]).ok().stdout;
    let credit = shown.strip_prefix(&before).expect("the run itself is shown as before");
    assert!(shown.contains("rewards   the answer is ") && shown.contains("· success "), "{shown}");
    assert!(credit.contains("solve3 is removed") && credit.contains("turn          agent       plan "), "{credit}");
    let page = export("html");
    assert!(page.contains("<section id=\"credit\">") && page.contains("class=\"balance\""));
    assert!(export("svg").contains("class=\"worth\""));
    let rewards = serde_json::from_str::<Value>(&export("schema")).unwrap()["rewards"].clone();
    assert!(rewards["success"].is_f64() && rewards["credit.agent.solve3.agent"].is_f64(), "{rewards}");
    let spans = export("otlp");
    assert!(spans.contains("\"lemon.reward.success\"") && spans.contains("\"lemon.credit.agent\""));

    // Once more: told again, shown once.
    let events = folder.trace(&run).events.len();
    assert_eq!(folder.lemon(&["credit", &run]).ok().stdout, first.stdout);
    assert_eq!(folder.lemon(&["trace", "show", &run]).ok().stdout, shown);
    assert!(folder.trace(&run).events.len() > events);
    assert!(folder.lemon(&["trace", "diff", &run, &run]).ok().stdout.contains("did the same"));
    // Another profile replaces what it measures anew.
    folder.lemon(&["credit", &run, "--repeats", "5"]).ok();
    let last = folder.trace(&run).events.pop().unwrap();
    assert!(matches!(last.kind, EventKind::Credit { effect: None, n: 0, .. }), "{last:?}");
    let again = folder.lemon(&["trace", "show", &run]).ok().stdout;
    // Once for the agent, and once for its turn: there is one round.
    assert_eq!(again.matches("     5  solve3 is removed").count(), 2, "{again}");
    assert_eq!(again.lines().count(), shown.lines().count());
}

#[test]
fn a_run_made_elsewhere_is_looked_up_by_its_question() {
    let folder = folder().file("sums.jsonl", sums(3));
    let args = ["run", "What is 2 + 6?", "--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml"];
    folder.lemon(&args).ok();
    let without = folder.lemon(&["credit", "last"]).code(2);
    without.complains(&["no tasks with known answers", "hint: give --set NAME or --tasks FILE"]);
    let elsewhere = folder.lemon(&["credit", "last", "--set", "gsm8k"]).code(2);
    elsewhere.complains(&["the question of run r-", "is not in gsm8k", "hint: "]);
    let found = folder.lemon(&["credit", "last", "--tasks", "sums.jsonl", "--json"]).ok();
    assert!(found.stderr.contains("warning: the run used scripted workers; "), "{}", found.stderr);
    assert_eq!(found.json()["baseline"]["runs"], 30);
    // Its own rewards, not those of the runs that measured the credit: 68 is wrong.
    assert!(folder.lemon(&["trace", "show"]).ok().stdout.contains("rewards   the answer is wrong"));
}

#[test]
fn a_picture() {
    let folder = folder();
    folder.lemon(&["credit", "--spec", "pair.yaml", "--set", "svamp", "--picture", "team.svg"]).ok();
    let picture = folder.read("team.svg");
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"), "{picture}");
    let nowhere = ["credit", "--spec", "pair.yaml", "--set", "svamp", "--picture", "no/such/team.svg"];
    let ran = folder.lemon(&nowhere).code(2);
    assert!(
        ran.stdout.starts_with("success ") && ran.stderr.contains("no/such/team.svg cannot be written"),
        "it is told"
    );
}

#[test]
fn an_improved_team() {
    let folder = folder().file("sums.jsonl", sums(60));
    let args = ["credit", "--spec", "seven.yaml", "--tasks", "sums.jsonl", "--apply", "lean.yaml"];
    let ran = folder.lemon(&args).ok();
    folder.lemon(&["validate", "lean.yaml"]).ok();
    let steps: Vec<&str> = ran.stdout.lines().take_while(|line| !line.is_empty()).collect();
    let told = |word: &str| steps.iter().filter(|line| line.starts_with(word)).count();
    assert!(told("kept: ") > 0 && told("kept: ") + told("taken back: ") == steps.len(), "{}", ran.stdout);
    assert!(steps.iter().all(|line| line.contains("; up to here, held out: ")), "{}", ran.stdout);
    assert!(ran.stdout.contains("\non 30 held-out tasks: success ") && ran.stdout.ends_with("written to lean.yaml\n"));
    // The report says what the file is, and the same question has the same answer.
    let written = folder.read("lean.yaml");
    let found = folder.lemon(&[&args[..], &["--json", "-q"]].concat()).ok().json();
    assert_eq!((found["spec"].as_str(), folder.read("lean.yaml")), (Some(written.as_str()), written.clone()));
    assert_eq!(list(&found["steps"]).len(), told("kept: "));
    let tokens = |when: &str| found[when][1].as_f64().unwrap();
    assert!(tokens("after") < 0.75 * tokens("before"), "{} {}", found["before"], found["after"]);

    let few = folder.lemon(&["credit", "--spec", "seven.yaml", "--set", "gsm8k", "--apply", "no.yaml"]).code(2);
    few.complains(&["24 tasks are too few to hold some out", "hint: give at least 40"]);
    assert!(!folder.path("no.yaml").exists());
}
