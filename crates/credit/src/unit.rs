//! The table of credit: one row for every unit of a run that can carry any, measured or not.

use lemon_spec::Plan;
use lemon_spec::edit::{Change, Decision, Edit, Family};
use lemon_trace::{EventKind, Trace};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The units that can carry credit, from the whole to the smallest part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// The whole team.
    Team,
    /// How the orchestrator makes the answer and when it ends.
    Orchestrator,
    /// What an agent is to do, and on which capacity.
    Role,
    /// That an agent exists.
    Agent,
    /// One call of an agent.
    Turn,
    /// What one agent tells another.
    Message,
    /// One call of a tool.
    ToolCall,
    /// One token of the specification.
    Token,
}

/// The credit of one unit by one kind of edit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreditEntry {
    /// The kind of unit.
    pub unit: Unit,
    /// Which one: an agent's id, `a → b` for a message.
    pub target: String,
    /// The edit that measured it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<String>,
    /// The family of that edit.
    #[serde(default)]
    pub family: Option<Family>,
    /// What it is worth: `R(original) − R(edited)`. `None`: not measured, which is not zero.
    pub effect: Option<f64>,
    pub standard_error: Option<f64>,
    /// Pairs of runs behind it.
    pub n: u32,
}

/// The unit whose credit an edit measures.
pub fn unit_of(edit: &Edit) -> Unit {
    match edit.decision {
        _ if matches!(edit.change, Change::WithholdResult { .. }) => Unit::ToolCall,
        // The team that ends before its second agent: what the whole team is worth beyond its first agent.
        Decision::Spawn if matches!(edit.change, Change::PrefixTruncation { .. }) => Unit::Team,
        Decision::Spawn => Unit::Agent,
        Decision::Delegate => Unit::Role,
        Decision::Communicate => Unit::Message,
        Decision::Aggregate | Decision::Stop => Unit::Orchestrator,
    }
}

/// The unit's name among those of its kind: that of the first call of a tool is `agent tool #1`. All messages of an agent are `a → *`: what it shares, it shares with all.
pub fn target_of(edit: &Edit) -> String {
    if let Change::WithholdResult { agent, tool } = &edit.change {
        return tool_call(agent, tool, 1);
    }
    match (edit.change.edited_message(), edit.change.edited_agent()) {
        _ if matches!(edit.change, Change::PrefixTruncation { .. }) => TEAM.to_owned(),
        (Some((from, to)), _) => message(from, to),
        (None, Some(agent)) => agent.to_owned(),
        (None, None) if edit.decision == Decision::Aggregate => ANSWER.to_owned(),
        (None, None) => NEXT.to_owned(),
    }
}

/// Every unit of a run, the largest first: what could carry credit.
pub fn units_of_trace(trace: &Trace) -> Vec<(Unit, String)> {
    let summary = trace.summary();
    let mut units = whole();
    for agent in &summary.agents {
        units.extend(of_agent(&agent.id));
        if agent.duty.is_some() {
            units.push((Unit::Turn, agent.id.clone()));
        }
    }
    let mut calls: Vec<(&str, &str)> = Vec::new();
    for event in &trace.events {
        match &event.kind {
            EventKind::Message { from, to, .. } => units.push((Unit::Message, message(from, to))),
            EventKind::ToolCall { tool, .. } => {
                let earlier = calls.iter().filter(|call| **call == (&*event.agent, &**tool)).count();
                calls.push((&event.agent, tool));
                units.push((Unit::ToolCall, tool_call(&event.agent, tool, earlier + 1)));
            }
            EventKind::Decision { round, .. } => units.push((Unit::Token, format!("round {round}"))),
            _ => {}
        }
    }
    sorted(units)
}

/// Every unit of a team that has not been run.
pub fn units_of_plan(plan: &Plan) -> Vec<(Unit, String)> {
    let mut units = whole();
    units.push((Unit::Token, "round 1".to_owned()));
    for agent in &plan.spec().agents {
        units.extend(of_agent(&agent.id));
        units.push((Unit::Turn, agent.id.clone()));
        units.extend(agent.after.iter().map(|parent| (Unit::Message, message(parent, &agent.id))));
        units.extend(agent.tools.iter().map(|tool| (Unit::ToolCall, tool_call(&agent.id, tool, 1))));
    }
    sorted(units)
}

