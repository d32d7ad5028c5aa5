//! The numbers a model consists of, by the names the Hugging Face hub gives them.

use crate::PolicyError;
use crate::config::{Family, ModelConfig};
use crate::folder::Folder;
use crate::weights::{self, WeightFiles};
use candle_core::{DType, Device, Result, Tensor, Var};
use lemon_num::Random;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// A tensor that is learned, or one that stays as it is.
#[derive(Clone)]
pub(crate) enum Weight {
    /// Learned; kept in f32 whatever the model is computed in.
    Learned(Var),
    /// Frozen; kept in what the model is computed in.
    Frozen(Tensor),
}

impl Weight {
    /// Its values, in what the model is computed in.
    pub(crate) fn value(&self, dtype: DType) -> Result<Tensor> {
        match self {
            Weight::Learned(var) if var.dtype() == dtype => Ok(var.as_tensor().clone()),
            Weight::Learned(var) => var.to_dtype(dtype),
            Weight::Frozen(tensor) => Ok(tensor.clone()),
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self, Weight::Frozen(_))
    }

    fn tensor(&self) -> &Tensor {
        match self {
            Weight::Learned(var) => var.as_tensor(),
            Weight::Frozen(tensor) => tensor,
        }
    }
}

/// Adapters of low rank beside frozen matrices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoraSettings {
    /// Their rank.
    pub rank: usize,
    /// What they are scaled by, times the rank.
    pub alpha: f64,
}

impl Default for LoraSettings {
    fn default() -> Self {
        LoraSettings { rank: 16, alpha: 32.0 }
    }
}

/// The matrices of a layer that get adapters.
const ADAPTED: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// What of a model is to be learned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Learning {
    /// Nothing: it only writes.
    Nothing,
    /// Every number of it.
    Everything,
    /// Adapters beside it.
    Adapters(LoraSettings),
}

/// All tensors of a model, in a fixed order.
pub(crate) struct Parameters {
    order: Vec<String>,
    by_name: HashMap<String, Weight>,
    lora: Option<LoraSettings>,
}

/// Where the values come from.
pub(crate) enum Origin<'a> {
    /// Drawn at random: normal, as such models begin.
    Seed(u64),
    /// Read from a folder.
    Folder(Folder<'a>),
}

