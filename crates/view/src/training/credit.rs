//! What credit bought, family by family, and where the worker tokens went.

use super::chart::{Chart, Curve, Style, smooth, written};
use super::curves::figure;
use super::scale::Unit;
use super::stack::{Part, stack};
use crate::train::metrics::Metrics;
use lemon_credit::economy::FamilyReport;
use lemon_eval::report::words::{NONE, number, percent};
use lemon_spec::edit::Family;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Worths beyond these are as good as these.
const WORTHS: (f64, f64) = (1e-3, 1e3);

/// Contrast and worth of each family over the steps.
pub(super) fn families(metrics: &[Metrics], steps: (f64, f64)) -> String {
    let sums = Sums::by_family(metrics);
    if sums.is_empty() {
        return "<p class=\"hint\">No counterfactual was run.</p>\n".to_owned();
    }
    let most = |of: fn(&FamilyReport) -> Option<f64>| {
        let values = metrics.iter().flat_map(|it| it.families.values()).filter_map(of).filter(|x| x.is_finite());
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
    };
    let (contrasts, worths) = (most(|it| it.contrast).1, most(|it| it.worth));
    let mut html = String::from("<div class=\"charts\">\n");
    for (family, sum) in &sums {
        let contrast = points(metrics, *family, |it| it.contrast);
        let contrast = chart(
            format!("Mean difference in reward of {family} over steps"),
            smooth(contrast, Style::Main),
            &[0.0, contrasts],
        );
        let worth = points(metrics, *family, |it| it.worth);
        let worth = chart(
            format!("Value per token of {family} over steps"),
            vec![Curve { style: Style::Second, points: worth }],
            &[worths.0, worths.1],
        );
        let worth = Chart { is_log: true, bounds: WORTHS, rule: Some(1.0), ..worth };
        let count = format!("{} free, {} purchased", number(sum.free as f64), number(sum.bought as f64));
        figure(&mut html, family.as_str(), &count, &format!("{}{}", contrast.svg(steps), worth.svg(steps)));
    }
    html.push_str(
        "</div>\n<p class=\"hint\"><i class=\"main\"></i> the mean size of the difference in reward that a change of this \
         kind makes; <i class=\"second\"></i> value per token of a counterfactual (what it tells), relative to a rollout (dashed: \
         equal). All families have the same axes.</p>\n",
    );
    html.push_str(&table(&sums));
    html
}

fn chart(about: String, curves: Vec<Curve>, shown: &[f64]) -> Chart {
    let (bounds, shown) = ((0.0, f64::INFINITY), shown.to_vec());
    Chart { about, high: 104.0, unit: Unit::Plain, bounds, is_log: false, shown, rule: None, curves }
}

/// A family that nobody measured in a step has no point there, and no gap: that is how it is most of the time.
fn points(metrics: &[Metrics], family: Family, of: fn(&FamilyReport) -> Option<f64>) -> Vec<(f64, f64)> {
    let point = |it: &Metrics| Some((it.step as f64, of(it.families.get(&family)?)?));
    metrics.iter().filter_map(point).collect()
}

/// What became of a family in all steps.
#[derive(Default)]
struct Sums {
    free: u64,
    bought: u64,
    declined: u64,
    capped: u64,
    tokens: u64,
    /// Differences in steps of which means are known.
    differences: f64,
    mean: f64,
    square: f64,
    contrast: f64,
    zeros: f64,
    last_worth: Option<f64>,
}

impl Sums {
    fn by_family(metrics: &[Metrics]) -> BTreeMap<Family, Sums> {
        let mut sums: BTreeMap<Family, Sums> = BTreeMap::new();
        for (family, report) in metrics.iter().flat_map(|it| &it.families) {
            sums.entry(*family).or_default().add(report);
        }
        sums
    }

    fn add(&mut self, report: &FamilyReport) {
        self.free += report.free;
        self.bought += report.bought;
        self.declined += report.declined;
        self.capped += report.capped;
        self.tokens += report.tokens;
        self.last_worth = report.worth.or(self.last_worth);
        let (Some(mean), Some(contrast), Some(zeros)) = (report.mean, report.contrast, report.zeros) else { return };
        let count = (report.free + report.bought) as f64;
        self.differences += count;
        self.mean += count * mean;
        // A single difference has no variance.
        self.square += count * (report.variance.unwrap_or(0.0) + mean * mean);
        self.contrast += count * contrast;
        self.zeros += count * zeros;
    }

    fn variance(&self) -> f64 {
        let mean = self.mean / self.differences;
        (self.square / self.differences - mean * mean).max(0.0)
    }
}

fn table(sums: &BTreeMap<Family, Sums>) -> String {
    let mut html = String::from(
        "<div class=\"scroll\" tabindex=\"0\"><table aria-label=\"What became of each family\">\n<thead><tr>\
         <th scope=\"col\">family</th>",
    );
    for name in [
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
    ] {
        let _ = write!(html, "<th scope=\"col\" class=\"n\">{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (family, sum) in sums {
        let _ = write!(html, "<tr><th scope=\"row\">{family}</th>");
        let counts = [sum.free, sum.bought, sum.declined, sum.capped, sum.tokens].map(|count| number(count as f64));
        let of_differences = |total: f64| if sum.differences > 0.0 { total / sum.differences } else { f64::NAN };
        let means = [
            written(of_differences(sum.mean), Unit::Plain),
            written(of_differences(sum.contrast), Unit::Plain),
            if sum.differences > 0.0 { written(sum.variance(), Unit::Plain) } else { NONE.to_owned() },
            percent(of_differences(sum.zeros)),
            written(sum.last_worth.unwrap_or(f64::NAN), Unit::Plain),
        ];
        for cell in counts.into_iter().chain(means) {
            let _ = write!(html, "<td class=\"n\">{cell}</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str(
        "</tbody></table></div>\n<p class=\"hint\">A counterfactual is the same run with one decision changed. Free: \
         answered from the cache. Declined: it would have told less per token than a rollout. Capped: the token budget for \
         counterfactuals was used up. Δ is the reward of the original team less that of the changed team.</p>\n",
    );
    html
}

/// Where the worker tokens went.
pub(super) fn tokens(metrics: &[Metrics]) -> String {
    let total = |of: fn(&Metrics) -> u64| metrics.iter().map(|it| of(it) as f64).sum::<f64>();
    let part = |name, class, value: f64| Part { name, class, value, written: number(value) };
    let parts = [
        part("rollouts", "running", total(|it| it.rollout_tokens)),
        part("counterfactuals", "credit", total(|it| it.credit_tokens)),
    ];
    stack(&parts)
}
