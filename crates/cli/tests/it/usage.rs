//! The arguments of the command line, and what it says to those who get them wrong.

use crate::common::{Folder, PAIR};
use crate::snapshot;
use lemon_fakes::{Behaviour, FakeEndpoint};

#[test]
fn help() {
    snapshot!("help", Folder::new().exchange(&["--help"]));
    snapshot!("run_help", Folder::new().exchange(&["run", "--help"]));
}

#[test]
fn every_command_has_help() {
    let folder = Folder::new();
    let commands =
        "init doctor plan validate schema edits trace bench completions eval compare world credit grade data tools mcp";
    for command in commands.split(' ') {
        let help = folder.lemon(&[command, "--help"]).ok();
        assert!(help.stdout.contains("Usage: lemon") && help.stderr.is_empty(), "{command}");
    }
    assert!(!folder.lemon(&["bench", "--help"]).stdout.contains("fake-endpoint"), "what is hidden is not shown");
}

#[test]
fn unknown_words_are_bad_usage() {
    let folder = Folder::new();
    let check = |args: &[&str]| {
        let ran = folder.lemon(args).code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error: "), "{}", ran.exchange());
    };
    check(&["--nonsense"]);
    check(&["fly"]);
    check(&["run", "--nonsense", "task"]);
    check(&["run", "task", "--workers", "elves"]);
    check(&["run", "task", "--budget-usd", "-1"]);
    check(&["run", "task", "--budget-tokens", "many"]);
    check(&["run", "task", "--timeout", "NaN"]);
    check(&["run", "task", "--seed", "-1"]);
    check(&["run", "task", "--resume", "last"]);
    check(&["run", "--tasks", "file", "--resume", "last"]);
    check(&["trace", "export", "--format", "pdf"]);
    check(&["trace", "export"]);
    check(&["trace", "export", "--format", "otlp", "--send", "http://localhost", "--out", "file"]);
    check(&["completions", "tcl"]);
    assert_eq!(folder.lemon(&[]).code(2).stdout, "");
}

#[test]
fn scripts_that_ask_for_json_get_errors_as_json() {
    let folder = Folder::with_pair().file("bad.toml", "[capacity.small]\nlocal = 7\n");
    let check = |args: &[&str], words: &str, hint: &str| {
        let ran = folder.lemon(args).code(2);
        let error = &ran.json()["error"];
        assert!(error["message"].as_str().is_some_and(|it| it.contains(words)), "{}", ran.exchange());
        assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{}", ran.exchange());
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(words), "{}", ran.exchange());
        assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.exchange());
    };
    check(&["run", "task", "--json", "--base-url", "http://a"], "--base-url and --model belong together", "give both");
    check(&["validate", "none.yaml", "--json"], "none.yaml: ", "");
    check(&["eval", "--set", "gsm8k", "--json", "--config", "bad.toml"], "bad.toml", "");
    check(&["trace", "show", "--json"], "there is no store", "run a task first");
    // What is wrong with the command line itself, too.
    check(&["run", "task", "--json", "--workers", "elves"], "invalid value 'elves'", "--help");
    check(&["doctor", "--json", "--nonsense"], "unexpected argument '--nonsense'", "Usage: lemon doctor");
    // Nothing else is printed for those who read.
    assert_eq!(folder.lemon(&["validate", "none.yaml"]).code(2).stdout, "");
}

