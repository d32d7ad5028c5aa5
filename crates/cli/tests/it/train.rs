//! Training: killed while it learns, left by its workers, refused where it makes no sense, and looked at afterwards.

use crate::common::{Folder, wait_until};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};

/// A small language model that learns for a few steps.
const SMALL: &str = r#"
about = "A few steps, for tests."
steps = 6
[tasks]
sets = ["svamp", "mmlu"]
train = 12
held_out = 4
[start]
kind = "warm"
hidden = 32
layers = 1
vocabulary = 400
tasks = 8
steps = 12
batch = 8
learning_rate = 0.01
[rollouts]
tasks = 2
group = 3
[look]
every = 3
"#;

/// A table: no tensors, a moment.
pub const TABLE: &str = r#"
steps = 3
[tasks]
sets = ["svamp"]
train = 6
held_out = 3
[start]
kind = "fields"
slots = 2
[rollouts]
tasks = 2
group = 2
rounds = 1
[update]
learning_rate = 0.1
"#;

#[test]
fn training_that_is_killed_ends_with_the_same_bytes() {
    let folder = Folder::new().file("small.toml", SMALL);
    let train = ["train", "--recipe", "small.toml", "--device", "cpu"];
    let whole = folder.lemon(&[&train[..], &["--out", "whole", "--json"]].concat()).ok().json();
    assert_eq!((&whole["steps"], &whole["end"], &whole["skipped"]), (&6.into(), &"steps".into(), &0.into()));
    // Killed in the warm start, and after two checkpoints of the training.
    for file in ["warm/checkpoint-00000003", "checkpoint-00000002", "checkpoint-00000004"] {
        let again: &[&str] = if folder.path("parts").exists() { &["--resume"] } else { &[] };
        let mut process = folder.start(&[&train[..], &["--out", "parts"], again].concat());
        let checkpoint = folder.path(&format!("parts/{file}"));
        wait_until("a checkpoint is there", || checkpoint.exists() || process.try_wait().unwrap().is_some());
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let parts = folder.lemon(&[&train[..], &["--out", "parts", "--resume", "--json"]].concat()).ok().json();
    assert_eq!(whole, parts);
    for file in ["metrics.jsonl", "model/model.safetensors", "events.out.tfevents.0000000000.lemon", "recipe.toml"] {
        let read = |run: &str| std::fs::read(folder.path(&format!("{run}/{file}"))).unwrap();
        assert!(read("whole") == read("parts"), "{file}");
    }
    let page = folder.read("whole/report.html");
    assert!(page.to_lowercase().starts_with("<!doctype html>") && page.contains("<svg") && page.contains("capacity"));
    assert_eq!(folder.read("whole/timing.jsonl").lines().count(), 6);
    // What was learned can be used.
    let task = "A baker makes 24 rolls and sells 3 boxes of 6. How many rolls are left?";
    let sample = ["policy", "sample", "--task", task, "--model", "whole/model", "--json"];
    assert_eq!(folder.lemon(&sample).ok().json()["samples"][0]["valid"], true);
}

#[test]
fn an_endpoint_that_dies_pauses_training_and_nothing_is_lost() {
    let reply = || Behaviour::function(|_| FakeReply::Text("I worked it out.\nAnswer: 7".into()));
    let mut endpoint = FakeEndpoint::start(reply().latency_ms(5)).unwrap();
    let port = endpoint.port();
    let folder = Folder::with_endpoint(&endpoint, "attempts = 1\n").file("table.toml", TABLE);
    let train = ["train", "--recipe", "table.toml", "--workers", "endpoints", "--out", "run"];
    let process = folder.start(&train);
    wait_until("a step is taken", || folder.path("run/checkpoint-00000001").exists());
    endpoint.stop();
    let ran = crate::common::finish(&train, process);
    if ran.code != Some(0) {
        for words in ["workers could not be reached", "nothing is lost", "--resume goes on"] {
            assert!(ran.stderr.contains(words), "{}", ran.stderr);
        }
        assert!(folder.path("run/run.json").exists());
        let _back = FakeEndpoint::start_at(port, reply()).unwrap();
        let resumed = folder.lemon(&[&train[..], &["--resume", "--json"]].concat()).ok().json();
        assert_eq!(resumed["steps"], 3);
    }
    assert!(folder.read("run/metrics.jsonl").lines().count() == 4, "a line before the first step, and one for each");
}

#[test]
fn train_and_ablate_commands() {
    let folder = Folder::new()
        .file("table.toml", TABLE)
        .file("odd.toml", "steps = 3\n[rollouts]\ngruop = 2\n")
        .file("none.toml", "[tasks]\nsets = []\n[start]\nkind = \"fields\"\n");
    let mut text = folder.exchange(&["train", "--recipe", "table.toml", "--out", "run", "--quiet"]);
    for args in [
        &["train", "--recipe", "table.toml", "--out", "run"][..],
        &["train", "--recipe", "table.toml", "--out", "other", "--resume"],
        &["train", "--recipe", "table.toml", "--out", "run", "--resume", "--seed", "9"],
        &["train", "--recipe", "odd.toml", "--out", "odd"],
        &["train", "--recipe", "none.toml", "--out", "none"],
        &["train", "--recipe", "slow", "--out", "slow"],
        &["train", "--recipe", "table.toml", "--out", "replay", "--workers", "replay"],
        &["ablate", "everything"],
        &["ablate", "table", "--arms", "full,half"],
        &["ablate", "table", "--workers", "replay"],
        &[
            "ablate",
            "table",
            "--recipe",
            "table.toml",
            "--arms",
            "full,plain-shared",
            "--seeds",
            "2",
            "--rows",
            "rows.jsonl",
            "--report",
            "study",
        ],
    ] {
        text += &folder.exchange(args);
    }
    assert_eq!(folder.read("rows.jsonl").lines().count(), 4, "the recipe's world, two arms, two seeds");
    assert!(folder.read("study/tables.md").contains("plain-shared"));
    // What is on record is not run again.
    let again = ["ablate", "table", "--recipe", "table.toml", "--arms", "full", "--seeds", "2", "--rows", "rows.jsonl"];
    folder.lemon(&again).ok();
    assert_eq!(folder.read("rows.jsonl").lines().count(), 4);
    snapshot!("train_commands", text);
}

/// A row says which world its recipe had, and no recipe stands under the name of another setting.
#[test]
fn a_recipe_names_the_world_of_its_rows() {
    let folder = Folder::new().file("teams.toml", TABLE.replace("[tasks]\n", "[tasks]\nworld = \"teams\"\n"));
    let ablate = |study: &'static str, more: &[&'static str]| {
        let args =
            ["ablate", study, "--recipe", "teams.toml", "--arms", "plain", "--seeds", "1", "--rows", "rows.jsonl"];
        folder.lemon(&[&args[..], more].concat())
    };
    ablate("table", &[]).ok();
    let rows = folder.read("rows.jsonl");
    assert!(rows.lines().count() == 1 && rows.contains("\"world=teams\""), "{rows}");
    ablate("table", &["--only", "world=calibrated"]).code(2).complains(&["no regime", "its regimes are world=teams"]);
    ablate("map", &[])
        .code(2)
        .complains(&["the study `map` compares settings of its own recipe", "hint: leave `--recipe`"]);
}

