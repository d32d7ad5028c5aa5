//! What was measured of a run after its end: its reward channels, and what each part of its team is worth.

use crate::text::points;
use crate::{EventKind, Trace};
use lemon_spec::edit::Family;
use std::collections::{BTreeMap, HashMap};

/// Everything measured of a run, the latest of each.
#[derive(Debug, Default)]
pub struct Credit<'a> {
    /// Whether its answer is right, where that was graded.
    pub right: Option<bool>,
    /// Reward channels by name.
    pub rewards: BTreeMap<&'a str, f64>,
    /// The parts of the team, in the order they were told.
    pub parts: Vec<CreditPart<'a>>,
}

/// What is known of one part of a team by one change of it.
#[derive(Debug, Clone, Copy)]
pub struct CreditPart<'a> {
    /// The unit that carries the credit.
    pub unit: &'a str,
    /// Which one: an agent's id, `a → b` for a message.
    pub target: &'a str,
    /// The family of the change.
    pub family: Option<Family>,
    /// The change, in words.
    pub edit: Option<&'a str>,
    pub worth: Worth,
    /// Pairs of runs.
    pub n: u32,
}

/// A difference in success and its standard error. Without the difference: not measured, which is not zero.
#[derive(Debug, Clone, Copy)]
pub struct Worth {
    effect: Option<f64>,
    standard_error: Option<f64>,
}

/// What can be said of a worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// More than two standard errors above zero.
    Above,
    /// More than two standard errors below zero.
    Below,
    /// Too near to zero to tell, or of unknown error.
    Unclear,
    /// Nothing was measured.
    Unmeasured,
}

impl Trace {
    /// What was measured of the run. A team that is profiled again is told again: what is told last counts.
    pub fn credit(&self) -> Credit<'_> {
        let mut credit = Credit::default();
        let mut places = HashMap::new();
        for event in &self.events {
            match &event.kind {
                EventKind::Score { right, rewards } => {
                    let finite = rewards.iter().filter(|(_, value)| value.is_finite());
                    credit.right = *right;
                    credit.rewards = finite.map(|(name, value)| (name.as_str(), *value)).collect();
                }
                EventKind::Credit { unit, target, family, edit, effect, standard_error, n } => {
                    let worth = Worth::new(*effect, *standard_error);
                    let part = CreditPart { unit, target, family: *family, edit: edit.as_deref(), worth, n: *n };
                    let place = *places.entry((unit, target, family, edit)).or_insert(credit.parts.len());
                    match credit.parts.get_mut(place) {
                        Some(earlier) => *earlier = part,
                        None => credit.parts.push(part),
                    }
                }
                _ => {}
            }
        }
        credit
    }
}

impl<'a> Credit<'a> {
    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.right.is_none() && self.rewards.is_empty() && self.parts.is_empty()
    }

    /// The parts with a number.
    pub fn measured(&self) -> impl Iterator<Item = &CreditPart<'a>> {
        self.parts.iter().filter(|part| part.worth.effect.is_some())
    }

    /// The parts without one.
    pub fn unmeasured(&self) -> impl Iterator<Item = &CreditPart<'a>> {
        self.parts.iter().filter(|part| part.worth.effect.is_none())
    }

    /// What an agent is worth: the team with it less the team without it. `None`: nothing is said of it.
    pub fn of_agent(&self, id: &str) -> Option<Worth> {
        self.of(&[Family::Agent], id)
    }

    /// What it is worth that `to` reads `from`. The message withheld stands in for the reference removed.
    pub fn of_message(&self, from: &str, to: &str) -> Option<Worth> {
        self.of(&[Family::Dependency, Family::Message], &format!("{from} → {to}"))
    }

    /// The first of these families that was measured on the target, or else the first that is listed.
    fn of(&self, families: &[Family], target: &str) -> Option<Worth> {
        let own: Vec<&CreditPart> = self.parts.iter().filter(|part| part.target == target).collect();
        let worths = families.iter().filter_map(|family| own.iter().find(|part| part.family == Some(*family)));
        let mut worths = worths.map(|part| part.worth);
        let first = worths.next()?;
        Some(if first.effect.is_some() { first } else { worths.find(|worth| worth.effect.is_some()).unwrap_or(first) })
    }
}

