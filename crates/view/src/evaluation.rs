//! An evaluation as one page: opens offline, loads nothing, in light and dark, on a desk, on a phone and on paper.
//!
//! The crate that evaluates fills in [`EvaluationReport`]; the template `evaluation.html` is the page. The script gets its
//! runs as JSON without `<`, and makes text of it, never markup.

mod bars;
mod items;
mod labels;
mod scatter;

pub use items::{ItemDetail, ReplyDetail};

use crate::app::Section;
use crate::markup::{Markup, ScriptData, filters, fragment};
use crate::page::{Host, render};
use crate::svg::{circle, element, fixed, rect};
use crate::table::{Align, Table};
use crate::words::{number, p_value, plural, points, range};
use askama::Template;
use bars::bars;
use items::ItemBlock;
use lemon_trace::text::clip;
use scatter::scatter;
use std::collections::HashMap;

/// What the page of an evaluation shows.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationReport {
    /// The evaluation.
    pub eval_id: String,
    /// What was compared.
    pub title: String,
    /// How it was set up, in one line.
    pub set_up: String,
    /// What the numbers say, in sentences.
    pub findings: Vec<ReportFinding>,
    /// What each method achieved.
    pub methods: Table,
    /// The same, to be drawn.
    pub points: Vec<MethodPoint>,
    /// The methods on each set.
    pub sets: Vec<SetPoints>,
    /// Every pair of methods.
    pub pairs: Vec<PairDifference>,
    /// The same with all numbers.
    pub pair_table: Table,
    /// Items to show in full.
    pub items: Vec<ItemDetail>,
    /// Items in all.
    pub item_count: usize,
    /// Runs in all.
    pub run_count: usize,
    /// How the agents worked together, by trace length.
    pub bands: Table,
    /// How the runs ended.
    pub ends: Table,
    /// What the methods that learn arrived at.
    pub learned: Vec<LearnedTeam>,
    /// The runs, for the page's script.
    pub data: ScriptData,
}

/// A sentence about an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFinding {
    /// The sentence.
    pub text: String,
    /// It says that runs are missing.
    pub is_partial: bool,
}

/// What a method achieved, as a point of a chart. A number that is not finite is not drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodPoint {
    /// The method.
    pub name: String,
    /// The share of right answers.
    pub accuracy: f64,
    /// Its 95 % interval.
    pub interval: [f64; 2],
    /// The share by the legacy rule.
    pub legacy_accuracy: f64,
    pub legacy_interval: [f64; 2],
    /// Mean tokens of a run.
    pub tokens: f64,
    /// The 95 % interval of that mean.
    pub tokens_interval: [f64; 2],
    /// No other method is as accurate for fewer tokens, or more accurate for as many.
    pub on_front: bool,
}

/// The methods on one set.
#[derive(Debug, Clone, PartialEq)]
pub struct SetPoints {
    /// The set.
    pub name: String,
    /// The methods.
    pub points: Vec<MethodPoint>,
    /// All their numbers, where the page does not show them elsewhere.
    pub numbers: Option<Table>,
}

/// How two methods differ in accuracy.
#[derive(Debug, Clone, PartialEq)]
pub struct PairDifference {
    /// One method.
    pub a: String,
    /// The other.
    pub b: String,
    /// Accuracy of `a` less that of `b`.
    pub difference: f64,
    /// Its 95 % interval.
    pub interval: [f64; 2],
    /// p after correction.
    pub p: f64,
    /// Whether it survives the correction.
    pub survives: bool,
}

/// What a method that learns arrived at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedTeam {
    pub method: String,
    /// Runs it took.
    pub runs: u64,
    /// Tokens those cost.
    pub tokens: u64,
    /// The specification.
    pub spec: String,
}

const TOGETHER: &str = "How the agents worked together, by trace length";

#[derive(Template)]
#[template(path = "evaluation.html")]
struct EvaluationPage<'a> {
    host: Host,
    title: String,
    report: &'a EvaluationReport,
    sections: Vec<(&'static str, &'static str)>,
    scatters: [Markup; 2],
    keys: Keys,
    sets: Vec<SetFigure<'a>>,
    matrix: Vec<MatrixRow>,
    pair_count: String,
    items: Vec<ItemBlock<'a>>,
    item_count: String,
    run_count: String,
    learned: Vec<LearnedWords<'a>>,
    data: Markup,
}

/// Signs of a picture, to stand beside their meaning.
struct Keys {
    on_front: Markup,
    off_front: Markup,
    front_bar: Markup,
    bar: Markup,
    interval: Markup,
    legacy: Markup,
}

struct SetFigure<'a> {
    name: &'a str,
    picture: Markup,
    numbers: Option<&'a Table>,
}

struct MatrixRow {
    name: String,
    cells: Vec<Option<MatrixCell>>,
}

