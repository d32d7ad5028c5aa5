//! The shape of a model from the metadata of a GGUF file, and the names of its tensors.

use super::Gguf;
use crate::PolicyError;
use crate::config::{ModelConfig, RopeScaling};
use serde_json::json;

/// The largest size that the metadata may say.
const MOST: u64 = 1 << 24;
/// Tensors that a layer has at least.
const LEAST_TENSORS: u64 = 9;
/// What the rotary frequencies are divided by; Llama 3.1 and later have it.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
/// The context and the bounds that all published models with such factors share; the file has no place for them.
const LLAMA_3: RopeScaling =
    RopeScaling { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8_192.0 };

/// The shape of the model.
pub(super) fn config(gguf: &Gguf) -> Result<ModelConfig, PolicyError> {
    let refused = |fact: String| gguf.malformed(fact);
    let family =
        gguf.text("general.architecture")?.ok_or_else(|| refused("it has no `general.architecture`".into()))?;
    if !["llama", "qwen2", "qwen3"].contains(&family.as_str()) {
        let found: String = family.chars().take(40).collect();
        return Err(refused(format!("expected the architecture llama, qwen2 or qwen3, found `{found}`")));
    }
    let key = |name: &str| format!("{family}.{name}");
    let optional = |name: &str| -> Result<Option<u64>, PolicyError> {
        let size = gguf.integer(&key(name))?;
        match size.filter(|size| !(1..=MOST).contains(size)) {
            Some(size) => Err(refused(format!("expected `{}` to be from 1 to {MOST}, found {size}", key(name)))),
            None => Ok(size),
        }
    };
    let size = |name: &str| optional(name)?.ok_or_else(|| refused(format!("it has no `{}`", key(name))));
    let float = |name: &str| -> Result<Option<f64>, PolicyError> {
        let number = gguf.float(&key(name))?;
        match number.filter(|number| *number <= 0.0) {
            Some(number) => Err(refused(format!("expected `{}` to be positive, found {number}", key(name)))),
            None => Ok(number),
        }
    };
    if let Some(experts @ 1..) = gguf.integer(&key("expert_count"))? {
        return Err(refused(format!("expected a model without experts, found {experts}")));
    }
    let (hidden, heads, layers) = (size("embedding_length")?, size("attention.head_count")?, size("block_count")?);
    let tensors = gguf.header.tensors.len() as u64;
    if layers * LEAST_TENSORS > tensors {
        return Err(refused(format!(
            "expected at least {LEAST_TENSORS} tensors for each of {layers} layers, found {tensors} in all"
        )));
    }
    let head_dim = optional("attention.key_length")?.unwrap_or(hidden / heads);
    for name in ["attention.value_length", "rope.dimension_count"] {
        if let Some(other) = optional(name)?.filter(|other| *other != head_dim) {
            return Err(refused(format!(
                "expected `{}` to be the width of a head, {head_dim}, found {other}",
                key(name)
            )));
        }
    }
    let positions = optional("context_length")?.unwrap_or(2_048);
    if let Some(window) = gguf.integer(&key("attention.sliding_window"))?.filter(|it| (1..positions).contains(it)) {
        return Err(refused(format!("expected attention to everything before, found a sliding window of {window}")));
    }
    let scaling = gguf.text(&key("rope.scaling.type"))?.unwrap_or_else(|| "none".to_owned());
    if scaling != "none" && float("rope.scaling.factor")? != Some(1.0) {
        let scaling: String = scaling.chars().take(40).collect();
        return Err(refused(format!("expected rotary positions without scaling, found the scaling `{scaling}`")));
    }
    let Some([vocabulary, _]) = gguf.header.tensors.get("token_embd.weight").map(|it| it.shape.as_slice()) else {
        return Err(refused("expected a matrix `token_embd.weight`, found none".into()));
    };
    let fields = json!({
        "model_type": family,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": size("feed_forward_length")?,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": optional("attention.head_count_kv")?.unwrap_or(heads),
        "head_dim": head_dim,
        "rms_norm_eps": float("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
        "rope_theta": float("rope.freq_base")?.unwrap_or(10_000.0),
        "tie_word_embeddings": !gguf.header.tensors.contains_key("output.weight"),
        "attention_bias": gguf.header.tensors.contains_key("blk.0.attn_q.bias"),
        "max_position_embeddings": positions,
        "eos_token_id": gguf.ends()?,
    });
    let mut config = ModelConfig::parse(&fields.to_string()).map_err(refused)?;
    if gguf.header.tensors.contains_key(ROPE_FACTORS) {
        config.rope_scaling = rope_scaling(gguf, &config)?;
    }
    Ok(config)
}

/// Llama 3's scaling, if the factors are what it gives.
fn rope_scaling(gguf: &Gguf, config: &ModelConfig) -> Result<Option<RopeScaling>, PolicyError> {
    let mut factors = vec![0f32; config.head_dim / 2];
    gguf.matrix(config, ROPE_FACTORS, &[factors.len()])?.read(0, &mut factors)?;
    let most = factors.iter().fold(1f32, |most, factor| most.max(*factor));
    if factors.iter().all(|factor| *factor == 1.0) {
        return Ok(None);
    }
    let scaling = RopeScaling { factor: f64::from(most), ..LLAMA_3 };
    let scaled = ModelConfig { rope_scaling: Some(scaling), ..config.clone() };
    let (plain, scaled) = (config.rotary_frequencies(), scaled.rotary_frequencies());
    let fits = plain.iter().zip(scaled).zip(&factors).all(|((plain, scaled), factor)| {
        let expected = plain / scaled;
        (factor - expected).abs() <= 1e-3 * expected
    });
    match fits {
        true => Ok(Some(scaling)),
        false => Err(gguf.malformed(format!(
            "expected `{ROPE_FACTORS}` to be Llama 3's factors for a context of 8192, found others; hint: this variant of \
             rotary positions cannot be computed here"
        ))),
    }
}

/// What GGUF calls a tensor that the Hugging Face hub calls so.
pub(super) fn stored_name(name: &str) -> Option<String> {
    match name {
        "model.embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
        "model.norm.weight" => return Some("output_norm.weight".to_owned()),
        "lm_head.weight" => return Some("output.weight".to_owned()),
        _ => {}
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    let part = match part {
        "input_layernorm" => "attn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "post_attention_layernorm" => "ffn_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    };
    Some(format!("blk.{layer}.{part}.{kind}"))
}
