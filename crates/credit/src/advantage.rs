//! What the learner gets: one advantage a token.
//!
//! The group-relative advantage of plain GRPO goes to every token of a text; the local credit of an edited field is added
//! on the tokens of that field alone. Without edits nothing is added, and the result is plain GRPO, bit for bit.

use lemon_spec::Span;
use std::ops::Range;

/// The advantages of a group of texts for one task: each reward less the mean of the group. A reward that was not measured
/// has no advantage and no part in the mean.
///
/// `normalise` divides by the standard deviation of the group besides. It is off by default in this project: where all of
/// a group succeed, rewards differ by a few tokens only, and the division makes full advantages of them. In the
/// prototype this made teams cheap and wrong. A group whose rewards are all equal has advantages of zero either way.
pub fn group_relative(rewards: &[Option<f64>], normalise: bool) -> Vec<Option<f64>> {
    let measured: Vec<f64> = rewards.iter().flatten().copied().collect();
    let n = measured.len() as f64;
    let mean = measured.iter().sum::<f64>() / n;
    let variance = measured.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / n;
    let scale = if normalise && variance > 0.0 { variance.sqrt() } else { 1.0 };
    rewards.iter().map(|reward| reward.map(|reward| (reward - mean) / scale)).collect()
}

/// The local credit of each token of a text. `tokens` are the byte ranges of its tokens; `spans` are edited fields with
/// what each is worth, `Δ = R(original) − R(edited)`.
///
/// A token counts to the field that holds most of its bytes. Where fields lie in one another (a duty in the entry of its
/// agent), or one was edited in two ways, it counts to each of them and their credits add up. A token that is for the most
/// part outside every field has none.
pub fn token_weights(tokens: &[Range<usize>], spans: &[(Span, f64)]) -> Vec<Option<f64>> {
    tokens.iter().map(|token| token_weight(token, spans)).collect()
}

/// The advantages of a text's tokens: that of the text in its group, and `lambda` times the local credit where there is
/// any.
pub fn combine(group: f64, local: &[Option<f64>], lambda: f64) -> Vec<f64> {
    // Not `group + lambda * unwrap_or(0.0)`, which would turn a −0.0 into 0.0.
    local.iter().map(|credit| credit.map_or(group, |credit| group + lambda * credit)).collect()
}

fn token_weight(token: &Range<usize>, spans: &[(Span, f64)]) -> Option<f64> {
    let held = spans.iter().map(|(span, credit)| (overlap(token, *span), *credit));
    let most_held = held.clone().filter(|(bytes, _)| *bytes > token.len() / 2);
    let sum = most_held.map(|(_, credit)| credit).reduce(|sum, credit| sum + credit);
    sum.or_else(|| {
        // No field holds more than half of it: the one that holds the largest part, the first of equals, unless more of
        // the token is in no field at all.
        let outside = held.clone().fold(token.len(), |rest, (bytes, _)| rest.saturating_sub(bytes));
        let largest = held.rev().max_by_key(|(bytes, _)| *bytes)?;
        (largest.0 > 0 && largest.0 >= outside).then_some(largest.1)
    })
}

/// How many bytes of a token a span holds.
fn overlap(token: &Range<usize>, span: Span) -> usize {
    token.end.min(span.end).saturating_sub(token.start.max(span.start))
}

#[cfg(test)]
mod tests;
