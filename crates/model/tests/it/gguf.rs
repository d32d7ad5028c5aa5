//! GGUF files against the same model in a folder; and damaged ones.

use crate::gguf_file::{GgufFile, Meta, PROSE, Stored, on_disk, twins};
use lemon_model::tokenizer::{Message, Role};
use lemon_model::{
    DeviceChoice, LanguagePolicy, Learning, ModelConfig, ModelFamily, ModelFiles, PolicyError, TensorReader, Tokenizer,
    WeightOrigin,
};
use proptest::prelude::*;
use std::path::Path;

const FAMILIES: [ModelFamily; 3] = [ModelFamily::Llama, ModelFamily::Qwen2, ModelFamily::Qwen3];

/// Everything that loading a model does.
fn load_all(path: &Path) -> Result<(), PolicyError> {
    let config = ModelConfig::load(ModelFiles::Disk(path))?;
    Tokenizer::load(path)?.encode(PROSE);
    let reader = TensorReader::open(&config, &WeightOrigin::Files(ModelFiles::Disk(path)))?;
    config.tensor_shapes().iter().try_for_each(|(name, _)| reader.read(name).map(drop))
}

#[test]
fn a_file_is_the_same_model_as_a_folder() {
    for (family, tied) in FAMILIES.into_iter().flat_map(|family| [(family, true), (family, false)]) {
        let twins = twins(family, tied, "qwen2");
        let (_folder, path) = on_disk(&twins.file.bytes());
        let load = |path: &Path| LanguagePolicy::load(path, DeviceChoice::Cpu, Learning::Nothing).unwrap();
        let (ours, theirs) = (load(&path), load(twins.folder.path()));
        assert_eq!(ours.config(), theirs.config(), "{family:?}");
        assert_eq!(ours.config(), &twins.config, "{family:?}");
        let text = theirs.tokenizer().encode(PROSE);
        assert_eq!(ours.logits(&text).unwrap(), theirs.logits(&text).unwrap(), "{family:?}");
    }
}

#[test]
fn rows_are_read_where_they_are_asked_for() {
    for family in FAMILIES {
        let twins = twins(family, true, "qwen2");
        let (_folder, path) = on_disk(&twins.file.bytes());
        let origin = WeightOrigin::Files(ModelFiles::Disk(&path));
        let reader = TensorReader::open(&twins.config, &origin).unwrap();
        for name in ["model.layers.1.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"] {
            let (rows, whole) = (reader.rows(name).unwrap(), reader.read(name).unwrap());
            assert_eq!(rows.count() * rows.width(), whole.len());
            let mut part = vec![0.0; 5 * rows.width()];
            rows.read(7, &mut part).unwrap();
            assert_eq!(part, whole[7 * rows.width()..12 * rows.width()], "{family:?} {name}");
            assert!(rows.read(rows.count() - 4, &mut part).is_err());
        }
    }
}

#[test]
fn quantised_tensors_are_read() {
    // A row of 64 numbers of -8 to 7, each times a half.
    let mut twins = twins(ModelFamily::Qwen2, true, "qwen2");
    let name = "blk.0.ffn_gate.weight";
    let block = [&[0x00, 0x38][..], &[0x80; 16]].concat();
    let tensor = twins.file.tensor(name);
    *tensor = Stored { kind: 2, bytes: block.repeat(96 * 2), ..tensor.clone() };
    let (_folder, path) = on_disk(&twins.file.bytes());
    let reader = TensorReader::open(&twins.config, &WeightOrigin::Files(ModelFiles::Disk(&path))).unwrap();
    let values = reader.read("model.layers.0.mlp.gate_proj.weight").unwrap();
    let expected: Vec<f32> = [[-4.0; 16], [0.0; 16]].concat().repeat(96 * 2);
    assert_eq!(values, expected);
}

