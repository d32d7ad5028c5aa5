//! Small workers: they are trained, go on after a kill, learn from each other, and are examined.

use crate::common::Folder;
use crate::snapshot;

const TINY: [&str; 13] = [
    "pretrain",
    "--size",
    "small",
    "--device",
    "cpu",
    "--tokens",
    "4k",
    "--batch",
    "8",
    "--look-every",
    "3",
    "--look-problems",
    "4",
];

#[test]
fn workers_are_trained_twice_and_scored() {
    let folder = Folder::new()
        .file("lemon.toml", "[capacity.small]\nlocal = \"one/model\"\n")
        .file("team.yaml", "agents:\n  - {id: a, base: solver, capacity: small}\n");
    let pretrain = |more: &[&str]| folder.lemon(&[&TINY[..], more].concat());
    let first = pretrain(&["--out", "one", "--json"]).ok();
    assert!(first.stderr.contains(" parameters on cpu") && first.stderr.contains(" % right"), "{}", first.stderr);
    let said = first.json();
    assert!(said["pretrained"]["tokens"].as_u64().unwrap() >= 4_000, "{said}");
    assert_eq!(pretrain(&["--out", "one", "--json", "--quiet"]).ok().json(), said);
    pretrain(&["--out", "one", "--seed", "1", "--quiet"]).code(2).complains(&["begun with other settings"]);

    let second = ["--out", "two", "--from", "one/model", "--peers", "one/model,one/best", "--peer-problems", "5"];
    let ran = pretrain(&[&second[..], &["--optimiser", "adamw"]].concat()).ok();
    assert!(ran.stderr.contains("of the peers' replies ") && ran.stdout.trim() == "two/model", "{}", ran.exchange());
    assert_eq!(folder.read("two/replies.jsonl").lines().count(), 5);
    let vocabulary = |name: &str| folder.read(&format!("{name}/model/tokenizer.json"));
    assert!(vocabulary("one") == vocabulary("two"));
    let wrong = ["pretrain", "--quiet", "--size", "large", "--out", "three", "--from", "one/model"];
    folder.lemon(&wrong).code(2).complains(&["another size", "hint: "]);

    let score = ["pretrain", "score", "--models", "one/model,two/model", "--limit", "3", "--device", "cpu"];
    let table = folder.lemon(&score).ok().stdout;
    assert!(table.contains("## multiarith: 3 questions") && table.contains("| one/model | two/model | "), "{table}");
    let json = folder.lemon(&[&score[..], &["--sets", "svamp", "--json"]].concat()).ok().json();
    let check = &json[0]["workers"][0]["checks"][0];
    assert_eq!(check["wrong"].as_u64().unwrap() + check["right"].as_u64().unwrap(), 3, "{json}");

    // What its solutions are worth is found out and kept beside it. This one solves nothing, and knows it then.
    let calibrate = ["pretrain", "calibrate", "--model", "one/model", "--problems", "20"];
    let found = folder.lemon(&[&calibrate[..], &["--json"]].concat()).ok().json();
    let number = |name: &str| found[name].as_f64().unwrap();
    assert_eq!((number("solutions"), number("right")), (40.0, 0.0), "{found}");
    assert!(number("brier") < number("brier_before"), "{found}");
    let card: serde_json::Value = serde_json::from_str(&folder.read("one/model/lemon.json")).unwrap();
    assert_eq!((&card["prompt"], &card["calibration"]), (&"short".into(), &found["calibration"]));
    assert!(folder.lemon(&calibrate).ok().stdout.starts_with("one/model/lemon.json: of 40 solutions 0.0 % are right"));
    folder.lemon(&["pretrain", "calibrate", "--model", "nowhere"]).code(2).complains(&["nowhere"]);

    // As workers they are asked in the form of their lessons, whatever else they know.
    let ask = |question: &str| folder.lemon(&["run", "--spec", "team.yaml", "--json", "--quiet", question]).json();
    let asked = ask("Ana has 3 pens and buys 4. How many?");
    assert!((10..40).contains(&asked["agents"][0]["tokens_in"].as_u64().unwrap()), "{asked}");
    let refused = ask("Who was it?")["agents"][0]["failure"]["message"].to_string();
    assert!(refused.contains("model: it solves arithmetic word problems only"), "{refused}");
}

#[test]
fn pretrain_help() {
    let folder = Folder::new();
    let mut text = folder.exchange(&["pretrain", "--help"]);
    text += &folder.exchange(&["pretrain", "score", "--help"]);
    text += &folder.exchange(&["pretrain", "calibrate", "--help"]);
    text += &folder.exchange(&["pretrain", "--size", "small"]);
    text += &folder.exchange(&["pretrain", "--size", "small", "--out", "x", "--tokens", "many"]);
    snapshot!("pretrain", text);
}
