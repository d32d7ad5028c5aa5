//! The shape of a model: `config.json` as on the Hugging Face hub.

use crate::PolicyError;
use crate::files::ModelFiles;
use crate::gguf::Gguf;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The architecture of a model. The families differ in two switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelFamily {
    /// Biases on query, key and value.
    Qwen2,
    /// A norm on query and key.
    Qwen3,
    /// Neither.
    Llama,
}

impl ModelFamily {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ModelFamily::Qwen2 => "qwen2",
            ModelFamily::Qwen3 => "qwen3",
            ModelFamily::Llama => "llama",
        }
    }

    fn architecture(self) -> &'static str {
        match self {
            ModelFamily::Qwen2 => "Qwen2ForCausalLM",
            ModelFamily::Qwen3 => "Qwen3ForCausalLM",
            ModelFamily::Llama => "LlamaForCausalLM",
        }
    }
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelConfig {
    /// The architecture.
    pub family: ModelFamily,
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// The width of the residual stream.
    pub hidden: usize,
    /// The width inside a layer's gated unit.
    pub intermediate: usize,
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// The width of a head.
    pub head_dim: usize,
    /// Added to the mean square in norms.
    pub norm_epsilon: f64,
    /// The base of the rotary positions.
    pub rope_theta: f64,
    /// How rotary frequencies are scaled.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the embedding is also the head.
    pub tied: bool,
    /// Whether query, key and value have biases.
    pub attention_bias: bool,
    /// The context length in tokens.
    pub positions: usize,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
}

/// Llama 3's scaling of rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    /// How far the slow frequencies are stretched.
    pub factor: f64,
    /// Where stretching is complete, in turns over the original context.
    pub low_freq_factor: f64,
    /// Where it begins.
    pub high_freq_factor: f64,
    /// The context the model was first made for.
    pub original_max_position_embeddings: f64,
}

const FILE: &str = "config.json";
/// The largest width, depth or length that is accepted; a damaged config must not exhaust the memory.
const MOST: usize = 1 << 24;

impl ModelConfig {
    /// Whether the output of attention has a bias: Llama's switch gives it one too, and Qwen2 never has one.
    pub fn has_output_bias(&self) -> bool {
        self.attention_bias && self.family != ModelFamily::Qwen2
    }

    /// Whether query and key have a norm for each head.
    pub fn has_head_norms(&self) -> bool {
        self.family == ModelFamily::Qwen3
    }

    /// Whether GGUF files hold the rows of query and key in the order of the older rotary positions.
    pub(crate) fn swaps_gguf_rows(&self) -> bool {
        self.family == ModelFamily::Llama
    }

    /// A small Qwen2 model with tied embeddings and default settings.
    pub fn small(vocabulary: usize, hidden: usize, layers: usize, end: u32) -> Self {
        let heads = (hidden / 64).max(1);
        ModelConfig {
            family: ModelFamily::Qwen2,
            vocabulary,
            hidden,
            intermediate: hidden * 3,
            layers,
            heads,
            kv_heads: shared_heads(heads),
            // Rotations take its numbers in pairs.
            head_dim: (hidden / heads).next_multiple_of(2),
            norm_epsilon: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling: None,
            tied: true,
            attention_bias: true,
            positions: 2_048,
            end_tokens: vec![end],
        }
    }

    /// The rotary frequencies, scaled as Llama 3 does where the config asks for it.
    pub fn rotary_frequencies(&self) -> Vec<f32> {
        let half = self.head_dim / 2;
        let plain = |at: usize| self.rope_theta.powf(-(at as f64) / half as f64);
        let stretched = |frequency: f64| {
            let Some(scaling) = self.rope_scaling else { return frequency };
            let turns = scaling.original_max_position_embeddings * frequency / std::f64::consts::TAU;
            let smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
            let kept = smooth.clamp(0.0, 1.0);
            frequency * (kept + (1.0 - kept) / scaling.factor)
        };
        (0..half).map(|at| stretched(plain(at)) as f32).collect()
    }

