//! Fuzz targets: one function for each format that is untrusted and parsed by hand.
//!
//! A target takes any bytes. It panics where a parser panics or breaks a promise, and returns otherwise. Two callers use
//! them: libFuzzer (`fuzz/`, on nightly), and `tests/corpus.rs`, which replays `fuzz/corpus` and seeded mutations of it.
// A target that finds a broken promise has to panic: that is how it reports.
#![allow(clippy::expect_used)]

use lemon_exec::worker::{Replay, Secrets, streamed_text};
use lemon_model::tokenizer::{Message, Role};
use lemon_model::{
    CheckedGguf, DeviceChoice, LanguagePolicy, Learning, ModelConfig, ModelFiles, PolicyError, Precision, TensorReader,
    Tokenizer, WeightOrigin, check_gguf,
};
use lemon_spec::{Language, edit, explain, mend, render, validate};
use lemon_trace::export::jsonl::{read_jsonl, write_jsonl};
use std::path::Path;
use std::sync::LazyLock;
use tempfile::TempDir;

pub type Target = fn(&[u8]);

/// Every target with the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("specification", specification),
    ("server_sent_events", server_sent_events),
    ("json_lines", json_lines),
    ("cassette", cassette),
    ("trace", trace),
    ("model_config", model_config),
    ("chat_template", chat_template),
    ("checkpoint", checkpoint),
    ("gguf", gguf),
];

/// Edits of a team that are tried: a team of 64 agents has thousands.
const MOST_EDITS: usize = 20;

/// A text is refused with at least one fault whose place is true, or it is a team that survives rendering.
pub fn specification(bytes: &[u8]) {
    static LANGUAGE: LazyLock<Language> = LazyLock::new(Language::default);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match validate(text, &LANGUAGE) {
        Ok(plan) => {
            let rendered = render(plan.spec());
            let again = validate(&rendered.text, &LANGUAGE).expect("a rendered specification is valid");
            assert_eq!(again.spec(), plan.spec());
            assert_eq!(again.spans(), &rendered.spans);
            for edit in edit::edits(&plan, &LANGUAGE).iter().take(MOST_EDITS) {
                edit::apply(&plan, edit, &LANGUAGE).expect("an enumerated edit applies");
            }
        }
        Err(rejection) => {
            assert!(rejection.errors().next().is_some());
            for fault in &rejection.diagnostics {
                assert!(text.get(fault.span.start..fault.span.end).is_some(), "{fault:?}");
            }
            assert!(!explain(&rejection.diagnostics, text, "team.yaml", false).is_empty());
            if let Some(plan) = mend(&rejection, &LANGUAGE, &[]) {
                assert!(validate(plan.source(), &LANGUAGE).is_ok(), "a mended text is valid");
            }
        }
    }
}

/// A stream says the same however the network cuts it.
pub fn server_sent_events(bytes: &[u8]) {
    let whole = streamed_text([bytes], 1_024);
    for length in [1, 7, 64] {
        assert_eq!(streamed_text(bytes.chunks(length), 1_024), whole);
    }
    let text = whole.unwrap_or_else(|error| error.partial.unwrap_or_default());
    let mut secrets = Secrets::default();
    secrets.add("sk-123456789");
    assert!(!secrets.hide(text).contains("sk-123456789"));
}

