//! `lemon eval` as a newcomer, a script and a study use it: on the sample, in the simulated world.

use crate::common::Folder;
use crate::snapshot;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The report of an evaluation as JSON.
#[track_caller]
pub fn report(folder: &Folder, args: &[&str]) -> Value {
    folder.lemon(&[&["eval", "--json", "-q"], args].concat()).ok().json()
}

/// The rows of an evaluation, from its folder.
#[track_caller]
pub fn rows(folder: &Folder, report: &Value) -> Vec<Value> {
    let id = report["set_up"]["eval_id"].as_str().unwrap();
    let evaluation: Value = serde_json::from_str(&folder.read(&format!(".lemon/evals/{id}/eval.json"))).unwrap();
    evaluation["rows"].as_array().unwrap().clone()
}

/// Without what differs between two evaluations that found the same.
pub fn without_names(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                ["eval_id", "run_id", "started_at_ms"].iter().for_each(|name| drop(fields.remove(*name)));
                fields.values_mut().for_each(strip);
            }
            Value::Array(entries) => entries.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn sum(rows: &[Value], number: impl Fn(&Value) -> &Value) -> f64 {
    rows.iter().map(|row| number(row).as_f64().unwrap()).sum()
}

fn share_right(rows: &[Value]) -> f64 {
    rows.iter().filter(|row| row["right"] == true).count() as f64 / rows.len() as f64
}

#[test]
fn a_newcomer_in_an_empty_folder() {
    let folder = Folder::new();
    let first = folder.lemon(&["eval", "--set", "gsm8k"]).ok();
    let mut settings = crate::common::settings();
    // Which runs end first is a matter of chance; how many have ended is not.
    settings.add_filter(r"runs, \d+ right", "runs, [some] right");
    settings.bind(|| insta::assert_snapshot!("eval", first.exchange()));

    let id = first.stderr.split(':').next().unwrap();
    let names = ["eval.json", "report.csv", "report.html", "report.json", "report.md", "runs"];
    let file = |name: &str| folder.read(&format!(".lemon/evals/{id}/{name}"));
    let found: BTreeSet<String> = std::fs::read_dir(folder.path(&format!(".lemon/evals/{id}")))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, names.map(str::to_owned).into());
    assert!(file("report.md").contains("| vanilla |") && file("report.html").starts_with("<!doctype html>"));
    let evaluation: Value = serde_json::from_str(&file("eval.json")).unwrap();
    let rows = list(&evaluation["rows"]);
    assert_eq!((rows.len(), file("report.csv").lines().count()), (7 * 24, 1 + 7 * 24));

    // From a row to what happened, as the page says.
    let row = &rows[100];
    let run = row["run_id"].as_str().unwrap();
    assert!(file("report.html").contains(run) && file("report.html").contains("lemon trace show "));
    let shown = folder.lemon(&["trace", "show", run, "--json"]).ok().json();
    assert_eq!((&shown["tokens"]["total"], &shown["calls"]), (&row["tokens"]["total"], &row["calls"]));
    assert!(folder.lemon(&["trace", "show", run]).ok().stdout.contains("solver"));

    // The same command finds the same, to the last digit: times are simulated too.
    let again = folder.lemon(&["eval", "--set", "gsm8k"]).ok();
    assert_eq!(again.stdout, first.stdout);
    let again_id = again.stderr.split(':').next().unwrap();
    assert_ne!(again_id, id);
    for name in ["eval.json", "report.json"] {
        let read = |id: &str| serde_json::from_str(&folder.read(&format!(".lemon/evals/{id}/{name}"))).unwrap();
        assert_eq!(without_names(read(id)), without_names(read(again_id)), "{name}");
    }
}

