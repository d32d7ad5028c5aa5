//! Models that other programs left on this machine, and GGUF files from the hub: listed, named, asked.

use crate::common::{Folder, Ran};
use crate::models::{NAME, hub_of, large, place};
use lemon_fakes::{HubFile, Trouble};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Whole models of a few thousand numbers, which reply with noise.
const QWEN: &[u8] = include_bytes!("../../../../fuzz/corpus/gguf/qwen2.gguf");
pub const LLAMA: &[u8] = include_bytes!("../../../../fuzz/corpus/gguf/llama.gguf");
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const POEM: &str = "Write a poem about rain.";

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn gguf(name: &str, content: &[u8]) -> HubFile {
    HubFile { name: name.into(), content: content.into(), sum: sum(content) }
}

/// The model that answered the last run.
fn model(folder: &Folder) -> String {
    let events = folder.lemon(&["trace", "export", "last", "--format", "jsonl"]).ok().stdout;
    let event = events.lines().find(|line| line.contains("\"type\":\"return\"")).unwrap();
    serde_json::from_str::<Value>(event).unwrap()["model"].as_str().unwrap().to_owned()
}

/// That a download failed with these words, whatever was said of its progress before.
#[track_caller]
fn says(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    words.iter().for_each(|word| assert!(ran.stderr.contains(word), "no {word:?} in {}", ran.stderr));
}

/// Puts a model into Ollama's store.
fn with_ollama(folder: Folder, name: &str, weights: &[u8]) -> Folder {
    let digits = sum(weights);
    let manifest = json!({"schemaVersion": 2, "layers": [
        {"mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{digits}"), "size": weights.len()},
        {"mediaType": "application/vnd.ollama.image.params", "digest": format!("sha256:{digits}"), "size": 1},
    ]});
    folder
        .file(&format!("ollama/manifests/registry.ollama.ai/library/{name}"), manifest.to_string())
        .file(&format!("ollama/blobs/sha256-{digits}"), weights)
}

/// A folder with a model of each program.
fn everything() -> Folder {
    with_ollama(Folder::new(), "tiny/1b", QWEN)
        .file("home/.lmstudio/models/pub/tiny/tiny-q8.gguf", LLAMA)
        .file(&format!("hf/hub/models--owner--files/snapshots/{COMMIT}/tiny.gguf"), LLAMA)
        .file("hf/hub/models--owner--files/refs/main", COMMIT)
}

const NAMES: [&str; 3] = ["hf:owner/files/tiny.gguf", "ollama:tiny:1b", "lmstudio:pub/tiny/tiny-q8.gguf"];

#[test]
fn models_of_other_programs_are_listed_by_name() {
    let folder = everything();
    let list = folder.lemon(&["models", "list", "--json"]).ok().json();
    let names: Vec<&str> = list.as_array().unwrap().iter().filter_map(|model| model["name"].as_str()).collect();
    assert_eq!(names, [&NAMES[..], &["bundled:small", "bundled:medium", "bundled:large"]].concat());
    for model in list.as_array().unwrap().iter().take(3) {
        assert_eq!((&model["complete"], &model["fault"]), (&json!(true), &Value::Null), "{model}");
        assert!(model["parameters"].as_u64().is_some_and(|count| count > 10_000), "{model}");
    }
    assert_eq!(list[1]["revision"], sum(QWEN));
    let lines = folder.lemon(&["models", "list"]).ok().stdout;
    assert!(lines.starts_with("hf:owner/files/tiny.gguf\t0123456789ab\t20.44 KiB\t"), "{lines}");
}

#[test]
fn a_name_is_a_model_on_the_command_line_and_in_the_configuration() {
    let folder = everything();
    for name in NAMES {
        folder.lemon(&["run", POEM, "--model", name]).ok();
        assert_eq!(model(&folder), name.split_once(':').unwrap().1);
    }
    let folder = folder.file("lemon.toml", "[capacity.large]\nlocal = \"ollama:tiny:1b\"\nmax_tokens = 16\n");
    folder.lemon(&["run", POEM]).ok();
    assert_eq!(model(&folder), "tiny:1b");
    let error = |name: &str, words: &[&str]| {
        folder.lemon(&["run", POEM, "--model", name]).code(2).complains(words);
    };
    error("ollama:other:1b", &["ollama:other:1b: there is no such model in ", "hint: ", "`ollama pull`"]);
    error("ollama:../x", &["it is no name of a model"]);
    error("lmstudio:a/b/c.gguf", &["there is no such file in "]);
    error("hf:owner/other", &["there is no such model in ", "`lemon models pull owner/other` fetches it"]);
    error("hf:../../x", &["it must be OWNER/NAME"]);
}

#[test]
fn a_model_that_is_here_answers_before_the_bundled_ones() {
    let folder = Folder::new();
    folder.lemon(&["run", POEM]).code(2).complains(&["arithmetic word problems only"]);
    let folder = with_ollama(folder, "tiny/1b", QWEN);
    let ran = folder.lemon(&["run", POEM]).ok();
    let notice = "models in this process answer: ollama:tiny:1b; nothing else is configured";
    assert!(ran.stderr.contains(notice), "{}", ran.stderr);
    let doctor = folder.lemon(&["doctor", "--json"]).ok().json();
    assert_eq!(doctor["pulled"][0]["name"], "ollama:tiny:1b");
}

