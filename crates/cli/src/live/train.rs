//! What a person sees while an orchestrator trains: the last step on a terminal, drawn over and over in place; elsewhere a line
//! for each held-out evaluation.

use crate::say::harmless;
use console::{Style, Term};
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressStyle};
use lemon_credit::economy::FamilyReport;
use lemon_eval::report::words::{NONE, few, number, percent};
use lemon_spec::edit::Family;
use lemon_train::metrics::{Means, StepMetrics, Timing};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Steps that are remembered, for the little curve and for the time left.
const RECENT: usize = 40;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Talk about training, on standard error.
pub struct TrainView {
    steps: u64,
    quiet: bool,
    screen: Option<Screen>,
    rewards: VecDeque<f64>,
    seconds: VecDeque<f64>,
    /// Where the time of all steps went.
    time: Timing,
    /// What was last heard of each family.
    families: BTreeMap<Family, FamilyReport>,
    held_out: Option<(u64, Means)>,
}

/// A bar and the lines below it.
struct Screen {
    all: MultiProgress,
    bar: ProgressBar,
    lines: Vec<ProgressBar>,
}

impl TrainView {
    /// A view of a run of so many steps, for a terminal or for a file.
    pub fn new(steps: u64, quiet: bool) -> Self {
        let screen = (!quiet && Term::stderr().is_term()).then(|| Screen::new(steps));
        TrainView {
            steps,
            quiet,
            screen,
            rewards: VecDeque::new(),
            seconds: VecDeque::new(),
            time: Timing::default(),
            families: BTreeMap::new(),
            held_out: None,
        }
    }

    /// Says a line, above what is drawn.
    pub fn say(&self, line: &str) {
        match &self.screen {
            // A terminal that cannot be drawn on does not stop the run.
            Some(screen) => drop(screen.all.println(harmless(line, true))),
            None if !self.quiet => eprintln!("{line}"),
            None => {}
        }
    }

    /// Shows a step.
    pub fn step(&mut self, metrics: &StepMetrics, timing: &Timing) {
        if metrics.skipped {
            self.say(&format!("step {} is left out: a number was not finite", metrics.step));
        }
        self.note(metrics, timing);
        match &mut self.screen {
            Some(screen) => {
                let left = time_left(&self.seconds, self.steps.saturating_sub(metrics.step));
                let dim = Style::new().for_stderr().dim();
                let mut lines = Vec::new();
                if metrics.rollouts.runs > 0 {
                    lines.push(reward_line(metrics.rollouts.reward, &self.rewards));
                    lines.extend([outcome(&metrics.rollouts), policy_line(metrics)]);
                    let families = self.families.iter().map(|(family, report)| family_line(*family, report));
                    lines.extend(families.map(|line| dim.apply_to(line).to_string()));
                    lines.push(dim.apply_to(time_line(&self.time)).to_string());
                }
                lines.extend(self.held_out.as_ref().map(|(step, held_out)| held_out_line(*step, held_out)));
                screen.draw(metrics.step, left, lines);
            }
            None => {
                if let Some(line) = plain_line(metrics) {
                    self.say(&line);
                }
            }
        }
    }

    /// Leaves the last step where it stands.
    pub fn finish(&self) {
        if let Some(screen) = &self.screen {
            screen.bar.abandon();
            screen.lines.iter().for_each(ProgressBar::abandon);
        }
    }

    fn note(&mut self, metrics: &StepMetrics, timing: &Timing) {
        // Before the first step there is a held-out evaluation, and nothing else.
        if metrics.rollouts.runs > 0 {
            remember(&mut self.rewards, metrics.rollouts.reward);
            remember(&mut self.seconds, seconds(timing));
        }
        self.time.sampling += timing.sampling;
        self.time.running += timing.running;
        self.time.credit += timing.credit;
        self.time.update += timing.update;
        self.time.other += timing.other;
        self.families.extend(metrics.families.iter().map(|(family, report)| (*family, *report)));
        self.held_out = metrics.held_out.map(|held_out| (metrics.step, held_out)).or(self.held_out);
    }
}

impl Screen {
    fn new(steps: u64) -> Self {
        let all = MultiProgress::new();
        let bar = all.add(ProgressBar::new(steps).with_style(style("{bar:30.yellow} step {pos} of {len}{msg}")));
        Screen { all, bar, lines: Vec::new() }
    }

