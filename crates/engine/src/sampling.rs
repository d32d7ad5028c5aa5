//! Choosing the next token of a text.

use crate::ops::gumbel::{self, Key};
use crate::ops::wide;

/// How a token is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    /// 0 takes the likeliest.
    pub(super) temperature: f32,
    /// Only the likeliest tokens that together have this probability are drawn from.
    pub(super) top_p: f32,
    pub(super) seed: u64,
    /// Which token of the reply it is.
    pub(super) position: usize,
}

/// A token that was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drawn {
    pub(super) token: u32,
    /// Its log-probability by the model itself: at temperature one, before any cut.
    pub(super) logprob: f32,
}

/// Chooses a token; `sorted` is room to work in. `None`: the logits are no numbers.
pub(super) fn choose(logits: &[f32], choice: &Choice, sorted: &mut Vec<(u32, f32)>) -> Option<Drawn> {
    let most = wide::largest(logits);
    let total = wide::sum_of_exps(logits, most, 1.0);
    if !most.is_finite() || !total.is_finite() {
        return None;
    }
    let key = Key::new(choice.seed, choice.position);
    let inverse = 1.0 / choice.temperature;
    // So near to zero that it cannot be divided by, a temperature is zero.
    let token = if inverse.is_infinite() {
        logits.iter().position(|logit| *logit == most)? as u32
    } else if choice.top_p >= 1.0 {
        gumbel::draw(logits, most, inverse, key)
    } else {
        cut(logits, most, inverse, choice.top_p, sorted);
        let value = |token: u32, logit: f32| f64::from((logit - most) * inverse) + key.noise(token);
        let kept = sorted.iter().map(|(token, logit)| (*token, value(*token, *logit)));
        kept.max_by(|a, b| a.1.total_cmp(&b.1))?.0
    };
    let logit = logits.get(token as usize)?;
    Some(Drawn { token, logprob: logit - most - total.ln() })
}

/// Leaves the likeliest tokens that together have this probability: at least one.
fn cut(logits: &[f32], most: f32, inverse: f32, top_p: f32, sorted: &mut Vec<(u32, f32)>) {
    let weight = |logit: f32| f64::from((logit - most) * inverse).exp();
    let total = f64::from(wide::sum_of_exps(logits, most, inverse));
    // All tokens below this together have less than what may be cut, so none of them is needed. A little less, since the
    // total is rounded.
    let least = (1.0 - f64::from(top_p)) * total / logits.len() as f64 * 0.999;
    let logit_of_least = most + (least.ln() / f64::from(inverse)) as f32;
    sorted.clear();
    sorted.extend((0u32..).zip(logits.iter().copied()).filter(|(_, logit)| *logit >= logit_of_least));
    // Of equals the first, so that the cut is the same each time.
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
            let choice = Choice { temperature, top_p, seed: 11, position };
            let drawn = choose(logits, &choice, &mut Vec::new()).unwrap();
            let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            let exact = f64::from(logits[drawn.token as usize]) - total.ln();
            assert!((f64::from(drawn.logprob) - exact).abs() < 1e-5, "{drawn:?}, not {exact}");
            seen.insert(drawn.token);
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
        // Colder, the likeliest have more.
        check(0.5, 0.8, &logits, &[1, 3]);
        check(0.0, 1.0, &[1.0, 1.0, 0.0], &[0]);
        // As good as zero, and as good as no logits at all.
        for temperature in [f32::from_bits(1), 1e-39, f32::MIN_POSITIVE] {
            check(temperature, 1.0, &logits, &[1]);
            check(temperature, 0.9, &logits, &[1]);
        }
        check(f32::MAX, 1.0, &logits, &[0, 1, 2, 3]);
        check(f32::MAX, 0.9, &logits, &[0, 1, 2, 3]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let choice = Choice { temperature: 1.0, top_p: 1.0, seed: 0, position: 0 };
        for logits in [&[f32::NAN, 1.0][..], &[f32::INFINITY, 0.0], &[]] {
            assert_eq!(choose(logits, &choice, &mut Vec::new()), None, "{logits:?}");
        }
    }

    #[test]
    fn the_same_seed_couples_draws() {
        // Two distributions that differ by a tenth: with noise in common they mostly agree.
        let (a, b) = ([0.5f32, 0.3, 0.2].map(f32::ln), [0.4f32, 0.4, 0.2].map(f32::ln));
        let agree = |other: u64| {
            let same = |position: &usize| {
                let drawn = |logits: &[f32], seed: u64| {
                    let choice = Choice { temperature: 1.0, top_p: 1.0, seed, position: *position };
                    choose(logits, &choice, &mut Vec::new()).unwrap().token
                };
                drawn(&a, 7) == drawn(&b, other)
            };
            (0..3_000).filter(same).count()
        };
        let (coupled, apart) = (agree(7), agree(8));
        assert!(coupled > 2_550 && apart < 1_350, "{coupled} and {apart} of 3000");
    }
}