#[test]
fn a_hostile_store_is_listed_with_its_faults_and_answers_nothing() {
    let path = "ollama/manifests/registry.ollama.ai/library/bad/1b";
    for digest in ["sha256:../../../../secret", "sha256:\u{1b}[2J", ""] {
        let manifest = json!({"layers": [
            {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": 6}
        ]});
        let folder = Folder::new().file(path, manifest.to_string()).file("secret", "secret");
        let list = folder.lemon(&["models", "list"]).ok().stdout;
        assert!(list.contains("ollama:bad:1b\t-\t0 B\t-\t") && !list.contains('\u{1b}'), "{list}");
        let words = "expected a digest `sha256:` with 64 hexadecimal digits, found ";
        assert!(list.contains(words), "{list}");
        folder.lemon(&["run", POEM, "--model", "ollama:bad:1b"]).code(2).complains(&[words, "hint: `ollama pull`"]);
        // The bundled models answer, as if it were not there.
        folder.lemon(&["run", POEM]).code(2).complains(&["the bundled models solve"]);
    }
}

#[test]
fn a_gguf_file_is_pulled_and_asked() {
    let hub = hub_of(COMMIT, vec![gguf("tiny.gguf", QWEN), gguf("other.gguf", LLAMA), large("README.bin")]);
    let folder = Folder::new();
    let name = format!("{NAME}/tiny.gguf");
    let pull = |name: &str| folder.lemon(&["models", "pull", name, "--endpoint", &hub.url()]);
    let ran = pull(&name).ok();
    assert_eq!(ran.stdout, format!("{}\n", place(&folder, "tiny.gguf").display()));
    assert_eq!(std::fs::read(place(&folder, "tiny.gguf")).unwrap(), QWEN);
    assert!(!place(&folder, "other.gguf").exists());
    assert!(pull(&name).ok().stderr.contains("0 files fetched, 1 kept"));
    folder.lemon(&["run", POEM, "--model", &format!("hf:{name}")]).ok();
    assert_eq!(model(&folder), name);
    let missing = format!("{NAME}/none.gguf");
    pull(&missing).code(1).complains(&["owner/name has no none.gguf", "owner/name/FILE: tiny.gguf, other.gguf"]);
    pull(NAME).code(1).complains(&["owner/name has no config.json", "owner/name/FILE: tiny.gguf, other.gguf"]);
    pull(&format!("{NAME}/README.bin")).code(2).complains(&["it must be OWNER/NAME or OWNER/NAME/FILE.gguf"]);
}

#[test]
fn a_gguf_file_is_resumed_and_checked() {
    let hub = hub_of(COMMIT, vec![gguf("tiny.gguf", QWEN)]);
    let folder = Folder::new();
    let pull = || folder.lemon(&["models", "pull", &format!("{NAME}/tiny.gguf"), "--endpoint", &hub.url()]);
    hub.trouble("tiny.gguf", Trouble::Corrupt);
    says(&pull(), &["the hub sent something else as tiny.gguf: its checksum is "]);
    assert!(place(&folder, "tiny.gguf").symlink_metadata().is_err());
    hub.trouble("tiny.gguf", Trouble::Cut(5_000));
    pull().ok();
    let sent: Vec<(usize, usize)> = hub.sent().iter().map(|sent| (sent.from, sent.bytes)).collect();
    let (from, bytes) = sent[sent.len() - 1];
    assert!(from > 0 && from + bytes == QWEN.len(), "{sent:?}");
    assert_eq!(std::fs::read(place(&folder, "tiny.gguf")).unwrap(), QWEN);
}

#[test]
fn gguf_files_of_no_use() {
    let check = |file: HubFile, words: &[&str]| {
        let (name, folder) = (format!("{NAME}/{}", file.name), Folder::new());
        let hub = hub_of(COMMIT, vec![file]);
        says(&folder.lemon(&["models", "pull", &name, "--endpoint", &hub.url()]), words);
    };
    check(gguf("m-00001-of-00003.gguf", QWEN), &["is part 1 of 3", "hint: choose a quantisation that is one file"]);
    check(gguf("m.gguf", &QWEN[..9_000]), &["was fetched and cannot be run here", "cut short"]);
    check(large("m.gguf"), &["was fetched and cannot be run here", "begins with `GGUF`"]);
    let unchecked = HubFile { sum: "no-checksum".into(), ..gguf("m.gguf", QWEN) };
    check(unchecked, &["m.gguf cannot be checked: the hub names it by `no-checksum`"]);
}

#[test]
fn the_catalogue_has_checksums() {
    let folder = Folder::new();
    let list = folder.lemon(&["models", "catalogue", "--json"]).ok().json();
    for entry in list.as_array().unwrap() {
        assert_eq!(entry["sha256"].as_str().map(str::len), Some(64), "{entry}");
        assert!(
            entry["licence"].is_string() && entry["bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20),
            "{entry}"
        );
    }
    let lines = folder.lemon(&["models", "catalogue"]).ok().stdout;
    assert!(lines.contains("qwen2.5-coder-1.5b\t1.04 GiB\tApache-2.0\t"), "{lines}");
    let unknown = folder.lemon(&["models", "pull", "qwen9"]).code(2);
    unknown.complains(&["one of the catalogue: qwen2.5-coder-1.5b, smollm2-135m"]);
}
