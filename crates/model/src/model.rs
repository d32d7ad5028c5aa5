//! The model: a decoder-only transformer of the Qwen2 family. Shapes stand in comments; R rows are positions of all texts of a
//! batch together, since only attention has to know which rows belong to one text.

use crate::config::ModelConfig;
use crate::ops::{self, Ops};
use crate::parameters::{Parameters, Weight};
use crate::rows::{Cache, Rows};
use candle_core::{DType, Device, Result, Tensor};

/// A language model, ready to be run or trained.
pub(crate) struct Model {
    pub(crate) config: ModelConfig,
    pub(crate) device: Device,
    /// The number format of computation: f32 on the CPU, bf16 on a GPU.
    pub(crate) dtype: DType,
    pub(crate) ops: Ops,
    pub(crate) parameters: Parameters,
    embedding: Weight,
    layers: Vec<Layer>,
    norm: Weight,
    /// `None`: the embedding is the head.
    head: Option<Weight>,
    frequencies: Vec<f32>,
}

struct Layer {
    input_norm: Weight,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    /// Qwen3's norms of query and key.
    qk_norm: Option<(Weight, Weight)>,
    post_norm: Weight,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// A matrix, with what may be added to its product.
struct Linear {
    weight: Weight,
    bias: Option<Weight>,
    lora: Option<Lora>,
}

/// A matrix of low rank that is learned beside a frozen one.
struct Lora {
    a: Weight,
    b: Weight,
    scale: f64,
}

impl Model {
    /// Assembles the layers from the parameters.
    pub(crate) fn new(config: ModelConfig, parameters: Parameters, device: Device, dtype: DType) -> Result<Self> {
        let find = |name: &str| parameters.get(name);
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let at = |name: &str| format!("model.layers.{layer}.{name}");
            let linear = |name: &str, bias: bool| -> Result<Linear> {
                let weight = find(&at(&format!("{name}.weight")))?;
                let bias = if bias { Some(find(&at(&format!("{name}.bias")))?) } else { None };
                let lora = match parameters.lora_scale(&at(name)) {
                    None => None,
                    Some(scale) => {
                        let a = find(&at(&format!("{name}.lora_A.weight")))?;
                        Some(Lora { a, b: find(&at(&format!("{name}.lora_B.weight")))?, scale })
                    }
                };
                Ok(Linear { weight, bias, lora })
            };
            let bias = config.attention_bias;
            let qk_norm = match config.has_head_norms() {
                true => Some((find(&at("self_attn.q_norm.weight"))?, find(&at("self_attn.k_norm.weight"))?)),
                false => None,
            };
            layers.push(Layer {
                input_norm: find(&at("input_layernorm.weight"))?,
                q: linear("self_attn.q_proj", bias)?,
                k: linear("self_attn.k_proj", bias)?,
                v: linear("self_attn.v_proj", bias)?,
                o: linear("self_attn.o_proj", config.has_output_bias())?,
                qk_norm,
                post_norm: find(&at("post_attention_layernorm.weight"))?,
                gate: linear("mlp.gate_proj", false)?,
                up: linear("mlp.up_proj", false)?,
                down: linear("mlp.down_proj", false)?,
            });
        }
        Ok(Model {
            embedding: find("model.embed_tokens.weight")?,
            norm: find("model.norm.weight")?,
            head: if config.tied { None } else { Some(find("lm_head.weight")?) },
            frequencies: config.rotary_frequencies(),
            layers,
            ops: Ops::Fused,
            parameters,
            config,
            device,
            dtype,
        })
    }

    /// Whole texts as rows, and where each begins: one after another where attention takes them so, else in windows.
    pub(crate) fn rows_of_texts(&self, texts: &[&[u32]]) -> (Rows, Vec<usize>) {
        if self.device.is_cpu() || self.attends_packed() { Rows::of_texts(texts) } else { Rows::in_windows(texts) }
    }

    /// Whether there is a kernel on this GPU for texts that stand one after another.
    fn attends_packed(&self) -> bool {
        self.device.is_cuda() && self.ops == Ops::Fused && ops::packed_attention_takes(self.config.head_dim)
    }

    /// The normalised output of the last layer: (R, hidden).
    pub(crate) fn hidden(&self, rows: &Rows, mut cache: Option<&mut Cache>) -> Result<Tensor> {
        let mut x = self.ops.gather_rows(&self.embedding.value(self.dtype)?, &rows.tokens)?;
        let (cos, sin) = self.rotations(&rows.positions)?;
        for (number, layer) in self.layers.iter().enumerate() {
            let cached = cache.as_deref_mut().map(|cache| cache.layer(number)).transpose()?;
            // (R, hidden) -> (R, hidden)
            let attended = self.attend(layer, &self.norm(&x, &layer.input_norm)?, rows, cached, &cos, &sin)?;
            x = (x + attended)?;
            let h = self.norm(&x, &layer.post_norm)?;
            let gated = self.ops.swiglu(&self.linear(&h, &layer.gate)?, &self.linear(&h, &layer.up)?)?;
            x = (x + self.linear(&gated, &layer.down)?)?;
        }
        self.norm(&x, &self.norm)
    }

