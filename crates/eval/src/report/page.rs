//! An evaluation as one page: fills in what `lemon-view` draws.

use super::data;
use super::findings::{findings, partial, survives};
use super::tables;
use super::words;
use crate::{Evaluation, MethodReport, PairReport, Report, SetResults, Training};
use lemon_view::evaluation::{
    EvaluationReport, ItemDetail, LearnedTeam, MethodPoint, PairDifference, ReportFinding, SetPoints,
};

/// The page, without questions and replies.
pub fn html(report: &Report, evaluation: &Evaluation) -> String {
    html_with_items(report, evaluation, &[])
}

/// The page, with the question, the expected answer and the replies of some items.
pub fn html_with_items(report: &Report, evaluation: &Evaluation, details: &[ItemDetail]) -> String {
    lemon_view::evaluation::html(&page_of(report, evaluation, details))
}

/// What the page shows.
pub fn page_of(report: &Report, evaluation: &Evaluation, details: &[ItemDetail]) -> EvaluationReport {
    let partial = partial(report);
    let finding = |text: String| ReportFinding { is_partial: Some(&text) == partial.as_ref(), text };
    EvaluationReport {
        eval_id: report.set_up.eval_id.clone(),
        title: words::title(&report.set_up),
        set_up: words::set_up(&report.set_up).join(" · "),
        findings: findings(report).into_iter().map(finding).collect(),
        methods: tables::methods(&report.methods),
        points: report.methods.iter().map(point).collect(),
        sets: sets(report),
        pairs: report.pairs.iter().map(pair).collect(),
        pair_table: tables::pairs(&report.pairs),
        items: details.to_vec(),
        item_count: report.set_up.items,
        run_count: evaluation.rows.len(),
        bands: tables::bands(&report.methods),
        ends: tables::ends(&report.methods),
        learned: evaluation.training.iter().map(learned).collect(),
        data: data::json(evaluation),
    }
}

fn point(method: &MethodReport) -> MethodPoint {
    MethodPoint {
        name: method.method.clone(),
        accuracy: method.accuracy,
        interval: method.interval,
        legacy_accuracy: method.legacy_accuracy,
        legacy_interval: method.legacy_interval,
        tokens: method.tokens,
        tokens_interval: method.tokens_interval,
        on_front: method.on_front,
    }
}

/// Several sets have a chart each; the chart of a single one shows what the table of methods does.
fn sets(report: &Report) -> Vec<SetPoints> {
    let set = |set: &SetResults| SetPoints {
        name: set.set.clone(),
        points: set.methods.iter().map(point).collect(),
        numbers: Some(tables::methods(&set.methods)),
    };
    if !report.sets.is_empty() {
        return report.sets.iter().map(set).collect();
    }
    let name = report.set_up.sets.first().map_or("all items", String::as_str).to_owned();
    vec![SetPoints { name, points: report.methods.iter().map(point).collect(), numbers: None }]
}

fn pair(pair: &PairReport) -> PairDifference {
    PairDifference {
        a: pair.a.clone(),
        b: pair.b.clone(),
        difference: pair.difference,
        interval: pair.interval,
        p: pair.holm_p,
        survives: survives(pair),
    }
}

fn learned(training: &Training) -> LearnedTeam {
    LearnedTeam {
        method: training.method.clone(),
        runs: training.runs,
        tokens: training.tokens,
        spec: training.spec.clone(),
    }
}
