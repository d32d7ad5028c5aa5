//! Vocabularies of the kinds there are.

use lemon_model::Tokenizer;
use lemon_spec::generate;
use lemon_spec::{Language, render};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Byte pairs, trained on specifications.
pub static TRAINED: LazyLock<Tokenizer> = LazyLock::new(|| {
    let language = Language::default();
    let prose = language.roles.iter().map(|role| format!("{}\n{}\n{}\n", role.title, role.duty, role.prompt));
    let prose: Vec<String> = prose.collect();
    let specs = (0..2_000).map(|seed| render(&generate::spec(seed, &Language::default())).text);
    Tokenizer::train(specs.chain(prose), 1_200, &["<|end|>"]).unwrap()
});

/// Nothing but bytes.
pub static BYTES: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap());

/// Pieces of text with `▁` for spaces, and bytes to fall back on.
pub static FALLBACK: LazyLock<Tokenizer> = LazyLock::new(|| load(&fallback()));

/// Loads a `tokenizer.json` in which texts end with `</s>`.
pub fn load(tokenizer: &Value) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"eos_token": "</s>"}"#).unwrap();
    Tokenizer::load(folder.path()).unwrap()
}

/// A `tokenizer.json` as models of SentencePiece have it. It asks to truncate texts, which must be ignored.
pub fn fallback() -> Value {
    let pieces = ["▁", "s", "o", "l", "v", "e", "r", "so", "▁so", "lv", "er", "▁solv", "▁solver", "a", "▁a", "ä"];
    let merges = [["s", "o"], ["▁", "so"], ["l", "v"], ["e", "r"], ["▁so", "lv"], ["▁solv", "er"], ["▁", "a"]];
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let words = ["<unk>", "</s>"].map(String::from).into_iter().chain(bytes).chain(pieces.map(String::from));
    let vocabulary: serde_json::Map<String, Value> = words.enumerate().map(|(id, word)| (word, json!(id))).collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges},
    })
}
