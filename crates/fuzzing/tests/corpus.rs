//! Every target on its committed corpus, then on seeded mutations of it: a fixed number, so that a run is the same everywhere.
// A test that cannot go on has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use lemon_exec::worker::{Replay, streamed_text};
use lemon_fuzzing::{TARGETS, Target};
use lemon_model::tokenizer::{Message, Role};
use lemon_model::{ModelConfig, Tokenizer};
use lemon_trace::export::jsonl::read_jsonl;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The files of a corpus, by name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = corpora().join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no file", folder.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Runs a target and shows the bytes it failed on.
fn run(name: &str, target: Target, bytes: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(bytes))) {
        eprintln!("{name} failed on these bytes:\n{}", bytes.escape_ascii());
        resume_unwind(panic);
    }
}

#[track_caller]
fn check(name: &str, mutations: u64) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let corpus = corpus(name);
    corpus.iter().for_each(|bytes| run(name, *target, bytes));
    for number in 0..mutations {
        run(name, *target, &Mutator::new(name, number).mutate(&corpus));
    }
}

/// Draws from a stream of bytes that depends on the target and the number of the mutation alone.
struct Mutator(blake3::OutputReader);

impl Mutator {
    fn new(name: &str, number: u64) -> Self {
        Mutator(blake3::Hasher::new().update(name.as_bytes()).update(&number.to_le_bytes()).finalize_xof())
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        (u64::from_le_bytes(bytes) % bound.max(1) as u64) as usize
    }

    /// A range of at most 64 bytes within a length.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below((length - start).min(64) + 1)
    }

    fn mutate(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..1 + self.below(6) {
            self.change(&mut bytes, corpus);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        const TELLING: &[&[u8]] = &[
            b"",
            b"\0",
            b"\n",
            b"\"",
            b"\\",
            b"{",
            b"}",
            b"[",
            b"]",
            b":",
            b"-1",
            b"1e999",
            b"\xff",
            b"18446744073709551616",
        ];
        let range = self.range(bytes.len());
        match self.below(7) {
            0 if !bytes.is_empty() => {
                let at = self.below(bytes.len());
                bytes[at] ^= 1 << self.below(8);
            }
            1 => drop(bytes.drain(range)),
            2 => {
                let copy = bytes[range].to_vec();
                let at = self.below(bytes.len() + 1);
                bytes.splice(at..at, copy);
            }
            3 => bytes.truncate(range.start),
            4 => {
                let other = &corpus[self.below(corpus.len())];
                let piece = other[self.range(other.len())].to_vec();
                bytes.splice(range, piece);
            }
            _ => {
                let piece = TELLING[self.below(TELLING.len())];
                bytes.splice(range.start..range.start, piece.iter().copied());
            }
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let mut folders: Vec<String> =
        std::fs::read_dir(corpora()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    folders.sort();
    names.sort_unstable();
    assert_eq!(folders, names);
}

/// Mutations of a text that no parser takes would test little.
#[test]
fn the_seeds_reach_the_code_behind_the_parsers() {
    let read = |file: &str| std::fs::read(corpora().join(file)).unwrap();
    let text = |file: &str| String::from_utf8(read(file)).unwrap();
    let language = lemon_spec::Language::default();
    for team in ["team.yaml", "flow.yaml", "team.json", "block_scalars.yaml"] {
        lemon_spec::validate(&text(&format!("specification/{team}")), &language).unwrap();
    }
    let stream = read("server_sent_events/whole");
    assert_eq!(streamed_text([&*stream], 64).unwrap(), "It is 68.\nAnswer: 68");
    assert_eq!(lemon_task::read_jsonl("open.jsonl", &read("json_lines/open.jsonl")).items.len(), 3);
    let calls = |file: &str| Replay::read(Path::new(file), &read(&format!("cassette/{file}"))).unwrap().calls();
    assert_eq!((calls("calls.jsonl"), calls("cut.jsonl"), calls("known_cost.jsonl")), (3, 1, 1));
    assert_eq!(read_jsonl(&text("trace/every_kind.jsonl")).unwrap().events.len(), 15);
    assert_eq!(read_jsonl(&text("trace/failed.jsonl")).unwrap().events.len(), 2);
    for config in ["qwen2.json", "qwen3.json", "llama.json"] {
        ModelConfig::parse(&text(&format!("model_config/{config}"))).unwrap();
    }
    for model in ["qwen2.gguf", "llama.gguf"] {
        lemon_fuzzing::load_gguf(&corpora().join("gguf").join(model)).unwrap();
    }
    let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap();
    let message = Message { role: Role::User, content: "2 + 2?".into() };
    for template in ["ours.jinja", "chatml.jinja", "macro.jinja"] {
        let with_template = tokenizer.with_template(&text(&format!("chat_template/{template}"))).unwrap();
        with_template.prompt(std::slice::from_ref(&message)).unwrap();
    }
}

#[test]
fn specification() {
    check("specification", 6_000);
}

#[test]
fn server_sent_events() {
    check("server_sent_events", 20_000);
}

#[test]
fn json_lines() {
    check("json_lines", 20_000);
}

#[test]
fn cassette() {
    check("cassette", 20_000);
}

#[test]
fn trace() {
    check("trace", 4_000);
}

#[test]
fn model_config() {
    check("model_config", 40_000);
}

#[test]
fn chat_template() {
    check("chat_template", 4_000);
}

#[test]
fn checkpoint() {
    check("checkpoint", 400);
}

#[test]
fn gguf() {
    check("gguf", 3_000);
}
