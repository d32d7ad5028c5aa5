//! The layers. Rows of a matrix are examples.

use super::{NetWeights, sigmoid};
use candle_core::{D, Result, Tensor};

/// `x W + b`. The weight is inputs by outputs: a transposed one costs a pass over its gradient at each use.
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// A layer of these weights.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn new(weights: &mut NetWeights, name: &str, inputs: usize, outputs: usize) -> Result<Self> {
        let bound = 1.0 / (inputs as f64).sqrt();
        let weight = weights.uniform(&format!("{name}.weight"), &[inputs, outputs], bound)?;
        let bias = weights.uniform(&format!("{name}.bias"), &[outputs], bound)?;
        Ok(Linear { weight, bias })
    }

    /// The same with weights that are never trained.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn untrained(weights: &mut NetWeights, name: &str, inputs: usize, outputs: usize) -> Result<Self> {
        let bound = 1.0 / (inputs as f64).sqrt();
        let weight = weights.untrained(&format!("{name}.weight"), &[inputs, outputs], bound)?;
        let bias = weights.untrained(&format!("{name}.bias"), &[outputs], bound)?;
        Ok(Linear { weight, bias })
    }

    /// Applies it to rows.
    ///
    /// # Errors
    /// The rows have another width.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weight)?.broadcast_add(&self.bias)
    }
}

/// Linear layers with ReLU between them.
pub struct Mlp(Vec<Linear>);

impl Mlp {
    /// Layers of these widths, inputs first.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn new(weights: &mut NetWeights, name: &str, widths: &[usize]) -> Result<Self> {
        let layers = widths.windows(2).enumerate().map(|(at, pair)| match pair {
            [inputs, outputs] => Linear::new(weights, &format!("{name}.{at}"), *inputs, *outputs),
            _ => candle_core::bail!("windows of 2 have 2"),
        });
        layers.collect::<Result<_>>().map(Mlp)
    }

    /// Applies it to rows.
    ///
    /// # Errors
    /// The rows have another width.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (at, layer) in self.0.iter().enumerate() {
            x = layer.forward(&if at > 0 { x.relu()? } else { x })?;
        }
        Ok(x)
    }
}

/// Rows with mean 0 and variance 1, then scaled and shifted.
pub struct LayerNorm {
    scale: Tensor,
    shift: Tensor,
    epsilon: f64,
}

impl LayerNorm {
    /// A norm over rows of this width.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn new(weights: &mut NetWeights, name: &str, width: usize) -> Result<Self> {
        let scale = weights.constant(&format!("{name}.weight"), &[width], 1.0)?;
        let shift = weights.constant(&format!("{name}.bias"), &[width], 0.0)?;
        Ok(LayerNorm { scale, shift, epsilon: 1e-5 })
    }

    /// A norm of weights that exist.
    pub fn of(scale: Tensor, shift: Tensor, epsilon: f64) -> Self {
        LayerNorm { scale, shift, epsilon }
    }

    /// Applies it to rows.
    ///
    /// # Errors
    /// The rows have another width.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let spread = (centred.sqr()?.mean_keepdim(D::Minus1)? + self.epsilon)?.sqrt()?;
        centred.broadcast_div(&spread)?.broadcast_mul(&self.scale)?.broadcast_add(&self.shift)
    }
}

/// A gated recurrent unit, with the gates in the order reset, update, new.
pub struct GruCell {
    input: Linear,
    state: Linear,
    width: usize,
}

impl GruCell {
    /// A unit with a state of this width.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn new(weights: &mut NetWeights, name: &str, inputs: usize, width: usize) -> Result<Self> {
        let bound = 1.0 / (width as f64).sqrt();
        let mut linear = |part: &str, inputs: usize| -> Result<Linear> {
            let weight = weights.uniform(&format!("{name}.{part}.weight"), &[inputs, 3 * width], bound)?;
            let bias = weights.uniform(&format!("{name}.{part}.bias"), &[3 * width], bound)?;
            Ok(Linear { weight, bias })
        };
        Ok(GruCell { input: linear("input", inputs)?, state: linear("state", width)?, width })
    }

    /// The next state of each row.
    ///
    /// # Errors
    /// The rows have another width.
    pub fn forward(&self, x: &Tensor, state: &Tensor) -> Result<Tensor> {
        self.advance(&self.project(x)?, state)
    }

    /// What the gates take from inputs, which needs no state: that of all steps at once where all inputs are known.
    ///
    /// # Errors
    /// The rows have another width.
    pub fn project(&self, x: &Tensor) -> Result<Tensor> {
        self.input.forward(x)
    }

    /// The next state of each row, by what the gates take from its input.
    ///
    /// # Errors
    /// The rows have another width.
    pub fn advance(&self, from_input: &Tensor, state: &Tensor) -> Result<Tensor> {
        let from_state = self.state.forward(state)?;
        let part = |all: &Tensor, at: usize| all.narrow(D::Minus1, at * self.width, self.width);
        let reset = sigmoid(&(part(from_input, 0)? + part(&from_state, 0)?)?)?;
        let update = sigmoid(&(part(from_input, 1)? + part(&from_state, 1)?)?)?;
        let new = (part(from_input, 2)? + (reset * part(&from_state, 2)?)?)?.tanh()?;
        &new + (update * (state - &new)?)?
    }
}

