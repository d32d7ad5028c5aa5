//! The registry of reward terms. To add a term, add a row to the table at the end of this file.

use super::GradedRun;
use super::measure::{efficiency, individual, invalid, structure, success, tool_results};
use lemon_num::mean_of;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One row of the registry.
#[derive(Debug, Clone, Copy)]
pub struct RewardTerm {
    /// By what it is found.
    pub channel: Channel,
    /// Its name, as in traces, settings and recipes.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// Measures it. `None`: it cannot be measured in this run, which is not zero.
    pub measure: fn(&GradedRun<'_>) -> Option<f64>,
}

macro_rules! reward_terms {
    ($($channel:ident = $name:literal, $about:literal, $measure:expr;)*) => {
        /// A term of the registry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Channel {
            $(#[doc = $about] $channel,)*
        }

        impl Channel {
            /// All of them, in the order of the registry.
            pub const ALL: &[Channel] = &[$(Channel::$channel),*];

            /// Its name, as in traces, settings and recipes.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Channel::$channel => $name),*
                }
            }
        }

        /// All terms, in the order in which they are summed.
        pub const REWARD_TERMS: &[RewardTerm] = &[$(RewardTerm {
            channel: Channel::$channel,
            name: $name,
            about: $about,
            measure: $measure,
        }),*];
    };
}

impl fmt::Display for Channel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

reward_terms! {
    Success = "success", "1 if the team's answer is right, else 0.", success;
    Efficiency = "efficiency", "How cheap the team was: from 1, free, towards 0.", efficiency;
    Structure = "structure", "What the graph costs: agents and references. More is worse; its weight is negative.", structure;
    Invalid = "invalid", "The share of the orchestrator's texts that were no specification. Its weight is negative.", |run| invalid(run.trace());
    Team = "team", "R1: the team's outcome; what `success` is, under the name of its family.", success;
    Individual = "individual", "R2: the share of graded agents whose own answer is right.", individual;
    Role = "role", "R3: how often a role held what it is for.", |run| mean_of(run.roles_held());
    Process = "process", "R4: the share of agents that ended without failure, retry or waste.", |run| mean_of(run.processes());
    Tool = "tool", "R5: the share of tool calls that succeeded.", |run| mean_of(tool_results(run.trace()));
    Verifier = "verifier", "R6: how often a verdict agrees with the truth.", |run| mean_of(run.verdicts());
    // Not the speed-up itself, which has no bound.
    Speedup = "speedup", "R7, first part: the share of time saved by working in parallel.", |run| {
        run.metrics().parallel_speedup.filter(|_| run.took_its_time()).map(|speedup| 1.0 - 1.0 / speedup.max(1.0))
    };
    Aggregation = "aggregation", "R7, second part: how often the right answer was taken where it was among the candidates.", |run| mean_of(run.aggregations());
    Split = "split", "R7, third part: the share of finished agents that had a part in the answer.", |run| run.metrics().useful_agents;
    Hybrid = "hybrid", "R8: a mix of R1 and R2.", |run| {
        let share = run.settings().hybrid_team;
        success(run).zip(individual(run)).map(|(team, own)| share * team + (1.0 - share) * own)
    };
}