    /// The logits of some rows of [`Self::hidden`]: (r, vocabulary).
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        self.ops.linear(hidden, &head.value(self.dtype)?, None, head.is_frozen())
    }

    fn attend(
        &self,
        layer: &Layer,
        h: &Tensor,
        rows: &Rows,
        cached: Option<&mut (Tensor, Tensor)>,
        cos: &Tensor,
        sin: &Tensor,
    ) -> Result<Tensor> {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.config;
        let count = h.dim(0)?;
        // (R, heads · D) -> (R, heads, D)
        let mut q = self.linear(h, &layer.q)?.reshape((count, heads, head_dim))?;
        let mut k = self.linear(h, &layer.k)?.reshape((count, kv_heads, head_dim))?;
        let v = self.linear(h, &layer.v)?.reshape((count, kv_heads, head_dim))?;
        if let Some((q_norm, k_norm)) = &layer.qk_norm {
            q = self.norm(&q, q_norm)?;
            k = self.norm(&k, k_norm)?;
        }
        q = self.ops.rotary(&q.unsqueeze(0)?, cos, sin)?.squeeze(0)?;
        k = self.ops.rotary(&k.unsqueeze(0)?, cos, sin)?.squeeze(0)?;
        let scale = 1.0 / (head_dim as f64).sqrt();
        let attended = if self.device.is_cpu() && self.ops == Ops::Fused {
            // (R, KV, D) -> (KV, R, D)
            let (mut k, mut v) = (k.transpose(0, 1)?, v.transpose(0, 1)?);
            if let Some((keys, values)) = cached {
                ops::write_rows(keys, &k.contiguous()?, &rows.slots)?;
                ops::write_rows(values, &v.contiguous()?, &rows.slots)?;
                (k, v) = (keys.clone(), values.clone());
            }
            ops::attention(&q, &k, &v, &rows.visible, scale as f32)?
        } else if cached.is_none() && self.attends_packed() {
            ops::packed_attention(&q, &k, &v, rows.bounds_of_texts(&self.device)?, scale as f32)?
        } else {
            self.attend_densely(&q, &k, &v, rows, cached, scale)?
        };
        self.linear(&attended.reshape((count, heads * head_dim))?, &layer.o)
    }

    /// Attention by matrices of scores, for rows that stand in windows of equal length.
    fn attend_densely(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        rows: &Rows,
        cached: Option<&mut (Tensor, Tensor)>,
        scale: f64,
    ) -> Result<Tensor> {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.config;
        let (windows, length) = rows.windows;
        let group = heads / kv_heads;
        // (W · T, H, D) -> (W, H, T, D): heads that share a key stand side by side.
        let by_head = |it: &Tensor, heads: usize, length: usize| {
            self.ops.swap_axes(&it.reshape((windows, length, heads, head_dim))?)
        };
        let q = by_head(q, heads, length)?.reshape((windows * kv_heads, group * length, head_dim))?;
        let (k, v) = match cached {
            None => (by_head(k, kv_heads, length)?, by_head(v, kv_heads, length)?),
            Some((keys, values)) => {
                // (R, KV, D) -> (KV, R, D); the cache has all windows of a head together.
                let by_window = |cache: &Tensor, new: &Tensor| -> Result<Tensor> {
                    ops::write_rows(cache, &new.transpose(0, 1)?.contiguous()?, &rows.slots)?;
                    cache.reshape((kv_heads, windows, rows.keys, head_dim))?.transpose(0, 1)?.contiguous()
                };
                (by_window(keys, k)?, by_window(values, v)?)
            }
        };
        let keys = k.dim(2)?;
        let (k, v) = (k.reshape(((), keys, head_dim))?, v.reshape(((), keys, head_dim))?);
        // (W·KV, G·T, D) · (W·KV, D, S) -> (W·KV, G·T, S)
        let scores = q.matmul(&k.transpose(1, 2)?)?.reshape((windows, heads, length, keys))?;
        let shares = self.ops.masked_softmax(&scores, rows.visible_in_windows(&self.device)?, scale)?;
        let out = shares.reshape((windows * kv_heads, group * length, keys))?.matmul(&v)?;
        self.ops.swap_axes(&out.reshape((windows, heads, length, head_dim))?)
    }

    fn norm(&self, x: &Tensor, weight: &Weight) -> Result<Tensor> {
        self.ops.rms_norm(x, &weight.value(self.dtype)?, self.config.norm_epsilon)
    }

    fn linear(&self, x: &Tensor, linear: &Linear) -> Result<Tensor> {
        let bias = linear.bias.as_ref().map(|bias| bias.value(self.dtype)).transpose()?;
        let weight = linear.weight.value(self.dtype)?;
        let y = self.ops.linear(x, &weight, bias.as_ref(), linear.weight.is_frozen())?;
        let Some(lora) = &linear.lora else { return Ok(y) };
        let low = self.ops.linear(x, &lora.a.value(self.dtype)?, None, false)?;
        y + (self.ops.linear(&low, &lora.b.value(self.dtype)?, None, false)? * lora.scale)?
    }

    /// The rotations of these positions: two tensors (R, D/2), in f32 whatever the model is computed in.
    fn rotations(&self, positions: &[u32]) -> Result<(Tensor, Tensor)> {
        let half = self.frequencies.len();
        // In a batch of texts every position occurs often, and is computed once; when texts are written, few are asked for.
        let most = positions.iter().max().map_or(0, |last| *last as usize + 1);
        let known: Vec<u32> = if positions.len() > most { (0..most as u32).collect() } else { positions.to_vec() };
        let angles: Vec<f32> =
            known.iter().flat_map(|at| self.frequencies.iter().map(move |it| *at as f32 * it)).collect();
        let rows = match positions.len() > most {
            true => Some(Tensor::from_slice(positions, positions.len(), &self.device)?),
            false => None,
        };
        let of = |function: fn(f32) -> f32| {
            let table: Vec<f32> = angles.iter().map(|it| function(*it)).collect();
            let table = Tensor::from_vec(table, (known.len(), half), &self.device)?;
            rows.as_ref().map_or(Ok(table.clone()), |rows| table.index_select(rows, 0))
        };
        Ok((of(f32::cos)?, of(f32::sin)?))
    }
}
