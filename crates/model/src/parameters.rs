//! The parameters of a model, by their names on the Hugging Face hub.

use crate::PolicyError;
use crate::config::ModelConfig;
use crate::tensors::{TensorReader, WeightOrigin, initial_tensor};
use crate::weights::{self, WeightFiles};
use candle_core::{DType, Device, Result, Tensor, Var};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// A trained or a frozen tensor.
#[derive(Clone)]
pub(crate) enum Weight {
    /// Trained; stored in f32 whatever the model computes in.
    Learned(Var),
    /// Frozen; stored in the format that the model computes in.
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

/// Low-rank adapters beside frozen matrices (LoRA).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoraSettings {
    /// Their rank.
    pub rank: usize,
    /// The scale, times the rank.
    pub alpha: f64,
}

impl Default for LoraSettings {
    fn default() -> Self {
        LoraSettings { rank: 16, alpha: 32.0 }
    }
}

/// The matrices of a layer that get adapters.
const ADAPTED: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// Which parameters are trained.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Learning {
    /// None: the model only samples and scores.
    Nothing,
    /// All.
    Everything,
    /// Low-rank adapters; the model itself is frozen.
    Adapters(LoraSettings),
}

/// All tensors of a model, in a fixed order.
pub(crate) struct Parameters {
    order: Vec<String>,
    by_name: HashMap<String, Weight>,
    lora: Option<LoraSettings>,
}

impl Parameters {
    /// Makes or reads all tensors of a model. With adapters, everything else is frozen.
    pub(crate) fn new(
        config: &ModelConfig,
        origin: &WeightOrigin<'_>,
        learning: Learning,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Self, PolicyError> {
        let (frozen, lora) = match learning {
            Learning::Nothing => (true, None),
            Learning::Everything => (false, None),
            Learning::Adapters(lora) => (true, Some(lora)),
        };
        let reader = TensorReader::open(config, origin)?;
        let mut parameters = Parameters { order: Vec::new(), by_name: HashMap::new(), lora };
        for (name, shape) in config.tensor_shapes() {
            let kept = if frozen { dtype } else { DType::F32 };
            let tensor = reader.tensor(&name, &shape, kept, device)?;
            let weight = if frozen { Weight::Frozen(tensor) } else { Weight::Learned(Var::from_tensor(&tensor)?) };
            parameters.insert(name, weight);
        }
        if let Some(lora) = lora {
            parameters.adapt(config, lora, reader.files(), device)?;
        }
        Ok(parameters)
    }

    /// Adds tensors that are learned and are no part of the model: read where the files have them, else zeros.
    pub(crate) fn add_learned(
        &mut self,
        origin: &WeightOrigin<'_>,
        tensors: &[(&str, &[usize])],
        device: &Device,
    ) -> std::result::Result<(), PolicyError> {
        let files = match origin {
            WeightOrigin::Files(files) if files.gguf().is_none() => Some(WeightFiles::open(*files)?),
            WeightOrigin::Files(_) | WeightOrigin::Seed(_) => None,
        };
        for (name, shape) in tensors {
            let tensor = match files.as_ref().filter(|files| files.has(name)) {
                Some(files) => files.read(name, shape, DType::F32, device)?,
                None => Tensor::zeros(*shape, DType::F32, device)?,
            };
            self.insert((*name).to_owned(), Weight::Learned(Var::from_tensor(&tensor)?));
        }
        Ok(())
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
        let matrices: Vec<(String, Vec<usize>)> = config
            .tensor_shapes()
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
                    None => initial_tensor(&name, &shape, 0, config.layers, device)?,
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

    /// The numbers of a tensor.
    pub(crate) fn values(&self, name: &str) -> std::result::Result<Vec<f32>, PolicyError> {
        Ok(self.get(name)?.tensor().to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?)
    }

    /// A tensor that is learned.
    pub(crate) fn var(&self, name: &str) -> Option<&Var> {
        match self.by_name.get(name)? {
            Weight::Learned(var) => Some(var),
            Weight::Frozen(_) => None,
        }
    }

    /// The settings of adapters, where there are some.
    pub(crate) fn lora(&self) -> Option<LoraSettings> {
        self.lora
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

    /// Writes `model.safetensors`. Adapters are written in with the matrices they belong to, so that other programs can read it.
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
