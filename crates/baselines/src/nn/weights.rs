//! Named weights: what an optimiser changes, what it does not, and how both are kept.

use candle_core::{DType, Device, Result, Tensor, Var};
use lemon_num::Random;
use std::collections::{BTreeMap, HashMap};

/// Weights by name. A layer asks for each once, when it is made.
pub struct NetWeights {
    vars: BTreeMap<String, Var>,
    /// Part of the model, but never changed.
    frozen: BTreeMap<String, Tensor>,
    loaded: HashMap<String, Tensor>,
    random: Random,
    dtype: DType,
}

impl NetWeights {
    /// Weights that are drawn anew.
    pub fn new(seed: u64, dtype: DType) -> Self {
        NetWeights {
            vars: BTreeMap::new(),
            frozen: BTreeMap::new(),
            loaded: HashMap::new(),
            random: Random::named(seed, "weights"),
            dtype,
        }
    }

    /// Weights of a checkpoint.
    pub fn loaded(tensors: HashMap<String, Tensor>) -> Self {
        NetWeights { loaded: tensors, ..NetWeights::new(0, DType::F32) }
    }

    /// What the numbers are.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A trained weight; a new one is drawn uniformly within `±bound`.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn uniform(&mut self, name: &str, shape: &[usize], bound: f64) -> Result<Tensor> {
        let start = self.start(name, shape, bound)?;
        let var = Var::from_tensor(&start)?;
        let tensor = var.as_tensor().clone();
        self.vars.insert(name.to_owned(), var);
        Ok(tensor)
    }

    /// A trained weight that begins as this number everywhere.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn constant(&mut self, name: &str, shape: &[usize], value: f64) -> Result<Tensor> {
        let start = match self.loaded.contains_key(name) {
            true => self.start(name, shape, 0.0)?,
            false => (Tensor::ones(shape, self.dtype, &Device::Cpu)? * value)?,
        };
        let var = Var::from_tensor(&start)?;
        let tensor = var.as_tensor().clone();
        self.vars.insert(name.to_owned(), var);
        Ok(tensor)
    }

    /// A weight that is drawn and never trained.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn untrained(&mut self, name: &str, shape: &[usize], bound: f64) -> Result<Tensor> {
        let tensor = self.start(name, shape, bound)?;
        self.frozen.insert(name.to_owned(), tensor.clone());
        Ok(tensor)
    }

    fn start(&mut self, name: &str, shape: &[usize], bound: f64) -> Result<Tensor> {
        if let Some(loaded) = self.loaded.get(name) {
            if loaded.dims() != shape {
                candle_core::bail!("weight `{name}` has the shape {:?}, expected {shape:?}", loaded.dims());
            }
            return loaded.to_dtype(self.dtype)?.copy();
        }
        let count: usize = shape.iter().product();
        let drawn: Vec<f32> = (0..count).map(|_| ((2.0 * self.random.uniform() - 1.0) * bound) as f32).collect();
        Tensor::from_vec(drawn, shape, &Device::Cpu)?.to_dtype(self.dtype)
    }

    /// The weights that are trained, by name.
    pub fn trained(&self) -> &BTreeMap<String, Var> {
        &self.vars
    }

    /// A copy of every weight, by name: what a checkpoint holds.
    ///
    /// # Errors
    /// Memory.
    pub fn copies(&self) -> Result<HashMap<String, Tensor>> {
        let trained = self.vars.iter().map(|(name, var)| Ok((name.clone(), var.as_tensor().detach().copy()?)));
        let frozen = self.frozen.iter().map(|(name, tensor)| Ok((name.clone(), tensor.clone())));
        trained.chain(frozen).collect()
    }

    /// Puts these copies back in place.
    ///
    /// # Errors
    /// They are of another model.
    pub fn restore(&self, copies: &HashMap<String, Tensor>) -> Result<()> {
        for (name, var) in &self.vars {
            if let Some(copy) = copies.get(name) {
                var.set(copy)?;
            }
        }
        Ok(())
    }
}
