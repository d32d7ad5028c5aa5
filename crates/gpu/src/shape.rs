//! The shape of a model, and the tensors that it consists of.

use crate::error::GpuError;

/// The shape of a decoder with rotary positions, grouped key heads and gated units: Llama, Qwen2, Qwen3.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelShape {
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// The width of the residual stream.
    pub hidden: usize,
    /// The width inside a layer's gated unit.
    pub intermediate: usize,
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// The width of a head.
    pub head_dim: usize,
    /// Added to the mean square in norms.
    pub epsilon: f32,
    /// The rotary frequencies: half as many as a head is wide.
    pub frequencies: Vec<f32>,
    /// The context length in tokens.
    pub positions: usize,
    /// Whether the embedding is also the head.
    pub tied: bool,
    /// Whether query, key and value have biases.
    pub qkv_bias: bool,
    /// Whether the output of attention has a bias.
    pub o_bias: bool,
    /// Whether query and key are normalised.
    pub qk_norm: bool,
}

/// A tensor of a model, in the order in which it lies on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// The vectors of tokens.
    Embedding,
    /// The last product; it is not there if the embedding is also the head.
    Head,
    /// The norm before the head.
    Norm,
    /// A part of a layer.
    Layer(usize, Part),
}

/// The parts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The norm before attention.
    InputNorm,
    /// Query, key and value, stacked.
    Qkv,
    /// Their biases, stacked.
    QkvBias,
    /// The norm of each query head.
    QNorm,
    /// The norm of each key head.
    KNorm,
    /// The output of attention.
    O,
    /// Its bias.
    OBias,
    /// The norm before the gated unit.
    PostNorm,
    /// Gate and up, stacked.
    GateUp,
    /// The output of the gated unit.
    Down,
}

impl ModelShape {
    /// Query heads that share a key head.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Rows of the stacked query, key and value.
    pub(crate) fn qkv(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// The vocabulary as the head has it: padded, because rows of logits are read in words of 16 bytes.
    pub(crate) fn padded_vocabulary(&self) -> usize {
        self.vocabulary.next_multiple_of(8)
    }

    /// Every tensor with its rows and their width. Vectors are one row.
    pub fn tensors(&self) -> Vec<(Tensor, usize, usize)> {
        let ModelShape { vocabulary, hidden, intermediate, heads, head_dim, .. } = *self;
        let mut all = vec![(Tensor::Embedding, vocabulary, hidden)];
        if !self.tied {
            all.push((Tensor::Head, vocabulary, hidden));
        }
        all.push((Tensor::Norm, 1, hidden));
        for layer in 0..self.layers {
            let mut push = |part, rows, width| all.push((Tensor::Layer(layer, part), rows, width));
            push(Part::InputNorm, 1, hidden);
            push(Part::Qkv, self.qkv(), hidden);
            if self.qkv_bias {
                push(Part::QkvBias, 1, self.qkv());
            }
            if self.qk_norm {
                push(Part::QNorm, 1, head_dim);
                push(Part::KNorm, 1, head_dim);
            }
            push(Part::O, hidden, heads * head_dim);
            if self.o_bias {
                push(Part::OBias, 1, hidden);
            }
            push(Part::PostNorm, 1, hidden);
            push(Part::GateUp, 2 * intermediate, hidden);
            push(Part::Down, hidden, intermediate);
        }
        all
    }

    /// Whether the kernels can run it.
    ///
    /// # Errors
    /// What they cannot.
    pub fn check(&self) -> Result<(), GpuError> {
        let ModelShape { hidden, intermediate, heads, kv_heads, head_dim, .. } = *self;
        let shape = |fact: String| Err(GpuError::Shape(fact));
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || self.group() > 16 {
            return shape(format!("expected at most 16 query heads for each key head, found {heads} and {kv_heads}"));
        }
        if !head_dim.is_multiple_of(16) || !(16..=128).contains(&head_dim) {
            return shape(format!("expected heads of a multiple of 16 up to 128, found a width of {head_dim}"));
        }
        if !hidden.is_multiple_of(8) || !intermediate.is_multiple_of(8) || hidden == 0 || intermediate == 0 {
            return shape(format!("expected widths that are multiples of 8, found {hidden} and {intermediate}"));
        }
        if self.layers == 0 || self.vocabulary == 0 || self.frequencies.len() != head_dim / 2 {
            let (layers, tokens, found) = (self.layers, self.vocabulary, self.frequencies.len());
            return shape(format!("{layers} layers, {tokens} tokens and {found} rotary frequencies are no model"));
        }
        Ok(())
    }

    /// Qwen2.5-1.5B, for measurements.
    pub fn qwen_1_5b() -> ModelShape {
        ModelShape {
            vocabulary: 151_936,
            hidden: 1_536,
            intermediate: 8_960,
            layers: 28,
            heads: 12,
            kv_heads: 2,
            head_dim: 128,
            epsilon: 1e-6,
            frequencies: frequencies(1e6, 128),
            positions: 32_768,
            tied: true,
            qkv_bias: true,
            o_bias: false,
            qk_norm: false,
        }
    }

    /// SmolLM2-135M, for measurements.
    pub fn smol_135m() -> ModelShape {
        ModelShape {
            vocabulary: 49_152,
            hidden: 576,
            intermediate: 1_536,
            layers: 30,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            epsilon: 1e-5,
            frequencies: frequencies(1e5, 64),
            positions: 8_192,
            tied: true,
            qkv_bias: false,
            o_bias: false,
            qk_norm: false,
        }
    }
}

/// Unscaled rotary frequencies.
pub(crate) fn frequencies(theta: f64, dim: usize) -> Vec<f32> {
    (0..dim / 2).map(|at| theta.powf(-(at as f64) / (dim / 2) as f64) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_shapes_can_run_and_odd_ones_are_refused() {
        let qwen = ModelShape::qwen_1_5b();
        assert_eq!((qwen.check(), ModelShape::smol_135m().check()), (Ok(()), Ok(())));
        let numbers: usize = qwen.tensors().iter().map(|(_, rows, width)| rows * width).sum();
        assert_eq!(numbers, 1_543_714_304, "the parameters of Qwen2.5-1.5B");
        let odd = |change: fn(&mut ModelShape)| {
            let mut shape = ModelShape::smol_135m();
            change(&mut shape);
            shape.check().unwrap_err().to_string()
        };
        assert!(odd(|it| it.head_dim = 72).contains("72"));
        assert!(odd(|it| it.kv_heads = 0).contains("9 and 0"));
        assert!(odd(|it| (it.heads, it.kv_heads) = (17, 1)).contains("17 and 1"));
        assert!(odd(|it| it.hidden = 577).contains("577"));
        assert!(odd(|it| it.layers = 0).contains("0 layers"));
    }
}
