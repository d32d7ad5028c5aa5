//! Accumulated gradients and optimiser steps: AdamW, and optionally Muon for matrices.

use crate::PolicyError;
use crate::files::ModelFiles;
use crate::muon::{self, Matrix, MuonSettings};
use crate::ops::{self, AdamW};
use crate::parameters::Parameters;
use crate::weights::{self, WeightFiles};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimiserSettings {
    /// Decay of the mean of gradients.
    pub beta1: f64,
    /// Decay of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the denominator.
    pub epsilon: f64,
    /// Decoupled weight decay; norms and biases have none.
    pub weight_decay: f64,
    /// Muon for the matrices inside the layers; `None`: AdamW for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muon: Option<MuonSettings>,
}

impl Default for OptimiserSettings {
    fn default() -> Self {
        OptimiserSettings { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.01, muon: None }
    }
}

/// The sum of gradients, by parameter.
#[derive(Default)]
pub(crate) struct Gradients {
    by_name: BTreeMap<String, Tensor>,
}

impl Gradients {
    pub(crate) fn add(&mut self, found: &GradStore, parameters: &Parameters) -> candle_core::Result<()> {
        for (name, var) in parameters.learned() {
            let Some(gradient) = found.get(var) else { continue };
            let sum = match self.by_name.get(name) {
                None => gradient.clone(),
                Some(sum) => (sum + gradient)?,
            };
            self.by_name.insert(name.to_owned(), sum);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn into_tensors(self) -> BTreeMap<String, Tensor> {
        self.by_name
    }

    /// The norm of all of them together.
    pub(crate) fn norm(&self) -> candle_core::Result<f64> {
        if self.by_name.is_empty() {
            return Ok(0.0);
        }
        let squares = self.by_name.values().map(ops::squared_norm).collect::<candle_core::Result<Vec<_>>>()?;
        // One transfer for all.
        let squares = Tensor::stack(&squares, 0)?.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        Ok(squares.iter().map(|it| f64::from(*it)).sum::<f64>().sqrt())
    }
}

/// AdamW and Muon with their state.
pub(crate) struct Optimiser {
    pub(crate) settings: OptimiserSettings,
    /// Steps taken.
    pub(crate) steps: u64,
    /// By parameter: the means of gradients and of their squares.
    pub(crate) moments: BTreeMap<String, (Tensor, Tensor)>,
    /// By matrix that Muon moves: the mean of gradients.
    momenta: BTreeMap<String, Tensor>,
}

impl Optimiser {
    pub(crate) fn new(settings: OptimiserSettings) -> Self {
        Optimiser { settings, steps: 0, moments: BTreeMap::new(), momenta: BTreeMap::new() }
    }

    pub(crate) fn step(
        &mut self,
        parameters: &Parameters,
        gradients: &Gradients,
        learning_rate: f64,
        scale: f64,
    ) -> candle_core::Result<()> {
        self.steps += 1;
        let OptimiserSettings { beta1, beta2, epsilon, weight_decay, muon } = self.settings;
        if let Some(muon) = muon {
            self.step_matrices(&muon, parameters, gradients, learning_rate, scale)?;
        }
        for (name, var) in parameters.learned() {
            let Some(gradient) = gradients.by_name.get(name) else { continue };
            if muon.is_some() && muon::is_inside(name, var) {
                continue;
            }
            if !self.moments.contains_key(name) {
                let zero = || Tensor::zeros(var.shape(), DType::F32, var.device());
                self.moments.insert(name.to_owned(), (zero()?, zero()?));
            }
            let Some((m, v)) = self.moments.get(name) else { continue };
            let weight_decay = if var.rank() > 1 { weight_decay } else { 0.0 };
            let adam = AdamW { beta1, beta2, epsilon, weight_decay };
            adam.step(var.as_tensor(), gradient, m, v, learning_rate, self.steps, scale)?;
        }
        Ok(())
    }

    fn step_matrices(
        &mut self,
        muon: &MuonSettings,
        parameters: &Parameters,
        gradients: &Gradients,
        learning_rate: f64,
        scale: f64,
    ) -> candle_core::Result<()> {
        let inside = || parameters.learned().filter(|(name, var)| muon::is_inside(name, var));
        for (name, var) in inside().filter(|(name, _)| gradients.by_name.contains_key(*name)) {
            if !self.momenta.contains_key(name) {
                self.momenta.insert(name.to_owned(), Tensor::zeros(var.shape(), DType::F32, var.device())?);
            }
        }
        let matrix = |(name, var)| {
            let (gradient, momentum) = (gradients.by_name.get(name)?, self.momenta.get(name)?);
            Some(Matrix { var, gradient, momentum })
        };
        let matrices: Vec<Matrix<'_>> = inside().filter_map(matrix).collect();
        muon.step(&matrices, learning_rate, self.settings.weight_decay, scale)
    }

    /// Writes the trained parameters and the state into a folder: with `moments` of another place, if they are kept there.
    pub(crate) fn save(
        &self,
        parameters: &Parameters,
        moments: Option<&BTreeMap<String, (Tensor, Tensor)>>,
        folder: &Path,
    ) -> Result<(), PolicyError> {
        let moments = moments.unwrap_or(&self.moments);
        let mut tensors = Vec::new();
        for (name, var) in parameters.learned() {
            tensors.push((name.to_owned(), var.as_tensor().clone()));
            if let Some((m, v)) = moments.get(name) {
                tensors.extend([(format!("m.{name}"), m.clone()), (format!("v.{name}"), v.clone())]);
            }
            tensors.extend(self.momenta.get(name).map(|momentum| (format!("momentum.{name}"), momentum.clone())));
        }
        weights::write(&folder.join("model.safetensors"), &tensors, DType::F32)?;
        let about = serde_json::json!({"steps": self.steps, "settings": self.settings});
        weights::replace(&folder.join("optimiser.json"), format!("{about:#}\n").as_bytes())
    }

    /// Reads what [`Self::save`] wrote: the values go into the parameters.
    pub(crate) fn load(parameters: &Parameters, folder: &Path, device: &Device) -> Result<Self, PolicyError> {
        #[derive(Deserialize)]
        struct About {
            steps: u64,
            settings: OptimiserSettings,
        }
        let path = folder.join("optimiser.json");
        let text = std::fs::read(&path).map_err(|source| PolicyError::File { path: path.clone(), source })?;
        let about: About = serde_json::from_slice(&text)
            .map_err(|error| weights::malformed(&path, format!("it is not the memory of an optimiser: {error}")))?;
        let mut optimiser = Optimiser { steps: about.steps, ..Optimiser::new(about.settings) };
        let files = WeightFiles::open(ModelFiles::Disk(folder))?;
        for (name, var) in parameters.learned() {
            let read = |name: &str| files.read(name, var.dims(), DType::F32, device);
            var.set(&read(name)?)?;
            if files.has(&format!("m.{name}")) {
                let moments = (read(&format!("m.{name}"))?, read(&format!("v.{name}"))?);
                optimiser.moments.insert(name.to_owned(), moments);
            }
            let momentum = format!("momentum.{name}");
            if files.has(&momentum) {
                optimiser.momenta.insert(name.to_owned(), read(&momentum)?);
            }
        }
        Ok(optimiser)
    }
}