impl CreditPart<'_> {
    /// Its name among all that was measured: `credit.agent.check.agent`. A capacity and a rule can be changed in several
    /// ways; there the change is told too.
    pub fn name(&self) -> String {
        let mut name = format!("credit.{}.{}", self.unit, self.target);
        if let Some(family) = self.family {
            name += &format!(".{family}");
        }
        match (self.family, self.edit) {
            (Some(Family::Capacity | Family::Answer), Some(edit)) => name + ": " + edit,
            _ => name,
        }
    }

    /// The agent it is part of, for a message the reader; `None`: it is the orchestrator's.
    pub fn agent(&self) -> Option<&str> {
        match (self.unit, self.target.split_once(" → ")) {
            ("team" | "orchestrator" | "token", _) => None,
            (_, Some((from, "*"))) => Some(from),
            (_, Some((_, to))) => Some(to),
            (_, None) => Some(self.target),
        }
    }
}

impl Worth {
    /// A difference and its error; what is not finite was not measured.
    pub fn new(effect: Option<f64>, standard_error: Option<f64>) -> Self {
        let finite = |value: &f64| value.is_finite();
        Worth { effect: effect.filter(finite), standard_error: standard_error.filter(finite) }
    }

    /// The difference in success.
    pub fn effect(self) -> Option<f64> {
        self.effect
    }

    pub fn standard_error(self) -> Option<f64> {
        self.standard_error
    }

    /// What can be said of it.
    pub fn sign(self) -> Sign {
        match (self.effect, self.standard_error) {
            (None, _) => Sign::Unmeasured,
            (Some(effect), Some(error)) if effect > 2.0 * error => Sign::Above,
            (Some(effect), Some(error)) if effect < -2.0 * error => Sign::Below,
            _ => Sign::Unclear,
        }
    }

    /// In points of a hundred, with its standard error: `+4.2 ± 1.1`, or `not measured`.
    pub fn told(self) -> String {
        let Some(effect) = self.effect else { return "not measured".to_owned() };
        let mut told = points(effect);
        if let Some(error) = self.standard_error {
            told += &format!(" ± {:.1}", 100.0 * error);
        }
        told
    }
}

impl Sign {
    /// The class that colours it.
    pub fn class(self) -> &'static str {
        match self {
            Sign::Above => "above",
            Sign::Below => "below",
            Sign::Unclear => "unclear",
            Sign::Unmeasured => "unmeasured",
        }
    }
}

impl EventKind {
    /// Whether it was measured after the run's end, and is no part of what happened.
    pub(crate) fn is_measurement(&self) -> bool {
        matches!(self, EventKind::Score { .. } | EventKind::Credit { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_words() {
        let check = |effect, error, sign, words: &str| {
            let worth = Worth::new(effect, error);
            assert_eq!((worth.sign(), worth.told().as_str()), (sign, words));
        };
        check(None, None, Sign::Unmeasured, "not measured");
        check(None, Some(0.1), Sign::Unmeasured, "not measured");
        check(Some(f64::NAN), Some(0.1), Sign::Unmeasured, "not measured");
        check(Some(0.0), Some(0.0), Sign::Unclear, "0.0 ± 0.0");
        check(Some(-0.0004), None, Sign::Unclear, "0.0");
        check(Some(0.2), None, Sign::Unclear, "+20.0");
        check(Some(0.2), Some(0.1), Sign::Unclear, "+20.0 ± 10.0");
        check(Some(0.2), Some(0.099), Sign::Above, "+20.0 ± 9.9");
        check(Some(-0.2), Some(0.099), Sign::Below, "−20.0 ± 9.9");
    }

    #[test]
    fn what_is_told_last_counts() {
        let mut trace = crate::sample::credited(crate::sample::three());
        let parts = trace.credit().parts.len();
        let again: Vec<_> = trace.events.iter().filter(|event| event.kind.is_measurement()).cloned().collect();
        trace.events.extend(again.into_iter().map(|mut event| {
            match &mut event.kind {
                EventKind::Score { right, rewards } => (*right, *rewards) = (None, BTreeMap::new()),
                EventKind::Credit { n, .. } => *n = 99,
                _ => {}
            }
            event
        }));
        let credit = trace.credit();
        assert_eq!((credit.parts.len(), credit.rewards.len(), credit.right), (parts, 0, None));
        assert!(parts > 5 && credit.parts.iter().all(|part| part.n == 99));
    }

    #[test]
    fn names_are_unique() {
        let trace = crate::sample::credited(crate::sample::eight());
        let credit = trace.credit();
        let names: std::collections::BTreeSet<String> = credit.measured().map(CreditPart::name).collect();
        assert_eq!(names.len(), credit.measured().count());
        assert!(names.contains("credit.agent.plan.agent"), "{names:?}");
    }
}
