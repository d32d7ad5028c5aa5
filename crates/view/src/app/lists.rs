//! Evaluations and trainings: what there is, and two evaluations side by side.

use super::Section;
use crate::markup::filters;
use crate::page::{Host, render};
use crate::table::{Align, Table};
use crate::words::{number, percent, percent_range};
use askama::Template;

/// An evaluation in the list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListedEvaluation {
    /// How the address names it.
    pub name: String,
    /// What was compared.
    pub title: String,
    /// How it was set up, in one line.
    pub set_up: String,
    /// Its methods, the most accurate first.
    pub methods: Vec<ListedMethod>,
    /// Why there is nothing to show.
    pub fault: Option<String>,
}

/// A method of an evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListedMethod {
    pub name: String,
    /// The share of right answers.
    pub accuracy: f64,
    /// Its 95 % interval.
    pub interval: [f64; 2],
    /// Mean tokens of a run.
    pub tokens: f64,
    /// No other method is as accurate for fewer tokens.
    pub on_front: bool,
}

/// A training in the list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListedTraining {
    /// How the address names it.
    pub name: String,
    /// Steps taken, and those of the recipe where they are known.
    pub steps: (u64, Option<u64>),
    /// Right answers on held-out tasks before and after.
    pub success: Option<[f64; 2]>,
    /// Tokens of a run on held-out tasks before and after.
    pub tokens: Option<[f64; 2]>,
    /// When its record last grew, in words.
    pub changed: String,
    /// Its record has grown within the last minutes.
    pub is_live: bool,
    /// Why there is nothing to show.
    pub fault: Option<String>,
}

#[derive(Template)]
#[template(path = "app-evaluations.html")]
struct EvaluationsPage<'a> {
    host: Host,
    folders: &'a [String],
    evaluations: Vec<EvaluationRow<'a>>,
}

struct EvaluationRow<'a> {
    it: &'a ListedEvaluation,
    methods: Vec<MethodRow<'a>>,
}

struct MethodRow<'a> {
    name: &'a str,
    on_front: bool,
    accuracy: String,
    interval: String,
    /// Places in percent: of the interval its left end and its width, of the estimate its left.
    band: (String, String),
    at: String,
    tokens: String,
}

#[derive(Template)]
#[template(path = "app-trainings.html")]
struct TrainingsPage<'a> {
    host: Host,
    folders: &'a [String],
    trainings: Vec<TrainingRow<'a>>,
}

struct TrainingRow<'a> {
    it: &'a ListedTraining,
    steps: String,
    success: Option<String>,
    tokens: Option<String>,
}

/// The list of evaluations in these folders.
pub fn evaluations(folders: &[String], found: &[ListedEvaluation]) -> String {
    let row = |it| EvaluationRow { it, methods: ListedEvaluation::rows(it) };
    render(&EvaluationsPage {
        host: Host::app(Section::Evaluations, "base.js"),
        folders,
        evaluations: found.iter().map(row).collect(),
    })
}

impl ListedEvaluation {
    fn rows(&self) -> Vec<MethodRow<'_>> {
        let place = |share: f64| (100.0 * share).clamp(0.0, 100.0);
        let row = |method: &'_ ListedMethod| {
            let [low, high] = method.interval.map(place);
            (format!("{low:.1}"), format!("{:.1}", high - low), format!("{:.1}", place(method.accuracy)))
        };
        let rows = self.methods.iter().map(|method| {
            let (left, width, at) = row(method);
            MethodRow {
                name: &method.name,
                on_front: method.on_front,
                accuracy: percent(method.accuracy),
                interval: percent_range(method.interval),
                band: (left, width),
                at,
                tokens: number(method.tokens),
            }
        });
        rows.collect()
    }
}

/// The list of trainings in these folders.
pub fn trainings(folders: &[String], found: &[ListedTraining]) -> String {
    let went = |[before, after]: [f64; 2], write: fn(f64) -> String| format!("{} → {}", write(before), write(after));
    let row = |it: &'_ ListedTraining| {
        let steps = match it.steps {
            (steps, Some(all)) => format!("{steps} of {all}"),
            (steps, None) => steps.to_string(),
        };
        (steps, it.success.map(|pair| went(pair, percent)), it.tokens.map(|pair| went(pair, number)))
    };
    let rows = found.iter().map(|it| {
        let (steps, success, tokens) = row(it);
        TrainingRow { it, steps, success, tokens }
    });
    render(&TrainingsPage { host: Host::app(Section::Trainings, "base.js"), folders, trainings: rows.collect() })
}

/// Two evaluations beside each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SideBySide {
    /// Their names, as addresses have them.
    pub names: [String; 2],
    /// What they are, in a line each.
    pub titles: [String; 2],
    /// What the comparison says, in sentences.
    pub findings: Vec<String>,
    /// Tables: a title and what stands in it.
    pub tables: Vec<(String, Table)>,
}

#[derive(Template)]
#[template(path = "app-evaluations-compare.html")]
struct SideBySidePage<'a> {
    host: Host,
    it: &'a SideBySide,
}

/// The page of two evaluations.
pub fn side_by_side(it: &SideBySide) -> String {
    render(&SideBySidePage { host: Host::app(Section::Evaluations, "base.js"), it })
}