    /// Reads `config.json` of a model, or the metadata of a GGUF file.
    ///
    /// # Errors
    /// The file is missing, or [`Self::parse`] refuses it.
    pub fn load(folder: ModelFiles<'_>) -> Result<Self, PolicyError> {
        if let Some(path) = folder.gguf() {
            return Gguf::open(path)?.config();
        }
        let text = folder.need(FILE)?;
        let said = std::str::from_utf8(&text).map_err(|_| "it is not UTF-8".to_owned()).and_then(Self::parse);
        said.map_err(|fact| PolicyError::Malformed { path: folder.path(FILE), fact })
    }

    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// What it says is not understood, or is of a family or a form that cannot be computed here.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let fields = value.as_object().ok_or("it is not a JSON object")?;
        let family = match fields.get("model_type").and_then(Value::as_str) {
            Some("qwen2") => ModelFamily::Qwen2,
            Some("qwen3") => ModelFamily::Qwen3,
            Some("llama") => ModelFamily::Llama,
            Some(other) => return Err(format!("`model_type` is `{other}`; qwen2, qwen3 and llama can be read")),
            None => return Err("it has no `model_type`".to_owned()),
        };
        if let Some(act) = fields.get("hidden_act").and_then(Value::as_str).filter(|act| *act != "silu") {
            return Err(format!("`hidden_act` is `{act}`; silu can be computed"));
        }
        if fields.get("use_sliding_window").and_then(Value::as_bool) == Some(true) {
            return Err("`use_sliding_window` is true; attention here sees everything before it".to_owned());
        }
        if fields.get("mlp_bias").and_then(Value::as_bool) == Some(true) {
            return Err("`mlp_bias` is true; gated units here have no biases".to_owned());
        }
        let (hidden, heads) = (size(fields, "hidden_size")?, size(fields, "num_attention_heads")?);
        // Transformers 5 keeps the rotary figures together; earlier ones beside the rest.
        let rope = ["rope_parameters", "rope_scaling"].iter().find_map(|key| fields.get(*key)?.as_object());
        let theta = rope.and_then(|rope| rope.get("rope_theta")).or_else(|| fields.get("rope_theta"));
        let config = ModelConfig {
            family,
            vocabulary: size(fields, "vocab_size")?,
            hidden,
            intermediate: size(fields, "intermediate_size")?,
            layers: size(fields, "num_hidden_layers")?,
            heads,
            kv_heads: optional_size(fields, "num_key_value_heads")?.unwrap_or(heads),
            head_dim: optional_size(fields, "head_dim")?.unwrap_or(hidden / heads.max(1)),
            norm_epsilon: fields.get("rms_norm_eps").and_then(Value::as_f64).unwrap_or(1e-6),
            rope_theta: theta.and_then(Value::as_f64).unwrap_or(10_000.0),
            rope_scaling: rope.map_or(Ok(None), rope_scaling)?,
            tied: fields.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false),
            attention_bias: match (family, fields.get("attention_bias").and_then(Value::as_bool)) {
                (ModelFamily::Qwen2, _) => true,
                (_, said) => said.unwrap_or(false),
            },
            positions: optional_size(fields, "max_position_embeddings")?.unwrap_or(32_768),
            end_tokens: end_tokens(fields.get("eos_token_id")),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!("{} heads cannot share {} key heads evenly", self.heads, self.kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("a head of width {} cannot be rotated: it has to be even", self.head_dim));
        }
        let parameters = self.parameters();
        if parameters > 1 << 40 {
            return Err(format!("it asks for {parameters} parameters"));
        }
        if !(self.norm_epsilon > 0.0 && self.rope_theta > 0.0) {
            return Err("`rms_norm_eps` and `rope_theta` have to be positive".to_owned());
        }
        Ok(())
    }

    /// The number of parameters.
    pub fn parameters(&self) -> u128 {
        let wide = |a: usize, b: usize| a as u128 * b as u128;
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut layer = 2 * wide(self.hidden, q) + 2 * wide(self.hidden, kv) + 3 * wide(self.hidden, self.intermediate);
        layer += 2 * self.hidden as u128;
        if self.attention_bias {
            layer += (q + 2 * kv) as u128;
        }
        if self.has_output_bias() {
            layer += self.hidden as u128;
        }
        if self.has_head_norms() {
            layer += 2 * self.head_dim as u128;
        }
        let embeddings = wide(self.vocabulary, self.hidden) * if self.tied { 1 } else { 2 };
        layer * self.layers as u128 + embeddings + self.hidden as u128
    }

    /// The text of `config.json`, as `transformers` reads it. `dtype` is the type of the stored weights.
    pub fn to_json(&self, dtype: &str) -> String {
        let mut rope = json!({"rope_theta": self.rope_theta, "rope_type": "default"});
        if let Some(scaling) = self.rope_scaling {
            rope = json!({
                "rope_theta": self.rope_theta,
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_max_position_embeddings,
            });
        }
        let value = json!({
            "architectures": [self.family.architecture()],
            "model_type": self.family.as_str(),
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_epsilon,
            "rope_theta": self.rope_theta,
            "rope_parameters": rope,
            "tie_word_embeddings": self.tied,
            "attention_bias": self.attention_bias,
            "max_position_embeddings": self.positions,
            "eos_token_id": self.end_tokens,
            "torch_dtype": dtype,
            "use_cache": true,
        });
        format!("{value:#}\n")
    }
}

/// How many key heads so many query heads share: half of them, or what comes next below that divides evenly.
fn shared_heads(heads: usize) -> usize {
    (1..=heads.div_ceil(2)).rev().find(|shared| heads.is_multiple_of(*shared)).unwrap_or(1)
}

fn size(fields: &Map<String, Value>, key: &str) -> Result<usize, String> {
    optional_size(fields, key)?.ok_or_else(|| format!("it has no `{key}`"))
}

fn optional_size(fields: &Map<String, Value>, key: &str) -> Result<Option<usize>, String> {
    let Some(value) = fields.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let size = value.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| (1..=MOST).contains(size));
    size.map(Some).ok_or_else(|| format!("`{key}` is {value}; a whole number from 1 to {MOST} is needed"))
}

fn rope_scaling(rope: &Map<String, Value>) -> Result<Option<RopeScaling>, String> {
    let kind = ["rope_type", "type"].iter().find_map(|key| rope.get(*key)?.as_str()).unwrap_or("default");
    match kind {
        "default" => Ok(None),
        "llama3" => serde_json::from_value(Value::Object(rope.clone()))
            .map(Some)
            .map_err(|error| format!("the figures of the rotary positions are incomplete: {error}")),
        other => Err(format!("rotary positions of the type `{other}` cannot be computed; default and llama3 can")),
    }
}

/// One token, a list of them, or none said.
fn end_tokens(value: Option<&Value>) -> Vec<u32> {
    let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
    match value {
        Some(Value::Array(tokens)) => tokens.iter().filter_map(token).collect(),
        Some(value) => token(value).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_of_every_width_are_valid() {
        for hidden in (32..=1_024).step_by(32) {
            let config = ModelConfig::small(512, hidden, 2, 0);
            assert_eq!(config.check(), Ok(()), "{hidden}");
            assert!(config.kv_heads <= config.heads.div_ceil(2), "{hidden}");
        }
        let shared = |hidden: usize| ModelConfig::small(512, hidden, 2, 0).kv_heads;
        assert_eq!([64, 128, 192, 256, 320, 576].map(shared), [1, 1, 1, 2, 1, 3]);
    }
}
