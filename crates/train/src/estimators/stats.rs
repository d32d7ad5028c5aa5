//! From gradients of many groups to bias and variance.

use super::Estimator;

/// Parts that the groups are divided into: what they agree on is bias, what they do not is noise.
const PARTS: usize = 20;

/// What an estimator came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    pub name: String,
    /// What it does.
    pub about: String,
    /// Whether its mean is known to be the exact gradient times a number.
    pub is_unbiased: bool,
    /// Counterfactual runs for each group.
    pub runs: f64,
    /// All parameters together.
    pub all: Figures,
    /// Each field that has a choice.
    pub fields: Vec<FieldFigures>,
}

/// What it came to for one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldFigures {
    pub field: String,
    pub figures: Figures,
}

/// The mean of an estimator against the exact gradient.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// The exact gradient times this is nearest to the mean.
    pub scale: f64,
    /// The norm of what is left of the mean after that, over the norm of the scaled gradient: the bias of its direction.
    pub bias: f64,
    /// The squared bias over its standard error. Below about 4 it may be chance.
    pub z: f64,
    /// The variance of one group's gradient over the squared norm of the scaled exact one: noise to signal.
    pub noise: f64,
}

/// Gradients added up.
pub(super) struct Sums {
    groups: usize,
    added: usize,
    /// Of each part the sum of differences from the exact gradient.
    parts: Vec<Vec<f64>>,
    sum: Vec<f64>,
    squares: Vec<f64>,
    runs: usize,
}

impl Sums {
    pub fn new(parameters: usize, groups: usize) -> Sums {
        let zeros = vec![0.0; parameters];
        let (sum, squares) = (zeros.clone(), zeros.clone());
        Sums { groups: groups.max(1), added: 0, parts: vec![zeros; PARTS], sum, squares, runs: 0 }
    }

    /// Adds the gradient of a group, and its difference from the exact gradient: as it is, or from one with the same mean.
    pub fn add(&mut self, gradient: &[f64], difference: &[f64], runs: usize) {
        let part = (self.added * PARTS / self.groups).min(PARTS - 1);
        if let Some(part) = self.parts.get_mut(part) {
            part.iter_mut().zip(difference).for_each(|(sum, slope)| *sum += slope);
        }
        for ((sum, square), slope) in self.sum.iter_mut().zip(&mut self.squares).zip(gradient) {
            *sum += slope;
            *square += slope * slope;
        }
        self.added += 1;
        self.runs += runs;
    }

    pub fn compared(self, estimator: &Estimator, exact: &[f64], names: &[String]) -> Compared {
        let each = (self.groups as f64 / PARTS as f64).max(1.0);
        let parts: Vec<Vec<f64>> = self.parts.iter().map(|part| part.iter().map(|sum| sum / each).collect()).collect();
        let n = self.added.max(1) as f64;
        let variance = |at: usize| (self.squares[at] / n - (self.sum[at] / n).powi(2)).max(0.0);
        let figures = |own: &dyn Fn(usize) -> bool| {
            let places: Vec<usize> = (0..exact.len()).filter(|at| own(*at)).collect();
            let pick = |values: &[f64]| places.iter().map(|at| values[*at]).collect::<Vec<f64>>();
            let noise: f64 = places.iter().map(|at| variance(*at)).sum();
            figures(&pick(exact), &parts.iter().map(|part| pick(part)).collect::<Vec<_>>(), noise)
        };
        let of_field = |field: String| FieldFigures { figures: figures(&|at| names[at] == field), field };
        Compared {
            name: estimator.name.to_owned(),
            about: estimator.about.to_owned(),
            is_unbiased: estimator.is_unbiased,
            runs: self.runs as f64 / n,
            all: figures(&|_| true),
            fields: fields(exact, names).into_iter().map(of_field).collect(),
        }
    }
}

/// The fields with a gradient, in their order.
pub(super) fn fields(exact: &[f64], names: &[String]) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    for (slope, name) in exact.iter().zip(names) {
        if slope.abs() > 1e-12 && !fields.contains(name) {
            fields.push(name.clone());
        }
    }
    fields
}

fn dot(one: &[f64], two: &[f64]) -> f64 {
    one.iter().zip(two).map(|(one, two)| one * two).sum()
}

fn figures(exact: &[f64], parts: &[Vec<f64>], variance: f64) -> Figures {
    let signal = dot(exact, exact).max(1e-300);
    let mean = |skipped: Option<usize>| {
        let kept: Vec<&Vec<f64>> =
            parts.iter().enumerate().filter(|(at, _)| Some(*at) != skipped).map(|(_, it)| it).collect();
        (0..exact.len())
            .map(|at| kept.iter().map(|part| part[at]).sum::<f64>() / kept.len() as f64)
            .collect::<Vec<f64>>()
    };
    let scale = 1.0 + dot(&mean(None), exact) / signal;
    // The squared bias: products of different parts have no noise in their mean.
    let squared = |skipped: Option<usize>| {
        let own = 1.0 + dot(&mean(skipped), exact) / signal;
        let rest = |part: &Vec<f64>| part.iter().zip(exact).map(|(slope, exact)| slope - (own - 1.0) * exact).collect();
        let kept = parts.iter().enumerate().filter(|(at, _)| Some(*at) != skipped);
        let rests: Vec<Vec<f64>> = kept.map(|(_, part)| rest(part)).collect();
        let sum: Vec<f64> = (0..exact.len()).map(|at| rests.iter().map(|rest| rest[at]).sum()).collect();
        let own: f64 = rests.iter().map(|rest| dot(rest, rest)).sum();
        let pairs = (rests.len() * (rests.len() - 1)) as f64;
        (dot(&sum, &sum) - own) / pairs
    };
    let whole = squared(None);
    let without: Vec<f64> = (0..parts.len()).map(|at| squared(Some(at))).collect();
    let middle = without.iter().sum::<f64>() / without.len().max(1) as f64;
    let spread: f64 = without.iter().map(|value| (value - middle).powi(2)).sum();
    let error = ((parts.len() as f64 - 1.0) / parts.len() as f64 * spread).sqrt();
    let scaled = (scale * scale * signal).max(1e-300);
    Figures {
        scale,
        bias: (whole.max(0.0) / scaled).sqrt(),
        z: if error > 0.0 { whole / error } else { 0.0 },
        noise: variance / scaled,
    }
}
