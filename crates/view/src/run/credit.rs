//! What was measured of the run after its end, for its page: reward channels, and a bar for every part of the team.

use lemon_trace::credit::{Credit, CreditPart};
use lemon_trace::text;

pub(super) struct CreditSection {
    pub title: &'static str,
    pub rewards: Vec<(String, String)>,
    pub parts: Vec<PartRow>,
}

pub(super) struct PartRow {
    pub unit: String,
    pub target: String,
    pub family: &'static str,
    pub class: &'static str,
    /// What was not measured has no place among the numbers: it comes before all of them, or after.
    pub sorts_as: String,
    pub worth: String,
    /// Where the bar begins and how wide it is, in percent.
    pub bar: Option<(String, String)>,
    pub pairs: u32,
    pub change: String,
}

impl CreditSection {
    /// The section's content; `None` if nothing was measured.
    pub(super) fn new(credit: &Credit) -> Option<CreditSection> {
        let most = credit
            .measured()
            .filter_map(|part| part.worth.effect())
            .fold(0.0, |most: f64, worth| most.max(worth.abs()));
        let parts: Vec<PartRow> =
            credit.measured().chain(credit.unmeasured()).map(|part| PartRow::new(part, most)).collect();
        let title = if parts.is_empty() { "Rewards" } else { "Credit" };
        (!credit.is_empty()).then(|| CreditSection { title, rewards: rewards(credit), parts })
    }
}

fn rewards(credit: &Credit) -> Vec<(String, String)> {
    let right = credit.right.map(|right| ("answer", if right { "right" } else { "wrong" }.to_owned()));
    let channels = credit.rewards.iter().map(|(name, value)| (*name, text::reward(*value)));
    right.into_iter().chain(channels).map(|(name, value)| (name.replace('_', " "), value)).collect()
}

impl PartRow {
    fn new(part: &CreditPart, most: f64) -> PartRow {
        PartRow {
            unit: part.unit.replace('_', " "),
            target: text::line(part.target, 60),
            family: part.family.map_or("–", |family| family.as_str()),
            class: part.worth.sign().class(),
            sorts_as: part.worth.effect().map_or("-Infinity".to_owned(), |effect| effect.to_string()),
            worth: part.worth.told(),
            bar: bar(part, most),
            pairs: part.n,
            change: text::line(part.edit.unwrap_or_default(), 100),
        }
    }
}

/// A bar from the middle: to the right what adds, to the left what takes; as long as the largest at most.
fn bar(part: &CreditPart, most: f64) -> Option<(String, String)> {
    let effect = part.worth.effect()?;
    let width = if most > 0.0 { 50.0 * (effect.abs() / most).clamp(0.0, 1.0) } else { 0.0 };
    let left = if effect < 0.0 { 50.0 - width } else { 50.0 };
    Some((format!("{left:.1}"), format!("{width:.1}")))
}