#[test]
fn seeds_differ_and_are_what_they_say() {
    let folder = Folder::new();
    let seen = |args: &[&str]| {
        let report = report(&folder, &[&["--set", "aqua", "--methods", "cot,chain:2"], args].concat());
        rows(&folder, &report).into_iter().map(without_names).collect::<Vec<_>>()
    };
    let (zero, one, both) = (seen(&[]), seen(&["--seed", "1"]), seen(&["--seeds", "1,0"]));
    assert_ne!(zero, one);
    // By method, then seed: what several seeds find is what each finds alone.
    let (cot, chain) = both.split_at(both.len() / 2);
    let halves = |rows: &[Value]| [&rows[..rows.len() / 2], &rows[rows.len() / 2..]].map(<[Value]>::to_vec);
    let [zero_cot, zero_chain] = halves(&zero);
    let [one_cot, one_chain] = halves(&one);
    assert_eq!((cot, chain), (&*[zero_cot, one_cot].concat(), &*[zero_chain, one_chain].concat()));
}

#[test]
fn several_sets_several_seeds_and_every_rule() {
    const TEAMS: [(&str, f64); 10] = [
        ("vanilla", 1.0),
        ("cot", 1.0),
        ("sc-cot", 5.0),
        ("chain", 4.0),
        ("star", 4.0),
        ("tree", 7.0),
        ("complete", 4.0),
        ("random", 4.0),
        ("debate", 6.0),
        ("debate:3", 9.0),
    ];
    let folder = Folder::new();
    let methods = TEAMS.map(|(name, _)| name).join(",");
    let args = ["--set", "gsm8k,mmlu", "--set", "svamp", "--limit", "3", "--seeds", "1,2,3", "--methods", &methods];
    let report = report(&folder, &args);
    let rows = rows(&folder, &report);
    assert_eq!(rows.len(), 10 * 3 * 9);
    assert_eq!(report["set_up"]["sets"], json!(["gsm8k/test", "mmlu/test", "svamp/test"]));
    assert_eq!(report["set_up"]["seeds"], json!([1, 2, 3]));
    assert_eq!((&report["set_up"]["items"], &report["set_up"]["workers"]), (&json!(9), &json!("sim (calibrated)")));
    assert_eq!(list(&report["methods"]).len(), 10);
    assert_eq!(list(&report["pairs"]).len(), 10 * 9 / 2);
    assert!(list(&report["pairs"]).iter().all(|pair| pair["mcnemar_p"].is_null() && pair["runs"] == 27));
    for (method, (name, agents)) in list(&report["methods"]).iter().zip(TEAMS) {
        let of_method: Vec<Value> = rows.iter().filter(|row| row["method"] == name).cloned().collect();
        assert_eq!((&method["method"], &method["runs"]), (&json!(name), &json!(27)));
        assert_eq!((&method["agents"], &method["calls"]), (&json!(agents), &json!(agents)), "{name}");
        assert_eq!(method["accuracy"].as_f64(), Some(share_right(&of_method)), "{name}");
        let tokens = sum(&of_method, |row| &row["tokens"]["total"]) / 27.0;
        assert!((method["tokens"].as_f64().unwrap() - tokens).abs() < 1e-6 && tokens > 50.0, "{name}");
        assert_eq!(method["interval_kind"], "clustered bootstrap");
        let bounds: Vec<f64> = list(&method["interval"]).iter().map(|bound| bound.as_f64().unwrap()).collect();
        let accuracy = method["accuracy"].as_f64().unwrap();
        assert!(0.0 <= bounds[0] && bounds[0] <= accuracy && accuracy <= bounds[1] && bounds[1] <= 1.0, "{name}");
        assert_eq!(method["ends"], json!({"answered": 27}));
    }
    let of_sets = list(&report["sets"]);
    assert_eq!(of_sets.iter().map(|set| set["methods"][0]["runs"].as_u64()).collect::<Vec<_>>(), [Some(9); 3]);
    for (at, name) in ["gsm8k/test", "mmlu/test", "svamp/test"].iter().enumerate() {
        let of_set: Vec<Value> =
            rows.iter().filter(|row| row["set"] == *name && row["method"] == "tree").cloned().collect();
        assert_eq!(of_sets[at]["methods"][5]["accuracy"].as_f64(), Some(share_right(&of_set)), "{name}");
    }
}

