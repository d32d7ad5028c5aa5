//! The orchestrator's own model: it writes, scores, says what it is, learns, and is killed while it does.

use crate::common::{Folder, reply_of, wait_until};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::Value;

const TASK: &str = "A baker makes 24 rolls and sells 3 boxes of 6. How many rolls are left?";

fn sample(folder: &Folder, more: &[&str]) -> Vec<Value> {
    let args = [&["policy", "sample", "--task", TASK, "--json"], more].concat();
    folder.lemon(&args).ok().json()["samples"].as_array().unwrap().clone()
}

#[test]
fn it_writes_valid_teams_that_follow_their_seeds() {
    let folder = Folder::new();
    let samples = sample(&folder, &["--count", "12", "--temperature", "1.5", "--seed", "7"]);
    assert_eq!(samples.len(), 12);
    for (at, sample) in samples.iter().enumerate() {
        assert_eq!((&sample["valid"], &sample["finish"]), (&true.into(), &"stop".into()));
        let lengths = ["tokens", "logprobs", "forced", "ends"].map(|key| sample[key].as_array().unwrap().len());
        assert!(lengths.iter().all(|length| *length == lengths[0]));
        std::fs::write(folder.path("team.yaml"), sample["spec"].as_str().unwrap()).unwrap();
        folder.lemon(&["validate", "team.yaml"]).ok();
        if at == 5 {
            let alone = self::sample(&folder, &["--temperature", "1.5", "--seed", "12"]);
            assert_eq!(&alone[0], sample);
        }
    }
    let different: std::collections::HashSet<&str> = samples.iter().map(|it| it["spec"].as_str().unwrap()).collect();
    assert!(different.len() > 6, "{different:?}");
}

#[test]
fn what_it_wrote_it_scores_the_same() {
    let folder = Folder::new();
    let sample = sample(&folder, &["--seed", "3"]).remove(0);
    std::fs::write(folder.path("team.yaml"), sample["spec"].as_str().unwrap()).unwrap();
    let scored = folder.lemon(&["policy", "score", "--task", TASK, "--spec", "team.yaml", "--json"]).ok().json();
    assert_eq!(scored["spec"], sample["spec"]);
    let tokens = scored["tokens"].as_array().unwrap();
    let logprobs: Vec<&Value> = tokens.iter().map(|token| &token["logprob"]).collect();
    assert_eq!(logprobs, sample["logprobs"].as_array().unwrap().iter().collect::<Vec<_>>());
    let capacity: Vec<&Value> = tokens.iter().filter(|token| token["field"] == "a1.capacity").collect();
    let written: String = capacity.iter().map(|token| token["text"].as_str().unwrap()).collect();
    let spec = sample["spec"].as_str().unwrap();
    assert!(spec.contains(&format!("capacity: {}\n", written.trim())), "{written} in\n{spec}");
}

#[test]
fn policy_commands() {
    let folder = Folder::with_pair()
        .file("odd.yaml", "agents:\n  - {id: x, base: solver, duty: \"Mind: the #1\", capacity: small}\n")
        .file("broken/config.json", "{\"model_type\": \"qwen2\", \"hidden_size\": 64}")
        .file("empty/readme", "");
    let mut text = folder.exchange(&["policy", "info"]);
    for args in [
        &["policy", "sample", "--task", TASK, "--temperature", "0"][..],
        &["policy", "sample", "--task", " "],
        &["policy", "sample", "--task", TASK, "--temperature=-1"],
        &["policy", "sample", "--task", TASK, "--model", "empty"],
        &["policy", "sample", "--task", TASK, "--model", "broken"],
        &["policy", "sample", "--task", TASK, "--device", "cuda"],
        &["policy", "score", "--task", TASK, "--spec", "odd.yaml"],
        &["policy", "score", "--task", TASK, "--spec", "pair.yaml", "--temperature", "0"],
        &["sft", "--data", "none.jsonl", "--model", "new", "--out", "run"],
        &["sft", "--data", "odd.yaml", "--model", "new", "--out", "run"],
        &["teach", "--count", "0", "--out", "pairs.jsonl"],
        &["teach", "--set", "svamp", "--data", "empty", "--out", "pairs.jsonl"],
        &["bench", "policy", "--shapes", "9z"],
    ] {
        text += &folder.exchange(args);
    }
    snapshot!("policy_commands", text);
}

#[test]
fn a_run_uses_it_where_nothing_else_is_configured() {
    let endpoint = FakeEndpoint::start(Behaviour::function(|request| FakeReply::Text(reply_of(request)))).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "[orchestrator]\nguard = false\n");
    let ran = folder.lemon(&["run", TASK, "--json"]).ok();
    assert!(ran.stderr.contains("the team is written (policy)"), "{}", ran.stderr);
    let result = ran.json();
    assert_eq!(result["tokens"]["orchestrator"], 0);
    assert_eq!(result["calls"].as_u64(), Some(endpoint.calls()));
    // It is the team that the model finds most likely.
    let greedy = sample(&folder, &["--temperature", "0"]).remove(0);
    let first = &result["spec"]["agents"][0];
    for key in ["base", "role", "duty", "capacity"] {
        let line = format!("{key}: {}\n", first[key].as_str().unwrap());
        assert!(greedy["spec"].as_str().unwrap().contains(&line), "{line} in {greedy}");
    }
}

