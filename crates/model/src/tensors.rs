//! The tensors of a model: their names and shapes, and where their values come from.

use crate::PolicyError;
use crate::config::ModelConfig;
use crate::files::ModelFiles;
use crate::gguf::{BlockType, Gguf, Matrix};
use crate::weights::WeightFiles;
use candle_core::{DType, Device, Result, Tensor};
use lemon_num::Random;
use std::collections::HashMap;

/// Where the values of tensors come from.
#[derive(Debug, Clone, Copy)]
pub enum WeightOrigin<'a> {
    /// Drawn at random, as training from scratch begins.
    Seed(u64),
    /// Read from the files of a checkpoint.
    Files(ModelFiles<'a>),
}

/// Reads or draws the tensors of one model, one at a time: no model is in memory twice.
pub struct TensorReader {
    config: ModelConfig,
    shapes: HashMap<String, Vec<usize>>,
    source: Source,
}

enum Source {
    Seed(u64),
    Files(WeightFiles),
    Gguf(Gguf),
}

/// A tensor whose rows are read when they are asked for, where its file allows it. A tensor with one side is one row.
pub struct TensorRows<'r> {
    source: RowSource<'r>,
    count: usize,
    width: usize,
}

enum RowSource<'r> {
    Whole(Vec<f32>),
    Gguf(Matrix<'r>),
}

impl TensorRows<'_> {
    /// How many rows there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many numbers a row has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Reads rows from the `first` on, as many as `values` has room for. Several threads may read at once.
    ///
    /// # Errors
    /// There are not so many rows, or the file cannot be read.
    pub fn read(&self, first: usize, values: &mut [f32]) -> std::result::Result<(), PolicyError> {
        self.check(first, values.len(), self.width)?;
        match &self.source {
            RowSource::Whole(whole) => values.copy_from_slice(&whole[first * self.width..][..values.len()]),
            RowSource::Gguf(matrix) => matrix.read(first, values)?,
        }
        Ok(())
    }

    /// The number format in a GGUF file.
    pub fn stored(&self) -> Option<BlockType> {
        match &self.source {
            RowSource::Whole(_) => None,
            RowSource::Gguf(matrix) => Some(matrix.kind),
        }
    }

    /// Reads rows from the `first` on as they are stored in a GGUF file, as many as `bytes` has room for.
    ///
    /// # Errors
    /// As [`Self::read`]; or the tensor is in no GGUF file.
    pub fn read_stored(&self, first: usize, bytes: &mut [u8]) -> std::result::Result<(), PolicyError> {
        let RowSource::Gguf(matrix) = &self.source else {
            return Err(PolicyError::Request("expected a tensor of a GGUF file, found another".to_owned()));
        };
        self.check(first, bytes.len(), matrix.kind.row_bytes(self.width))?;
        matrix.read_blocks(first, bytes)
    }

    /// Checks that there are so many rows of this length.
    fn check(&self, first: usize, length: usize, of_row: usize) -> std::result::Result<(), PolicyError> {
        let rows = length / of_row.max(1);
        match first.checked_add(rows).is_some_and(|end| end <= self.count) && rows * of_row == length {
            true => Ok(()),
            false => {
                let fact = format!("expected rows below {}, found {rows} from {first} on", self.count);
                Err(PolicyError::Request(fact))
            }
        }
    }

    /// All rows.
    fn all(self) -> std::result::Result<Vec<f32>, PolicyError> {
        match self.source {
            RowSource::Whole(whole) => Ok(whole),
            RowSource::Gguf(matrix) => matrix.all(),
        }
    }
}

impl TensorReader {
    /// Opens the files; their headers are checked, no tensor is read yet.
    ///
    /// # Errors
    /// A file is missing, cut short or no safetensors file; a GGUF file has not the tensors that the config says.
    pub fn open(config: &ModelConfig, origin: &WeightOrigin<'_>) -> std::result::Result<TensorReader, PolicyError> {
        let source = match origin {
            WeightOrigin::Seed(seed) => Source::Seed(*seed),
            WeightOrigin::Files(files) => match files.gguf() {
                None => Source::Files(WeightFiles::open(*files)?),
                Some(path) => {
                    let gguf = Gguf::open(path)?;
                    gguf.check(config)?;
                    Source::Gguf(gguf)
                }
            },
        };
        Ok(TensorReader { shapes: config.tensor_shapes().into_iter().collect(), config: config.clone(), source })
    }