impl Parameters {
    /// Makes or reads all tensors of a model. With adapters, everything else is frozen.
    pub(crate) fn new(
        config: &ModelConfig,
        origin: &Origin<'_>,
        learning: Learning,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, PolicyError> {
        let (frozen, lora) = match learning {
            Learning::Nothing => (true, None),
            Learning::Everything => (false, None),
            Learning::Adapters(lora) => (true, Some(lora)),
        };
        let files = match origin {
            Origin::Folder(folder) => Some(WeightFiles::open(*folder)?),
            Origin::Seed(_) => None,
        };
        let mut parameters = Parameters { order: Vec::new(), by_name: HashMap::new(), lora };
        for (name, shape) in names(config) {
            let kept = if frozen { dtype } else { DType::F32 };
            let tensor = match (&files, origin) {
                (Some(files), _) => files.read(&name, &shape, kept, device)?,
                (None, Origin::Seed(seed)) => fresh(&name, &shape, *seed, config.layers, device)?.to_dtype(kept)?,
                (None, Origin::Folder(_)) => continue, // A folder has files.
            };
            let weight = if frozen { Weight::Frozen(tensor) } else { Weight::Learned(Var::from_tensor(&tensor)?) };
            parameters.insert(name, weight);
        }
        if let Some(lora) = lora {
            parameters.adapt(config, lora, files.as_ref(), device)?;
        }
        Ok(parameters)
    }

    fn insert(&mut self, name: String, weight: Weight) {
        self.order.push(name.clone());
        self.by_name.insert(name, weight);
    }

    /// Adds an adapter to every matrix of every layer: A at random, B zero, so that nothing changes at first.
    fn adapt(
        &mut self,
        config: &ModelConfig,
        lora: LoraSettings,
        files: Option<&WeightFiles>,
        device: &Device,
    ) -> std::result::Result<(), PolicyError> {
        let matrices: Vec<(String, Vec<usize>)> = names(config)
            .into_iter()
            .filter(|(name, _)| ADAPTED.iter().any(|it| name.ends_with(&format!("{it}.weight"))))
            .collect();
        for (name, shape) in matrices {
            let (outs, ins) = (shape[0], shape[1]); // Matrices have two sides.
            let stem = name.trim_end_matches("weight");
            for (part, shape) in [("lora_A.weight", [lora.rank, ins]), ("lora_B.weight", [outs, lora.rank])] {
                let name = format!("{stem}{part}");
                let tensor = match files.filter(|files| files.has(&name)) {
                    Some(files) => files.read(&name, &shape, DType::F32, device)?,
                    None if part.starts_with("lora_B") => Tensor::zeros(&shape, DType::F32, device)?,
                    None => fresh(&name, &shape, 0, config.layers, device)?,
                };
                self.insert(name, Weight::Learned(Var::from_tensor(&tensor)?));
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Result<Weight> {
        match self.by_name.get(name) {
            Some(weight) => Ok(weight.clone()),
            None => candle_core::bail!("the model has no tensor `{name}`"),
        }
    }

    /// What the adapter of a matrix is scaled by, where it has one.
    pub(crate) fn lora_scale(&self, matrix: &str) -> Option<f64> {
        let lora = self.lora?;
        self.by_name.contains_key(&format!("{matrix}.lora_A.weight")).then(|| lora.alpha / lora.rank as f64)
    }

    /// What is learned, in a fixed order.
    pub(crate) fn learned(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.order.iter().filter_map(|name| match self.by_name.get(name)? {
            Weight::Learned(var) => Some((name.as_str(), var)),
            Weight::Frozen(_) => None,
        })
    }

    /// Writes `model.safetensors`. Adapters are written in with the matrices they belong to, so that anybody can read it.
    pub(crate) fn save(&self, folder: &Path, dtype: DType) -> std::result::Result<(), PolicyError> {
        let mut tensors = Vec::new();
        for name in self.order.iter().filter(|name| !name.contains(".lora_")) {
            let Some(weight) = self.by_name.get(name) else { continue };
            let mut tensor = weight.tensor().clone();
            let matrix = name.trim_end_matches(".weight");
            if let Some(scale) = self.lora_scale(matrix) {
                let part = |part: &str| self.get(&format!("{matrix}.{part}.weight"));
                let (a, b) = (part("lora_A")?, part("lora_B")?);
                let added = (b.tensor().matmul(a.tensor())? * scale)?;
                tensor = (tensor.to_dtype(DType::F32)? + added)?;
            }
            tensors.push((name.clone(), tensor));
        }
        weights::write(&folder.join("model.safetensors"), &tensors, dtype)
    }
}

/// The tensors of a model and their shapes.
pub(crate) fn names(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let mut names = vec![("model.embed_tokens.weight".to_owned(), vec![config.vocabulary, config.hidden])];
    for layer in 0..config.layers {
        let mut push =
            |name: &str, shape: &[usize]| names.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
        push("input_layernorm.weight", &[config.hidden]);
        for (name, outs) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
            push(&format!("self_attn.{name}.weight"), &[outs, config.hidden]);
            if config.attention_bias {
                push(&format!("self_attn.{name}.bias"), &[outs]);
            }
        }
        push("self_attn.o_proj.weight", &[config.hidden, q]);
        if config.attention_bias && config.family != Family::Qwen2 {
            push("self_attn.o_proj.bias", &[config.hidden]);
        }
        if config.family == Family::Qwen3 {
            push("self_attn.q_norm.weight", &[config.head_dim]);
            push("self_attn.k_norm.weight", &[config.head_dim]);
        }
        push("post_attention_layernorm.weight", &[config.hidden]);
        push("mlp.gate_proj.weight", &[config.intermediate, config.hidden]);
        push("mlp.up_proj.weight", &[config.intermediate, config.hidden]);
        push("mlp.down_proj.weight", &[config.hidden, config.intermediate]);
    }
    names.push(("model.norm.weight".to_owned(), vec![config.hidden]));
    if !config.tied {
        names.push(("lm_head.weight".to_owned(), vec![config.vocabulary, config.hidden]));
    }
    names
}

/// A tensor as such models begin: norms one, biases zero, matrices normal with a spread of 0.02, those that write into the
/// residual stream narrower by the root of twice the layers.
pub(crate) fn fresh(name: &str, shape: &[usize], seed: u64, layers: usize, device: &Device) -> Result<Tensor> {
    if name.ends_with("norm.weight") {
        return Tensor::ones(shape, DType::F32, device);
    }
    if name.ends_with(".bias") {
        return Tensor::zeros(shape, DType::F32, device);
    }
    let narrow = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
    let spread = match shape {
        // An adapter's first matrix has to keep what it reads.
        [_, ins] if name.ends_with("lora_A.weight") => 1.0 / (*ins as f32).sqrt(),
        _ if narrow => 0.02 / (2.0 * layers as f32).sqrt(),
        _ => 0.02,
    };
    let values = Random::named(seed, name).normals(shape.iter().product(), spread);
    Tensor::from_vec(values, shape, device)
}
