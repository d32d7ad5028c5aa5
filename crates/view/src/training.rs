//! A training run as one page: opens offline, loads nothing and runs nothing, in light and dark, on a desk, on a phone and on
//! paper.
//!
//! The crate that trains fills in [`TrainingReport`]; the template `training.html` is the page.

mod chart;
mod compare;
mod credit;
mod curves;
mod stack;
pub(crate) mod teams;

pub use compare::compare;

use crate::app::Section;
use crate::markup::filters;
use crate::page::{Host, render};
use crate::words::{number, percent, plural};
use askama::Template;
use chart::{Figure, Unit, written};
use credit::FamilyTable;
use lemon_spec::edit::Family;
use stack::{Part, Stack};
use std::collections::BTreeMap;
use teams::TeamBlock;

/// What the page of a training run shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainingReport {
    /// What the page is called.
    pub title: String,
    /// The recipe, as TOML.
    pub recipe: String,
    /// The steps; a held-out evaluation before the first is a step without runs.
    pub steps: Vec<StepPoint>,
    /// Where the time of the steps went.
    pub seconds: Vec<StepSeconds>,
    /// Teams before and after.
    pub teams: Vec<TeamChange>,
}

/// One step. A number that is not finite is not drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepPoint {
    /// The step, from 1.
    pub step: u64,
    /// What its rollouts came to.
    pub rollouts: RunMeans,
    /// What a held-out evaluation showed, where there was one.
    pub held_out: Option<RunMeans>,
    /// Worker tokens spent on rollouts.
    pub rollout_tokens: u64,
    /// Worker tokens spent on counterfactuals.
    pub credit_tokens: u64,
    /// Worker tokens spent since the first step, on both.
    pub worker_tokens: u64,
    /// The share of reply tokens that came from the cache.
    pub reused: f64,
    /// What counterfactuals of each family told and cost.
    pub families: BTreeMap<Family, FamilyPoint>,
    pub learning_rate: f64,
    pub loss: f64,
    pub gradient_norm: f64,
    /// Mean entropy of a choice, in nats.
    pub entropy: f64,
    /// The share of tokens whose ratio was clipped.
    pub clipped: f64,
    /// Mean divergence from the policy that wrote.
    pub kl_old: f64,
    /// Mean divergence from the policy it began with, where that is measured.
    pub kl_reference: f64,
    /// Runs whose reward could not be measured.
    pub unmeasured: usize,
    /// Whether the step was left out because a number was not finite.
    pub skipped: bool,
}

/// Means over runs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunMeans {
    /// Runs behind them.
    pub runs: usize,
    pub reward: f64,
    /// The share of right answers.
    pub success: f64,
    /// Tokens of all replies of a run.
    pub tokens: f64,
    /// The share of specifications that were valid.
    pub valid: f64,
    /// Agents of a run.
    pub agents: f64,
    /// The share of runs with a second round.
    pub review: f64,
}

/// Counterfactuals of one family in one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FamilyPoint {
    /// Those that the cache answered.
    pub free: u64,
    /// Those that were purchased.
    pub purchased: u64,
    /// Those that told too little for their tokens.
    pub declined: u64,
    /// Those that the token budget did not allow.
    pub capped: u64,
    /// Worker tokens spent.
    pub tokens: u64,
    /// The mean value per token of those offered for tokens; 1 is that of a rollout.
    pub worth: Option<f64>,
    /// The mean difference in reward.
    pub mean: Option<f64>,
    /// The mean absolute difference.
    pub absolute: Option<f64>,
    /// The variance of the differences.
    pub variance: Option<f64>,
    /// The share of differences that are exactly zero.
    pub zeros: Option<f64>,
}

/// Where the time of a step went, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepSeconds {
    /// Writing teams.
    pub sampling: f64,
    /// Running them.
    pub running: f64,
    /// Running counterfactuals.
    pub credit: f64,
    /// Updating weights.
    pub update: f64,
    /// Held-out evaluations and checkpoints.
    pub other: f64,
}

