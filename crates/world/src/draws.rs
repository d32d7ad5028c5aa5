//! Random draws that depend on what they are for and on nothing else.

/// A stream of draws. The same parts give the same stream, on every machine.
pub(crate) struct Draws {
    state: u64,
}

impl Draws {
    /// The stream for these parts.
    pub fn new(seed: u64, parts: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes());
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Draws { state: u64::from_le_bytes(first) }
    }

    /// The next 64 bits (SplitMix64: tiny, and good enough behind a hash).
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Between 0 and 1, 1 excluded.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A standard normal draw (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A position below `count`; 0 if there is none.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.uniform() * count as f64) as usize).min(count.saturating_sub(1))
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

/// The logistic function.
pub(crate) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Its inverse.
pub(crate) fn logit(p: f64) -> f64 {
    (p / (1.0 - p)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 20_000;

    fn mean(draw: impl FnMut(usize) -> f64) -> f64 {
        (0..COUNT).map(draw).sum::<f64>() / COUNT as f64
    }

    /// Within four standard errors of a mean of draws with this deviation.
    #[track_caller]
    fn check(found: f64, expected: f64, deviation: f64) {
        let error = deviation / (COUNT as f64).sqrt();
        assert!((found - expected).abs() < 4.0 * error, "{found} is not {expected} ± {error}");
    }

    #[test]
    fn the_same_parts_give_the_same_stream_on_every_machine() {
        let stream = |seed, parts: &[&str]| Draws::new(seed, parts).bits();
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
    fn draws_have_the_moments_they_should() {
        let mut draws = Draws::new(7, &["moments"]);
        check(mean(|_| draws.uniform()), 0.5, (1.0f64 / 12.0).sqrt());
        check(mean(|_| draws.normal()), 0.0, 1.0);
        check(mean(|_| draws.normal().powi(2)), 1.0, 2.0f64.sqrt());
        check(mean(|_| draws.normal().powi(4)), 3.0, 96.0f64.sqrt());
        check(mean(|_| f64::from(u8::from(draws.chance(0.2)))), 0.2, 0.4);
        check(mean(|_| draws.below(5) as f64), 2.0, 2.0f64.sqrt());
    }

    #[test]
    fn first_draws_of_many_streams_are_as_good_as_many_of_one() {
        let first = |at: usize| Draws::new(3, &["item", &at.to_string()]).uniform();
        check(mean(first), 0.5, (1.0f64 / 12.0).sqrt());
        check(mean(|at| (first(at) - 0.5) * (first(at + 1) - 0.5)), 0.0, 1.0 / 12.0);
    }

    #[test]
    fn the_ends_are_handled() {
        let mut draws = Draws::new(0, &[]);
        assert_eq!((draws.below(0), draws.below(1), draws.pick::<u8>(&[])), (0, 0, None));
        for _ in 0..1000 {
            assert!(!draws.chance(0.0) && draws.chance(1.0) && draws.below(3) < 3 && draws.normal().is_finite());
        }
        for p in [0.001, 0.3, 0.5, 0.999] {
            assert!((logistic(logit(p)) - p).abs() < 1e-12);
        }
        assert_eq!((logistic(-1e9), logistic(1e9)), (0.0, 1.0));
    }
}