#[test]
fn an_evaluation_compares_it() {
    let folder = Folder::new();
    let args = ["eval", "--set", "gsm8k,mmlu", "--methods", "policy,vanilla,complete", "--limit", "8", "--json"];
    let first = folder.lemon(&args).ok().json();
    let methods = first["methods"].as_array().unwrap();
    assert_eq!(
        methods.iter().map(|it| it["method"].as_str().unwrap()).collect::<Vec<_>>(),
        ["policy", "vanilla", "complete"]
    );
    for method in methods {
        let [low, high] = [0, 1].map(|at| method["reward_interval"][at].as_f64().unwrap());
        assert!((low..=high).contains(&method["reward"].as_f64().unwrap()));
    }
    assert!(methods[0]["ends"].as_object().unwrap().keys().eq(["answered"]));
    let again = folder.lemon(&args).ok().json();
    assert_eq!(first["methods"], again["methods"]);
}

/// Pairs of a few tasks, and the words to learn them with a tiny model.
fn lessons() -> (Folder, Vec<&'static str>) {
    let folder = Folder::new();
    let args = ["teach", "--set", "svamp,mmlu", "--count", "30", "--runs", "1", "--out", "pairs.jsonl", "--json"];
    let taught = folder.lemon(&args).ok().json();
    assert!(taught["pairs"].as_u64().unwrap() >= 60 && taught["reward"].as_f64().unwrap() > 0.3, "{taught}");
    let sft = vec![
        "sft",
        "--data",
        "pairs.jsonl",
        "--model",
        "new",
        "--vocabulary",
        "400",
        "--hidden",
        "64",
        "--layers",
        "1",
        "--steps",
        "30",
        "--look-every",
        "5",
        "--batch",
        "4",
        "--probe",
        "0",
        "--device",
        "cpu",
    ];
    (folder, sft)
}

#[test]
fn a_model_that_is_killed_while_it_learns_ends_with_the_same_bits() {
    let (folder, sft) = lessons();
    let whole = folder.lemon(&[&sft[..], &["--out", "whole", "--json"]].concat()).ok().json();
    assert_eq!((&whole["learned"]["steps"], &whole["learned"]["skipped"]), (&30.into(), &0.into()));
    let args = [&sft[..], &["--out", "parts", "--json"]].concat();
    // Killed after the first checkpoint, and again somewhere later.
    for step in [5, 15] {
        let mut process = folder.start(&args);
        let checkpoint = folder.path(&format!("parts/checkpoint-{step:08}"));
        wait_until("a checkpoint is there", || checkpoint.exists() || process.try_wait().unwrap().is_some());
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let parts = folder.lemon(&args).ok().json();
    assert_eq!(whole["learned"], parts["learned"]);
    for file in ["metrics.jsonl", "model/model.safetensors", "model/tokenizer.json"] {
        let read = |run: &str| std::fs::read(folder.path(&format!("{run}/{file}"))).unwrap();
        assert!(read("whole") == read("parts"), "{file}");
    }
    // What was learned can be used, and learned on.
    let sample = sample(&folder, &["--model", "whole/model"]).remove(0);
    assert_eq!(sample["valid"], true);
    let more =
        ["sft", "--data", "pairs.jsonl", "--model", "whole/model", "--out", "more", "--steps", "2", "--probe", "3"];
    let ran = folder.lemon(&[&more[..], &["--lora", "4", "--look-every", "1"]].concat()).ok();
    assert!(
        ran.stderr.contains("step 2: loss") && ran.stderr.contains("% valid without the grammar"),
        "{}",
        ran.stderr
    );
    // Another run does not fit into the same folder.
    let other = folder.lemon(&[&sft[..], &["--out", "whole", "--seed", "9"]].concat()).code(2);
    assert!(
        other.stderr.contains("the run here was begun with other settings; take another folder"),
        "{}",
        other.stderr
    );
}

#[test]
fn a_strong_model_teaches() {
    let behaviour = Behaviour::function(|request| {
        let task = request.last("user").len();
        FakeReply::Text(match task % 3 {
            0 => "agents: [{id: me, base: genius, capacity: small}]".to_owned(),
            _ => "agents:\n  - {id: solve, base: solver, capacity: small}\n  - {id: check, base: critic, capacity: large, after: [solve]}\n".to_owned(),
        })
    });
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "");
    let args = ["teach", "--teacher", "endpoint", "--set", "svamp", "--count", "12", "--out", "pairs.jsonl", "--json"];
    let taught = folder.lemon(&args).ok().json();
    let pairs: Vec<Value> =
        folder.read("pairs.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(taught["pairs"].as_u64(), Some(pairs.len() as u64));
    assert!(!pairs.is_empty() && taught["refused"]["unknown_base"].as_u64().unwrap() > 0, "{taught}");
    for pair in &pairs {
        assert_eq!(pair["teacher"], "endpoint");
        assert!(pair["spec"].as_str().unwrap().contains("- id: a2\n    base: critic"), "{pair}");
    }
}
