//! What is known of one decision, ready to be written and coloured.

use super::{DecisionWorth, TeamWorth};
use lemon_spec::edit::{Change, Family};
use lemon_trace::text::points;
use std::collections::HashMap;

/// What is known of each decision, to be found by what was changed.
pub(super) struct Effects<'a> {
    all: &'a [DecisionWorth<'a>],
    by_change: HashMap<&'a Change, &'a DecisionWorth<'a>>,
}

impl<'a> Effects<'a> {
    pub fn new(team: &'a TeamWorth<'a>) -> Self {
        let by_change = team.effects.iter().map(|effect| (effect.change, effect)).collect();
        Effects { all: &team.effects, by_change }
    }

    pub fn get(&self, change: &Change) -> Option<&'a DecisionWorth<'a>> {
        self.by_change.get(change).copied()
    }

    /// What to do about an agent, in sentences. There are many references that could be added: only good ones count.
    pub fn advice_on(&self, id: &str) -> impl Iterator<Item = &'a str> {
        let is_its = move |effect: &&DecisionWorth| match effect.change {
            Change::RemoveAgent { agent }
            | Change::ResetRole { agent }
            | Change::ResetDuty { agent }
            | Change::LowerCapacity { agent }
            | Change::RaiseCapacity { agent }
            | Change::RemoveTool { agent, .. }
            | Change::WithholdResult { agent, .. }
            | Change::ShareAnswer { agent }
            | Change::ShareReply { agent } => agent == id,
            Change::AddReference { agent, .. } | Change::AddTool { agent, .. } => agent == id && effect.is_addition,
            _ => false,
        };
        self.all.iter().filter(is_its).map(|effect| effect.advice)
    }

    /// What to do about the answer, in sentences.
    pub fn advice_on_answer(&self) -> impl Iterator<Item = &'a str> {
        let is_its = |effect: &&DecisionWorth| matches!(effect.family, Family::Answer | Family::Stop);
        self.all.iter().filter(is_its).map(|effect| effect.advice)
    }

    /// What something is worth that the change takes away: success with it less success without it.
    pub fn worth(&self, change: &Change) -> Worth {
        Worth::of(self.get(change), 1.0)
    }

    /// What the change would do to success; `None` if the profile does not know of it.
    pub fn gain(&self, change: &Change) -> Option<Worth> {
        self.get(change).map(|effect| Worth::of(Some(effect), -1.0))
    }
}

/// A difference in success and what is known of it. `None`: not measured, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth(Option<Difference>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Difference {
    mean: f64,
    interval: Option<[f64; 2]>,
}

/// What can be said of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// All of its interval is above zero.
    Above,
    /// All of its interval is below zero.
    Below,
    /// Zero is in its interval, or it has none.
    Unclear,
    /// There is no difference to speak of: nothing was measured.
    Unmeasured,
}

impl Worth {
    fn of(effect: Option<&DecisionWorth>, factor: f64) -> Worth {
        // Shares differ by 1 at most; any other number is none.
        let is_difference = |value: &f64| value.abs() <= 1.0;
        let mean = effect.and_then(|effect| effect.effect).filter(is_difference);
        let interval = effect.and_then(|effect| effect.interval).filter(|ends| ends.iter().all(is_difference));
        let turned = |[low, high]: [f64; 2]| if factor < 0.0 { [-high, -low] } else { [low, high] };
        Worth(mean.map(|mean| Difference { mean: factor * mean, interval: interval.map(turned) }))
    }

    pub fn sign(self) -> Sign {
        match self.0 {
            None => Sign::Unmeasured,
            Some(Difference { interval: Some([low, _]), .. }) if low > 0.0 => Sign::Above,
            Some(Difference { interval: Some([_, high]), .. }) if high < 0.0 => Sign::Below,
            Some(_) => Sign::Unclear,
        }
    }

    /// `+4.2 ± 1.1`, in points. `None` if not measured.
    pub fn points(self) -> Option<String> {
        let Difference { mean, interval } = self.0?;
        // An interval with bounds may be lopsided: the longer side is what is not known.
        let half = interval.map(|[low, high]| 100.0 * (high - mean).max(mean - low).max(0.0));
        Some(points(mean) + &half.map(|half| format!(" ± {half:.1}")).unwrap_or_default())
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

/// A share: `31 %`, `0.4 %`. One that is no number is `–`.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if !percent.is_finite() => "–".to_owned(),
        // A tenth matters only where it is all there is.
        percent if percent > 0.0 && percent < 1.0 => format!("{percent:.1} %"),
        percent => format!("{:.0} %", percent.max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{number, percent as tenths};

    #[test]
    fn numbers() {
        let check = |share, expected: &str| assert_eq!(percent(share), expected);
        check(0.0, "0 %");
        check(0.004, "0.4 %");
        check(0.314, "31 %");
        check(-0.1, "0 %");
        check(f64::NAN, "–");
        assert_eq!((tenths(0.6254), tenths(f64::INFINITY)), ("62.5 %".to_owned(), "–".to_owned()));
        let check = |value, expected: &str| assert_eq!(number(value), expected);
        check(0.4, "0");
        check(-0.4, "0");
        check(-1234.0, "−1,234");
        check(1_234_567.4, "1,234,567");
        check(f64::INFINITY, "–");
    }
}