#[test]
fn init() {
    let folder = Folder::new();
    let first = folder.exchange(&["init"]);
    let template = folder.read("lemon.toml");
    let folder = folder.file("lemon.toml", "# mine");
    let second = folder.exchange(&["init"]);
    assert_eq!(folder.read("lemon.toml"), "# mine");
    let forced = folder.exchange(&["init", "--force"]);
    assert_eq!(folder.read("lemon.toml"), template);
    snapshot!("init", format!("{first}\n{second}\n{forced}"));
    // What it writes is a configuration that works: it only lacks a server.
    folder.file("pair.yaml", PAIR).lemon(&["validate", "pair.yaml"]).ok();
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Folder::new().lemon(&["completions", shell]).ok().stdout;
        for word in ["lemon", "doctor", "budget-tokens"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn runs_that_cannot_begin() {
    let folder = Folder::with_pair().file("garbage.yaml", [0xff, 0xfe, 0x00, 0x80]).file("empty.jsonl", "\n");
    let mut text = String::new();
    let mut add = |args: &[&str]| text += &(folder.exchange(args) + "\n");
    add(&["run", "What is it?"]);
    add(&["run", "What is 2 + 2?", "--workers", "endpoints"]);
    add(&["run"]);
    add(&["run", ""]);
    add(&["run", " \n ", "--workers", "scripted"]);
    add(&["run", "-", "--workers", "scripted"]);
    add(&["run", "task", "--workers", "scripted", "--spec", "nowhere.yaml"]);
    add(&["run", "task", "--workers", "scripted", "--spec", "garbage.yaml"]);
    add(&["run", "task", "--workers", "scripted", "--script", "nowhere.toml"]);
    add(&["run", "task", "--workers", "scripted", "--script", "pair.yaml"]);
    add(&["run", "task", "--workers", "replay"]);
    add(&["run", "task", "--workers", "replay", "--cassette", "pair.yaml"]);
    add(&["run", "task", "--workers", "replay", "--cassette", "nowhere.jsonl"]);
    add(&["run", "task", "--workers", "scripted", "--record", "pair.yaml"]);
    add(&["run", "task", "--budget-usd", "1", "--base-url", "http://localhost:1/v1", "--model", "m"]);
    add(&["run", "task", "--base-url", "localhost:1", "--model", "m"]);
    add(&["run", "--tasks", "nowhere.jsonl", "--workers", "scripted"]);
    add(&["run", "--tasks", "empty.jsonl", "--workers", "scripted"]);
    add(&["run", "--config", "nowhere.toml", "task"]);
    snapshot!("runs_that_cannot_begin", text);
    let spec = "pair.yaml";
    let broken = folder.lemon(&["run", "What is 2 + 2?", "--spec", spec, "--store", "pair.yaml/store.db"]);
    assert_ne!(broken.code, Some(0));
}

#[test]
fn runs_that_cannot_go_on() {
    let folder = Folder::with_pair();
    folder.lemon(&["run", "--resume", "last"]).code(2).complains(&["there is no store", "hint: "]);
    folder.lemon(&["run", "task", "--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml"]).ok();
    folder.lemon(&["run", "--resume", "nope"]).code(2).complains(&["no run is called `nope`", "hint: "]);
    folder.lemon(&["run", "--resume", ""]).code(2).complains(&["no run is called ``"]);
    folder.lemon(&["run", "--resume", "r"]).ok();
}

#[test]
fn bad_configurations() {
    let mut text = String::new();
    let mut add = |toml: &str| {
        let folder = Folder::new().file("lemon.toml", toml);
        text += &folder.exchange(&["run", "task", "--workers", "scripted"]);
        text += "\n";
    };
    let level = "[capacity.small]\nbase_url = 'http://localhost:1/v1'\nmodel = 'm'\n";
    add("colour = 'yellow'\n");
    add(&format!("{level}modle = 'm'\n"));
    add("[budget]\ntokens = 'many'\n");
    add("[budget]\nusd = -0.5\n");
    add(&format!("{level}price = {{ input = -1, output = 0 }}\n"));
    add("[capacity.small]\nbase_url = 'localhost:11434/v1'\nmodel = 'm'\n");
    add("[capacity.small]\nbase_url = 'http://localhost/v1'\n");
    add(&format!("{level}max_concurrency = 0\n"));
    add(&format!("{level}max_tokens = 0\n"));
    add(&format!("{level}timeout_s = 0\n"));
    add("[run]\nworkers = 'elves'\n[capacity\n");
    add("[orchestrator]\nkind = 'clever'\n");
    add("[orchestrator]\nkind = 'fixed'\n");
    add("[orchestrator]\ncapacity = 'huge'\n");
    add("[roles]\nfolder = 'nowhere'\n");
    snapshot!("bad_configurations", text);
    let folder = Folder::new().file("lemon.toml", "[run]\nworkers = 'elves'\n");
    folder.lemon(&["run", "task"]).code(2).complains(&["`elves`", "scripted"]);
    let folder = Folder::new().file("lemon.toml", [0x80]);
    folder.lemon(&["run", "task"]).code(2).complains(&["not UTF-8"]);
}

#[test]
fn a_key_that_is_not_set() {
    let toml = "[capacity.small]\nbase_url = 'http://localhost:1/v1'\nmodel = 'm'\napi_key_env = 'NO_SUCH_KEY'\n";
    let folder = Folder::with_pair().file("lemon.toml", toml);
    snapshot!("a_key_that_is_not_set", folder.exchange(&["run", "task"]));
    folder.lemon_with(&[("NO_SUCH_KEY", " ")], &["run", "task"]).code(2).complains(&["NO_SUCH_KEY"]);
    folder.lemon_with(&[("NO_SUCH_KEY", "a\nb")], &["run", "task"]).code(2).complains(&["API key", "header"]);
}

#[test]
fn a_file_that_is_no_store() {
    let folder =
        Folder::with_pair().file("no.db", "This is not a database, and long enough to be sure of it.".repeat(40));
    for args in [&["trace", "list"][..], &["trace", "show"], &["run", "task", "--workers", "scripted"]] {
        let args = [args, &["--store", "no.db"]].concat();
        folder.lemon(&args).code(2).complains(&["no.db is not a store of runs", "hint: "]);
    }
    assert!(folder.read("no.db").starts_with("This is not a database"), "it is left as it is");
}

/// A server that runs here is written down, with a model for each level.
#[test]
fn init_writes_what_it_finds() {
    let server = |owned_by: &str, models: &[&str]| {
        let models = models.iter().map(|name| (*name).to_owned()).collect();
        FakeEndpoint::start(Behaviour { models, owned_by: owned_by.to_owned(), ..Behaviour::text("Answer: 4") })
            .unwrap()
    };
    let several = server("library", &["qwen2.5:7b", "nomic-embed-text", "qwen2.5:1.5b", "odd \"name\":3b"]);
    let single = server("llamacpp", &["only.gguf"]);
    let silent = server("vllm", &["bge-m3"]);
    let port = |endpoint: &FakeEndpoint| endpoint.port().to_string();
    let mut text = String::new();
    for ports in [port(&several) + "," + &port(&single), port(&single), port(&silent)] {
        let folder = Folder::with_pair();
        let ran = folder.lemon_with(&[("LEMON_LOCAL_PORTS", ports.as_str())], &["init"]).ok();
        let toml = folder.read("lemon.toml");
        text += &format!("{}\n{}\n", ran.exchange(), toml.split("[orchestrator]").next().unwrap());
        folder.lemon(&["validate", "pair.yaml"]).ok();
        // What is there stays, whatever is found.
        let folder = folder.file("lemon.toml", "# mine");
        folder.lemon_with(&[("LEMON_LOCAL_PORTS", ports.as_str())], &["init"]).code(2).complains(&["exists already"]);
        assert_eq!(folder.read("lemon.toml"), "# mine");
    }
    snapshot!("init_found", text);
    // What it writes works as it is.
    let folder = Folder::with_pair();
    folder.lemon_with(&[("LEMON_LOCAL_PORTS", port(&several).as_str())], &["init"]).ok();
    let result = folder.lemon(&["run", "What is 2 + 2?", "--spec", "pair.yaml", "--json"]).ok().json();
    assert_eq!(result["answer"], "4");
    let models: Vec<_> = several.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models, ["qwen2.5:1.5b", "odd \"name\":3b"]);
    // A list of ports that is none leaves no file behind.
    let folder = Folder::new();
    folder
        .lemon_with(&[("LEMON_LOCAL_PORTS", "many")], &["init"])
        .code(2)
        .complains(&["LEMON_LOCAL_PORTS must be a list of ports, got `many`"]);
    assert!(!folder.path("lemon.toml").exists());
}