/// Every record of a task file is an item or a fault, and both have true places.
pub fn json_lines(bytes: &[u8]) {
    let set = lemon_task::read_jsonl("tasks.jsonl", bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(set.faults.iter().all(|fault| (1..=lines).contains(&fault.line)), "{:?}", set.faults);
    let [file] = set.files.as_slice() else { panic!("one file was read, {} are reported", set.files.len()) };
    assert_eq!((file.records, file.faults), (set.items.len(), set.faults.len()));
    for item in &set.items {
        assert!(!item.task.question.trim().is_empty());
    }
}

/// A cassette that can be read can be read after a crash cut its last line anywhere, with no more calls than before.
pub fn cassette(bytes: &[u8]) {
    let path = Path::new("fuzz.cassette");
    let Ok(whole) = Replay::read(path, bytes) else { return };
    let last = bytes.strip_suffix(b"\n").unwrap_or(bytes).iter().rposition(|byte| *byte == b'\n');
    let Some(last) = last else { return };
    for end in [last + 1, last + 1 + (bytes.len() - last) / 2, bytes.len() - 1] {
        let part = bytes.get(..end).unwrap_or(bytes);
        let cut = Replay::read(path, part).expect("a last line cut short is left out");
        assert!(cut.calls() <= whole.calls());
    }
}

/// A trace that can be read is written and read back equal, and every view of it can be made.
pub fn trace(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(trace) = read_jsonl(text) else { return };
    let mut written = Vec::new();
    write_jsonl(&trace, &mut written).expect("memory takes every line");
    let written = String::from_utf8(written).expect("JSON is UTF-8");
    assert_eq!(read_jsonl(&written).expect("a written trace can be read"), trace);
    let summary = trace.summary();
    assert!(summary.tokens.total >= summary.tokens.orchestrator);
    let shown = (trace.show(), trace.replies(), serde_json::to_string(&summary).is_ok());
    assert!(shown.2, "a summary is JSON");
}

/// A model's `config.json`: whatever it says, counting its parameters does not overflow.
pub fn model_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(config) = ModelConfig::parse(text) {
        assert!(config.parameters() > 0);
    }
}

/// A chat template is refused, or it makes a prompt in which no message is taken for a special token.
pub fn chat_template(bytes: &[u8]) {
    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(tokenizer);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(with_template) = TOKENIZER.with_template(text) else { return };
    let content = format!("Say {END} now.");
    let message = |role| Message { role, content: content.clone() };
    if let Ok(prompt) = with_template.prompt(&[message(Role::System), message(Role::User)]) {
        let vocabulary = u32::try_from(with_template.vocabulary()).expect("a small vocabulary");
        assert!(prompt.iter().all(|token| *token < vocabulary));
    }
}

/// The weights of a checkpoint: bytes that are no model of the configured shape are refused.
pub fn checkpoint(bytes: &[u8]) {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(folder);
    std::fs::write(FOLDER.path().join("model.safetensors"), bytes).expect("the temporary folder can be written");
    // Whether it loads is up to the bytes; that it neither panics nor hangs is checked here.
    if let Err(error) = LanguagePolicy::load(FOLDER.path(), DeviceChoice::Cpu, Learning::Nothing) {
        assert!(!error.to_string().is_empty());
    }
}

/// A GGUF file is refused with a reason, or everything that is read of it is there.
pub fn gguf(bytes: &[u8]) {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder can be made"));
    let path = FOLDER.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("the temporary folder can be written");
    if let Err(error) = load_gguf(&path) {
        assert!(!error.to_string().is_empty());
    }
}

/// Reads all of a GGUF file that a worker reads before it computes: the header, the vocabulary, every tensor.
///
/// # Errors
/// Why it is no model.
pub fn load_gguf(path: &Path) -> Result<(), PolicyError> {
    let CheckedGguf { config, .. } = check_gguf(path)?;
    let again = ModelConfig::load(ModelFiles::Disk(path)).expect("a checked file has a shape");
    assert_eq!(again, config);
    let reader = TensorReader::open(&config, &WeightOrigin::Files(ModelFiles::Disk(path)))
        .expect("a checked file has every tensor");
    for (name, shape) in config.tensor_shapes() {
        let values = reader.read(&name).expect("a checked tensor can be read");
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
    }
    let tokenizer = Tokenizer::load(path)?;
    let text = format!("The {END} 12 µ");
    assert!(tokenizer.encode_plain(&text).iter().all(|token| (*token as usize) < config.vocabulary));
    let message = Message { role: Role::User, content: text };
    if let Err(error) = tokenizer.prompt(&[message]) {
        assert!(!error.to_string().is_empty());
    }
    Ok(())
}

/// The token that ends a turn.
const END: &str = "<|end|>";

fn tokenizer() -> Tokenizer {
    Tokenizer::train(std::iter::empty(), 257, &[END]).expect("bytes and one special token are a vocabulary")
}

/// A folder that holds a whole model of a few thousand numbers.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let tokenizer = tokenizer();
    let config = ModelConfig::small(tokenizer.vocabulary(), 16, 1, tokenizer.end());
    let model = LanguagePolicy::fresh(config, tokenizer, 1, DeviceChoice::Cpu, Learning::Nothing).expect("a model");
    model.save(folder.path(), Precision::F32).expect("the temporary folder can be written");
    folder
}
