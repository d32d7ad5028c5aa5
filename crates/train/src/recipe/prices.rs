//! What counts beside a right answer.

use lemon_rollout::reward::{Channel, Weight, Weights};
use serde::{Deserialize, Serialize};

/// What counts beside a right answer: the weight of each reward channel that a recipe may set. The weight of `success` is 1, that
/// of `invalid` its default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// The weight of cheap replies.
    pub efficiency: f64,
    /// The weight of the graph cost: below zero.
    pub structure: f64,
    /// R2: agents that are right themselves.
    #[serde(skip_serializing_if = "is_nothing")]
    pub individual: f64,
    /// R3: roles that held what they are for.
    #[serde(skip_serializing_if = "is_nothing")]
    pub role: f64,
    /// R4: agents that ended without failure, retry or waste.
    #[serde(skip_serializing_if = "is_nothing")]
    pub process: f64,
    /// R5: tool calls that succeeded.
    #[serde(skip_serializing_if = "is_nothing")]
    pub tool: f64,
    /// R6: verdicts that agree with the truth.
    #[serde(skip_serializing_if = "is_nothing")]
    pub verifier: f64,
    /// R7: time saved by parallel work.
    #[serde(skip_serializing_if = "is_nothing")]
    pub speedup: f64,
    /// R7: right answers taken where they were among the candidates.
    #[serde(skip_serializing_if = "is_nothing")]
    pub aggregation: f64,
    /// R7: agents that had a part in the answer.
    #[serde(skip_serializing_if = "is_nothing")]
    pub split: f64,
    /// R8: team and members together.
    #[serde(skip_serializing_if = "is_nothing")]
    pub hybrid: f64,
}

fn is_nothing(weight: &f64) -> bool {
    *weight == 0.0
}

impl Default for Prices {
    fn default() -> Self {
        let of = |channel| Weights::default().get(channel).end;
        Prices { efficiency: of(Channel::Efficiency), structure: of(Channel::Structure), ..Prices::NOTHING }
    }
}

impl Prices {
    const NOTHING: Prices = Prices {
        efficiency: 0.0,
        structure: 0.0,
        individual: 0.0,
        role: 0.0,
        process: 0.0,
        tool: 0.0,
        verifier: 0.0,
        speedup: 0.0,
        aggregation: 0.0,
        split: 0.0,
        hybrid: 0.0,
    };

    /// For models in this process: a token costs computing time and no money.
    pub const IN_PROCESS: Prices = Prices { efficiency: 0.02, structure: -0.0005, ..Prices::NOTHING };

    /// How channels become one reward.
    pub fn weights(&self) -> Weights {
        let own = [
            (Channel::Efficiency, self.efficiency),
            (Channel::Structure, self.structure),
            (Channel::Individual, self.individual),
            (Channel::Role, self.role),
            (Channel::Process, self.process),
            (Channel::Tool, self.tool),
            (Channel::Verifier, self.verifier),
            (Channel::Speedup, self.speedup),
            (Channel::Aggregation, self.aggregation),
            (Channel::Split, self.split),
            (Channel::Hybrid, self.hybrid),
        ];
        own.into_iter()
            .fold(Weights::default(), |weights, (channel, weight)| weights.with(channel, Weight::fixed(weight)))
    }

    pub(super) fn are_default(&self) -> bool {
        *self == Prices::default()
    }
}
