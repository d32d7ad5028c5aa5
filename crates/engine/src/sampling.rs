//! Sampling the next token of a sequence.

use crate::kernels::elementwise;
use crate::kernels::gumbel::{self, Key};
use lemon_model::grammar::Mask;

/// How a token is sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SamplingParams {
    /// 0 takes the likeliest.
    pub(crate) temperature: f32,
    /// Only the likeliest tokens that together have this probability are sampled.
    pub(crate) top_p: f32,
    pub(crate) seed: u64,
    /// The index of the token in the completion.
    pub(crate) position: usize,
    /// The number of its mask in the batch: only tokens that it allows are sampled.
    pub(crate) mask: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SampledToken {
    pub(crate) token: u32,
    /// Its log-probability under the model: at temperature one, before `top_p`, without a mask.
    pub(crate) logprob: f32,
}

/// Samples a token of those that the mask allows; `sorted` is scratch memory. `None`: the logits are no numbers, or the mask
/// allows no token.
pub(crate) fn sample_masked(
    logits: &[f32],
    mask: &Mask,
    params: &SamplingParams,
    sorted: &mut Vec<(u32, f32)>,
) -> Option<SampledToken> {
    let allowed = |(token, logit): (u32, &f32)| if mask.allows(token) { *logit } else { f32::NEG_INFINITY };
    let allowed: Vec<f32> = (0..).zip(logits).map(allowed).collect();
    let most = elementwise::largest(logits);
    let total = elementwise::sum_of_exps(logits, most, 1.0);
    let SampledToken { token, .. } = sample(&allowed, params, sorted)?;
    let logprob = logits.get(token as usize)? - most - total.ln();
    (mask.allows(token) && logprob.is_finite()).then_some(SampledToken { token, logprob })
}

/// Samples a token; `sorted` is scratch memory. `None`: the logits are no numbers.
pub(crate) fn sample(logits: &[f32], params: &SamplingParams, sorted: &mut Vec<(u32, f32)>) -> Option<SampledToken> {
    let most = elementwise::largest(logits);
    let total = elementwise::sum_of_exps(logits, most, 1.0);
    if !most.is_finite() || !total.is_finite() {
        return None;
    }
    let key = Key::new(params.seed, params.position);
    let inverse = 1.0 / params.temperature;
    // A temperature whose inverse overflows counts as zero.
    let token = if inverse.is_infinite() {
        logits.iter().position(|logit| *logit == most)? as u32
    } else if params.top_p >= 1.0 {
        gumbel::draw(logits, most, inverse, key)
    } else {
        keep_top_p(logits, most, inverse, params.top_p, sorted);
        let value = |token: u32, logit: f32| f64::from((logit - most) * inverse) + key.noise(token);
        let kept = sorted.iter().map(|(token, logit)| (*token, value(*token, *logit)));
        kept.max_by(|a, b| a.1.total_cmp(&b.1))?.0
    };
    let logit = logits.get(token as usize)?;
    Some(SampledToken { token, logprob: logit - most - total.ln() })
}

/// Leaves the likeliest tokens that together have probability `top_p` in `sorted`: at least one.
fn keep_top_p(logits: &[f32], most: f32, inverse: f32, top_p: f32, sorted: &mut Vec<(u32, f32)>) {
    let weight = |logit: f32| f64::from((logit - most) * inverse).exp();
    let total = f64::from(elementwise::sum_of_exps(logits, most, inverse));
    // All tokens below this weight together have less than what is cut, so none of them is kept. The factor allows for the
    // rounding of the total.
    let least = (1.0 - f64::from(top_p)) * total / logits.len() as f64 * 0.999;
    let logit_of_least = most + (least.ln() / f64::from(inverse)) as f32;
    sorted.clear();
    sorted.extend((0u32..).zip(logits.iter().copied()).filter(|(_, logit)| *logit >= logit_of_least));
    // Ties go to the lower id, so that the cut is deterministic.
    sorted.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut sum = 0.0;
    let before = |(_, logit): &&(u32, f32)| {
        let more = sum < f64::from(top_p) * total;
        sum += weight(*logit);
        more
    };
    let count = sorted.iter().take_while(before).count().max(1);
    sorted.truncate(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(temperature: f32, top_p: f32, logits: &[f32], allowed: &[u32]) {
        let mut seen = std::collections::BTreeSet::new();
        for position in 0..2_000 {
            let params = SamplingParams { temperature, top_p, seed: 11, position, mask: None };
            let sampled = sample(logits, &params, &mut Vec::new()).unwrap();
            let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            let exact = f64::from(logits[sampled.token as usize]) - total.ln();
            assert!((f64::from(sampled.logprob) - exact).abs() < 1e-5, "{sampled:?}, not {exact}");
            seen.insert(sampled.token);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), allowed, "temperature {temperature}, top_p {top_p}");
    }

    #[test]
    fn only_the_likeliest_are_drawn_from() {
        // Probabilities 0.1, 0.4, 0.2, 0.3.
        let logits = [0.1f32, 0.4, 0.2, 0.3].map(f32::ln);
        check(0.0, 1.0, &logits, &[1]);
        check(1.0, 0.0, &logits, &[1]);
        check(1.0, 0.39, &logits, &[1]);
        check(1.0, 0.5, &logits, &[1, 3]);
        check(1.0, 0.8, &logits, &[1, 2, 3]);
        check(1.0, 0.95, &logits, &[0, 1, 2, 3]);
        check(1.0, 1.0, &logits, &[0, 1, 2, 3]);
        // A lower temperature gives the likeliest tokens more probability.
        check(0.5, 0.8, &logits, &[1, 3]);
        check(0.0, 1.0, &[1.0, 1.0, 0.0], &[0]);
        // Temperatures near zero, and near infinity.
        for temperature in [f32::from_bits(1), 1e-39, f32::MIN_POSITIVE] {
            check(temperature, 1.0, &logits, &[1]);
            check(temperature, 0.9, &logits, &[1]);
        }
        check(f32::MAX, 1.0, &logits, &[0, 1, 2, 3]);
        check(f32::MAX, 0.9, &logits, &[0, 1, 2, 3]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let params = SamplingParams { temperature: 1.0, top_p: 1.0, seed: 0, position: 0, mask: None };
        for logits in [&[f32::NAN, 1.0][..], &[f32::INFINITY, 0.0], &[]] {
            assert_eq!(sample(logits, &params, &mut Vec::new()), None, "{logits:?}");
        }
    }

    #[test]
    fn the_same_seed_couples_draws() {
        // Two distributions that differ by a tenth: with noise in common they mostly agree.
        let (a, b) = ([0.5f32, 0.3, 0.2].map(f32::ln), [0.4f32, 0.4, 0.2].map(f32::ln));
        let agree = |other: u64| {
            let same = |position: &usize| {
                let drawn = |logits: &[f32], seed: u64| {
                    let params = SamplingParams { temperature: 1.0, top_p: 1.0, seed, position: *position, mask: None };
                    sample(logits, &params, &mut Vec::new()).unwrap().token
                };
                drawn(&a, 7) == drawn(&b, other)
            };
            (0..3_000).filter(same).count()
        };
        let (coupled, apart) = (agree(7), agree(8));
        assert!(coupled > 2_550 && apart < 1_350, "{coupled} and {apart} of 3000");
    }
}