    fn draw(&mut self, step: u64, left: String, lines: Vec<String>) {
        self.bar.set_message(left);
        self.bar.set_position(step);
        while self.lines.len() < lines.len() {
            self.lines.push(self.all.add(ProgressBar::new(0).with_style(style("{wide_msg}"))));
        }
        for (place, line) in self.lines.iter().zip(lines) {
            place.set_message(line);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are ours, and parse.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn remember(values: &mut VecDeque<f64>, value: f64) {
    if values.len() == RECENT {
        values.pop_front();
    }
    values.push_back(value);
}

fn seconds(timing: &Timing) -> f64 {
    timing.sampling + timing.running + timing.credit + timing.update + timing.other
}

/// As long as the last steps took, for each that is left. A bar's own guess would be wrong for a resumed run.
fn time_left(seconds: &VecDeque<f64>, steps: u64) -> String {
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    match Duration::try_from_secs_f64(mean * steps as f64) {
        Ok(left) if steps > 0 => format!(" · {:#} left", HumanDuration(left)),
        _ => String::new(),
    }
}

/// The reward of a step and of those before it.
fn reward_line(reward: f64, rewards: &VecDeque<f64>) -> String {
    format!("reward {} {}", fixed(reward), sparkline(rewards))
}

/// What teams came to.
fn outcome(means: &Means) -> String {
    format!(
        "{} right · {} tokens · {} valid · {} agents · {} review",
        percent(means.success),
        number(means.tokens),
        percent(means.valid),
        few(means.agents),
        percent(means.review)
    )
}

/// What a step did to the policy.
fn policy_line(metrics: &StepMetrics) -> String {
    let StepMetrics { entropy, kl_old, kl_reference, clipped, gradient_norm, .. } = metrics;
    // A divergence of nothing was not measured.
    let reference =
        if *kl_reference == 0.0 { String::new() } else { format!(", {} from the start", fixed(*kl_reference)) };
    format!(
        "entropy {} · KL {}{reference} · {} clipped · gradient {}",
        fixed(*entropy),
        fixed(*kl_old),
        percent(*clipped),
        fixed(*gradient_norm)
    )
}

/// What credit purchased of a family.
fn family_line(family: Family, report: &FamilyReport) -> String {
    let measured = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), fixed);
    format!(
        "  {:<10}  mean |Δ| {:>6} · {:>4} free · {:>4} purchased · worth {}",
        family.as_str(),
        measured(report.absolute),
        number(report.free as f64),
        number(report.purchased as f64),
        measured(report.worth)
    )
}

/// Where the time went.
fn time_line(time: &Timing) -> String {
    let whole = seconds(time);
    let part = |name: &str, seconds: f64| match (100.0 * seconds / whole).round() {
        share if share.is_finite() => format!("{name} {share:.0} %"),
        _ => format!("{name} {NONE}"),
    };
    let parts = [
        part("writing", time.sampling),
        part("running", time.running),
        part("credit", time.credit),
        part("learning", time.update),
        part("other", time.other),
    ];
    format!("time: {}", parts.join(" · "))
}

/// The result of a held-out evaluation.
fn held_out_line(step: u64, held_out: &Means) -> String {
    format!("held out, step {step}: reward {} · {}", fixed(held_out.reward), outcome(held_out))
}

/// What is said of a step where nothing can be drawn, if it is worth a line.
fn plain_line(metrics: &StepMetrics) -> Option<String> {
    let line = held_out_line(metrics.step, metrics.held_out.as_ref()?);
    Some(match metrics.worker_tokens {
        0 => line,
        tokens => format!("{line} · {} worker tokens spent", number(tokens as f64)),
    })
}

/// The values as a little curve. What is not a number is a gap.
fn sparkline(values: &VecDeque<f64>) -> String {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let block = |value: &f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        let place = (share * (BLOCKS.len() - 1) as f64).round();
        if value.is_finite() { BLOCKS.get(place as usize).copied().unwrap_or(' ') } else { ' ' }
    };
    values.iter().map(block).collect()
}

/// A number of any size in about as much room.
fn fixed(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => NONE.to_owned(),
        size if size >= 1e6 => format!("{value:.1e}"),
        size if size >= 100.0 => number(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size < 0.001 && size > 0.0 => format!("{value:.0e}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests;
