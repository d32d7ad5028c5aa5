//! Random draws that depend on what they are for and on nothing else.

use lemon_num::{Bounds, Random, hashed_seed};

/// The draws for these parts. The same parts give the same draws, on every machine.
pub(crate) fn draws(seed: u64, parts: &[&str]) -> Random {
    Random::new(hashed_seed(seed, parts)).with_bounds(Bounds::Share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_parts_give_the_same_stream_on_every_machine() {
        let stream = |seed, parts: &[&str]| draws(seed, parts).next_u64();
        assert_eq!(stream(1, &["a", "b"]), stream(1, &["a", "b"]));
        // Where one part ends and the next begins matters.
        let all = [
            stream(1, &["a", "b"]),
            stream(2, &["a", "b"]),
            stream(1, &["ab"]),
            stream(1, &["ab", ""]),
            stream(1, &[]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
        assert_eq!(all[0], 3_133_035_599_595_573_435);
    }

    #[test]
    fn first_draws_of_many_streams_are_as_good_as_many_of_one() {
        const COUNT: usize = 20_000;
        // Within four standard errors of a mean of draws with this deviation.
        let check = |draw: &dyn Fn(usize) -> f64, expected: f64, deviation: f64| {
            let (found, error) = ((0..COUNT).map(draw).sum::<f64>() / COUNT as f64, deviation / (COUNT as f64).sqrt());
            assert!((found - expected).abs() < 4.0 * error, "{found} is not {expected} ± {error}");
        };
        let first = |at: usize| draws(3, &["item", &at.to_string()]).uniform();
        check(&first, 0.5, (1.0f64 / 12.0).sqrt());
        check(&|at| (first(at) - 0.5) * (first(at + 1) - 0.5), 0.0, 1.0 / 12.0);
    }
}
