//! The router that a critic has to beat: it reads the question, and chooses one of the fixed methods.

use crate::fit::{CriticSettings, Read};
use crate::optimise::{Loss, Regression, TextRows, text_dot};
use crate::text::QuestionText;
use crate::walk::{FIXED, fixed};
use rayon::prelude::*;

/// Weights of success and of the logarithm of tokens, for each fixed method.
pub(crate) struct Router(Vec<(Vec<f64>, Vec<f64>)>);

impl Router {
    /// Learns success and cost of every fixed method from the words of the question.
    pub fn fit(read: &[Read<'_>], settings: &CriticSettings) -> Self {
        let fit = |(_, ask): &(&str, _)| {
            let (mut rows, mut success, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
            for task in read {
                let served = task.task.serve(settings.seed, false);
                // Tasks without recorded programs say nothing of methods that need them.
                let unknown = task.group == crate::text::Group::Number && served.replies[1].is_empty();
                if served.replies[2].is_empty() || unknown {
                    continue;
                }
                let walked = fixed(*ask, &served);
                rows.push(&task.text);
                success.push(f64::from(u8::from(walked.right)));
                tokens.push(walked.tokens.max(1.0).ln());
            }
            let rows = TextRows(rows);
            let weights = vec![1.0; success.len()];
            let solve = |targets: &[f64], loss, ridge| {
                Regression { rows: &rows, targets, weights: &weights, loss, ridge }.solve()
            };
            (solve(&success, Loss::Logistic, settings.text_ridge), solve(&tokens, Loss::Squared, 3.0))
        };
        Router(FIXED.par_iter().map(fit).collect())
    }

    /// The position of the method that is worth most under a price of 1,000 tokens.
    pub fn choose(&self, text: &QuestionText, price: f64) -> usize {
        let value = |weights: &[f64]| text_dot(text, weights) + weights.last().copied().unwrap_or_default();
        let worth = |(success, tokens): &(Vec<f64>, Vec<f64>)| {
            lemon_num::logistic(value(success)) - price * value(tokens).min(20.0).exp() / 1000.0
        };
        let worths = self.0.iter().map(worth).enumerate();
        worths.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
    }
}
