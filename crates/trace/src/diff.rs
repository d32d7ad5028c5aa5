//! What two runs did differently.

use crate::{AgentSummary, EventKind, StopReason, Trace, text};
use lemon_spec::Share;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The differences between two runs, `a` and `b`. When things happened and how long they took is reported with the
/// differences but is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// The runs' ids.
    pub runs: [String; 2],
    /// What was run: the question, the seed, the workers.
    pub header: Vec<ValueChange>,
    /// The agents that differ, those of `a` first.
    pub agents: Vec<AgentDiff>,
    /// The text, rule and answer of each round, messages withheld in one run only, the final answer, why the runs ended.
    pub outcome: Vec<ValueChange>,
    /// The totals, equal ones too.
    pub totals: Vec<Delta>,
}

/// A value that is not the same in both runs. `None`: that run has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueChange {
    /// What it is.
    pub field: String,
    /// In the first run.
    pub a: Option<String>,
    /// In the second.
    pub b: Option<String>,
}

/// A quantity in both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// What it is.
    pub field: String,
    /// In the first run.
    pub a: f64,
    /// In the second.
    pub b: f64,
}

/// How an agent differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentDiff {
    pub id: String,
    /// Which runs have it.
    pub presence: Presence,
    /// Fields of the specification that differ: base, role, capacity, after, duty, share. Those an agent never lived to
    /// show (the duty of one that was not asked, the share of one that no agent read) are not compared.
    pub spec: Vec<ValueChange>,
    /// What came of it: status, answer, reply, failure, model, attempts, reused, truncated.
    pub result: Vec<ValueChange>,
    pub tokens: Delta,
    pub seconds: Delta,
}

/// Which runs have an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    Both,
    /// Only the second.
    Added,
    /// Only the first.
    Removed,
}

/// Compares two runs.
pub fn diff(a: &Trace, b: &Trace) -> Diff {
    let (left, right) = (a.summary(), b.summary());
    let shares = [shares(a), shares(b)];
    let in_a = left.agents.iter().map(|agent| (Some(agent), right.agent(&agent.id)));
    let only_b = right.agents.iter().filter(|agent| left.agent(&agent.id).is_none()).map(|agent| (None, Some(agent)));
    let agents = in_a.chain(only_b).filter_map(|(a, b)| agent_diff(a, b, &shares)).collect();
    let mut totals = vec![
        delta("tokens", left.tokens.total as f64, right.tokens.total as f64),
        delta("orchestrator tokens", left.tokens.orchestrator as f64, right.tokens.orchestrator as f64),
        delta("worker tokens", left.tokens.workers as f64, right.tokens.workers as f64),
        delta("failed tokens", left.tokens.failed as f64, right.tokens.failed as f64),
        delta("calls", left.calls as f64, right.calls as f64),
        delta("messages", left.messages as f64, right.messages as f64),
        delta("usd", left.usd, right.usd),
    ];
    totals.push(delta(SECONDS, left.wall_s, right.wall_s));
    let (header_a, header_b) = (&a.header, &b.header);
    let header = [
        change("question", Some(header_a.question.clone()), Some(header_b.question.clone())),
        change("seed", Some(header_a.seed.to_string()), Some(header_b.seed.to_string())),
        change("workers", Some(header_a.workers.clone()), Some(header_b.workers.clone())),
    ];
    Diff {
        runs: [header_a.run_id.clone(), header_b.run_id.clone()],
        header: header.into_iter().flatten().collect(),
        agents,
        outcome: outcome(a, b),
        totals,
    }
}

/// The one total that is no difference.
const SECONDS: &str = "seconds";

impl Diff {
    /// Whether both runs did the same, whenever and however fast.
    pub fn is_empty(&self) -> bool {
        let totals_equal = self.totals.iter().all(|total| total.field == SECONDS || total.a == total.b);
        self.header.is_empty() && self.agents.is_empty() && self.outcome.is_empty() && totals_equal
    }
}