    /// The values of one tensor in row-major order, as `f32`.
    ///
    /// # Errors
    /// The model has no such tensor, or the file does not hold it in the shape that the config says.
    pub fn read(&self, name: &str) -> std::result::Result<Vec<f32>, PolicyError> {
        self.rows(name)?.all()
    }

    /// One tensor, to be read row by row. From a GGUF file, only the rows that are asked for are in memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn rows(&self, name: &str) -> std::result::Result<TensorRows<'_>, PolicyError> {
        let none = || PolicyError::Request(format!("the model has no tensor `{name}`"));
        let shape = self.shapes.get(name).ok_or_else(none)?;
        if let Source::Gguf(gguf) = &self.source {
            let matrix = gguf.matrix(&self.config, name, shape)?;
            return Ok(TensorRows { count: matrix.rows, width: matrix.width, source: RowSource::Gguf(matrix) });
        }
        let whole = self.tensor(name, shape, DType::F32, &Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
        let (count, width) = match shape.as_slice() {
            [count, width] => (*count, *width),
            _ => (1, whole.len()),
        };
        Ok(TensorRows { count, width, source: RowSource::Whole(whole) })
    }

    pub(crate) fn tensor(
        &self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<Tensor, PolicyError> {
        match &self.source {
            Source::Files(files) => files.read(name, shape, dtype, device),
            Source::Gguf(_) => {
                let values = self.read(name)?;
                Ok(Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)?)
            }
            Source::Seed(seed) => Ok(initial_tensor(name, shape, *seed, self.config.layers, device)?.to_dtype(dtype)?),
        }
    }

    /// The files of a folder, where the values come from one; they may hold adapters.
    pub(crate) fn files(&self) -> Option<&WeightFiles> {
        match &self.source {
            Source::Files(files) => Some(files),
            Source::Seed(_) | Source::Gguf(_) => None,
        }
    }
}

impl ModelConfig {
    /// The name and shape of every tensor of the model, in a fixed order.
    pub fn tensor_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut names = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocabulary, self.hidden])];
        for layer in 0..self.layers {
            let mut push =
                |name: &str, shape: &[usize]| names.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            push("input_layernorm.weight", &[self.hidden]);
            for (name, outs) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
                push(&format!("self_attn.{name}.weight"), &[outs, self.hidden]);
                if self.attention_bias {
                    push(&format!("self_attn.{name}.bias"), &[outs]);
                }
            }
            push("self_attn.o_proj.weight", &[self.hidden, q]);
            if self.has_output_bias() {
                push("self_attn.o_proj.bias", &[self.hidden]);
            }
            if self.has_head_norms() {
                push("self_attn.q_norm.weight", &[self.head_dim]);
                push("self_attn.k_norm.weight", &[self.head_dim]);
            }
            push("post_attention_layernorm.weight", &[self.hidden]);
            push("mlp.gate_proj.weight", &[self.intermediate, self.hidden]);
            push("mlp.up_proj.weight", &[self.intermediate, self.hidden]);
            push("mlp.down_proj.weight", &[self.hidden, self.intermediate]);
        }
        names.push(("model.norm.weight".to_owned(), vec![self.hidden]));
        if !self.tied {
            names.push(("lm_head.weight".to_owned(), vec![self.vocabulary, self.hidden]));
        }
        names
    }
}

/// The first values of a tensor: norms one, biases zero, matrices normal with standard deviation 0.02. Matrices that write
/// into the residual stream are scaled down by the square root of twice the layers.
pub(crate) fn initial_tensor(name: &str, shape: &[usize], seed: u64, layers: usize, device: &Device) -> Result<Tensor> {
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
