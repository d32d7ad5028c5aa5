//! What a person gets: a sentence about one decision of a team, and a verdict.

use lemon_spec::edit::{Change, Edit};
use lemon_trace::text::points;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was measured of one edit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What the decision is worth in success, `Δ = R(original) − R(edited)`, as a share (0.01 is one point). `None`: not
    /// measured.
    pub effect: Option<f64>,
    /// The 95 % interval of that. `None` with fewer than two tasks.
    pub interval: Option<[f64; 2]>,
    /// Tasks behind it.
    pub n: u64,
    /// The share of the team's tokens that the agent in question costs, where the edit is about one.
    pub token_share: Option<f64>,
    /// How the edit changes the tokens of the team, relative to the original: −0.3 saves 30 %.
    pub token_change: Option<f64>,
}

/// When the data are enough, and what counts as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdviceSettings {
    /// A loss of success that is worth saving tokens, as a share: 0.01 is one point.
    pub tolerance: f64,
    /// Fewer tasks than this are too little data, whatever they say.
    pub least_tasks: u64,
    /// A relative change of tokens below this is none.
    pub least_saving: f64,
}

impl Default for AdviceSettings {
    fn default() -> Self {
        AdviceSettings { tolerance: 0.01, least_tasks: 20, least_saving: 0.005 }
    }
}

/// What to do about a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recommendation {
    /// Leave it out: an agent, a reference, a message, a role or a duty of its own.
    Remove,
    /// Add the reference.
    Add,
    /// Serve it by a weaker model.
    Lower,
    /// Serve it by a stronger model.
    Raise,
    /// Make the other choice: what is shared, how the answer is made, whether to stop.
    Change,
    /// Leave it as it is.
    Keep,
    /// The data do not decide it.
    Unclear,
    /// There are too few data to say anything.
    TooLittleData,
    /// Nothing was measured.
    NotMeasured,
}

/// A verdict and the sentence that gives its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// What to do.
    pub verdict: Recommendation,
    /// Why, for people to read.
    pub text: String,
}

/// What to do about the decision that `edit` changes.
pub fn advice(edit: &Edit, finding: &Finding, settings: &AdviceSettings) -> Advice {
    let verdict = decide(edit, finding, settings);
    let text = format!("{}: {}", facts(edit, finding), conclusion(verdict, finding, settings));
    Advice { verdict, text }
}

fn decide(edit: &Edit, finding: &Finding, settings: &AdviceSettings) -> Recommendation {
    if finding.effect.is_none() {
        return Recommendation::NotMeasured;
    }
    let Some([low, high]) = finding.interval.filter(|_| finding.n >= settings.least_tasks) else {
        return Recommendation::TooLittleData;
    };
    // What the edit does to success, from the worst to the best that the data allow.
    let (worst, best) = (-high, -low);
    let saves = match finding.token_change {
        Some(change) => change <= -settings.least_saving,
        None => edit.forward,
    };
    match saves {
        _ if worst > 0.0 => apply(edit),
        true if worst >= -settings.tolerance => apply(edit),
        true if best < 0.0 => Recommendation::Keep,
        // It saves nothing, so it has to gain something.
        false if best <= settings.tolerance => Recommendation::Keep,
        _ => Recommendation::Unclear,
    }
}

/// The verdict that says to make the edit.
fn apply(edit: &Edit) -> Recommendation {
    match edit.change {
        Change::RemoveAgent { .. }
        | Change::PrefixTruncation { .. }
        | Change::DeleteReference { .. }
        | Change::RemoveTool { .. }
        | Change::WithholdMessage { .. }
        | Change::WithholdResult { .. }
        | Change::ResetRole { .. }
        | Change::ResetDuty { .. } => Recommendation::Remove,
        Change::AddReference { .. } | Change::AddTool { .. } => Recommendation::Add,
        Change::LowerCapacity { .. } => Recommendation::Lower,
        Change::RaiseCapacity { .. } => Recommendation::Raise,
        _ => Recommendation::Change,
    }
}

/// What was seen: "`check2` costs 31 % of the tokens; removing it changes success by −0.2 ± 0.8 points".
fn facts(edit: &Edit, finding: &Finding) -> String {
    let (cost, act) = match (&edit.change, finding.token_share) {
        (Change::RemoveAgent { agent }, Some(share)) => {
            (format!("`{agent}` costs {} of the tokens; ", percent(share)), "removing it".to_owned())
        }
        (change, _) => (String::new(), change.act()),
    };
    let Some(effect) = finding.effect else { return format!("{cost}the effect of {act}") };
    // An interval with bounds may be lopsided: the longer side is what is not known.
    let half = finding.interval.map(|[low, high]| 100.0 * (high - effect).max(effect - low));
    let error = half.map(|half| format!(" ± {half:.1}")).unwrap_or_default();
    let subject = match &edit.change {
        Change::RemoveTool { agent, tool } => Some(format!("`{tool}` for `{agent}`")),
        Change::WithholdResult { agent, tool } => Some(format!("the first result of `{tool}` for `{agent}`")),
        _ => None,
    };
    if let Some(subject) = subject {
        // Without the tool there are fewer tokens: it costs those.
        let tokens = match finding.token_change {
            Some(change) if change < 0.0 => format!(" for +{} tokens", percent(-change)),
            Some(change) if change > 0.0 => format!(" for −{} tokens", percent(change)),
            _ => String::new(),
        };
        return format!("{subject} is worth {}{error} points{tokens}", points(effect));
    }
    let tokens = match finding.token_change {
        Some(change) if cost.is_empty() && change < 0.0 => format!(" saves {} of the tokens and", percent(-change)),
        Some(change) if cost.is_empty() && change > 0.0 => format!(" costs {} more tokens and", percent(change)),
        _ => String::new(),
    };
    format!("{cost}{act}{tokens} changes success by {}{error} points", points(-effect))
}

fn conclusion(verdict: Recommendation, finding: &Finding, settings: &AdviceSettings) -> String {
    let text = match verdict {
        Recommendation::Remove => "leave it out",
        Recommendation::Add => "add it",
        Recommendation::Lower => "lower it",
        Recommendation::Raise => "raise it",
        Recommendation::Change => "change it",
        Recommendation::Keep => "keep it as it is",
        Recommendation::Unclear => "the data do not decide it",
        Recommendation::NotMeasured => "not measured",
        Recommendation::TooLittleData => {
            return format!("too little data ({} of at least {})", tasks(finding.n), settings.least_tasks);
        }
    };
    text.to_owned()
}

fn tasks(n: u64) -> String {
    if n == 1 { "1 task".to_owned() } else { format!("{n} tasks") }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        // A tenth matters only where it is all there is.
        small if small < 1.0 => format!("{small:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

impl Recommendation {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Recommendation::Remove => "remove",
            Recommendation::Add => "add",
            Recommendation::Lower => "lower",
            Recommendation::Raise => "raise",
            Recommendation::Change => "change",
            Recommendation::Keep => "keep",
            Recommendation::Unclear => "unclear",
            Recommendation::TooLittleData => "too_little_data",
            Recommendation::NotMeasured => "not_measured",
        }
    }
}

impl fmt::Display for Recommendation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