#[test]
fn texts_have_the_same_tokens_as_with_the_folder() {
    let texts = [
        PROSE,
        "",
        "  two  spaces\n\n\nlines \r\n\tx = f(12345, 'it''s') ; WE'LL go'",
        "Größe naïve – Ελλάδα 漢字 العربية 👩‍🔬 e\u{301} ½ ٣٤٥ 0x1F",
        "<|im_start|>user\nhello<|im_end|>",
        "\0\u{feff}\u{a0}\u{3000} end   ",
    ];
    for rules in ["qwen2", "llama-bpe", "smollm", "gpt-2"] {
        let twins = twins(ModelFamily::Qwen2, true, rules);
        let (_folder, path) = on_disk(&twins.file.bytes());
        let (ours, theirs) = (Tokenizer::load(&path).unwrap(), Tokenizer::load(twins.folder.path()).unwrap());
        for text in texts {
            assert_eq!(ours.encode(text), theirs.encode(text), "{rules}: {text:?}");
            assert_eq!(ours.encode_plain(text), theirs.encode_plain(text), "{rules}: {text:?}");
            assert_eq!(ours.decode(&ours.encode_plain(text)), text, "{rules}");
        }
        assert_eq!((ours.end(), ours.vocabulary()), (theirs.end(), theirs.vocabulary()));
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let chat = [message(Role::System, "Be brief."), message(Role::User, "Who<|im_end|>?")];
        assert_eq!(ours.prompt(&chat).unwrap(), theirs.prompt(&chat).unwrap());
    }
}

#[test]
fn a_model_from_a_file_is_saved_as_a_folder() {
    let twins = twins(ModelFamily::Llama, false, "smollm");
    let (_folder, path) = on_disk(&twins.file.bytes());
    let load = |path: &Path| LanguagePolicy::load(path, DeviceChoice::Cpu, Learning::Nothing).unwrap();
    let (ours, saved) = (load(&path), tempfile::tempdir().unwrap());
    ours.save(saved.path(), lemon_model::Precision::F32).unwrap();
    let again = load(saved.path());
    let text = ours.tokenizer().encode(PROSE);
    assert_eq!(again.tokenizer().encode(PROSE), text);
    assert_eq!(again.logits(&text).unwrap(), ours.logits(&text).unwrap());
}

#[test]
fn unused_tokens_and_further_ends() {
    let mut twins = twins(ModelFamily::Qwen2, true, "qwen2");
    let Some((_, Meta::Texts(tokens))) = twins.file.metadata.iter_mut().find(|(key, _)| key.ends_with(".tokens"))
    else {
        panic!("no tokens")
    };
    tokens.extend(["<|endoftext|>".to_owned(), "[PAD]".to_owned()]);
    let end = tokens.len() as u32 - 2;
    let types =
        (0..tokens.len()).map(|at| if at < 2 { 3 } else { i32::from(at + 1 == tokens.len()) * 4 + 1 }).collect();
    twins.file.set("tokenizer.ggml.token_type", Meta::Ints(types));
    let (_folder, path) = on_disk(&twins.file.bytes());
    let tokenizer = Tokenizer::load(&path).unwrap();
    assert_eq!(tokenizer.ends(), [0, end]);
    assert_eq!(tokenizer.vocabulary(), end as usize + 1);
    assert_eq!(tokenizer.encode("<|endoftext|>"), [end]);
    assert!(!tokenizer.encode_plain("<|endoftext|>").contains(&end));
    assert!(tokenizer.encode("[PAD]").len() > 1);
}

#[test]
fn rotary_factors_of_llama_3() {
    let mut twins = twins(ModelFamily::Llama, true, "llama-bpe");
    twins.file.set("llama.rope.freq_base", Meta::F32(500_000.0));
    let scaling = lemon_model::RopeScaling {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8_192.0,
    };
    let plain = ModelConfig { rope_theta: 500_000.0, ..twins.config };
    let scaled = ModelConfig { rope_scaling: Some(scaling), ..plain.clone() };
    let factors = plain.rotary_frequencies().into_iter().zip(scaled.rotary_frequencies()).map(|(plain, it)| plain / it);
    let stored = |factors: Vec<f32>| Stored {
        name: "rope_freqs.weight".to_owned(),
        shape: vec![factors.len()],
        kind: 0,
        bytes: factors.into_iter().flat_map(f32::to_le_bytes).collect(),
    };
    twins.file.tensors.push(stored(factors.collect()));
    let (_folder, path) = on_disk(&twins.file.bytes());
    assert_eq!(ModelConfig::load(ModelFiles::Disk(&path)).unwrap(), scaled);
    load_all(&path).unwrap();
    twins.file.tensors.pop();
    twins.file.tensors.push(stored((0..8).map(|at| at as f32).collect()));
    fails(&twins.file, "Llama 3's factors");
}

#[track_caller]
fn fails(file: &GgufFile, words: &str) {
    fails_bytes(&file.bytes(), words);
}

#[track_caller]
fn fails_bytes(bytes: &[u8], words: &str) {
    let (_folder, path) = on_disk(bytes);
    let fact = load_all(&path).unwrap_err().to_string();
    assert!(fact.starts_with(&path.display().to_string()), "{fact}");
    assert!(fact.contains(words), "{words}: {fact}");
}

