//! The small models that ship with the program: what is said, never what they answer, which is another matter.

use crate::common::{Folder, Ran, endpoint, wait_until};
use crate::eval::{list, report, rows};
use serde_json::{Value, json};

const PROBLEM: &str =
    "Maya had 24 stickers. She gave 3 to each of 5 friends and then bought 2 packs of 6. How many does she have?";
/// Something that they know nothing of.
const BEYOND: &str = "Who was the first to climb two of these mountains?";

const NOTICE: [&str; 2] =
    ["the small bundled models answer: arithmetic word problems only", "for something stronger: "];
const OUT_OF_REACH: &str = "error: the bundled models solve arithmetic word problems only, and this is not one";

#[track_caller]
fn says(ran: &Ran, words: &[&str]) {
    words.iter().for_each(|word| assert!(ran.stderr.contains(word), "no {word:?} in {}", ran.exchange()));
}

/// The same with a checkpoint in the cache of the hub.
fn with_a_pulled_one(folder: Folder) -> Folder {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/workers/small");
    let files = std::fs::read_dir(small).unwrap().map(|file| file.unwrap().path());
    files.fold(folder, |folder, path| {
        let name = path.file_name().unwrap().to_string_lossy();
        folder.file(&format!("hf/hub/models--owner--tiny/snapshots/1/{name}"), std::fs::read(&path).unwrap())
    })
}

/// The team starts with two agents, and more are added where these are not sure.
#[test]
fn more_are_asked_where_the_first_are_not_sure() {
    let folder = Folder::new();
    let easy = folder.lemon(&["run", "Tom has 5 apples and buys 3 more. How many apples does he have?"]).ok();
    assert_eq!(easy.stdout, "5 + 3 = 8\nAnswer: 8\n");
    says(&easy, &["a1 done", "a2 done", "round 2: stop (policy)"]);
    assert!(!easy.stderr.contains("a3"), "{}", easy.exchange());
    let odd = "If a gnu trots 3 laps a day around 4 ponds and rests on 2 of 7 days, how many laps around ponds are that in 6 weeks?";
    says(&folder.lemon(&["run", odd]).ok(), &["round 2: the team is written (policy)", "a3: ", "a3 done"]);
}

#[test]
fn the_first_command_of_a_newcomer() {
    let folder = Folder::new();
    let ran = folder.lemon(&["run", PROBLEM]).ok();
    assert_eq!(ran.stdout.lines().last(), Some("Answer: 21"), "{}", ran.exchange());
    says(&ran, &NOTICE);
    // The team, who runs, how sure they are, and where to look.
    says(&ran, &["the team is written (policy)", "a1: ", "a1 begins", "a1 done", "answered · ", "confidence "]);
    let page = ran.stderr.split("page: ").nth(1).unwrap().trim();
    assert!(folder.read(page).contains("Maya had 24 stickers"));
    assert_eq!(folder.runs()[0]["workers"], "bundled");
    assert_eq!(folder.lemon(&["run", PROBLEM, "--quiet"]).ok().stderr, "");
}

#[test]
fn the_best_there_is_answers_and_the_run_says_who() {
    let (configured, server) = (endpoint(), endpoint());
    let ports = server.port().to_string();
    #[track_caller]
    fn check(folder: &Folder, ports: &str, kind: &str, words: &str) {
        let mut ran = None;
        // A machine that is very busy may not find a server in time.
        wait_until(words, || {
            let ran = ran.insert(folder.lemon_with(&[("LEMON_LOCAL_PORTS", ports)], &["run", PROBLEM]));
            ran.stderr.starts_with(words)
        });
        assert_eq!(folder.runs()[0]["workers"], kind, "{}", ran.unwrap().exchange());
    }
    let found = format!("a model server at {} answers; nothing else is configured", server.base_url());
    check(
        &with_a_pulled_one(Folder::with_endpoint(&configured, "")),
        &ports,
        "endpoints",
        "configured models answer: fake\n",
    );
    assert!(configured.calls() > 0 && server.calls() == 0);
    check(&with_a_pulled_one(Folder::new()), &ports, "endpoints", &found);
    assert!(server.calls() > 0);
    check(&with_a_pulled_one(Folder::new()), "", "local", "models in this process answer: hf:owner/tiny; nothing else");
    check(&Folder::new(), "", "bundled", NOTICE[0]);
}

