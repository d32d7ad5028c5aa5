//! What counts beside a right answer.

use lemon_rollout::reward::{Channel, Weight, Weights};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Channels that a recipe does not weigh: success counts 1, an invalid text its default, and `team` is `success` again.
const FIXED: [Channel; 3] = [Channel::Success, Channel::Invalid, Channel::Team];

/// What counts beside a right answer: the weight of each reward channel of the registry that a recipe may set. Structure counts
/// below zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Channel, f64>")]
pub struct Prices(BTreeMap<Channel, f64>);

impl TryFrom<BTreeMap<Channel, f64>> for Prices {
    type Error = String;

    /// What is not given has its default.
    fn try_from(given: BTreeMap<Channel, f64>) -> Result<Self, String> {
        let mut prices = Prices::default();
        for (channel, weight) in given {
            if FIXED.contains(&channel) {
                let known: Vec<&str> =
                    Channel::ALL.iter().filter(|it| !FIXED.contains(it)).map(|it| it.as_str()).collect();
                return Err(format!("the weight of `{channel}` cannot be set; expected one of {}", known.join(", ")));
            }
            prices.set(channel, weight);
        }
        Ok(prices)
    }
}

impl Default for Prices {
    fn default() -> Self {
        let of = |channel| Weights::default().get(channel).end;
        Prices::new(of(Channel::Efficiency), of(Channel::Structure))
    }
}

impl Prices {
    fn new(efficiency: f64, structure: f64) -> Self {
        Prices([(Channel::Efficiency, efficiency), (Channel::Structure, structure)].into())
    }

    /// For models in this process: a token costs computing time and no money.
    pub fn in_process() -> Self {
        Prices::new(0.02, -0.0005)
    }

    /// Sets the weight of a channel.
    pub fn set(&mut self, channel: Channel, weight: f64) {
        // These two are always written down: their defaults are not zero.
        if weight != 0.0 || matches!(channel, Channel::Efficiency | Channel::Structure) {
            self.0.insert(channel, weight);
        } else {
            self.0.remove(&channel);
        }
    }

    /// How channels become one reward.
    pub fn weights(&self) -> Weights {
        let own = self.0.iter();
        own.fold(Weights::default(), |weights, (channel, weight)| weights.with(*channel, Weight::fixed(*weight)))
    }

    pub(super) fn are_default(&self) -> bool {
        *self == Prices::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_weighs_the_channels_of_the_registry() {
        let prices: Prices = toml::from_str("hybrid = 1\nefficiency = 0.1\nindividual = 0.0\n").unwrap();
        let weight = |channel| prices.weights().get(channel).end;
        let channels = [Channel::Success, Channel::Efficiency, Channel::Structure, Channel::Hybrid, Channel::Role];
        assert_eq!(channels.map(weight), [1.0, 0.1, -0.005, 1.0, 0.0]);
        assert_eq!(toml::to_string(&prices).unwrap(), "efficiency = 0.1\nstructure = -0.005\nhybrid = 1.0\n");
        assert_eq!(serde_json::to_string(&Prices::in_process()).unwrap(), r#"{"efficiency":0.02,"structure":-0.0005}"#);
    }

    #[test]
    fn other_keys_are_refused() {
        let check = |text: &str, expected: &str| {
            let error = toml::from_str::<Prices>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            "success = 2.0",
            "the weight of `success` cannot be set; expected one of efficiency, structure, individual",
        );
        check("speed = 1.0", "unknown variant `speed`, expected one of");
    }
}
