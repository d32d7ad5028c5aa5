//! Training over the Tinker API: against a fake server always, against a real one where it is installed.

use crate::common::{Folder, wait_until};
use crate::snapshot;
use lemon_fakes::{FakeTinker, FakeVllm, SkyrlServer, TinkerFault, TinkerWorld, VllmServer, VllmWorld};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, ModelConfig, ModelFamily, Precision, Tokenizer};
use serde_json::Value;

/// Tokens that the model reads: the bytes of a prompt are its tokens.
const POSITIONS: usize = 16_384;
const ALONE: &str = "agents:\n  - {id: a1, base: solver, capacity: small}\n";
const VOTE: &str = "agents:\n  - {id: a1, base: solver, capacity: small}\n  - {id: a2, base: solver, capacity: small}\n  \
                    - {id: a3, base: expert, capacity: large}\nanswer: {from: [a1, a2, a3], by: vote}\n";

fn tokenizer() -> Tokenizer {
    Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap()
}

fn written(text: &str) -> Vec<u32> {
    [tokenizer().encode_plain(text), vec![tokenizer().end()]].concat()
}

/// A fake that writes two teams, and in the third place what is none.
fn fake() -> FakeTinker {
    let texts = [ALONE, VOTE, "I would rather not."].map(written).to_vec();
    FakeTinker::start(TinkerWorld { texts, vocabulary: 257, ..TinkerWorld::default() }).unwrap()
}

fn recipe(url: &str, steps: u32) -> String {
    format!(
        r#"
steps = {steps}
lora = 4
[tasks]
sets = ["svamp"]
train = 6
held_out = 3
[start]
kind = "tinker"
url = "{url}"
base_model = "tiny"
folder = "files"
[rollouts]
tasks = 2
group = 6
rounds = 1
[update]
learning_rate = 0.1
clip_norm = 0
[eval]
every = 2
"#
    )
}

/// A folder with the recipe and the files of the model, which needs no weights here.
fn folder(recipe: &str) -> Folder {
    let config = format!("{{\"vocab_size\": 257, \"max_position_embeddings\": {POSITIONS}}}");
    let folder = Folder::new().file("large.toml", recipe).file("files/config.json", config);
    tokenizer().save(&folder.path("files")).unwrap();
    folder
}

const TRAIN: [&str; 3] = ["train", "--recipe", "large.toml"];

