//! Flags over environment over `lemon.toml` over defaults.

use crate::common::{Folder, endpoint};

const TASK: &str = "What is 2 + 2?";
const RUN: [&str; 6] = ["run", TASK, "--json", "--spec", "pair.yaml", "--quiet"];

/// The newest run of a folder, as listed.
fn newest(folder: &Folder, field: &str) -> serde_json::Value {
    folder.runs()[0][field].clone()
}

#[test]
fn seed_and_workers() {
    let folder = Folder::with_pair();
    let toml = "[run]\nworkers = 'scripted'\nseed = 1\n";
    let check = |toml: &str, variables: &[(&str, &str)], flags: &[&str], expected: u64| {
        let folder = Folder::with_pair().file("lemon.toml", toml);
        folder.lemon_with(variables, &[&RUN[..], flags].concat()).ok();
        assert_eq!((newest(&folder, "seed"), newest(&folder, "workers")), (expected.into(), "scripted".into()));
    };
    check("[run]\nworkers = 'scripted'\n", &[], &[], 0);
    check(toml, &[], &[], 1);
    check(toml, &[("LEMON_SEED", "2")], &[], 2);
    check(toml, &[("LEMON_SEED", "2")], &["--seed", "3"], 3);
    check("[run]\nworkers = 'endpoints'\n", &[("LEMON_WORKERS", "scripted")], &[], 0);
    check("", &[("LEMON_WORKERS", "endpoints")], &["--workers", "scripted"], 0);
    folder.lemon_with(&[("LEMON_SEED", "many")], &RUN).code(2);
    folder.lemon_with(&[("LEMON_WORKERS", "elves")], &RUN).code(2);
}

#[test]
fn budget() {
    let check = |toml: &str, variables: &[(&str, &str)], flags: &[&str], calls: u64| {
        let folder = Folder::with_pair().file("lemon.toml", toml);
        let args = [&RUN[..], &["--workers", "scripted", "--script", "script.toml"], flags].concat();
        let result = folder.lemon_with(variables, &args).json();
        assert_eq!(result["calls"], calls, "{toml} {variables:?} {flags:?}: {result}");
    };
    let toml = "[budget]\ncalls = 0\n";
    check("", &[], &[], 2);
    check(toml, &[], &[], 0);
    check(toml, &[("LEMON_BUDGET_CALLS", "1")], &[], 1);
    check(toml, &[("LEMON_BUDGET_CALLS", "1")], &["--budget-calls", "2"], 2);
    // The limits are one budget of four kinds; each has a source of its own.
    check("[budget]\ntokens = 100000\n", &[("LEMON_BUDGET_CALLS", "1")], &["--timeout", "100"], 1);
    check(toml, &[("LEMON_BUDGET_TOKENS", "0")], &["--budget-calls", "2"], 0);
    check("[budget]\nseconds = 0\n", &[("LEMON_TIMEOUT", "0")], &["--timeout", "100"], 2);
}

#[test]
fn endpoint_and_model() {
    let (file, variable, flag) = (endpoint(), endpoint(), endpoint());
    let folder = Folder::with_endpoint(&file, "[run]\nreuse = false\n");
    let (variable_url, flag_url) = (variable.base_url(), flag.base_url());
    let calls = || [&file, &variable, &flag].map(|endpoint| endpoint.calls());
    let variables = [("LEMON_BASE_URL", variable_url.as_str()), ("LEMON_MODEL", "from-variable")];
    folder.lemon(&RUN).ok();
    assert_eq!(calls(), [2, 0, 0]);
    folder.lemon_with(&variables, &RUN).ok();
    assert_eq!(calls(), [2, 2, 0]);
    folder.lemon_with(&variables, &[&RUN[..], &["--base-url", &flag_url, "--model", "from-flag"]].concat()).ok();
    assert_eq!(calls(), [2, 2, 2]);
    let models = [&file, &variable, &flag].map(|endpoint| endpoint.requests()[0].body["model"].clone());
    assert_eq!(models, ["fake", "from-variable", "from-flag"]);
}

#[test]
fn the_variable_of_the_key() {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "[run]\nreuse = false\n");
    let keys = [("FIRST", "first-key"), ("SECOND", "second-key"), ("LEMON_API_KEY_ENV", "FIRST")];
    folder.lemon_with(&keys, &RUN).ok();
    folder.lemon_with(&keys, &[&RUN[..], &["--api-key-env", "SECOND"]].concat()).ok();
    let sent: Vec<_> = endpoint.requests().into_iter().filter_map(|request| request.authorization).collect();
    assert_eq!(sent, ["Bearer first-key", "Bearer first-key", "Bearer second-key", "Bearer second-key"]);
}

#[test]
fn store_and_configuration_file() {
    let folder = Folder::with_pair().file("lemon.toml", "[run]\nworkers = 'scripted'\n[store]\npath = 'file.db'\n");
    let stores = || ["file.db", "variable.db", "flag.db", ".lemon/lemon.db"].map(|name| folder.path(name).exists());
    folder.lemon(&RUN).ok();
    assert_eq!(stores(), [true, false, false, false]);
    let variable = [("LEMON_STORE", "variable.db")];
    folder.lemon_with(&variable, &RUN).ok();
    assert_eq!(stores(), [true, true, false, false]);
    folder.lemon_with(&variable, &[&RUN[..], &["--store", "flag.db"]].concat()).ok();
    assert_eq!(stores(), [true, true, true, false]);
    std::fs::create_dir(folder.path("sub")).unwrap();
    let toml =
        "[run]\nworkers = 'scripted'\n[orchestrator]\nkind = 'fixed'\nspec = 'sub.yaml'\n[store]\npath = 'sub.db'\n";
    let folder =
        folder.file("sub/lemon.toml", toml).file("sub/sub.yaml", "agents: [{id: x, base: solver, capacity: small}]");
    // Paths in a file are relative to the file; the flag wins over the variable.
    let args = ["run", TASK, "--json", "--config", "sub/lemon.toml"];
    let result = folder.lemon_with(&[("LEMON_CONFIG", "nowhere.toml")], &args).ok().json();
    assert_eq!(result["agents"][0]["id"], "x");
    assert!(folder.path("sub/sub.db").exists());
    folder.lemon_with(&[("LEMON_CONFIG", "nowhere.toml")], &RUN).code(2).complains(&["nowhere.toml"]);
}

#[test]
fn what_a_level_says_is_what_is_asked() {
    let endpoint = endpoint();
    let url = endpoint.base_url();
    let level = "max_tokens = 77\ntemperature = 0.25\nstream = false\nsend_seed = false\n";
    let toml = format!(
        "[capacity.small]\nbase_url = '{url}'\nmodel = 'a'\n{level}[capacity.medium]\nbase_url = '{url}/'\nmodel = 'b'\n"
    );
    let folder = Folder::with_pair().file("lemon.toml", toml);
    folder.lemon(&RUN).ok();
    let bodies: Vec<_> = endpoint.requests().into_iter().map(|request| request.body).collect();
    let (small, medium) = (&bodies[0], &bodies[1]);
    assert_eq!((&small["model"], &small["max_tokens"], &small["temperature"]), (&"a".into(), &77.into(), &0.25.into()));
    assert!(small.get("stream").is_none() && small.get("seed").is_none(), "{small}");
    assert_eq!((&medium["model"], &medium["stream"]), (&"b".into(), &true.into()));
    assert!(medium.get("temperature").is_none() && medium["seed"].is_u64(), "{medium}");
}
