//! Where the draws of a composed task come from.

use lemon_num::{Random, splitmix};

/// The draws of one seed for one purpose.
pub(super) fn random(seed: u64, purpose: &str) -> Random {
    Random::new(purpose.bytes().fold(seed, |state, byte| splitmix(state) ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_as_they_are() {
        assert_eq!(random(5, "ab").next_u64(), 7_624_539_003_608_259_242);
    }
}