/// The teams for a task at the beginning and at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamChange {
    /// The set the task comes from.
    pub set: String,
    pub question: String,
    /// The specifications of the first policy, by round.
    pub before: Vec<String>,
    /// Those of the last.
    pub after: Vec<String>,
}

const SECTIONS: [(&str, &str); 7] = [
    ("outcomes", "Results"),
    ("policy", "Policy"),
    ("credit", "Credit"),
    ("tokens", "Tokens"),
    ("time", "Time"),
    ("teams", "Teams"),
    ("recipe", "Recipe"),
];

#[derive(Template)]
#[template(path = "training.html")]
struct TrainingPage<'a> {
    host: Host,
    title: &'a str,
    headline: Vec<Vec<Words>>,
    outcomes: Vec<Figure>,
    policy: Vec<Figure>,
    families: Vec<Figure>,
    family_table: FamilyTable,
    tokens: Option<Stack>,
    time: Option<Stack>,
    first_teams: Vec<TeamBlock<'a>>,
    more_teams: Vec<TeamBlock<'a>>,
    recipe: &'a str,
}

/// A part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Words {
    Plain(String),
    /// A number that a reader looks for.
    Bold(String),
}

/// The page: how a run went, what credit told, where tokens and time went, and how teams changed.
pub fn html(report: &TrainingReport) -> String {
    page(report, Host::FILE)
}

/// The page in the application, whose script keeps it up to date.
pub fn hosted(report: &TrainingReport) -> String {
    page(report, Host::app(Section::Trainings, "training.js"))
}

fn page(report: &TrainingReport, host: Host) -> String {
    let steps = &report.steps;
    let ends = ends(steps);
    let mut teams: Vec<TeamBlock> = report.teams.iter().map(TeamBlock::new).collect();
    let more_teams = teams.split_off(teams.len().min(teams::FIRST));
    render(&TrainingPage {
        host,
        title: &report.title,
        headline: headline(steps),
        outcomes: curves::outcomes(steps, ends),
        policy: curves::policy(steps, ends),
        families: credit::families(steps, ends),
        family_table: FamilyTable::new(steps),
        tokens: credit::tokens(steps),
        time: time(&report.seconds),
        first_teams: teams,
        more_teams,
        recipe: &report.recipe,
    })
}

/// The first and the last step.
fn ends<'a>(steps: impl IntoIterator<Item = &'a StepPoint>) -> (f64, f64) {
    let steps = steps.into_iter().map(|it| it.step);
    let (first, last) = steps.fold((u64::MAX, 0), |(first, last), step| (first.min(step), last.max(step)));
    (first.min(last) as f64, last as f64)
}

/// What came of it, in sentences.
fn headline(steps: &[StepPoint]) -> Vec<Vec<Words>> {
    let mut sentences = held_out(steps);
    sentences.extend(steps.last().map(|last| spent(steps, last)));
    let skipped = steps.iter().filter(|it| it.skipped).count();
    if skipped > 0 {
        sentences.push(vec![plain(format!("{} left out because a number was not finite.", were(skipped, "step")))]);
    }
    let unmeasured = steps.iter().map(|it| it.unmeasured).sum();
    if unmeasured > 0 {
        let left_out = format!("{} left out because their reward could not be measured.", were(unmeasured, "run"));
        sentences.push(vec![plain(left_out)]);
    }
    sentences
}

fn plain(words: impl Into<String>) -> Words {
    Words::Plain(words.into())
}

fn were(count: usize, noun: &str) -> String {
    format!("{} {}", plural(count, noun), if count == 1 { "was" } else { "were" })
}

/// What the reward is, in words; the recipe has its weights.
const REWARD: &str = "The reward is the number that training raises: 1 for a right answer, a little more for few tokens, \
                      less for each agent, each reference between agents and each invalid specification \
                      (weights: the recipe below and docs/reward.md).";

