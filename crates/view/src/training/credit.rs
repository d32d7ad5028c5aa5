//! What counterfactuals told, family by family, and where the worker tokens went.

use super::chart::{Chart, Curve, Figure, Style, Unit, smooth, written};
use super::stack::{Part, Stack};
use super::{FamilyPoint, StepPoint};
use crate::words::{NONE, number, percent};
use lemon_spec::edit::Family;
use std::collections::BTreeMap;

/// Values per token beyond these are drawn at these.
const WORTHS: (f64, f64) = (1e-3, 1e3);

/// Difference in reward and value per token of each family over the steps. Empty where no counterfactual was run.
pub(super) fn families(all: &[StepPoint], steps: (f64, f64)) -> Vec<Figure> {
    let ends = |of: fn(&FamilyPoint) -> Option<f64>| {
        let values = all.iter().flat_map(|it| it.families.values()).filter_map(of).filter(|x| x.is_finite());
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
    };
    let (absolutes, worths) = (ends(|it| it.absolute).1, ends(|it| it.worth));
    let figure = |(family, sum): (Family, Sums)| {
        let difference = chart(
            format!("Mean difference in reward of {family} over steps"),
            smooth(points(all, family, |it| it.absolute), Style::Main),
            &[0.0, absolutes],
        );
        let worth = chart(
            format!("Value per token of {family} over steps"),
            vec![Curve { style: Style::Second, points: points(all, family, |it| it.worth) }],
            &[worths.0, worths.1],
        );
        let worth = Chart { is_log: true, bounds: WORTHS, rule: Some(1.0), ..worth };
        let value = format!("{} free, {} purchased", number(sum.free as f64), number(sum.purchased as f64));
        let pictures = vec![difference.svg(steps), worth.svg(steps)];
        Figure { name: family.as_str(), value, has_two_curves: false, pictures }
    };
    Sums::by_family(all).into_iter().map(figure).collect()
}

fn chart(about: String, curves: Vec<Curve>, shown: &[f64]) -> Chart {
    let (bounds, shown) = ((0.0, f64::INFINITY), shown.to_vec());
    Chart { about, high: 104.0, unit: Unit::Plain, bounds, is_log: false, shown, rule: None, curves }
}

/// A family that was not measured in a step has no point there, and no gap: that is how it is most of the time.
fn points(all: &[StepPoint], family: Family, of: fn(&FamilyPoint) -> Option<f64>) -> Vec<(f64, f64)> {
    let point = |it: &StepPoint| Some((it.step as f64, of(it.families.get(&family)?)?));
    all.iter().filter_map(point).collect()
}

/// What became of a family in all steps.
#[derive(Default)]
struct Sums {
    free: u64,
    purchased: u64,
    declined: u64,
    capped: u64,
    tokens: u64,
    /// Differences in steps whose means are known.
    differences: f64,
    mean: f64,
    square: f64,
    absolute: f64,
    zeros: f64,
    last_worth: Option<f64>,
}

impl Sums {
    fn by_family(steps: &[StepPoint]) -> BTreeMap<Family, Sums> {
        let mut sums: BTreeMap<Family, Sums> = BTreeMap::new();
        for (family, report) in steps.iter().flat_map(|it| &it.families) {
            sums.entry(*family).or_default().add(report);
        }
        sums
    }

    fn add(&mut self, report: &FamilyPoint) {
        self.free += report.free;
        self.purchased += report.purchased;
        self.declined += report.declined;
        self.capped += report.capped;
        self.tokens += report.tokens;
        self.last_worth = report.worth.or(self.last_worth);
        let (Some(mean), Some(absolute), Some(zeros)) = (report.mean, report.absolute, report.zeros) else { return };
        let count = (report.free + report.purchased) as f64;
        self.differences += count;
        self.mean += count * mean;
        // A single difference has no variance.
        self.square += count * (report.variance.unwrap_or(0.0) + mean * mean);
        self.absolute += count * absolute;
        self.zeros += count * zeros;
    }

    fn variance(&self) -> f64 {
        let mean = self.mean / self.differences;
        (self.square / self.differences - mean * mean).max(0.0)
    }
}

pub(super) const COLUMNS: [&str; 10] = [
    "free",
    "purchased",
    "declined",
    "capped",
    "tokens",
    "mean Δ",
    "mean |Δ|",
    "Var(Δ)",
    "exactly 0",
    "value per token, last",
];

/// What became of each family.
pub(super) struct FamilyTable {
    pub rows: Vec<(&'static str, Vec<String>)>,
}

impl FamilyTable {
    pub(super) fn new(steps: &[StepPoint]) -> FamilyTable {
        let rows = Sums::by_family(steps).into_iter().map(|(family, sum)| (family.as_str(), sum.cells()));
        FamilyTable { rows: rows.collect() }
    }
}

impl Sums {
    fn cells(&self) -> Vec<String> {
        let counts = [self.free, self.purchased, self.declined, self.capped, self.tokens];
        let of_differences = |total: f64| if self.differences > 0.0 { total / self.differences } else { f64::NAN };
        let means = [
            written(of_differences(self.mean), Unit::Plain),
            written(of_differences(self.absolute), Unit::Plain),
            if self.differences > 0.0 { written(self.variance(), Unit::Plain) } else { NONE.to_owned() },
            percent(of_differences(self.zeros)),
            written(self.last_worth.unwrap_or(f64::NAN), Unit::Plain),
        ];
        counts.map(|count| number(count as f64)).into_iter().chain(means).collect()
    }
}

/// Where the worker tokens went.
pub(super) fn tokens(steps: &[StepPoint]) -> Option<Stack> {
    let total = |of: fn(&StepPoint) -> u64| steps.iter().map(|it| of(it) as f64).sum::<f64>();
    let part = |name, class, value: f64| Part { name, class, value, written: number(value) };
    Stack::new(&[
        part("rollouts", "running", total(|it| it.rollout_tokens)),
        part("counterfactuals", "credit", total(|it| it.credit_tokens)),
    ])
}