fn metrics(folder: &Folder, run: &str) -> Vec<Value> {
    let text = folder.read(&format!("{run}/metrics.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_model_on_a_server_is_trained_and_invalid_texts_count() {
    let fake = fake();
    let folder = folder(&recipe(&fake.url(), 4));
    let trained = folder.lemon(&[&TRAIN[..], &["--out", "run", "--json"]].concat()).ok().json();
    assert_eq!((&trained["steps"], &trained["end"], &trained["skipped"]), (&4.into(), &"steps".into(), &0.into()));
    let metrics = metrics(&folder, "run");
    assert_eq!(metrics.len(), 5);
    for step in &metrics[1..] {
        let means = &step["rollouts"];
        let valid = means["valid"].as_f64().unwrap();
        assert!(valid > 0.0 && valid < 1.0 && means["runs"] == 12, "{means}");
        assert!(step["gradient_norm"].as_f64().unwrap() > 0.0, "{step}");
    }
    // One optimiser step each; four at the opening; no sampling with older weights.
    assert_eq!(fake.calls("optim_step").len(), 3 + 4);
    let numbers: Vec<u64> =
        fake.calls("save_weights_for_sampler").iter().filter_map(|call| call["seq_id"].as_u64()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    // The tokens are bytes: docs/tinker.md reckons with 3,000 of them.
    let bytes = |call: &Value| call["prompt"]["chunks"][0]["tokens"].as_array().unwrap().len();
    let longest = fake.calls("asample").iter().map(bytes).max().unwrap();
    assert!((2_000..3_500).contains(&longest), "{longest}");
    // Where the weights are, for those who serve them.
    let kept: Value = serde_json::from_str(&folder.read("run/model/tinker.json")).unwrap();
    assert!(kept["adapter"].as_str().unwrap().starts_with("tinker://model_1/adapter-4-"), "{kept}");
    assert!(folder.read("run/report.html").contains("<svg"));
    assert_eq!(fake.weights().into_iter().flatten().count(), 0, "its place is free again");
}

/// A fake sampler that writes two teams; each of their tokens was drawn with a probability of e^-0.5.
fn sampler() -> FakeVllm {
    let texts = [ALONE, VOTE].map(|text| (written(text), vec![-0.5; written(text).len()])).to_vec();
    let forced = ["~", "Q"].map(|text| (format!("start: \"{text}\"\n"), written(text))).to_vec();
    FakeVllm::start(VllmWorld { texts, forced, ..VllmWorld::default() }).unwrap()
}

#[test]
fn a_sampler_writes_teams_under_a_grammar_and_their_tokens_are_weighed() {
    let (fake, sampler) = (fake(), sampler());
    let of_sampler = format!("[start.sampler]\nurl = \"{}\"\nadapters = \"adapters\"\n[rollouts]", sampler.url());
    let good = recipe(&fake.url(), 3).replace("[rollouts]", &of_sampler);
    let folder = folder(&good);
    let trained = folder.lemon(&[&TRAIN[..], &["--out", "run", "--json"]].concat()).ok().json();
    assert_eq!((&trained["steps"], &trained["skipped"]), (&3.into(), &0.into()));
    let metrics = metrics(&folder, "run");
    for step in &metrics[1..] {
        assert_eq!(step["rollouts"]["valid"], 1.0, "{step}");
        assert!(step["gradient_norm"].as_f64().unwrap() > 0.0, "{step}");
    }
    // The model of the server gave each token e^-2 before its first step: it counts for the quotient of both.
    let ratio = metrics[1]["ratio"].as_f64().unwrap();
    assert!((ratio - (-1.5f64).exp()).abs() < 1e-6, "{ratio}");
    assert_ne!(metrics[2]["ratio"], metrics[1]["ratio"], "the model has moved");
    assert_eq!(fake.calls("asample").len(), 0);
    let asked = sampler.calls("completions");
    let grammar = asked.last().unwrap()["structured_outputs"]["grammar"].as_str().unwrap();
    assert!(grammar.starts_with("start:") && grammar.contains("capacity"), "{grammar}");
    // Four sets of weights are sampled: those of the beginning, and those of each step; none is left.
    assert_eq!((sampler.calls("load_lora_adapter").len(), sampler.adapters().len()), (4, 0));
    assert_eq!(std::fs::read_dir(folder.path("adapters")).unwrap().count(), 0);

    std::fs::write(folder.path("large.toml"), good.replace("rounds = 1", "rounds = 1\nbranches = 2")).unwrap();
    let ran = folder.lemon(&[&TRAIN[..], &["--out", "other"]].concat());
    let fact = "cannot go on from a fork of a text: expected `rollouts.branches` 1, got 2";
    assert!(ran.code == Some(2) && ran.stderr.contains(fact), "{}", ran.stderr);
}

#[test]
fn training_over_the_tinker_api_that_is_killed_ends_with_the_same_metrics() {
    let (whole, parts) = (fake(), fake());
    let undisturbed = folder(&recipe(&whole.url(), 6));
    undisturbed.lemon(&[&TRAIN[..], &["--out", "run"]].concat()).ok();
    let folder = folder(&recipe(&parts.url(), 6));
    for checkpoint in ["checkpoint-00000001", "checkpoint-00000003"] {
        // Slow enough to be killed on the way.
        (0..6).for_each(|_| parts.fault("forward_backward", TinkerFault::Slow(1)));
        let again: &[&str] = if folder.path("run").exists() { &["--resume"] } else { &[] };
        let mut process = folder.start(&[&TRAIN[..], &["--out", "run"], again].concat());
        let checkpoint = folder.path(&format!("run/{checkpoint}"));
        wait_until("a checkpoint is there", || checkpoint.exists() || process.try_wait().unwrap().is_some());
        process.kill().unwrap();
        process.wait().unwrap();
        // A killed training frees no place, and leaves its gradient: a server forgets both sooner or later.
        parts.restart();
    }
    folder.lemon(&[&TRAIN[..], &["--out", "run", "--resume"]].concat()).ok();
    assert_eq!(undisturbed.read("run/metrics.jsonl"), folder.read("run/metrics.jsonl"));
    assert_eq!(metrics(&folder, "run").len(), 7);
}

#[test]
fn a_server_that_restarts_ends_training_with_a_hint_and_it_goes_on() {
    let fake = fake();
    let folder = folder(&recipe(&fake.url(), 3));
    (0..2).for_each(|_| fake.fault("optim_step", TinkerFault::Slow(1)));
    fake.fault("forward_backward", TinkerFault::Slow(0));
    fake.fault("forward_backward", TinkerFault::Slow(0));
    // The first step of the training is begun, and its server fails.
    fake.fault("forward_backward", TinkerFault::Fails("Model model_1 not loaded".to_owned()));
    let ran = folder.lemon(&[&TRAIN[..], &["--out", "run"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("`forward_backward` failed on the Tinker server: Model model_1 not loaded"));
    assert!(ran.stderr.contains("hint: the last checkpoint stands"), "{}", ran.stderr);
    let trained = folder.lemon(&[&TRAIN[..], &["--out", "run", "--resume", "--json"]].concat()).ok().json();
    assert_eq!(trained["steps"], 3);
}

#[test]
fn what_cannot_be_trained_over_the_tinker_api_is_explained() {
    let fake = fake();
    let good = recipe(&fake.url(), 1);
    let folder = folder(&good);
    let mut text = String::new();
    for (what, from, to) in [
        ("no rank", "lora = 4\n", ""),
        ("gradients are scaled", "clip_norm = 0", "clip_norm = 1"),
        ("a divergence", "clip_norm = 0", "clip_norm = 0\nkl = 0.1"),
        ("a temperature", "rounds = 1", "temperature = 0.8"),
        ("another model", "\"tiny\"", "\"Qwen/Qwen2.5-7B-Instruct\""),
        ("no folder", "\"files\"", "\"none\""),
        ("no address", &fake.url(), "localhost:8000"),
        ("an unknown key", "[rollouts]", "grammar = true\n[rollouts]"),
    ] {
        assert!(good.contains(from), "{what}");
        std::fs::write(folder.path("large.toml"), good.replace(from, to)).unwrap();
        let exchange = folder.exchange(&[&TRAIN[..], &["--out", "out", "--quiet"]].concat());
        text += &format!("# {what}\n{}", exchange.replace(&fake.url(), "[url]"));
    }
    snapshot!("what_cannot_be_trained_over_the_tinker_api", text);
    // No server, and a variable that names another one.
    std::fs::write(folder.path("large.toml"), &good).unwrap();
    let gone = crate::tinker::fake().url();
    let ran = folder.lemon_with(&[("TINKER_BASE_URL", &gone)], &[&TRAIN[..], &["--out", "out"]].concat());
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains(&format!("error: no Tinker server answers at {gone}: ")), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: start the server, or correct `url`"), "{}", ran.stderr);
}

#[test]
fn a_key_is_taken_from_the_environment() {
    let key = "tml-a-key-of-the-test";
    let world =
        TinkerWorld { texts: vec![written(ALONE)], vocabulary: 257, key: Some(key.to_owned()), ..Default::default() };
    let fake = FakeTinker::start(world).unwrap();
    let folder = folder(&recipe(&fake.url(), 1));
    let train = [&TRAIN[..], &["--out", "run"]].concat();
    let ran = folder.lemon(&train);
    assert!(ran.stderr.contains("status 401") && ran.stderr.contains("hint: TINKER_API_KEY"), "{}", ran.stderr);
    folder.lemon_with(&[("TINKER_API_KEY", key)], &train).ok();
    assert!(folder.all_bytes().iter().all(|(_, bytes)| !bytes.windows(key.len()).any(|it| it == key.as_bytes())));
}

/// A random Qwen3 of two layers that reads so many tokens, in the folder of the servers.
fn random_model(folder: &Folder, positions: usize) {
    let (small, tokenizer) = lemon_policy::small_model(vec![VOTE.to_owned()], 400, 64, 2).unwrap();
    let config = ModelConfig {
        family: ModelFamily::Qwen3,
        attention_bias: false,
        heads: 2,
        kv_heads: 1,
        head_dim: 32,
        positions,
        ..small
    };
    let model = LanguagePolicy::fresh(config, tokenizer, 3, DeviceChoice::Cpu, Learning::Nothing).unwrap();
    model.save(&folder.path("server/model"), Precision::F32).unwrap();
}

#[test]
fn a_real_sampler_writes_teams_for_a_real_server() {
    let folder = Folder::new();
    random_model(&folder, 1_024);
    let Some(server) = SkyrlServer::start(&folder.path("server")) else { return };
    let Some(sampler) = VllmServer::start(&folder.path("server"), "processed_logprobs", 1_024) else { return };
    let of_sampler = format!("[start.sampler]\nurl = \"{}\"\nadapters = \"adapters\"\n[rollouts]", sampler.url());
    let recipe = recipe(&server.url(), 2).replace("\"tiny\"", "\"model\"").replace("\"files\"", "\"server/model\"");
    let recipe = recipe.replace("[rollouts]", &of_sampler).replace("learning_rate = 0.1", "learning_rate = 0.001");
    let folder = folder.file("large.toml", recipe);
    // A real server compiles what it has not computed before: that takes longer than commands of other tests may.
    let mut process = folder.start(&[&TRAIN[..], &["--out", "run", "--quiet"]].concat());
    let began = std::time::Instant::now();
    while process.try_wait().unwrap().is_none() && began.elapsed().as_secs() < 1_800 {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let ended = process.try_wait().unwrap();
    if ended.is_none() {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    assert_eq!(metrics(&folder, "run").len(), 3);
    for step in &metrics(&folder, "run")[1..] {
        let (valid, ratio) = (step["rollouts"]["valid"].as_f64().unwrap(), step["ratio"].as_f64().unwrap());
        eprintln!("share of valid texts {valid}, mean weight of a token {ratio:.4}");
        // A text that is cut off is not valid; no other is. A random model gives little to what the grammar allows.
        assert!(valid > 0.0 && ratio > 0.0 && ratio < 0.9, "{step}");
    }
}

#[test]
fn training_on_a_real_server_is_killed_and_goes_on() {
    let folder = Folder::new();
    random_model(&folder, 512);
    let Some(server) = SkyrlServer::start(&folder.path("server")) else { return };
    let recipe = recipe(&server.url(), 3).replace("\"tiny\"", "\"model\"").replace("\"files\"", "\"server/model\"");
    let recipe = recipe.replace("group = 6", "group = 8");
    let folder = folder.file("large.toml", recipe.replace("learning_rate = 0.1", "learning_rate = 0.001"));
    let mut process = folder.start(&[&TRAIN[..], &["--out", "run"]].concat());
    let checkpoint = folder.path("run/checkpoint-00000001");
    let began = std::time::Instant::now();
    while !checkpoint.exists() && process.try_wait().unwrap().is_none() && began.elapsed().as_secs() < 600 {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let trained = folder.lemon(&[&TRAIN[..], &["--out", "run", "--resume", "--json"]].concat()).ok().json();
    assert_eq!((&trained["steps"], &trained["end"]), (&3.into(), &"steps".into()));
    // A random model writes no team: every text is invalid, earns the penalty, and counts.
    for step in &metrics(&folder, "run")[1..] {
        assert_eq!((&step["rollouts"]["valid"], &step["rollouts"]["runs"]), (&0.0.into(), &16.into()), "{step}");
        assert!(step["rollouts"]["reward"].as_f64().unwrap() < 0.0, "{step}");
    }
}