#[test]
fn who_asks_for_them_gets_them() {
    let endpoint = endpoint();
    let folder = with_a_pulled_one(Folder::with_endpoint(&endpoint, ""));
    let (url, port) = (endpoint.base_url(), endpoint.port().to_string());
    let around = [("LEMON_BASE_URL", url.as_str()), ("LEMON_MODEL", "other"), ("LEMON_LOCAL_PORTS", &port)];
    let result = folder.lemon_with(&around, &["run", PROBLEM, "--workers", "box", "--json", "--quiet"]).ok().json();
    assert_eq!((&result["stop_reason"], endpoint.calls()), (&json!("answered"), 0));
    assert!(result["confidence"].as_f64().is_some_and(|it| it > 0.0 && it <= 1.0), "{result}");
    assert!(result["answer"].as_str().is_some_and(|answer| !answer.is_empty()), "{result}");

    // The configuration may ask for them too: all of them, or one beside others.
    let run = |toml: &str| {
        let folder = Folder::with_pair().file("lemon.toml", toml);
        folder.lemon(&["run", PROBLEM, "--spec", "pair.yaml", "--json"])
    };
    says(&run("[run]\nworkers = 'box'\n"), &NOTICE);
    let other = format!("[capacity.medium]\nbase_url = '{url}'\nmodel = 'other'\n");
    let mixed = run(&format!("[capacity.small]\nlocal = 'box:large'\n{other}"));
    says(&mixed, &["configured models answer: box:large, other\n"]);
    assert_eq!(endpoint.calls(), 1);
    let agents = &mixed.json()["agents"];
    assert!(agents[0]["confidence"].is_f64() && agents[1]["confidence"].is_null(), "{agents}");
    let unknown = run("[capacity.small]\nlocal = 'box:huge'\n").code(2);
    says(&unknown, &["error: capacity `small`: no bundled model is called `huge`", "hint: there are bundled:small, "]);
}

#[test]
fn what_is_beyond_them_is_refused_before_anybody_is_asked() {
    let check = |toml: &str, args: &[&str]| {
        let folder = Folder::new().file("lemon.toml", toml);
        let ran = folder.lemon(&[&["run", BEYOND], args].concat()).code(2);
        ran.complains(&[OUT_OF_REACH, "hint: for something stronger: --base-url URL"]);
        assert!(!folder.path(".lemon").exists());
    };
    check("", &[]);
    check("", &["--workers", "box", "--json"]);
    check("", &["--workers", "local", "--quiet"]);
    check("[capacity.one]\nlocal = 'bundled:small'\n", &[]);
    // They write no teams either.
    let folder = Folder::new().file("lemon.toml", "[orchestrator]\nkind = 'prompted'\n");
    says(&folder.lemon(&["run", PROBLEM]).code(2), &["bundled models write no teams", "hint: "]);

    let task = |id: &str, question: &str| format!("{}\n", json!({"id": id, "question": question}));
    let folder = Folder::new()
        .file("some.jsonl", task("a", PROBLEM) + &task("b", BEYOND))
        .file("none.jsonl", task("a", BEYOND) + &task("b", BEYOND));
    let some = folder.lemon(&["run", "--tasks", "some.jsonl", "--json"]).code(1);
    says(&some, &["warning: the bundled models will refuse 1 of 2 tasks: they solve arithmetic word problems only"]);
    let ends: Vec<Value> = some.json_lines().iter().map(|line| line["stop_reason"].clone()).collect();
    assert_eq!(ends, ["answered", "all_agents_failed"]);
    folder.lemon(&["run", "--tasks", "none.jsonl"]).code(2).complains(&["the bundled models would refuse all 2 tasks"]);
    folder
        .lemon(&["eval", "--set", "mmlu", "--limit", "3", "--workers", "bundled"])
        .code(2)
        .complains(&["would refuse all"]);
}

/// A team loads the models of the capacities it uses, and no other: one of them cannot be loaded.
#[test]
fn only_the_models_that_a_team_uses_are_loaded() {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/workers/small");
    let file = |name: &str| std::fs::read(format!("{small}/{name}")).unwrap();
    let alone = |capacity: &str| format!("agents:\n  - {{id: one, base: solver, capacity: {capacity}}}\n");
    let folder = Folder::new()
        .file("lemon.toml", "[capacity.small]\nlocal = 'bundled:small'\n[capacity.large]\nlocal = 'broken'\n")
        .file("broken/config.json", file("config.json"))
        .file("broken/tokenizer.json", file("tokenizer.json"))
        .file("broken/model.safetensors", "no weights")
        .file("small.yaml", alone("small"))
        .file("large.yaml", alone("large"));
    folder.lemon(&["run", PROBLEM, "--spec", "small.yaml"]).ok();
    let failed = folder.lemon(&["run", PROBLEM, "--spec", "large.yaml"]).code(1);
    says(&failed, &["capacity `large`: ", "model.safetensors"]);
}

/// Without names and what a clock says.
fn lasting(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let passing = ["run_id", "task_id", "seconds", "wall_s", "reward", "metrics"];
                passing.iter().for_each(|name| drop(fields.remove(*name)));
                fields.values_mut().for_each(strip);
            }
            Value::Array(entries) => entries.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}

#[test]
fn the_same_seed_gives_the_same() {
    let run = || {
        let folder = Folder::new();
        lasting(folder.lemon(&["run", PROBLEM, "--workers", "bundled", "--seed", "7", "--json"]).ok().json())
    };
    assert_eq!(run().to_string(), run().to_string());
}