struct MatrixCell {
    class: &'static str,
    link: String,
    tip: String,
    points: String,
    p: String,
}

struct LearnedWords<'a> {
    method: &'a str,
    runs: String,
    tokens: String,
    spec: &'a str,
}

/// The page.
pub fn html(report: &EvaluationReport) -> String {
    page(report, Host::FILE)
}

/// The page in the application.
pub fn hosted(report: &EvaluationReport) -> String {
    page(report, Host::app(Section::Evaluations, "evaluation.js"))
}

fn page(report: &EvaluationReport, host: Host) -> String {
    let mut sections =
        vec![("methods", "Methods"), ("front", "Accuracy and tokens"), ("sets", "Sets"), ("pairs", "Pairs")];
    sections.extend((!report.items.is_empty()).then_some(("replies", "Questions")));
    sections.extend([
        ("compare", "Compare two"),
        ("items", "All runs"),
        ("together", "Working together"),
        ("ends", "Ends"),
    ]);
    render(&EvaluationPage {
        host,
        title: clip(&format!("{} – {}", report.eval_id, report.title), 200),
        report,
        sections,
        scatters: [scatter(&report.points, "wide", 1080.0, 430.0), scatter(&report.points, "narrow", 358.0, 380.0)],
        keys: Keys::new(),
        sets: report.sets.iter().map(set_figure).collect(),
        matrix: if report.pairs.is_empty() { Vec::new() } else { matrix(report) },
        pair_count: plural(report.pairs.len(), "pair"),
        items: report.items.iter().map(ItemBlock::new).collect(),
        item_count: format!("{} of {}", plural(report.items.len(), "item"), number(report.item_count as f64)),
        run_count: plural(report.run_count, "run"),
        learned: report.learned.iter().map(learned).collect(),
        data: report.data.markup(),
    })
}

fn set_figure(set: &SetPoints) -> SetFigure<'_> {
    SetFigure { name: &set.name, picture: bars(&set.name, &set.points), numbers: set.numbers.as_ref() }
}

fn learned(team: &LearnedTeam) -> LearnedWords<'_> {
    let LearnedTeam { method, runs, tokens, spec } = team;
    LearnedWords { method, runs: counted(*runs, "run"), tokens: counted(*tokens, "token"), spec }
}

fn counted(count: u64, noun: &str) -> String {
    plural(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

impl Keys {
    fn new() -> Keys {
        let key = |width: f64, signs: Markup| {
            let picture = element("svg").class("key").attribute("viewBox", &format!("0 0 {width} 12"));
            picture.attribute("aria-hidden", "true").child(signs).into()
        };
        let bar = |class| rect(class, (0.0, 1.0), (24.0, 10.0));
        let point = |class, x| circle(class, (x, 6.0), 5.0);
        Keys {
            on_front: key(40.0, [fixed("stair", "M0 6H40"), point("point front", 20.0)].into_iter().collect()),
            off_front: key(24.0, [fixed("whisker", WHISKER), point("point", 12.0)].into_iter().collect()),
            front_bar: key(24.0, bar("bar front").into()),
            bar: key(24.0, bar("bar").into()),
            interval: key(24.0, fixed("whisker over", WHISKER).into()),
            legacy: key(12.0, fixed("legacy", "M6 1.5l4.5 4.5-4.5 4.5-4.5-4.5z").into()),
        }
    }
}

const WHISKER: &str = "M1 6H23M1 3v6M23 3v6";

/// Each method against each at a glance.
fn matrix(report: &EvaluationReport) -> Vec<MatrixRow> {
    let by_name: HashMap<(&str, &str), &PairDifference> =
        report.pairs.iter().map(|pair| ((pair.a.as_str(), pair.b.as_str()), pair)).collect();
    let cell = |a: &str, b: &str| match (by_name.get(&(a, b)), by_name.get(&(b, a))) {
        (Some(pair), _) => Some(MatrixCell::new(pair, a, b, 1.0)),
        (None, Some(pair)) => Some(MatrixCell::new(pair, a, b, -1.0)),
        (None, None) => None,
    };
    let names = || report.points.iter().map(|point| point.name.as_str());
    names().map(|a| MatrixRow { name: clip(a, 24), cells: names().map(|b| cell(a, b)).collect() }).collect()
}

impl MatrixCell {
    fn new(pair: &PairDifference, a: &str, b: &str, sign: f64) -> MatrixCell {
        let [low, high] = pair.interval.map(|end| end * sign);
        let ends = range(&points(low.min(high)), &points(low.max(high)));
        MatrixCell {
            class: match pair.survives {
                false => "n",
                true if pair.difference * sign >= 0.0 => "n strong better",
                true => "n strong worse",
            },
            link: format!("#a={}&b={}", fragment(a), fragment(b)),
            tip: format!("{a} less {b}: {ends} points"),
            points: points(pair.difference * sign),
            p: p_value(pair.p),
        }
    }
}
