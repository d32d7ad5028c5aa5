//! The same runs with credit, as a profile adds it after their end.

use super::Dice;
use crate::{Event, EventKind, ORCHESTRATOR, Spend, Trace};
use lemon_spec::edit::Family;

/// The run with rewards and credit: something worth a lot, something that harms, something that is not measured, in turn.
pub fn credited(mut trace: Trace) -> Trace {
    let agents = trace.summary().agents;
    let mut dice = Dice(trace.header.seed);
    let rewards = [("individual", 0.75), ("success", 1.0), ("tokens", 0.418)];
    let rewards = rewards.map(|(name, value)| (name.to_owned(), value)).into();
    let mut kinds = vec![EventKind::Score { right: Some(true), rewards }];
    let mut add = |unit: &str, target: &str, family: Option<Family>, edit: Option<String>, of: usize| {
        let effect = match of % 4 {
            0 => Some(0.1 + dice.below(200) as f64 / 1000.0),
            1 => Some(0.0),
            2 => Some(-0.08 - dice.below(100) as f64 / 1000.0),
            _ => None,
        };
        let (unit, target) = (unit.to_owned(), target.to_owned());
        let standard_error = effect.map(|_| 0.01 + dice.below(20) as f64 / 1000.0);
        let n = if effect.is_some() { 30 } else { 0 };
        kinds.push(EventKind::Credit { unit, target, family, edit, effect, standard_error, n });
    };
    add("team", "team", None, None, 3);
    for (at, agent) in agents.iter().enumerate() {
        let id = &agent.id;
        add("agent", id, Some(Family::Agent), Some(format!("{id} is removed")), at);
        for (level, of) in [("lower", at + 1), ("higher", at + 2)] {
            add("role", id, Some(Family::Capacity), Some(format!("{id} runs one capacity level {level}")), of);
        }
        for (number, parent) in agent.after.iter().enumerate() {
            let target = format!("{parent} → {id}");
            add(
                "message",
                &target,
                Some(Family::Dependency),
                Some(format!("{id} no longer reads {parent}")),
                at + number,
            );
        }
        add("turn", id, None, None, 3);
    }
    let t = trace.events.iter().map(|event| event.t).fold(0.0, f64::max);
    for kind in kinds {
        let id = trace.events.last().map_or(0, |event| event.id) + 1;
        let (agent, spend) = (ORCHESTRATOR.to_owned(), Spend::default());
        trace.events.push(Event { id, t, agent, kind, spend, edges: Vec::new() });
    }
    trace
}
