//! `lemon models` against a hub on loopback: good, flaky, closed and malicious.

use crate::common::{Folder, Ran, wait_until};
use lemon_fakes::{FakeHub, HubFile, Sent, Trouble};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;

pub const NAME: &str = "owner/name";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub const WEIGHTS: &str = "model.safetensors";

/// Small files and what `git hash-object` says of them.
pub const CONFIG: [&str; 3] = [
    "config.json",
    r#"{"model_type": "qwen2", "vocab_size": 100, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}"#,
    "246b4a6277a107861a8d30bca693a632b4dafc97",
];
const GPT2: [&str; 3] =
    ["config.json", r#"{"model_type": "gpt2", "vocab_size": 100}"#, "96f9650b28b0017f1c3e81f60b05ac75fdc3ddd0"];
pub const TOKENIZER: [&str; 3] =
    ["tokenizer.json", r#"{"version": "1.0"}"#, "fdef94443aef6c464d438c4654540cb4245f8f1e"];
const GENERATION: [&str; 3] = ["generation_config.json", "{}\n", "0967ef424bce6791893e9a57bb952f80fd536e93"];
const README: [&str; 3] = ["README.md", "not for us", "cf1f8d109dd38a4c8b421368676ac5598eb0bd2e"];
const INDEX: [&str; 3] = [
    "model.safetensors.index.json",
    r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#,
    "875ba650e96a1dbc4a3e2cb050f5d3304fccb582",
];
pub const ESCAPE: [&str; 3] = [
    "model.safetensors.index.json",
    r#"{"weight_map": {"a": "../../../escaped.safetensors"}}"#,
    "53853183a8fcddcb4a7a31c792a056588ee5509e",
];
const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

pub fn small([name, content, sum]: [&str; 3]) -> HubFile {
    HubFile { name: name.into(), content: content.into(), sum: sum.into() }
}

/// Three hundred thousand bytes that are its own.
pub fn large(name: &str) -> HubFile {
    let content: Vec<u8> = name.bytes().cycle().zip(0..300_000_u32).map(|(byte, at)| byte ^ (at / 7) as u8).collect();
    let sum = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    HubFile { name: name.into(), content, sum }
}

pub fn hub_of(commit: &str, files: Vec<HubFile>) -> FakeHub {
    FakeHub::start(NAME, commit, files).unwrap()
}

/// A hub with a whole checkpoint.
pub fn hub() -> FakeHub {
    hub_of(COMMIT, vec![small(README), small(CONFIG), small(TOKENIZER), small(GENERATION), large(WEIGHTS)])
}

#[track_caller]
fn pull(folder: &Folder, hub: &FakeHub, more: &[&str]) -> Ran {
    folder.lemon_with(&[("HF_ENDPOINT", &hub.url())], &[&["models", "pull", NAME], more].concat())
}

/// Pulls; gives each file with what became of it.
#[track_caller]
fn statuses(folder: &Folder, hub: &FakeHub) -> Vec<(String, String)> {
    let report = pull(folder, hub, &["--json"]).ok().json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    report["files"].as_array().unwrap().iter().map(|file| (text(&file["name"]), text(&file["status"]))).collect()
}

/// Where a file of the checkpoint lies.
pub fn place(folder: &Folder, name: &str) -> PathBuf {
    folder.path(&format!("hf/hub/models--owner--name/snapshots/{COMMIT}/{name}"))
}

fn blob(folder: &Folder, name: &str) -> PathBuf {
    folder.path(&format!("hf/hub/models--owner--name/blobs/{name}"))
}

/// The transfers of the weights.
fn sent(hub: &FakeHub) -> Vec<(usize, usize)> {
    let weights = |sent: Sent| (sent.name == WEIGHTS).then_some((sent.from, sent.bytes));
    hub.sent().into_iter().filter_map(weights).collect()
}

#[test]
fn a_checkpoint_is_pulled_once() {
    let (hub, folder) = (hub(), Folder::new());
    let ran = pull(&folder, &hub, &[]).ok();
    assert_eq!(ran.stdout, format!("{}\n", place(&folder, "").to_string_lossy().trim_end_matches('/')));
    for file in [small(CONFIG), small(TOKENIZER), small(GENERATION), large(WEIGHTS)] {
        assert_eq!(std::fs::read(place(&folder, &file.name)).unwrap(), file.content, "{}", file.name);
    }
    assert!(!place(&folder, "README.md").exists());
    assert_eq!(folder.read("hf/hub/models--owner--name/refs/main"), COMMIT);
    assert!(ran.stderr.contains("3 of 3: fetched model.safetensors\n"), "{}", ran.stderr);
    let (transfers, requests) = (hub.sent(), hub.requests());
    assert_eq!(transfers.len(), 4);
    let kept =
        ["config.json", "tokenizer.json", "generation_config.json", WEIGHTS].map(|name| (name.into(), "kept".into()));
    assert_eq!(statuses(&folder, &hub), kept);
    assert_eq!((hub.sent(), hub.requests()), (transfers, requests + 1));
    // By its commit it is the same.
    let by_commit = folder.lemon(&["models", "pull", &format!("{NAME}@{COMMIT}"), "--endpoint", &hub.url()]).ok();
    assert_eq!((by_commit.stdout, sent(&hub).len()), (ran.stdout, 1));
}

#[test]
fn shards() {
    let [one, two] = SHARDS.map(large);
    let hub = hub_of(COMMIT, vec![small(CONFIG), small(TOKENIZER), small(INDEX), one.clone(), two.clone()]);
    let folder = Folder::new();
    let names = ["config.json", INDEX[0], "tokenizer.json", SHARDS[0], SHARDS[1]];
    assert_eq!(statuses(&folder, &hub), names.map(|name| (name.into(), "fetched".into())));
    assert_eq!(std::fs::read(place(&folder, SHARDS[1])).unwrap(), two.content);
    let listed = |folder: &Folder| folder.lemon(&["models", "list", "--json"]).ok().json()[0].clone();
    assert_eq!((&listed(&folder)["complete"], &listed(&folder)["fault"]), (&json!(true), &Value::Null));
    std::fs::remove_file(place(&folder, SHARDS[0])).unwrap();
    let found = listed(&folder);
    assert_eq!((&found["complete"], &found["fault"]), (&json!(false), &json!(format!("{} is missing", SHARDS[0]))));
    // Its content is still in the cache.
    assert!(statuses(&folder, &hub).iter().all(|(_, status)| status == "kept"));
    assert_eq!(hub.sent().len(), 5);
}

#[test]
fn what_breaks_off_goes_on() {
    let (hub, folder) = (hub(), Folder::new());
    hub.trouble(WEIGHTS, Trouble::Cut(100_000));
    hub.trouble(WEIGHTS, Trouble::Status(503));
    hub.trouble("tokenizer.json", Trouble::Status(429));
    let ran = pull(&folder, &hub, &[]).ok();
    assert!(ran.stderr.contains("model.safetensors broke off: "), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the hub answered 503 for model.safetensors in owner/name; again in 1 s"),
        "{}",
        ran.stderr
    );
    let (from, bytes) = sent(&hub)[1];
    assert!(from > 0 && from + bytes == 300_000, "{:?}", hub.sent());
    assert_eq!(std::fs::read(place(&folder, WEIGHTS)).unwrap(), large(WEIGHTS).content);
}

#[test]
fn what_was_killed_goes_on() {
    let (hub, folder) = (hub(), Folder::new());
    hub.trouble(WEIGHTS, Trouble::Stall(100_000));
    let args = ["models", "pull", NAME, "--endpoint", &hub.url()];
    let mut process = folder.start(&args);
    let part = blob(&folder, &format!("{}.part", large(WEIGHTS).sum));
    wait_until("a third of a file", || std::fs::metadata(&part).is_ok_and(|part| part.len() == 100_000));
    process.kill().unwrap();
    process.wait().unwrap();
    let list = folder.lemon(&["models", "list", "--json"]).ok().json();
    assert_eq!(list[0]["fault"], "model.safetensors is missing");
    folder.lemon(&args).ok();
    assert_eq!(sent(&hub), [(0, 100_000), (100_000, 200_000)]);
    assert_eq!(std::fs::read(place(&folder, WEIGHTS)).unwrap(), large(WEIGHTS).content);
}

/// Everything had come, and more; the file had not got its place yet.
#[test]
fn what_was_killed_at_the_end_goes_on() {
    for more in [0, 5] {
        let (hub, weights) = (hub(), large(WEIGHTS));
        let part = format!("hf/hub/models--owner--name/blobs/{}.part", weights.sum);
        let folder = Folder::new().file(&part, [weights.content, vec![0; more]].concat());
        pull(&folder, &hub, &[]).ok();
        assert_eq!(sent(&hub), [(299_999, 1)]);
    }
}

#[test]
fn what_is_not_what_the_hub_says_is_removed() {
    for file in [small(TOKENIZER), large(WEIGHTS)] {
        let (hub, folder) = (hub(), Folder::new());
        hub.trouble(&file.name, Trouble::Corrupt);
        let ran = pull(&folder, &hub, &[]).code(1);
        assert_eq!(ran.stdout, "");
        let fact = format!("error: the hub sent something else as {}: its checksum is ", file.name);
        assert!(
            ran.stderr.contains(&fact) && ran.stderr.contains(&format!(" instead of {}", file.sum)),
            "{}",
            ran.stderr
        );
        let left = [place(&folder, &file.name), blob(&folder, &file.sum), blob(&folder, &format!("{}.part", file.sum))];
        assert!(left.iter().all(|path| path.symlink_metadata().is_err()), "{left:?}");
        pull(&folder, &hub, &[]).ok();
        assert_eq!(std::fs::read(place(&folder, &file.name)).unwrap(), file.content);
    }
}

#[test]
fn what_was_damaged_here_is_fetched_again() {
    let (hub, folder) = (hub(), Folder::new());
    pull(&folder, &hub, &[]).ok();
    let mut content = large(WEIGHTS).content;
    content[7] ^= 1;
    std::fs::write(place(&folder, WEIGHTS), content).unwrap();
    // A link to nothing.
    std::fs::remove_file(blob(&folder, TOKENIZER[2])).unwrap();
    let ran = pull(&folder, &hub, &[]).ok();
    assert!(ran.stderr.contains("model.safetensors is damaged: its checksum is "), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 files fetched, 2 kept"), "{}", ran.stderr);
    assert_eq!(std::fs::read(place(&folder, WEIGHTS)).unwrap(), large(WEIGHTS).content);
}

#[test]
fn a_new_commit_with_the_same_files() {
    let (hub, folder) = (hub(), Folder::new());
    pull(&folder, &hub, &[]).ok();
    let later = "f".repeat(40);
    let files = vec![small(CONFIG), small(TOKENIZER), large(WEIGHTS)];
    let next = hub_of(&later, files);
    assert!(statuses(&folder, &next).iter().all(|(_, status)| status == "kept"));
    assert_eq!(next.sent(), []);
    assert_eq!(folder.read("hf/hub/models--owner--name/refs/main"), later);
}

#[test]
fn closed_to_us() {
    let (hub, folder) = (hub(), Folder::new());
    hub.require_token("hf_secret");
    let ran =
        |variables: &[(&str, &str)]| folder.lemon_with(variables, &["models", "pull", NAME, "--endpoint", &hub.url()]);
    ran(&[]).code(1).complains(&["the hub answered 401: config.json in owner/name", "hint: ", "export HF_TOKEN=…"]);
    ran(&[("HF_TOKEN", "hf_other")]).code(1).complains(&["your token gives no access", "accept its terms"]);
    ran(&[("HF_TOKEN", "hf_secret")]).ok();
    assert!(folder.all_bytes().iter().all(|(_, bytes)| !bytes.windows(9).any(|part| part == b"hf_secret")));
}

/// Each ends before the weights.
#[test]
fn checkpoints_of_no_use() {
    #[track_caller]
    fn check(files: Vec<HubFile>, words: &[&str]) {
        let (hub, folder) = (hub_of(COMMIT, files), Folder::new());
        pull(&folder, &hub, &[]).code(1).complains(words);
        assert_eq!(sent(&hub), []);
        assert!(!folder.path("hf/hub/escaped.safetensors").exists());
    }
    let unknown =
        ["owner/name cannot be run here: config.json: `model_type` is `gpt2`", "hint: models of the forms of"];
    check(vec![small(GPT2), small(TOKENIZER), large(WEIGHTS)], &unknown);
    check(vec![small(TOKENIZER), large(WEIGHTS)], &["owner/name has no config.json"]);
    check(vec![small(CONFIG), large(WEIGHTS)], &["owner/name has no tokenizer.json"]);
    check(vec![small(CONFIG), small(TOKENIZER), large("model.gguf")], &["has no weights in safetensors"]);
    check(vec![small(CONFIG), small(TOKENIZER), small(INDEX), large(SHARDS[0])], &["has no model-00002-of-00002"]);
    check(vec![small(CONFIG), small(TOKENIZER), small(ESCAPE)], &["names \"../../../escaped.safetensors\""]);
}

#[test]
fn names_that_lead_nowhere() {
    let (hub, folder) = (hub(), Folder::new());
    let run = |name: &str| folder.lemon(&["models", "pull", name, "--endpoint", &hub.url()]);
    run("owner/other").code(1).complains(&["the hub has no owner/other", "hint: check the name"]);
    run("owner/name@v2").code(1).complains(&["the hub has no owner/name@v2"]);
    run("gpt2").code(2).complains(&["it must be OWNER/NAME"]);
    run("../name").code(2).complains(&["it must be OWNER/NAME"]);
    run("owner/name@../../x").code(2).complains(&["a branch, a tag or a commit"]);
    folder.lemon(&["models", "pull", NAME, "--endpoint", "ftp://x"]).code(2).complains(&["http:// or https://"]);
    let ran = folder.lemon(&["models", "pull", NAME, "--endpoint", "http://127.0.0.1:1"]).code(1);
    assert!(ran.stderr.contains("error: the hub cannot be reached: "), "{}", ran.stderr);
    assert!(!folder.path("hf").exists());
}

/// Answers the list of files with this body, and everything else with a redirect to nowhere.
fn odd_hub(list: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let asks = lines.next().unwrap_or_default();
            lines.find(String::is_empty);
            let answer = match asks.contains("/api/") {
                true => format!("HTTP/1.1 200 -\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{list}", list.len()),
                false => format!("HTTP/1.1 302 -\r\netag: x\r\nx-repo-commit: {COMMIT}\r\ncontent-length: 0\r\n\r\n"),
            };
            // A client may hang up whenever it likes.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn hubs_that_make_no_sense() {
    let folder = Folder::new();
    let check = |list: &str, words: &str| {
        let ran = folder.lemon(&["models", "pull", NAME, "--endpoint", &odd_hub(list.to_owned())]).code(1);
        assert!(ran.stderr.contains(words), "{list}: {}", ran.stderr);
    };
    check("<html>", "error: the hub sent no list of files: ");
    check("{}", "missing field");
    check(r#"{"sha": "../../x", "siblings": []}"#, "`../../x` is no commit");
    let list = json!({"sha": COMMIT, "siblings": [{"rfilename": "config.json"}]}).to_string();
    check(&list, "error: the hub sent an answer that makes no sense");
}

#[test]
fn lists() {
    let (hub, folder) = (hub(), Folder::new());
    let mut text = folder.exchange(&["models", "list"]);
    text += &folder.exchange(&["models", "list", "--json"]);
    pull(&folder, &hub, &[]).ok();
    let bare = "hf/hub/models--other--gpt2/snapshots/1";
    let folder = folder
        .file("hf/hub/models--owner--half/snapshots/abc/config.json", CONFIG[1])
        .file(&format!("{bare}/config.json"), GPT2[1])
        .file(&format!("{bare}/tokenizer.json"), "{}")
        .file(&format!("{bare}/model.safetensors"), "")
        .file("hf/hub/datasets--owner--set/snapshots/1/config.json", CONFIG[1])
        .file("hf/hub/models--owner--empty/refs/main", "1");
    text += &folder.exchange(&["models", "list"]);
    text += &folder.exchange(&["models", "list", "--json"]);
    text += &folder.exchange(&["doctor"]);
    text += &folder.exchange(&["doctor", "--json"]);
    let mut settings = crate::common::settings();
    // How large the bundled models are is no matter of this command.
    settings.add_filter(r"(bundled:\w+\t).*(\tcomplete)", "$1[version, size]$2");
    settings.add_filter(
        r#"("name": "bundled:\w+",)\s+"revision": .*\s+"bytes": .*\s+"parameters": .*"#,
        "$1 [version, size]",
    );
    settings.bind(|| insta::assert_snapshot!("models_list", text));
}
