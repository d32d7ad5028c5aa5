//! What the numbers say, in sentences: no more than they do.

use super::words::{list, number, p_value, percent, plural, points, range};
use crate::{PairReport, Partial, Report};

/// Differences whose corrected p is below this are called differences.
pub const LEVEL: f64 = 0.05;

/// Differences told one by one; the others are counted.
const MOST_TOLD: usize = 3;

/// Plain sentences, not escaped.
pub fn findings(report: &Report) -> Vec<String> {
    let sentences = [partial(report), front(report), differences(report), training(report)];
    sentences.into_iter().flatten().collect()
}

/// Whether a pair's difference survives the correction.
pub fn survives(pair: &PairReport) -> bool {
    pair.holm_p < LEVEL
}

fn front(report: &Report) -> Option<String> {
    let mut on_front: Vec<_> = report.methods.iter().filter(|method| method.on_front).collect();
    on_front.sort_by(|a, b| a.tokens.total_cmp(&b.tokens));
    let names: Vec<String> = on_front
        .iter()
        .map(|method| format!("{} ({}, {} tokens)", method.method, percent(method.accuracy), number(method.tokens)))
        .collect();
    if report.methods.len() < 2 || names.is_empty() {
        return None;
    }
    Some(format!(
        "On the front (no other method is as accurate for fewer tokens, by the means alone): {}.",
        list(&names)
    ))
}

fn differences(report: &Report) -> Option<String> {
    let mut real: Vec<&PairReport> = report.pairs.iter().filter(|pair| survives(pair)).collect();
    let smallest = report.pairs.iter().min_by(|a, b| a.holm_p.total_cmp(&b.holm_p))?;
    let tested = report.pairs.len();
    if real.is_empty() {
        let (none, verb) = match tested {
            1 => ("The one difference in accuracy does not survive".to_owned(), "is"),
            _ => (format!("None of the {tested} differences in accuracy survives"), "is, at its smallest,"),
        };
        return Some(format!(
            "{none} Holm’s correction at 5 %: the corrected p {verb} {} ({} against {}). These runs do not tell the \
             methods apart.",
            p_value(smallest.holm_p),
            smallest.a,
            smallest.b,
        ));
    }
    real.sort_by(|a, b| b.difference.abs().total_cmp(&a.difference.abs()));
    let mut told: Vec<String> = real.iter().take(MOST_TOLD).map(|pair| difference(pair)).collect();
    if real.len() > MOST_TOLD {
        told.push(format!("{} more", real.len() - MOST_TOLD));
    }
    let verb = if real.len() == 1 { "survives" } else { "survive" };
    Some(format!(
        "Of {}, {} {verb} Holm’s correction at 5 %: {}.",
        plural(tested, "difference") + " in accuracy",
        real.len(),
        list(&told)
    ))
}

fn difference(pair: &PairReport) -> String {
    let [low, high] = pair.interval;
    let (better, worse, difference, interval) = if pair.difference < 0.0 {
        (&pair.b, &pair.a, -pair.difference, [-high, -low])
    } else {
        (&pair.a, &pair.b, pair.difference, [low, high])
    };
    let interval = range(&points(interval[0]), &points(interval[1]));
    format!("{better} over {worse} by {} points (95 % interval {interval})", points(difference).trim_start_matches('+'))
}

/// How much of an evaluation is there, where that is not all of it, and what is compared all the same.
pub fn partial(report: &Report) -> Option<String> {
    let Partial { runs, of, compared } = report.partial?;
    let compared = match compared {
        0 => "No item has a run of every method: each method is told by its own items.".to_owned(),
        _ => format!("The methods are compared on the {} that each of them has.", plural(compared, "run")),
    };
    Some(format!("Partial: {} of {}. {compared}", number(runs as f64), plural(of, "run")))
}

fn training(report: &Report) -> Option<String> {
    let trained: Vec<String> = report
        .methods
        .iter()
        .filter_map(|method| Some(format!("{} {}", method.method, number(method.training_tokens? as f64))))
        .collect();
    if trained.is_empty() {
        return None;
    }
    Some(format!("Tokens spent on learning beforehand, which no other number here includes: {}.", list(&trained)))
}
