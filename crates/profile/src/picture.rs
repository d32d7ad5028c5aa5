//! A picture of a team by worth and cost: fills in what `lemon-view` draws.

#[cfg(test)]
mod tests;

use crate::profile::{Effect, Profile};
use lemon_credit::advice::Recommendation;
use lemon_spec::Plan;
use lemon_view::worth::{DecisionWorth, TeamWorth};

/// The team as SVG: nodes and edges drawn by what they are worth and what they cost.
pub fn picture(plan: &Plan, profile: &Profile) -> String {
    lemon_view::worth::picture(&worth(plan, profile))
}

/// The same as a piece of a page of the application.
pub fn hosted_picture(plan: &Plan, profile: &Profile) -> String {
    lemon_view::worth::hosted(&worth(plan, profile))
}

fn worth<'a>(plan: &'a Plan, profile: &'a Profile) -> TeamWorth<'a> {
    let baseline = &profile.baseline;
    TeamWorth {
        plan,
        runs: baseline.runs,
        success: baseline.success,
        interval: baseline.interval,
        tokens: baseline.tokens,
        agents: &baseline.agents,
        effects: profile.effects.iter().map(decision).collect(),
        complete: profile.complete,
    }
}

fn decision(effect: &Effect) -> DecisionWorth<'_> {
    DecisionWorth {
        change: &effect.edit.change,
        family: effect.family,
        effect: effect.effect,
        interval: effect.interval,
        tokens: effect.tokens,
        advice: &effect.advice,
        is_addition: effect.verdict == Recommendation::Add,
    }
}