fn agent_diff(
    a: Option<&AgentSummary>,
    b: Option<&AgentSummary>,
    shares: &[BTreeMap<&str, Share>; 2],
) -> Option<AgentDiff> {
    let id = a.or(b)?.id.clone();
    let presence = match (a, b) {
        (Some(_), None) => Presence::Removed,
        (None, _) => Presence::Added,
        _ => Presence::Both,
    };
    let of =
        |field: &str, get: &dyn Fn(&AgentSummary) -> Option<String>| change(field, a.and_then(get), b.and_then(get));
    let mut spec: Vec<ValueChange> = [
        of("base", &|agent| Some(agent.base.clone())),
        of("role", &|agent| Some(agent.role.clone())),
        of("capacity", &|agent| Some(agent.capacity.clone())),
        of("after", &|agent| Some(agent.after.join(", "))),
        of("duty", &|agent| agent.duty.clone()).filter(|change| presence != Presence::Both || change.both()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let share = |side: usize| shares[side].get(id.as_str()).map(|share| format!("{share:?}").to_lowercase());
    spec.extend(change("share", share(0), share(1)).filter(ValueChange::both));
    let result: Vec<ValueChange> = [
        of("status", &|agent| Some(text::status(agent).to_owned())),
        of("answer", &|agent| agent.answer.clone()),
        of("reply", &|agent| agent.reply.clone()),
        of("failure", &|agent| agent.failure.as_ref().map(|failure| format!("{}: {}", failure.kind, failure.message))),
        of("model", &|agent| agent.model.clone()),
        of("attempts", &|agent| Some(agent.attempts.to_string())),
        of("reused", &|agent| agent.reused.then(|| "yes".to_owned())),
        of("truncated", &|agent| agent.truncated.then(|| "yes".to_owned())),
    ]
    .into_iter()
    .flatten()
    .collect();
    let number = |get: &dyn Fn(&AgentSummary) -> f64, field| delta(field, a.map_or(0.0, get), b.map_or(0.0, get));
    let (tokens, seconds) = (number(&|agent| agent.tokens() as f64, "tokens"), number(&|agent| agent.seconds, SECONDS));
    let differs = !spec.is_empty() || !result.is_empty() || tokens.a != tokens.b;
    differs.then_some(AgentDiff { id, presence, spec, result, tokens, seconds })
}

/// What each agent shared with its readers, as far as there were any.
fn shares(trace: &Trace) -> BTreeMap<&str, Share> {
    let messages = trace.events.iter().filter_map(|event| match &event.kind {
        EventKind::Message { from, share, .. } => Some((from.as_str(), *share)),
        _ => None,
    });
    messages.collect()
}

fn outcome(a: &Trace, b: &Trace) -> Vec<ValueChange> {
    let mut fields: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    for (side, trace) in [a, b].into_iter().enumerate() {
        for event in &trace.events {
            let mut set = |field: String, value: Option<String>| fields.entry(field).or_default()[side] = value;
            match &event.kind {
                // The last of a round's texts is the one that ran.
                EventKind::Decision { round, by, text, .. } => {
                    set(format!("round {round} written by"), Some(by.clone()));
                    set(format!("round {round} text"), Some(text.clone()));
                }
                EventKind::Aggregate { round, rule, candidates, chosen, answer } => {
                    let from: Vec<&str> = candidates.iter().map(|candidate| candidate.agent.as_str()).collect();
                    set(format!("round {round} rule"), Some(text::rule(*rule).to_owned()));
                    set(format!("round {round} candidates"), Some(from.join(", ")));
                    set(format!("round {round} chosen"), chosen.clone());
                    set(format!("round {round} answer"), answer.clone());
                }
                EventKind::Message { from, to, delivered, .. } => {
                    set(
                        format!("message {from} → {to}"),
                        Some(if *delivered { "read" } else { "withheld" }.to_owned()),
                    );
                }
                _ => {}
            }
        }
    }
    // A message between agents that only one run has is not news: the agent is.
    let known =
        |values: &[Option<String>; 2], field: &str| !field.starts_with("message") || values.iter().all(Option::is_some);
    let mut changes: Vec<ValueChange> = fields
        .into_iter()
        .filter(|(field, values)| known(values, field))
        .filter_map(|(field, [a, b])| change(&field, a, b))
        .collect();
    let (a, b) = (a.summary(), b.summary());
    let reason = |reason: Option<StopReason>| reason.map(|reason| reason.as_str().to_owned());
    changes.extend(change("answer", a.answer, b.answer));
    changes.extend(change("stop reason", reason(a.stop_reason), reason(b.stop_reason)));
    changes
}

fn change(field: &str, a: Option<String>, b: Option<String>) -> Option<ValueChange> {
    (a != b).then(|| ValueChange { field: field.to_owned(), a, b })
}

fn delta(field: &str, a: f64, b: f64) -> Delta {
    Delta { field: field.to_owned(), a, b }
}

impl ValueChange {
    fn both(&self) -> bool {
        self.a.is_some() && self.b.is_some()
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = &self.runs;
        if self.is_empty() {
            return writeln!(f, "{a} and {b} did the same.");
        }
        writeln!(f, "{a} → {b}")?;
        write_changes(f, "what was run", &self.header)?;
        if !self.agents.is_empty() {
            writeln!(f, "\nagents")?;
        }
        for agent in &self.agents {
            write!(f, "{agent}")?;
        }
        write_changes(f, "outcome", &self.outcome)?;
        writeln!(f, "\ntotals")?;
        for total in &self.totals {
            writeln!(f, "  {:19} {total}", total.field)?;
        }
        Ok(())
    }
}

fn write_changes(f: &mut fmt::Formatter<'_>, title: &str, changes: &[ValueChange]) -> fmt::Result {
    if !changes.is_empty() {
        writeln!(f, "\n{title}")?;
    }
    let width = changes.iter().map(|change| change.field.chars().count()).max().unwrap_or(0);
    changes.iter().try_for_each(|change| writeln!(f, "  {:width$}  {change}", change.field))
}

impl fmt::Display for AgentDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgentDiff { id, presence, spec, result, tokens, seconds } = self;
        match presence {
            Presence::Added => writeln!(f, "  + {id}")?,
            Presence::Removed => writeln!(f, "  - {id}")?,
            Presence::Both => writeln!(f, "  ~ {id}")?,
        }
        for change in spec.iter().chain(result) {
            writeln!(f, "      {:9} {change}", change.field)?;
        }
        let mut changed = [tokens, seconds].into_iter().filter(|delta| delta.a != delta.b);
        changed.try_for_each(|delta| writeln!(f, "      {:9} {delta}", delta.field))
    }
}

