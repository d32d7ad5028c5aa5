//! Writes GGUF files: a tiny model of each architecture, beside the same model as a folder.

use lemon_model::{ModelConfig, ModelFamily, Tokenizer};
use lemon_num::Random;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// A value of the metadata.
#[derive(Clone)]
pub enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Ints(Vec<i32>),
    /// A type, and the bytes after it.
    Raw(u32, Vec<u8>),
}

/// A tensor; the outermost side of its shape first.
#[derive(Clone)]
pub struct Stored {
    pub name: String,
    pub shape: Vec<usize>,
    pub kind: u32,
    pub bytes: Vec<u8>,
}

/// What a file is made of.
#[derive(Clone, Default)]
pub struct GgufFile {
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<Stored>,
}

impl GgufFile {
    /// Adds or replaces a value.
    pub fn set(&mut self, key: &str, value: Meta) {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
    }

    pub fn remove(&mut self, key: &str) {
        self.metadata.retain(|(known, _)| known != key);
    }

    pub fn tensor(&mut self, name: &str) -> &mut Stored {
        self.tensors.iter_mut().find(|it| it.name == name).unwrap()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            text(&mut out, key);
            meta(&mut out, value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            text(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().rev().for_each(|side| out.extend((*side as u64).to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += (tensor.bytes.len() as u64).next_multiple_of(32);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(&tensor.bytes);
        }
        out
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn meta(out: &mut Vec<u8>, value: &Meta) {
    let mut kind = |kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    let list = |kind: u32, count: usize| [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat();
    match value {
        Meta::U32(it) => kind(4, &it.to_le_bytes()),
        Meta::F32(it) => kind(6, &it.to_le_bytes()),
        Meta::Bool(it) => kind(7, &[u8::from(*it)]),
        Meta::Text(it) => {
            kind(8, &[]);
            text(out, it);
        }
        Meta::Texts(items) => {
            kind(9, &list(8, items.len()));
            items.iter().for_each(|it| text(out, it));
        }
        Meta::Ints(items) => {
            kind(9, &list(5, items.len()));
            items.iter().for_each(|it| out.extend(it.to_le_bytes()));
        }
        Meta::Raw(number, bytes) => kind(*number, bytes),
    }
}

/// The name of a tensor in GGUF.
fn stored_name(name: &str) -> String {
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    names.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// A model in both forms.
pub struct Twins {
    pub config: ModelConfig,
    pub folder: TempDir,
    pub file: GgufFile,
}

/// Text that the vocabulary is made from.
pub const PROSE: &str =
    "the quick brown fox doesn't jump over 12345 lazy dogs, and we'll see them in the year 2024 again\n";

/// The piece rules of `tokenizer.json` that say the same as a name in GGUF.
pub fn folder_rules(rules: &str) -> Value {
    let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex});
    let split = |digits: &str| {
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}, bytes(false)]})
    };
    match rules {
        "qwen2" => split(r"\p{N}"),
        "llama-bpe" => split(r"\p{N}{1,3}"),
        "smollm" => {
            json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, bytes(true)]})
        }
        _ => bytes(true),
    }
}

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A tiny model of an architecture, with a vocabulary whose pieces follow these rules.
pub fn twins(family: ModelFamily, tied: bool, rules: &str) -> Twins {
    let folder = tempfile::tempdir().unwrap();
    let specials = ["<|im_end|>", "<|im_start|>"];
    let texts = (0..50).map(|at| PROSE.repeat(2) + &at.to_string());
    Tokenizer::train(texts, 400, &specials).unwrap().save(folder.path()).unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut vocabulary: Value = serde_json::from_slice(&std::fs::read(path("tokenizer.json")).unwrap()).unwrap();
    vocabulary["pre_tokenizer"] = folder_rules(rules);
    vocabulary["model"]["ignore_merges"] = json!(rules == "llama-bpe");
    std::fs::write(path("tokenizer.json"), vocabulary.to_string()).unwrap();
    std::fs::write(path("chat_template.jinja"), TEMPLATE).unwrap();

    let ids = vocabulary["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); ids.len()];
    ids.iter().for_each(|(word, id)| tokens[id.as_u64().unwrap() as usize] = word.clone());
    let small = ModelConfig::small(tokens.len() + 2, 64, 2, 0);
    let sizes = ModelConfig { heads: 4, kv_heads: 2, head_dim: 16, intermediate: 96, positions: 256, ..small };
    let config = ModelConfig { family, tied, attention_bias: family != ModelFamily::Qwen3, ..sizes };
    std::fs::write(path("config.json"), config.to_json("float32")).unwrap();

    let mut file = GgufFile::default();
    let name = match family {
        ModelFamily::Llama => "llama",
        ModelFamily::Qwen2 => "qwen2",
        ModelFamily::Qwen3 => "qwen3",
    };
    file.set("general.architecture", Meta::Text(name.to_owned()));
    for (key, size) in [
        ("block_count", config.layers),
        ("context_length", config.positions),
        ("embedding_length", config.hidden),
        ("feed_forward_length", config.intermediate),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head_dim),
    ] {
        file.set(&format!("{name}.{key}"), Meta::U32(size as u32));
    }
    file.set(&format!("{name}.attention.layer_norm_rms_epsilon"), Meta::F32(config.norm_epsilon as f32));
    file.set(&format!("{name}.rope.freq_base"), Meta::F32(config.rope_theta as f32));
    let merges = vocabulary["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|pair| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())).collect();
    let types = tokens.iter().map(|word| if specials.contains(&word.as_str()) { 3 } else { 1 }).collect();
    file.set("tokenizer.ggml.model", Meta::Text("gpt2".to_owned()));
    file.set("tokenizer.ggml.pre", Meta::Text(rules.to_owned()));
    file.set("tokenizer.ggml.tokens", Meta::Texts(tokens));
    file.set("tokenizer.ggml.token_type", Meta::Ints(types));
    file.set("tokenizer.ggml.merges", Meta::Texts(merges));
    file.set("tokenizer.ggml.eos_token_id", Meta::U32(0));
    file.set("tokenizer.ggml.add_bos_token", Meta::Bool(false));
    file.set("tokenizer.chat_template", Meta::Text(TEMPLATE.to_owned()));

    let tensors: Vec<(String, Vec<usize>, Vec<f32>)> = config
        .tensor_shapes()
        .into_iter()
        .map(|(name, shape)| {
            let mut values = Random::named(3, &name).normals(shape.iter().product(), 0.3);
            if name.ends_with("norm.weight") {
                values.iter_mut().for_each(|value| *value += 1.0);
            }
            (name, shape, values)
        })
        .collect();
    let raw = |values: &[f32]| values.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, _, values)| raw(values)).collect();
    let views = tensors.iter().zip(&bytes);
    let views = views.map(|((name, shape, _), raw)| (name, TensorView::new(Dtype::F32, shape.clone(), raw).unwrap()));
    std::fs::write(path("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    for (name, shape, values) in &tensors {
        let permuted = family == ModelFamily::Llama && (name.contains("q_proj") || name.contains("k_proj"));
        let values = if permuted { permute(values, shape[0], config.head_dim) } else { values.to_vec() };
        file.tensors.push(Stored { name: stored_name(name), shape: shape.clone(), kind: 0, bytes: raw(&values) });
    }
    Twins { config, folder, file }
}

/// The rows as converters store Llama's: each head's two halves interleaved.
fn permute(values: &[f32], rows: usize, head: usize) -> Vec<f32> {
    let width = values.len() / rows;
    let mut out = Vec::new();
    for start in (0..rows).step_by(head) {
        for pair in 0..head / 2 {
            for row in [start + pair, start + head / 2 + pair] {
                out.extend(&values[row * width..][..width]);
            }
        }
    }
    out
}

/// A file on disk, as long as the folder lives.
pub fn on_disk(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}