/// A second process is refused as long as the first lives, however that ends.
#[test]
fn one_process_at_a_time_trains_in_a_folder() {
    let folder = Folder::new().file("table.toml", TABLE.replace("steps = 3", "steps = 100000"));
    let train = ["train", "--recipe", "table.toml", "--out", "run", "--quiet"];
    let mut first = folder.start(&train);
    wait_until("a step is taken", || folder.path("run/checkpoint-00000001").exists());
    let second = folder.lemon(&[&train[..], &["--resume"]].concat()).code(2);
    second.complains(&["another process is training in run", "hint: wait for that process"]);
    first.kill().unwrap();
    first.wait().unwrap();
    let mut third = folder.start(&[&train[..], &["--resume"]].concat());
    let last = || {
        let steps = std::fs::read_dir(folder.path("run")).unwrap().flatten();
        steps.filter_map(|it| it.file_name().to_str()?.strip_prefix("checkpoint-")?.parse::<u64>().ok()).max()
    };
    let before = last();
    wait_until("training goes on", || last() > before || third.try_wait().unwrap().is_some());
    assert!(third.try_wait().unwrap().is_none());
    third.kill().unwrap();
    third.wait().unwrap();
}

#[test]
fn a_damaged_checkpoint_is_said_and_the_one_before_is_used() {
    let folder = Folder::new().file("table.toml", TABLE);
    let train = ["train", "--recipe", "table.toml", "--out"];
    folder.lemon(&[&train[..], &["whole"]].concat()).ok();
    folder.lemon(&[&train[..], &["run"]].concat()).ok();
    let path = folder.path("run/checkpoint-00000003/fields.json");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let ran = folder.lemon(&[&train[..], &["run", "--resume"]].concat()).ok();
    let words = "run/checkpoint-00000003 is damaged: fields.json is not what was written; it is put aside";
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
    for file in ["metrics.jsonl", "summary.json", "checkpoint-00000003/fields.json"] {
        assert_eq!(folder.read(&format!("run/{file}")), folder.read(&format!("whole/{file}")), "{file}");
    }
}

#[test]
fn a_folder_of_others_is_not_trained_in() {
    let folder = Folder::new().file("table.toml", TABLE).file("photos/cat.jpg", "meow").file("pairs.jsonl", "");
    let ran = folder.lemon(&["train", "--recipe", "table.toml", "--out", "photos"]).code(2);
    ran.complains(&["photos is no folder of a training run: it holds cat.jpg", "hint: name an empty folder"]);
    folder
        .lemon(&["sft", "--data", "pairs.jsonl", "--model", "new", "--out", "photos"])
        .code(2)
        .complains(&["it holds cat.jpg"]);
    folder.lemon(&["pretrain", "--size", "small", "--out", "photos"]).code(2).complains(&["it holds cat.jpg"]);
    assert_eq!(std::fs::read_dir(folder.path("photos")).unwrap().count(), 1);
}