/// What changed on held-out tasks: right answers and tokens first, then the reward and what that is.
fn held_out(steps: &[StepPoint]) -> Vec<Vec<Words>> {
    let mut evaluations = steps.iter().filter_map(|it| Some((it.step, it.held_out?)));
    let Some((from, first)) = evaluations.next() else {
        return vec![vec![plain("There is no held-out evaluation yet.")]];
    };
    let reward = |means: &RunMeans| written(means.reward, Unit::Plain);
    let success = |means: &RunMeans| percent(means.success);
    let tokens = |means: &RunMeans| number(means.tokens);
    let Some((to, last)) = evaluations.next_back() else {
        let measured = vec![
            plain(format!("At step {from}, on held-out tasks: ")),
            Words::Bold(success(&first)),
            plain(" of the answers are right, with "),
            Words::Bold(tokens(&first)),
            plain(" tokens per run."),
        ];
        return vec![measured, vec![plain(format!("{REWARD} It is ")), Words::Bold(reward(&first)), plain(".")]];
    };
    let went = |of: &dyn Fn(&RunMeans) -> String, change: f64| {
        let (before, after) = (of(&first), of(&last));
        let how = match before == after || !change.is_finite() || change == 0.0 {
            true => "stayed at ".to_owned(),
            false => format!("{} from {before} to ", if change > 0.0 { "rose" } else { "fell" }),
        };
        [plain(how), Words::Bold(after)]
    };
    let change = 100.0 * (last.tokens / first.tokens - 1.0);
    let change = match change.round() {
        change if !change.is_finite() || change == 0.0 => String::new(),
        change => format!(" ({}{:.0} %)", if change < 0.0 { "−" } else { "+" }, change.abs()),
    };
    let mut first_sentence = vec![plain(format!("On held-out tasks, from step {from} to step {to}: right answers "))];
    first_sentence.extend(went(&success, last.success - first.success));
    first_sentence.push(plain("; tokens per run "));
    first_sentence.extend(went(&tokens, last.tokens - first.tokens));
    first_sentence.push(plain(format!("{change}.")));
    let mut second_sentence = vec![plain(format!("{REWARD} It "))];
    second_sentence.extend(went(&reward, last.reward - first.reward));
    second_sentence.push(plain(format!(". Each number is a mean over {}.", plural(last.runs, "run"))));
    vec![first_sentence, second_sentence]
}

fn spent(all: &[StepPoint], last: &StepPoint) -> Vec<Words> {
    let total = |of: fn(&StepPoint) -> u64| all.iter().map(|it| of(it) as f64).sum::<f64>();
    let (rollouts, credit) = (total(|it| it.rollout_tokens), total(|it| it.credit_tokens));
    let steps = all.iter().filter(|it| it.rollouts.runs > 0);
    let reused = steps.clone().map(|it| it.reused).filter(|share| share.is_finite()).sum::<f64>();
    let steps = steps.count();
    let mut sentence = vec![
        plain(format!("{} took ", plural(steps, "step"))),
        Words::Bold(number(last.worker_tokens as f64)),
        plain(" worker tokens"),
    ];
    if credit > 0.0 {
        let share = percent(credit / (rollouts + credit));
        sentence.extend([plain(", "), Words::Bold(share), plain(" of them on counterfactuals")]);
    }
    sentence.push(plain(match reused / steps as f64 {
        share if share > 0.0 => {
            format!(". On average, {} of a step’s reply tokens came from the cache and cost nothing.", percent(share))
        }
        _ => ".".to_owned(),
    }));
    sentence
}

fn time(seconds: &[StepSeconds]) -> Option<Stack> {
    let part = |name, class, of: fn(&StepSeconds) -> f64| {
        let value = seconds.iter().map(of).filter(|seconds| seconds.is_finite()).sum();
        Part { name, class, value, written: duration(value) }
    };
    Stack::new(&[
        part("writing teams", "sampling", |it| it.sampling),
        part("running them", "running", |it| it.running),
        part("running counterfactuals", "credit", |it| it.credit),
        part("updating weights", "update", |it| it.update),
        part("held-out evaluations and checkpoints", "other", |it| it.other),
    ])
}

/// Seconds as one reads them: `8.2 s`, `3 min 20 s`, `1 h 12 min`.
fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", number((whole / 3_600) as f64), whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests;