/// The table: each unit with what was measured of it, or one row that says nothing was. Measured entries of units that are
/// not listed (a reference that an edit would add) follow those of their kind.
pub fn credit_table(units: &[(Unit, String)], measured: &[CreditEntry]) -> Vec<CreditEntry> {
    let is_of = |entry: &CreditEntry, (unit, target): &(Unit, String)| entry.unit == *unit && entry.target == *target;
    let mut table = measured.to_vec();
    table.extend(derived(units, measured));
    let measured = &table.clone()[..];
    for listed in units.iter().filter(|listed| !measured.iter().any(|entry| is_of(entry, listed))) {
        table.push(CreditEntry::not_measured(listed.0, &listed.1));
    }
    let place = |entry: &CreditEntry| units.iter().position(|listed| is_of(entry, listed)).unwrap_or(units.len());
    // A stable sort: the entries of one unit keep their order.
    table.sort_by_key(|entry| (entry.unit, place(entry)));
    table
}

/// Units whose credit follows from that of others. An agent makes one call in a run, so that its turn is worth what the agent is.
/// The credit of single tokens is measured in training, where each token has an advantage; a table of effects has none of it.
fn derived(units: &[(Unit, String)], measured: &[CreditEntry]) -> Vec<CreditEntry> {
    let is_listed = |unit: Unit, target: &str| units.iter().any(|listed| listed.0 == unit && listed.1 == target);
    let mut found = Vec::new();
    for entry in measured.iter().filter(|entry| entry.unit == Unit::Agent && entry.effect.is_some()) {
        if is_listed(Unit::Turn, &entry.target) {
            found.push(CreditEntry { unit: Unit::Turn, ..entry.clone() });
        }
    }
    found
}

impl CreditEntry {
    /// What an edit measured.
    pub fn measured(edit: &Edit, effect: Option<f64>, standard_error: Option<f64>, n: u32) -> CreditEntry {
        CreditEntry {
            unit: unit_of(edit),
            target: target_of(edit),
            edit: Some(edit.describe()),
            family: Some(edit.family),
            effect,
            standard_error,
            n,
        }
    }

    /// A unit that nothing is known of.
    pub fn not_measured(unit: Unit, target: &str) -> CreditEntry {
        let target = target.to_owned();
        CreditEntry { unit, target, edit: None, family: None, effect: None, standard_error: None, n: 0 }
    }
}

impl Unit {
    /// Its name, as in traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Team => "team",
            Unit::Orchestrator => "orchestrator",
            Unit::Role => "role",
            Unit::Agent => "agent",
            Unit::Turn => "turn",
            Unit::Message => "message",
            Unit::ToolCall => "tool_call",
            Unit::Token => "token",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The orchestrator's two targets.
const ANSWER: &str = "answer";
const NEXT: &str = "next";
/// The whole team.
const TEAM: &str = "team";

fn whole() -> Vec<(Unit, String)> {
    let named = |unit: Unit, target: &str| (unit, target.to_owned());
    vec![named(Unit::Team, TEAM), named(Unit::Orchestrator, ANSWER), named(Unit::Orchestrator, NEXT)]
}

fn of_agent(id: &str) -> [(Unit, String); 2] {
    [(Unit::Role, id.to_owned()), (Unit::Agent, id.to_owned())]
}

/// A call of a tool: how many the agent has made of it by then.
fn tool_call(agent: &str, tool: &str, number: usize) -> String {
    format!("{agent} {tool} #{number}")
}

fn message(from: &str, to: &str) -> String {
    format!("{from} → {to}")
}

/// By kind, in the order found, each once.
fn sorted(units: Vec<(Unit, String)>) -> Vec<(Unit, String)> {
    let mut seen = std::collections::HashSet::new();
    let mut units: Vec<_> = units.into_iter().filter(|unit| seen.insert(unit.clone())).collect();
    units.sort_by_key(|(unit, _)| *unit);
    units
}

#[cfg(test)]
mod tests;
