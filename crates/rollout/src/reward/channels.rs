//! The measured terms of one run.

use super::{Channel, CustomTerm, Weight, Weights};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The values of one run's reward terms. A term that could not be measured is absent, which is not zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Channels {
    values: BTreeMap<Channel, f64>,
    /// The user's terms: name, weight, value.
    custom: Vec<(String, Weight, f64)>,
}

impl Channels {
    /// The value of a term.
    pub fn get(&self, channel: Channel) -> Option<f64> {
        self.values.get(&channel).copied()
    }

    /// The value of a term by name, the user's included.
    pub fn named_value(&self, name: &str) -> Option<f64> {
        let own = self.custom.iter().find(|(known, ..)| known == name).map(|(.., value)| *value);
        own.or_else(|| self.values.iter().find(|(channel, _)| channel.as_str() == name).map(|(_, value)| *value))
    }

    /// The same with this value for a term; `None`: not measured.
    #[must_use]
    pub fn with(mut self, channel: Channel, value: impl Into<Option<f64>>) -> Channels {
        match value.into() {
            Some(value) => self.values.insert(channel, value),
            None => self.values.remove(&channel),
        };
        self
    }

    pub(super) fn add_custom(&mut self, term: &CustomTerm, value: f64) {
        self.custom.push((term.name.clone(), term.weight, value));
    }

    /// The measured terms by name, as a trace carries them.
    pub fn named(&self) -> BTreeMap<String, f64> {
        self.iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        let own = self.custom.iter().map(|(name, _, value)| (name.as_str(), *value));
        self.values.iter().map(|(channel, value)| (channel.as_str(), *value)).chain(own)
    }

    /// The weighted sum at a step of training: `Σ weight(step) · value`.
    ///
    /// `None` if success has a weight and was not measured: such a run says nothing about what is wanted. Any other term
    /// that was not measured contributes nothing. Compare runs only where the same ones are measured.
    pub fn total(&self, weights: &Weights, step: u64) -> Option<f64> {
        let mut total = 0.0;
        for (channel, weight) in weights.iter() {
            let weight = weight.at(step);
            match self.get(channel) {
                _ if weight == 0.0 => {}
                Some(value) => total += weight * value,
                None if channel == Channel::Success => return None,
                None => {}
            }
        }
        let own: f64 = self.custom.iter().map(|(_, weight, value)| weight.at(step) * value).sum();
        Some(if self.custom.is_empty() { total } else { total + own })
    }
}

impl Serialize for Channels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