#[test]
fn damaged_headers_are_refused() {
    let file = twins(ModelFamily::Llama, true, "qwen2").file;
    let bytes = file.bytes();
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        bytes
    };
    fails_bytes(b"", "expected 4 bytes for the magic number at byte 0, found 0");
    fails_bytes(b"version https://git-lfs", "begins with `GGUF`, found `vers`");
    fails_bytes(&changed(4, &1u32.to_le_bytes()), "expected GGUF version 2 or 3, found 1");
    fails_bytes(&changed(4, &3u32.to_be_bytes()), "big-endian");
    for absurd in [1u64 << 17, 1 << 40, u64::MAX] {
        let absurd = absurd.to_le_bytes();
        fails_bytes(&changed(8, &absurd), "expected at most 65536 tensors");
        fails_bytes(&changed(16, &absurd), "expected at most 65536 metadata entries");
        fails_bytes(&changed(24, &absurd), "expected at most 1024 bytes in the key");
    }
    fails_bytes(&bytes[..bytes.len() - 1], "it is cut short or damaged; hint: download it again");
    fails_bytes(&bytes[..bytes.len() / 2], "it is cut short");
    fails_bytes(&bytes[..100], "it is cut short");

    let with = |key: &str, value: Meta| {
        let mut file = file.clone();
        file.set(key, value);
        file
    };
    let list = |kind: u32, count: u64| Meta::Raw(9, [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat());
    for count in [1u64 << 30, 1 << 60, u64::MAX] {
        for kind in [0, 5, 8, 9, 12] {
            fails(&with("x", list(kind, count)), "");
        }
        fails(&with("x", Meta::Raw(8, count.to_le_bytes().to_vec())), "it is cut short");
    }
    fails(&with("x", Meta::Raw(99, Vec::new())), "expected a value type from 0 to 12 for `x`, found 99");
    fails(&with("x", list(99, 1)), "expected an item type from 0 to 12 for `x`, found 99");
    let nested = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat().repeat(5_000);
    fails(&with("x", Meta::Raw(9, nested)), "lists in lists");
    fails(&with("general.alignment", Meta::U32(24)), "power of two");
    fails(&with("split.count", Meta::U32(3)), "one of 3 parts");
    let mut twice = file.clone();
    twice.metadata.push(twice.metadata[0].clone());
    fails(&twice, "`general.architecture` is there twice");
}

#[test]
fn models_that_cannot_be_computed_are_refused() {
    let file = twins(ModelFamily::Llama, true, "qwen2").file;
    let with = |key: &str, value: Meta, words: &str| {
        let mut file = file.clone();
        file.set(key, value);
        fails(&file, words);
    };
    let without = |key: &str, words: &str| {
        let mut file = file.clone();
        file.remove(key);
        fails(&file, words);
    };
    with(
        "general.architecture",
        Meta::Text("mamba".to_owned()),
        "expected the architecture llama, qwen2 or qwen3, found",
    );
    with("general.architecture", Meta::U32(1), "expected `general.architecture` to be a text, found 1");
    without("general.architecture", "it has no `general.architecture`");
    without("llama.block_count", "it has no `llama.block_count`");
    with("llama.block_count", Meta::U32(0), "expected `llama.block_count` to be from 1 to 16777216, found 0");
    with("llama.block_count", Meta::U32(1 << 24), "tensors for each of 16777216 layers");
    with("llama.block_count", Meta::U32(1), "as well");
    with("llama.embedding_length", Meta::U32(1 << 20), "expected the tensor `token_embd.weight` to have the shape");
    with("llama.attention.head_count", Meta::U32(3), "3 heads cannot share 2 key heads");
    with("llama.attention.key_length", Meta::U32(15), "has to be even");
    with("llama.rope.dimension_count", Meta::U32(8), "the width of a head, 16, found 8");
    with("llama.rope.freq_base", Meta::F32(f32::NAN), "expected `llama.rope.freq_base` to be a number, found NaN");
    with("llama.rope.freq_base", Meta::F32(-1.0), "to be positive, found -1");
    with("llama.rope.scaling.type", Meta::Text("yarn".to_owned()), "found the scaling `yarn`");
    with("llama.expert_count", Meta::U32(8), "without experts, found 8");
    with("llama.attention.sliding_window", Meta::U32(8), "sliding window of 8");
    with(
        "tokenizer.ggml.model",
        Meta::Text("llama".to_owned()),
        "expected a byte-pair tokenizer (`gpt2`), found `llama`",
    );
    with("tokenizer.ggml.pre", Meta::Text("odd".to_owned()), "llama-bpe, qwen2, smollm or gpt-2, found `odd`");
    without("tokenizer.ggml.tokens", "tokens");
    without("tokenizer.ggml.merges", "expected `tokenizer.ggml.merges`, found none");
    with(
        "tokenizer.ggml.tokens",
        Meta::Texts(vec!["a".to_owned(); 1_000]),
        "a list of at most 314 items, found a list of 1000",
    );
    with("tokenizer.ggml.tokens", Meta::Ints(vec![1; 312]), "to be a list of texts, found items of type 5");
    with("tokenizer.ggml.token_type", Meta::Ints(vec![1; 3]), "a type for each of 312 tokens");
    with("tokenizer.ggml.token_type", Meta::Texts(vec!["x".to_owned(); 312]), "to be whole numbers");
    with("tokenizer.ggml.merges", Meta::Texts(vec!["nospace".to_owned()]), "expected two tokens in merge 0");
    with("tokenizer.ggml.merges", Meta::Texts(vec!["the zebra".to_owned()]), "is no token");
    with("tokenizer.ggml.eos_token_id", Meta::U32(400), "to be one of 312 tokens, found 400");
    with("tokenizer.ggml.bos_token_id", Meta::U32(u32::MAX), "to be one of 312 tokens, found 4294967295");
    with("tokenizer.chat_template", Meta::Text("{% if %}".to_owned()), "chat_template");
}