/// The field names are an interface.
#[test]
fn the_shape_of_the_json() {
    let folder = Folder::new();
    let report = report(&folder, &["--set", "multiarith", "--limit", "4", "--methods", "cot,sc-cot:3"]);
    let shape = |value: &Value| {
        let kind = |value: &Value| match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "true or false".to_owned(),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "text".to_owned(),
            Value::Array(entries) => format!("list of {}", entries.len()),
            Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>().join(", "),
        };
        let fields = value.as_object().unwrap().iter();
        fields.map(|(name, value)| format!("  {name}: {}\n", kind(value))).collect::<String>()
    };
    let parts = [
        ("report", &report),
        ("set_up", &report["set_up"]),
        ("methods[0]", &report["methods"][0]),
        ("methods[0].bands[0]", &report["methods"][0]["bands"][0]),
        ("pairs[0]", &report["pairs"][0]),
        ("a row of eval.json", &rows(&folder, &report)[0]),
        ("an agent of it", &rows(&folder, &report)[0]["agents"][0]),
    ];
    snapshot!("eval_json", parts.map(|(name, value)| format!("{name}\n{}", shape(value))).concat());
}

#[test]
fn methods_are_listed() {
    let folder = Folder::new();
    snapshot!("eval_methods", folder.exchange(&["eval", "--methods", "help"]));
    assert!(folder.all_bytes().is_empty(), "asking costs nothing");
}