impl fmt::Display for ValueChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = match (&self.a, &self.b) {
            (Some(a), Some(b)) => differing_lines(a, b),
            (a, b) => (a.as_deref().unwrap_or_default(), b.as_deref().unwrap_or_default()),
        };
        let side = |value: &Option<String>, line: &str| match value {
            None => "–".to_owned(),
            Some(_) if line.is_empty() => "(empty)".to_owned(),
            Some(_) => text::line(line, 56),
        };
        write!(f, "{} → {}", side(&self.a, a), side(&self.b, b))
    }
}

/// The first lines at which two texts part.
fn differing_lines<'a>(a: &'a str, b: &'a str) -> (&'a str, &'a str) {
    let (mut left, mut right) = (a.lines(), b.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return (a, b),
            (x, y) if x != y => return (x.unwrap_or_default(), y.unwrap_or_default()),
            _ => {}
        }
    }
}

impl fmt::Display for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |x: f64| match self.field.as_str() {
            SECONDS => text::seconds(x),
            "usd" => text::usd(x),
            _ => text::count(x as u64),
        };
        write!(f, "{} → {}", number(self.a), number(self.b))?;
        match (self.b - self.a, self.b / self.a) {
            (0.0, _) => Ok(()),
            (_, ratio) if ratio.is_finite() => write!(f, "  ({:+.0} %)", (ratio - 1.0) * 100.0),
            _ => Ok(()),
        }
    }
}