#[test]
fn damaged_tensors_are_refused() {
    let file = twins(ModelFamily::Llama, true, "qwen2").file;
    let name = "blk.1.ffn_up.weight";
    let with = |change: &dyn Fn(&mut Stored), words: &str| {
        let mut file = file.clone();
        change(file.tensor(name));
        fails(&file, words);
    };
    with(&|it| it.name = "blk.1.other.weight".to_owned(), "expected a tensor `blk.1.ffn_up.weight`, found none");
    with(&|it| it.shape = vec![64, 96], "to have the shape [96, 64], found [64, 96]");
    with(&|it| it.shape = vec![1, 1, 96, 64], "to have the shape [96, 64], found [1, 1, 96, 64]");
    with(&|it| it.shape = vec![1 << 40, 64], "it is cut short or damaged");
    with(&|it| it.shape = vec![usize::MAX, usize::MAX], "impossible sides");
    with(&|it| it.shape = vec![1; 5], "1 to 4 sides, found 5");
    with(&|it| it.kind = 12, "impossible sides");
    with(&|it| it.kind = 10, "found type 10 (Q2_K); hint: choose another quantisation");
    with(&|it| it.kind = 4_000, "found type 4000");
    let mut more = file.clone();
    let extra = Stored { name: "blk.0.ffn_gate.bias".to_owned(), ..more.tensors[1].clone() };
    more.tensors.push(extra);
    fails(&more, "expected the tensors of a llama model, found `blk.0.ffn_gate.bias` as well");
    let mut twice = file.clone();
    twice.tensors.push(twice.tensors[0].clone());
    fails(&twice, "`token_embd.weight` is there twice");
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(load_all(&folder.path().join("none.gguf")).unwrap_err().to_string().contains("No such file"));
    let named = folder.path().join("folder.gguf");
    std::fs::create_dir(&named).unwrap();
    assert!(load_all(&named).unwrap_err().to_string().contains("config.json"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever is changed or missing: an error or a model, never a panic.
    #[test]
    fn damage_never_panics(
        family in 0usize..3,
        cut in prop::option::of(0.0f64..1.0),
        // Most of the file is weights, in which nothing can be wrong.
        flips in prop::collection::vec((any::<bool>(), 0.0f64..1.0, 0u8..8), 0..6),
    ) {
        static FILES: std::sync::LazyLock<Vec<(Vec<u8>, usize)>> = std::sync::LazyLock::new(|| {
            let of = |family| {
                let file = twins(family, false, "llama-bpe").file;
                let weights: usize = file.tensors.iter().map(|it| it.bytes.len()).sum();
                (file.bytes(), weights)
            };
            FAMILIES.into_iter().map(of).collect()
        });
        let (mut bytes, weights) = FILES[family].clone();
        let header = bytes.len() - weights;
        for (near, at, bit) in flips {
            let range = if near { 1_000 } else { header };
            bytes[(at * range as f64) as usize] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        let (_folder, path) = on_disk(&bytes);
        if let Err(error) = load_all(&path) {
            prop_assert!(!error.to_string().contains("panicked"), "{error}");
        }
    }
}