#[test]
fn evaluations_ask_them() {
    let eval = |workers: &str| {
        let folder = Folder::new();
        let args = ["--set", "svamp", "--limit", "4", "--methods", "policy,chain:2", "--workers", workers];
        let report = report(&folder, &args);
        assert_eq!(report["set_up"]["workers"], "bundled");
        assert!(list(&report["methods"]).iter().all(|method| method["accuracy"].is_f64()), "{report}");
        rows(&folder, &report).into_iter().map(lasting).collect::<Vec<_>>()
    };
    // Where no other model is in this process, the bundled ones answer; `box` is their older name.
    let (first, second) = (eval("box"), eval("local"));
    assert_eq!((first.len(), json!(first).to_string()), (8, json!(second).to_string()));
    // The orchestrator that was taught with them writes their teams: one agent is what the other would write.
    let by_policy: Vec<usize> =
        first.iter().filter(|row| row["method"] == "policy").map(|row| list(&row["agents"]).len()).collect();
    assert!(by_policy.len() == 4 && by_policy.iter().all(|agents| *agents > 1), "{by_policy:?}");
    let ran =
        Folder::new().lemon(&["eval", "--set", "svamp", "--limit", "1", "--methods", "cot", "--workers", "local"]);
    says(&ran.ok(), &NOTICE);
}

#[test]
fn profiles_and_training_ask_them() {
    let recipe = "steps = 1\n[tasks]\nsets = [\"svamp\"]\ntrain = 4\nheld_out = 2\n[start]\nkind = \"fields\"\nslots = 2\n\
                  [rollouts]\ntasks = 2\ngroup = 2\nrounds = 1\n";
    let folder = Folder::with_pair().file("table.toml", recipe);
    let credit = folder.lemon(&["credit", "--spec", "pair.yaml", "--set", "svamp", "--limit", "2", "--workers", "box"]);
    let credit = credit.ok();
    says(&credit, &[NOTICE[0], "models in this process answer"]);
    assert!(credit.stdout.contains("worth, points"), "{}", credit.exchange());
    let train = folder.lemon(&["train", "--recipe", "table.toml", "--workers", "box", "--out", "run", "--json"]).ok();
    says(&train, &NOTICE);
    assert_eq!(train.json()["steps"], 1);
}

#[test]
fn teams_of_them_can_be_tried_and_taught() {
    let folder = Folder::new();
    let teach = ["teach", "--teacher", "broad", "--problems", "5", "--runs", "1", "--out", "pairs.jsonl", "--json"];
    let summary = folder.lemon(&[&teach[..], &["--workers", "box"]].concat()).ok().json();
    assert_eq!(summary["tasks"], 5, "{summary}");
    let success = summary["success"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&success) && summary["tokens"].as_f64().unwrap() > 50.0, "{summary}");
    let pairs: Vec<Value> =
        folder.read("pairs.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!pairs.is_empty());
    for pair in pairs.iter().filter(|pair| pair["round"] == 1) {
        assert_eq!((&pair["world"], &pair["runs"]), (&json!("bundled"), &json!(1)));
    }
    // Two begin, and the others are asked where these are not sure: both rounds are taught, if that earned more.
    let search =
        ["teach", "--teacher", "search", "--one-for-all", "--workers", "box", "--problems", "12", "--runs", "1"];
    let small = ["--teams", "6", "--drawn", "6", "--most-agents", "7", "--search-runs", "12", "--two-rounds"];
    let ran = folder.lemon(&[&search[..], &small, &["--out", "search.jsonl", "--json"]].concat()).ok();
    says(&ran, &["6/6 teams · best: reward "]);
    let pairs: Vec<Value> =
        folder.read("search.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rounds = |number: u32| pairs.iter().filter(move |pair| pair["round"] == number);
    assert!(rounds(1).count() >= 10, "{}", ran.exchange());
    for pair in rounds(2) {
        let told = pair["results"].as_array().unwrap();
        assert!(told.len() == 2 && told.iter().all(|told| told["sure"].as_u64() <= Some(100)), "{pair}");
    }
    let asks_again = rounds(1).filter(|pair| pair["spec"].as_str().unwrap().ends_with("next: review\n")).count();
    assert_eq!(asks_again > 0, rounds(2).count() > 0);
    let folder = folder.file("bad.yaml", "agents: [{id: a, base: absent, capacity: large}]\n");
    let ran = folder.lemon(&[&search[..], &["--team", "bad.yaml", "--out", "none.jsonl"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.exchange());
    says(&ran, &["error: the team is not valid\nerror[unknown_base]: unknown base role `absent`\n --> bad.yaml:1:24"]);
    let ran = folder.lemon(&[&teach[..], &["--workers", "replay"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.exchange());
    says(&ran, &["error: recorded replies answer one agent, not a team", "hint: use --workers sim, local or bundled"]);
}
