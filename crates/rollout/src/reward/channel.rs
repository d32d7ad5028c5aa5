//! The channels of a reward.

use super::Weights;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The values of one run's channels. `None`: could not be measured, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Channels {
    /// 1 if the team's answer is right, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<f64>,
    /// How cheap the team was: from 1, free, towards 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// What the graph costs: agents and references. More is worse; its weight is negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structure: Option<f64>,
    /// The share of the orchestrator's texts that were no specification. Its weight is negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<f64>,
    /// R1: the team's outcome; what `success` is, under the name of its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<f64>,
    /// R2: the share of graded agents whose own answer is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub individual: Option<f64>,
    /// R3: how often a role held what it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<f64>,
    /// R4: the share of agents that ended without failure, retry or waste.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<f64>,
    /// R5: the share of tool calls that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<f64>,
    /// R6: how often a verdict agrees with the truth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifier: Option<f64>,
    /// R7, first part: the share of time saved by working in parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// R7, second part: how often the right answer was taken where it was among the candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<f64>,
    /// R7, third part: the share of finished agents that had a part in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<f64>,
    /// R8: a mix of R1 and R2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<f64>,
}

/// The names of the channels, each written and read in one place: the field, its name, its family.
macro_rules! channels {
    ($($variant:ident = $field:ident: $word:literal, $what:literal;)*) => {
        /// One channel of a reward.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Channel {
            $(#[doc = $what] $variant,)*
        }

        impl Channel {
            /// All channels, in the order of [`Channels`].
            pub const ALL: &[Channel] = &[$(Channel::$variant),*];

            /// Its name, as in traces and settings.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Channel::$variant => $word),*
                }
            }
        }

        impl Channels {
            /// The value of a channel.
            pub fn get(&self, channel: Channel) -> Option<f64> {
                match channel {
                    $(Channel::$variant => self.$field),*
                }
            }
        }
    };
}

channels! {
    Success = success: "success", "Whether the answer is right.";
    Efficiency = efficiency: "efficiency", "How cheap the team was.";
    Structure = structure: "structure", "What the graph costs.";
    Invalid = invalid: "invalid", "Texts that were no specification.";
    Team = team: "team", "R1: the team's outcome.";
    Individual = individual: "individual", "R2: the agents' own answers.";
    Role = role: "role", "R3: whether roles held what they are for.";
    Process = process: "process", "R4: agents without failure, retry or waste.";
    Tool = tool: "tool", "R5: tool calls that succeeded.";
    Verifier = verifier: "verifier", "R6: verdicts that agree with the truth.";
    Speedup = speedup: "speedup", "R7: time saved by working in parallel.";
    Aggregation = aggregation: "aggregation", "R7: right answers taken where there were any.";
    Split = split: "split", "R7: agents that had a part in the answer.";
    Hybrid = hybrid: "hybrid", "R8: a mix of R1 and R2.";
}

impl Channels {
    /// The measured channels by name, as a trace carries them.
    pub fn named(&self) -> BTreeMap<String, f64> {
        let measured = |channel: &Channel| Some((channel.as_str().to_owned(), self.get(*channel)?));
        Channel::ALL.iter().filter_map(measured).collect()
    }

    /// The weighted sum at a step of training: `Σ weight(step) · value`.
    ///
    /// `None` if success has a weight and was not measured: such a run says nothing about what is wanted. Any other
    /// channel that was not measured contributes nothing. Compare runs only where the same ones are measured.
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
        Some(total)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
