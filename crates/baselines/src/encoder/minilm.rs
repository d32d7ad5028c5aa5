//! all-MiniLM-L6-v2: a BERT of six layers, the mean over its tokens, scaled to length 1.

use super::{WIDTH, normalise};
use crate::error::BaselineError;
use crate::nn::{LayerNorm, values};
use candle_core::{D, Device, Result, Tensor};
use std::collections::HashMap;
use std::path::Path;
use tokenizers::{Tokenizer, TruncationParams};

const LAYERS: usize = 6;
const HEADS: usize = 12;
const EPSILON: f64 = 1e-12;
/// Tokens that are read, as `sentence_bert_config.json` has it. `tokenizer.json` says 128, and pads.
const MOST_TOKENS: usize = 256;

/// The model.
pub struct MiniLm {
    tokenizer: Tokenizer,
    words: Tensor,
    positions: Tensor,
    kind: Tensor,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

struct Layer {
    query: Affine,
    key: Affine,
    value: Affine,
    attended: Affine,
    attended_norm: LayerNorm,
    inner: Affine,
    outer: Affine,
    norm: LayerNorm,
}

struct Affine {
    /// Transposed once: inputs by outputs.
    weight: Tensor,
    bias: Tensor,
}

impl Affine {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weight)?.broadcast_add(&self.bias)
    }
}

struct Files<'a>(&'a HashMap<String, Tensor>);

impl Files<'_> {
    fn get(&self, name: &str) -> Result<Tensor> {
        match self.0.get(name) {
            Some(tensor) => Ok(tensor.clone()),
            None => candle_core::bail!("there is no tensor `{name}`"),
        }
    }

    fn affine(&self, name: &str) -> Result<Affine> {
        let weight = self.get(&format!("{name}.weight"))?.t()?.contiguous()?;
        Ok(Affine { weight, bias: self.get(&format!("{name}.bias"))? })
    }

    fn norm(&self, name: &str) -> Result<LayerNorm> {
        Ok(LayerNorm::of(self.get(&format!("{name}.weight"))?, self.get(&format!("{name}.bias"))?, EPSILON))
    }

    fn layer(&self, at: usize) -> Result<Layer> {
        let name = |part: &str| format!("encoder.layer.{at}.{part}");
        Ok(Layer {
            query: self.affine(&name("attention.self.query"))?,
            key: self.affine(&name("attention.self.key"))?,
            value: self.affine(&name("attention.self.value"))?,
            attended: self.affine(&name("attention.output.dense"))?,
            attended_norm: self.norm(&name("attention.output.LayerNorm"))?,
            inner: self.affine(&name("intermediate.dense"))?,
            outer: self.affine(&name("output.dense"))?,
            norm: self.norm(&name("output.LayerNorm"))?,
        })
    }
}

impl MiniLm {
    /// The model in this folder: `model.safetensors` and `tokenizer.json`.
    ///
    /// # Errors
    /// A file is missing or is another model's.
    pub fn load(folder: &Path) -> std::result::Result<Self, BaselineError> {
        let path = folder.join("tokenizer.json");
        let failed = |reason: String| BaselineError::File(path.clone(), reason);
        let mut tokenizer = Tokenizer::from_file(&path).map_err(|error| failed(error.to_string()))?;
        tokenizer.with_padding(None);
        let truncation = TruncationParams { max_length: MOST_TOKENS, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(|error| failed(error.to_string()))?;
        let path = folder.join("model.safetensors");
        let read = || -> Result<MiniLm> {
            let tensors = candle_core::safetensors::load(&path, &Device::Cpu)?;
            let files = Files(&tensors);
            let words = files.get("embeddings.word_embeddings.weight")?;
            if words.dim(1)? != WIDTH {
                candle_core::bail!("its vectors have {} numbers, expected {WIDTH}", words.dim(1)?);
            }
            Ok(MiniLm {
                tokenizer,
                words,
                positions: files.get("embeddings.position_embeddings.weight")?,
                kind: files.get("embeddings.token_type_embeddings.weight")?.narrow(0, 0, 1)?,
                norm: files.norm("embeddings.LayerNorm")?,
                layers: (0..LAYERS).map(|at| files.layer(at)).collect::<Result<_>>()?,
            })
        };
        read().map_err(|error| BaselineError::File(path.clone(), error.to_string()))
    }

    /// The vector of a text.
    ///
    /// # Errors
    /// The text cannot be split into tokens, or a tensor operation failed.
    pub fn encode(&self, text: &str) -> std::result::Result<Vec<f32>, BaselineError> {
        let encoding = self.tokenizer.encode(text, true).map_err(|error| BaselineError::Encoder(error.to_string()))?;
        let mut vector = values(&self.forward(encoding.get_ids())?)?;
        normalise(&mut vector);
        Ok(vector)
    }

    /// The mean over the tokens.
    fn forward(&self, ids: &[u32]) -> Result<Tensor> {
        let count = ids.len();
        let words = self.words.index_select(&Tensor::new(ids, &Device::Cpu)?, 0)?;
        let x = (words + self.positions.narrow(0, 0, count)?)?.broadcast_add(&self.kind)?;
        let mut x = self.norm.forward(&x)?;
        for layer in &self.layers {
            x = layer.forward(&x)?;
        }
        x.mean(0)
    }
}

impl Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (count, width) = x.dims2()?;
        let heads =
            |part: &Affine| part.forward(x)?.reshape((count, HEADS, width / HEADS))?.transpose(0, 1)?.contiguous();
        let (query, key, value) = (heads(&self.query)?, heads(&self.key)?, heads(&self.value)?);
        let scores = (query.matmul(&key.t()?.contiguous()?)? / ((width / HEADS) as f64).sqrt())?;
        let exps = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
        let weights = exps.broadcast_div(&exps.sum_keepdim(D::Minus1)?)?;
        let read = weights.matmul(&value)?.transpose(0, 1)?.reshape((count, width))?;
        let x = self.attended_norm.forward(&(x + self.attended.forward(&read)?)?)?;
        let inner = self.inner.forward(&x)?.gelu_erf()?;
        self.norm.forward(&(&x + self.outer.forward(&inner)?)?)
    }
}
