//! The shape of a model and the names of its tensors, as the GPU has them.

use crate::config::ModelConfig;
use lemon_gpu::{AdapterMatrix, ModelShape, Part, Tensor};

/// The shape of a model.
pub fn shape(config: &ModelConfig) -> ModelShape {
    ModelShape {
        vocabulary: config.vocabulary,
        hidden: config.hidden,
        intermediate: config.intermediate,
        layers: config.layers,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        epsilon: config.norm_epsilon as f32,
        frequencies: config.rotary_frequencies(),
        positions: config.positions,
        tied: config.tied,
        qkv_bias: config.attention_bias,
        o_bias: config.has_output_bias(),
        qk_norm: config.has_head_norms(),
    }
}

/// What the parts of a tensor are called in checkpoints, in the order in which they are stacked.
pub fn names(tensor: Tensor) -> Vec<String> {
    let (layer, part) = match tensor {
        Tensor::Embedding => return vec!["model.embed_tokens.weight".to_owned()],
        Tensor::Head => return vec!["lm_head.weight".to_owned()],
        Tensor::Norm => return vec!["model.norm.weight".to_owned()],
        Tensor::Layer(layer, part) => (layer, part),
    };
    let all = |stems: &[&str], end: &str| -> Vec<String> {
        stems.iter().map(|stem| format!("model.layers.{layer}.{stem}.{end}")).collect()
    };
    match part {
        Part::InputNorm => all(&["input_layernorm"], "weight"),
        Part::PostNorm => all(&["post_attention_layernorm"], "weight"),
        Part::QNorm => all(&["self_attn.q_norm"], "weight"),
        Part::KNorm => all(&["self_attn.k_norm"], "weight"),
        Part::QkvBias => all(stems(Part::Qkv), "bias"),
        Part::OBias => all(stems(Part::O), "bias"),
        Part::Qkv | Part::O | Part::GateUp | Part::Down => all(stems(part), "weight"),
    }
}

/// What a matrix of an adapter is called.
pub fn adapter_name(matrix: &AdapterMatrix) -> String {
    let stem = stems(matrix.part).get(matrix.of_stack).copied().unwrap_or_default();
    let end = if matrix.widens { "lora_B" } else { "lora_A" };
    format!("model.layers.{}.{stem}.{end}.weight", matrix.layer)
}

/// The matrices that are stacked in a part.
fn stems(part: Part) -> &'static [&'static str] {
    match part {
        Part::Qkv => &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        Part::O => &["self_attn.o_proj"],
        Part::GateUp => &["mlp.gate_proj", "mlp.up_proj"],
        Part::Down => &["mlp.down_proj"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelFamily;

    #[test]
    fn every_tensor_of_a_checkpoint_has_its_place_on_the_device() {
        for family in [ModelFamily::Qwen2, ModelFamily::Qwen3, ModelFamily::Llama] {
            for (tied, attention_bias) in [(true, false), (false, true), (false, false)] {
                let small = ModelConfig::small(300, 64, 2, 1);
                let config = ModelConfig { family, tied, attention_bias, ..small };
                let sizes: std::collections::HashMap<String, usize> =
                    config.tensor_shapes().into_iter().map(|(name, shape)| (name, shape.iter().product())).collect();
                let mut placed = Vec::new();
                for (tensor, rows, width) in shape(&config).tensors() {
                    let names = names(tensor);
                    let found: usize = names.iter().map(|name| sizes[name]).sum();
                    assert_eq!(found, rows * width, "{tensor:?} of {family:?}");
                    placed.extend(names);
                }
                placed.sort();
                let mut all: Vec<String> = sizes.into_keys().collect();
                all.sort();
                assert_eq!(placed, all);
            }
        }
    }
}