/// One layer of a graph convolutional network.
pub struct GcnLayer {
    weight: Tensor,
    bias: Tensor,
}

impl GcnLayer {
    /// A layer of these widths.
    ///
    /// # Errors
    /// The checkpoint has another shape.
    pub fn new(weights: &mut NetWeights, name: &str, inputs: usize, outputs: usize) -> Result<Self> {
        let bound = (6.0 / (inputs + outputs) as f64).sqrt();
        let weight = weights.uniform(&format!("{name}.weight"), &[inputs, outputs], bound)?;
        let bias = weights.constant(&format!("{name}.bias"), &[outputs], 0.0)?;
        Ok(GcnLayer { weight, bias })
    }

    /// Applies it to the rows of nodes, which the normalised adjacency mixes.
    ///
    /// # Errors
    /// The rows have another width.
    pub fn forward(&self, adjacency: &Tensor, x: &Tensor) -> Result<Tensor> {
        adjacency.matmul(&x.matmul(&self.weight)?)?.broadcast_add(&self.bias)
    }

    /// `D^-½ (A + I) D^-½` of directed edges, as rows of receivers: entry `(j, i)` for an edge from `i` to `j`.
    pub fn normalised(nodes: usize, edges: &[(usize, usize)]) -> Vec<f32> {
        let mut sums = vec![1.0_f32; nodes];
        let within: Vec<_> = edges.iter().filter(|(from, to)| *from < nodes && *to < nodes && from != to).collect();
        for (_, to) in &within {
            sums[*to] += 1.0;
        }
        let mut matrix = vec![0.0_f32; nodes * nodes];
        // Every index is below `nodes`.
        for (from, to) in within.into_iter().copied().chain((0..nodes).map(|node| (node, node))) {
            matrix[to * nodes + from] = 1.0 / (sums[from] * sums[to]).sqrt();
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::check::check_gradient;
    use crate::nn::{log_sigmoid, log_softmax, tensor};
    use candle_core::DType;

    fn rows() -> Tensor {
        let values: Vec<f32> = (0..12).map(|at| (at as f32 * 0.7).sin()).collect();
        tensor(&values, (3, 4), DType::F64).unwrap()
    }

    #[test]
    fn the_gradient_of_every_layer_is_the_difference_quotient() {
        let mut weights = NetWeights::new(1, DType::F64);
        let mlp = Mlp::new(&mut weights, "mlp", &[4, 5, 4]).unwrap();
        let norm = LayerNorm::new(&mut weights, "norm", 4).unwrap();
        let gru = GruCell::new(&mut weights, "gru", 4, 4).unwrap();
        let gcn = GcnLayer::new(&mut weights, "gcn", 4, 4).unwrap();
        let adjacency = tensor(&GcnLayer::normalised(3, &[(0, 1), (1, 2), (0, 2)]), (3, 3), DType::F64).unwrap();
        check_gradient(&weights, || {
            let x = norm.forward(&mlp.forward(&rows())?)?;
            let x = gru.forward(&x, &rows())?;
            let x = gru.forward(&x, &gcn.forward(&adjacency, &x)?)?;
            (log_softmax(&x)? * rows())?.sum_all()? + log_sigmoid(&x)?.sqr()?.sum_all()?
        });
    }

    #[test]
    fn a_gru_is_the_one_worked_out_by_hand() {
        let mut weights = NetWeights::new(0, DType::F64);
        let gru = GruCell::new(&mut weights, "gru", 1, 1).unwrap();
        let set = |name: &str, values: &[f32], shape: &[usize]| {
            weights.trained()[name].set(&tensor(values, shape, DType::F64).unwrap()).unwrap();
        };
        set("gru.input.weight", &[0.1, 0.2, 0.3], &[1, 3]);
        set("gru.input.bias", &[0.0, 0.5, 0.0], &[3]);
        set("gru.state.weight", &[0.4, 0.5, 0.6], &[1, 3]);
        set("gru.state.bias", &[0.0, 0.0, 0.7], &[3]);
        let row = |x: f32| tensor(&[x], (1, 1), DType::F64).unwrap();
        let found = gru.forward(&row(2.0), &row(-1.0)).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap()[0];
        let s = |x: f64| 1.0 / (1.0 + (-x).exp());
        let (reset, update) = (s(0.2 - 0.4), s(0.4 + 0.5 - 0.5));
        let new = (0.6 + reset * (-0.6 + 0.7)).tanh();
        assert!((found - ((1.0 - update) * new - update)).abs() < 1e-6, "{found}");
    }

    #[test]
    fn an_adjacency_is_normalised_with_loops() {
        let half = 0.5_f32.sqrt();
        assert_eq!(GcnLayer::normalised(2, &[(0, 1)]), [1.0, 0.0, half, 0.5]);
        assert_eq!(GcnLayer::normalised(1, &[(0, 0), (0, 7)]), [1.0]);
    }
}
