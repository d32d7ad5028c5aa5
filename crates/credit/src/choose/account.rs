//! What is known of a family of edits.

use crate::estimate::Paired;
use serde::{Deserialize, Serialize};

/// What the counterfactuals of a family came to.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Account {
    /// Their differences: mean, variance, share of exact zeros.
    pub deltas: Paired,
    /// The sum of their absolute values.
    pub absolute: f64,
    /// Worker tokens spent on them, those that measured nothing included.
    pub tokens: u64,
}

/// How many pairs a prior is worth.
const PRIOR_PAIRS: f64 = 4.0;

/// Before anything is known: half of all edits change nothing, …
const PRIOR_NONZERO: f64 = 0.5;

/// … and the square of a difference that is not zero is 0.6. Together they give a variance of 0.3, as paid edits had in the
/// prototype.
const PRIOR_SQUARE: f64 = 0.6;

impl Account {
    /// Adds one counterfactual.
    pub fn add(&mut self, delta: Option<f64>, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
        if let Some(delta) = delta.filter(|delta| delta.is_finite()) {
            self.deltas.push(delta);
            self.absolute += delta.abs();
        }
    }

    /// The mean |Δ|, with one made-up pair, so that a family without pairs is drawn too.
    pub fn mean_absolute(&self) -> f64 {
        let prior = PRIOR_NONZERO * PRIOR_SQUARE.sqrt();
        (self.absolute + prior) / (self.deltas.n() as f64 + 1.0)
    }

    /// The variance to expect of an edit of this family whose own pairs are `own`: `p · s − m²`, with the chance p of a
    /// difference that is not exactly zero, the mean square s of one that is not, and the mean m.
    ///
    /// Few pairs that are all zero would give a variance of none and end the matter. So p is drawn towards that of the
    /// family, which itself is drawn towards one half; s comes from the family, since an edit of its own has too few.
    pub fn variance_of(&self, own: &Paired) -> f64 {
        let towards = |sum: f64, n: f64, prior: f64| (sum + PRIOR_PAIRS * prior) / (n + PRIOR_PAIRS);
        let (n, family_n) = (own.n() as f64, self.deltas.n() as f64);
        let family_nonzero = towards(self.deltas.nonzero() as f64, family_n, PRIOR_NONZERO);
        let nonzero = towards(own.nonzero() as f64, n, family_nonzero);
        let square = towards(self.deltas.sum_of_squares(), self.deltas.nonzero() as f64, PRIOR_SQUARE);
        let mean = towards(own.mean().unwrap_or(0.0) * n, n, 0.0);
        (nonzero * square - mean * mean).max(0.0)
    }
}
