//! How much each term counts, and how that changes over training.

use super::Channel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The weight of one channel: from `start` to `end` in equal parts over `steps`, and `end` from there on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// At the first step.
    pub start: f64,
    /// After `steps`.
    pub end: f64,
    /// Over how many steps it changes; 0: it is `end` from the beginning.
    pub steps: u64,
}

/// The weights of the channels. One that is not named weighs nothing: it is logged, and does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weights {
    channels: BTreeMap<Channel, Weight>,
}

impl Weight {
    /// The same weight at every step.
    pub const fn fixed(weight: f64) -> Weight {
        Weight { start: weight, end: weight, steps: 0 }
    }

    /// The weight at a step, from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.end;
        }
        self.start + (self.end - self.start) * (step as f64 / self.steps as f64)
    }
}

impl Weights {
    /// No channel counts.
    pub fn none() -> Weights {
        Weights { channels: BTreeMap::new() }
    }

    /// The same with this weight for a channel.
    #[must_use]
    pub fn with(mut self, channel: Channel, weight: Weight) -> Weights {
        self.channels.insert(channel, weight);
        self
    }

    /// The weight of a channel.
    pub fn get(&self, channel: Channel) -> Weight {
        self.channels.get(&channel).copied().unwrap_or(Weight::fixed(0.0))
    }

    /// The channels that are named, and their weights.
    pub fn iter(&self) -> impl Iterator<Item = (Channel, Weight)> {
        self.channels.iter().map(|(channel, weight)| (*channel, *weight))
    }
}

impl Default for Weights {
    /// Success 1, efficiency 0.2, structure −0.005, invalid −1, and nothing else.
    ///
    /// A wrong answer never beats a right one for being cheap, as long as the right one's structure costs less than 160.
    fn default() -> Self {
        Weights::none()
            .with(Channel::Success, Weight::fixed(1.0))
            .with(Channel::Efficiency, Weight::fixed(0.2))
            .with(Channel::Structure, Weight::fixed(-0.005))
            .with(Channel::Invalid, Weight::fixed(-1.0))
    }
}