/// Every agent gets the level asked for; without one they take turns.
#[test]
fn capacities() {
    let folder = Folder::new();
    let levels = |args: &[&str]| {
        let report = report(&folder, &[&["--set", "svamp", "--limit", "2", "--methods", "sc-cot:4"], args].concat());
        let rows = rows(&folder, &report);
        list(&rows[0]["agents"]).iter().map(|agent| agent["capacity"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(levels(&["--capacity", "large"]), ["large"; 4]);
    assert_eq!(levels(&[]), ["small", "medium", "large", "small"]);
}

#[test]
fn a_team_of_ones_own() {
    let folder = Folder::with_pair();
    let args = ["--set", "gsm8k", "--limit", "5", "--methods", "file,cot", "--spec", "pair.yaml"];
    let report = report(&folder, &args);
    let rows = rows(&folder, &report);
    let roles: Vec<_> = list(&rows[0]["agents"]).iter().map(|agent| agent["role"].as_str().unwrap()).collect();
    assert_eq!((roles, &report["methods"][0]["agents"]), (vec!["First", "Second"], &json!(2.0)));
}

/// A method that learns says what that cost; the rows do not contain it.
#[test]
fn a_method_that_learns() {
    let folder = Folder::new();
    let args = ["eval", "--set", "gsm8k", "--limit", "2", "--methods", "agentprune:3,cot", "--json"];
    let ran = folder.lemon(&args).ok();
    assert!(ran.stderr.contains("agentprune:3 learns on 12 items"), "{}", ran.stderr);
    let [learned, cot] = list(&ran.json()["methods"]).to_vec().try_into().unwrap();
    assert!(learned["training_tokens"].as_u64().unwrap() > 10_000 && cot["training_tokens"].is_null());
    assert!(learned["tokens"].as_f64().unwrap() < 10_000.0);
}

/// Of a split that has them, the items that methods learn from are left out, for all methods. The bundled sample has no 40 items
/// besides: half of it each.
#[test]
fn what_methods_learn_from_is_not_scored() {
    let folder = Folder::new();
    let args = ["eval", "--set", "gsm8k", "--methods", "agentprune:3,cot", "--json"];
    let ran = folder.lemon(&args).ok();
    assert!(ran.stderr.contains("12 of 24 items of gsm8k/test are left out, because methods learn from them"));
    let scored = rows(&folder, &ran.json());
    let whole = rows(&folder, &report(&folder, &["--set", "gsm8k", "--methods", "cot"]));
    let id = |row: &Value| row["item_id"].as_str().unwrap().to_owned();
    let (scored, whole): (Vec<_>, Vec<_>) = (scored.iter().map(id).collect(), whole.iter().map(id).collect());
    assert_eq!((scored.len(), whole.len()), (2 * 12, 24));
    assert!(scored.iter().all(|id| whole[12..].contains(id)), "{scored:?}");
    // A file of one's own: 40 to learn from, and the rest.
    let line = |at: u32| json!({"question": format!("What is {at} + 1?"), "answer": at + 1}).to_string();
    let lines: Vec<String> = (0..43).map(line).collect();
    let folder = Folder::new().file("mine.jsonl", lines.join("\n"));
    let ran = folder.lemon(&["eval", "--set", "mine.jsonl", "--methods", "gptswarm:2", "--json"]).ok();
    assert!(ran.stderr.contains("learns on 40 items"), "{}", ran.stderr);
    assert_eq!(rows(&folder, &ran.json()).len(), 3);
}

/// What was trained before is scored without being trained again, and a capacity can be chosen on the training items.
#[test]
fn a_method_that_learned_before() {
    let folder = Folder::new();
    let train = ["baseline", "train", "agentprune:3", "--set", "gsm8k", "--seeds", "1,2", "--out", "trained", "--json"];
    let made = folder.lemon(&train).ok().json();
    let accounts: Vec<_> = list(&made).iter().map(|made| made["account"]["tokens"].as_u64().unwrap()).collect();
    assert!(accounts.len() == 2 && accounts.iter().all(|tokens| *tokens > 10_000), "{made}");
    let args = ["eval", "--set", "gsm8k", "--limit", "2", "--methods", "agentprune:3", "--json"];
    let ran = folder.lemon(&[&args[..], &["--seeds", "1,2", "--baselines", "trained"]].concat()).ok();
    assert!(!ran.stderr.contains("learns"), "{}", ran.stderr);
    assert_eq!(ran.json()["methods"][0]["training_tokens"].as_u64().unwrap(), accounts.iter().sum::<u64>());
    let ran = folder.lemon(&[&args[..], &["--tiers", "small,chosen"]].concat()).ok();
    let names: Vec<_> = list(&ran.json()["methods"]).iter().map(|method| method["method"].clone()).collect();
    assert_eq!(names, ["agentprune:3@small", "agentprune:3@chosen"]);
    // What the budget ends is not saved as if it had been trained: the first seed fits, the second does not.
    let budget = (accounts[0] + accounts[1] / 2).to_string();
    let train = [&train[..7], &["--out", "half", "--budget-tokens", &budget]].concat();
    let ran = folder.lemon(&train).code(1);
    assert!(ran.stderr.contains("error: 1 of 2 trainings did not end, and are not saved"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(folder.path("half/agentprune:3")).unwrap().count(), 1);
}

#[test]
fn no_row_spends_more_than_its_budget() {
    let folder = Folder::new();
    let args = ["--set", "gsm8k", "--methods", "cot,chain,complete,debate", "--run-tokens", "900"];
    let report = report(&folder, &args);
    let rows = rows(&folder, &report);
    assert_eq!(rows.len(), 4 * 24);
    for row in &rows {
        assert!(row["tokens"]["total"].as_u64().unwrap() <= 900, "{row}");
    }
    let ends = &report["methods"][3]["ends"];
    assert!(ends["token_budget"].as_u64().unwrap() > 0, "{ends}");
    // A reader of the table is told.
    let args = ["eval", "--set", "gsm8k", "--methods", "debate", "--run-tokens", "900"];
    let table = folder.lemon(&args).ok().stdout;
    assert!(table.contains("debate: 24 of 24 runs") && table.contains("token_budget"), "{table}");
}

#[test]
fn questions_that_look_alike_are_one_draw_where_that_is_asked_for() {
    let pens = |name: &str, had: u32| {
        json!({
            "question": format!("{name} had {had} pens in a box and lost 3 of them on the way. How many pens are left?"),
            "answer": had - 3,
        })
    };
    let bus = json!({"question": "A bus with 40 seats makes 6 trips a day. How many can it carry?", "answer": 240});
    let lines = [pens("Ana", 8), bus, pens("Ben", 17), pens("Cleo", 30)].map(|line| line.to_string()).join("\n");
    let folder = Folder::new().file("mine.jsonl", &lines);
    let args = ["--set", "mine.jsonl", "--methods", "cot,vanilla"];
    let plain = report(&folder, &args);
    assert_eq!((&plain["set_up"]["clusters"], &plain["methods"][0]["interval_kind"]), (&json!(null), &json!("wilson")));
    assert!(rows(&folder, &plain).iter().all(|row| row.get("cluster").is_none()));
    let report = report(&folder, &[&args[..], &["--clusters"]].concat());
    assert_eq!(report["set_up"]["clusters"], 2);
    let clusters: Vec<Value> = rows(&folder, &report).iter().map(|row| row["cluster"].clone()).collect();
    assert_eq!(clusters, [0, 1, 0, 0, 0, 1, 0, 0]);
    assert_eq!(report["methods"][0]["interval_kind"], "clustered bootstrap");
    assert_eq!(report["methods"][0]["accuracy"], plain["methods"][0]["accuracy"]);
    assert!(report["pairs"][0]["mcnemar_p"].is_null() && !plain["pairs"][0]["mcnemar_p"].is_null());
    // Taken up again it still knows.
    let id = report["set_up"]["eval_id"].as_str().unwrap();
    let again: Value = folder.lemon(&["eval", "--json", "-q", "--resume", id]).ok().json();
    assert_eq!(again["set_up"]["clusters"], 2);
}

#[test]
fn questions_of_ones_own() {
    let lines = r#"{"id": "sum", "question": "What is 17 + 25?", "answer": 42}
{"question": "What is the capital of France?", "answer": "Paris"}
not json
{"id": "pick", "question": "Which is even?", "options": ["3", "4", "5"], "answer": "B"}
{"id": "none", "question": "Which is odd?"}
{"question": "Which is largest?", "choices": ["1", "9"], "correct": 1}
"#;
    let folder = Folder::new().file("mine.jsonl", lines);
    let args = ["eval", "--set", "mine.jsonl", "--methods", "cot", "--seeds", "1,2,3,4,5,6,7,8", "--json"];
    let ran = folder.lemon(&args).ok();
    let warnings: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings.len(), 2, "{}", ran.stderr);
    assert!(warnings[0].contains("mine.jsonl, line 3: ") && warnings[1].contains("mine.jsonl, line 5: "));
    let report = ran.json();
    let rows = rows(&folder, &report);
    assert_eq!(report["set_up"]["sets"], json!(["mine.jsonl"]));
    let ids: BTreeSet<&str> = rows.iter().map(|row| row["item_id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), rows.len()), (4, 32));
    let answers = |id: &str, right: bool| -> BTreeSet<&str> {
        let wanted = |row: &&Value| row["item_id"] == id && row["right"] == right;
        rows.iter().filter(wanted).map(|row| row["answer"].as_str().unwrap()).collect()
    };
    assert_eq!(answers("sum", true), ["42"].into());
    assert_eq!(answers("pick", true), ["B"].into());
    assert!(answers("pick", false).iter().all(|answer| ["A", "C"].contains(answer)));
    assert!((0.3..1.0).contains(&share_right(&rows)), "some are right and some are wrong");
}

/// Programs are graded by running them: those the world made right pass, those it made wrong do not.
fn check_programs(set: &str) {
    let folder = Folder::new();
    // Few at a time: a program that waits for others to be run may be out of its own time.
    let args = ["eval", "--set", set, "--limit", "12", "--methods", "cot", "--capacity", "small", "--width", "2"];
    let args = [&args[..], &["--json", "-q"]].concat();
    let ran = folder.lemon(&args);
    if ran.stderr.contains("untrusted code cannot be run here") {
        eprintln!("skipped: this machine cannot contain code");
        return;
    }
    let report = ran.ok().json();
    let rows = rows(&folder, &report);
    let mut right = 0;
    for row in &rows {
        let answer = folder.trace(row["run_id"].as_str().unwrap()).summary().answer.unwrap();
        let made_wrong = answer.contains("is missing\")");
        assert_eq!(row["right"], !made_wrong, "{row}\n{answer}");
        right += u32::from(!made_wrong);
    }
    assert_eq!(rows.len(), 12);
    assert!((1..12).contains(&right), "both kinds occur: {right}");
    assert_eq!(report["methods"][0]["accuracy"].as_f64(), Some(f64::from(right) / 12.0));
}

#[test]
fn programs() {
    check_programs("humaneval");
    check_programs("humaneval-py");
}
