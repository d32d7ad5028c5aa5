//! A profile and an improvement in words.

use lemon_profile::{CascadeRow, Effect, ImproveStep, Improvement, Profile};
use lemon_spec::edit::Family;
use lemon_view::words::signed;
use std::path::Path;

/// Effects told one by one; the rest is counted.
const MOST_TOLD: usize = 24;
/// Characters of a target.
const MOST_TARGET: usize = 28;
/// Targets named in one line.
const MOST_NAMED: usize = 6;

pub fn profile(profile: &Profile) -> String {
    let base = &profile.baseline;
    let [low, high] = base.interval;
    let mut text = String::new();
    if !profile.complete {
        text += "partial: not everything was measured\n\n";
    }
    text += &format!(
        "success {:.1} % (95 % {:.1} to {:.1}), {:.0} tokens a run, {} {}\n\n",
        100.0 * base.success,
        100.0 * low,
        100.0 * high,
        base.tokens,
        base.runs,
        if base.runs == 1 { "run" } else { "runs" }
    );
    text += "worth: success of the team as it is less success with the change; the least worth for its cost first\n";
    text += &effects(&profile.effects);
    text += "\nhow far a change spreads\n";
    text += &cascades(&profile.cascades);
    let reuse = &profile.reuse;
    text += &format!(
        "\n{} calls made, {} answered by the original runs ({}); {} tokens spent, {} saved\n",
        reuse.calls,
        reuse.calls_reused,
        share(reuse.share()),
        reuse.tokens,
        reuse.tokens_saved
    );
    text
}

fn effects(effects: &[Effect]) -> String {
    let (measured, rest): (Vec<&Effect>, Vec<&Effect>) = effects.iter().partition(|effect| effect.effect.is_some());
    let told: Vec<(&Effect, String)> =
        measured.iter().take(MOST_TOLD).map(|effect| (*effect, clipped(&effect.target))).collect();
    let target = told.iter().map(|(_, target)| target.chars().count()).fold("target".len(), usize::max);
    let mut text = String::new();
    let mut row = |[family, name, worth, tokens, pairs, advice]: [&str; 6]| {
        text += &format!("{family:<11} {name:<target$}  {worth:>14}  {tokens:>8}  {pairs:>6}  {advice}\n");
    };
    row(["family", "target", "worth, points", "tokens", "pairs", "advice"]);
    for (effect, target) in &told {
        let tokens = effect.tokens.map_or("–".to_owned(), |tokens| signed(tokens, 0));
        row([effect.family.as_str(), target, &worth(effect), &tokens, &effect.n.to_string(), &effect.advice]);
    }
    if measured.len() > MOST_TOLD {
        text += &format!("… and {} more, with --json\n", measured.len() - MOST_TOLD);
    }
    for family in Family::ALL {
        let targets: Vec<String> =
            rest.iter().filter(|effect| effect.family == family).map(|effect| clipped(&effect.target)).collect();
        if !targets.is_empty() {
            text += &format!("{:<11} not measured: {}\n", family.as_str(), some(&targets));
        }
    }
    text
}

fn cascades(rows: &[CascadeRow]) -> String {
    let mut text = String::new();
    let mut row = |[family, pairs, reached, changed, answer, direct, downstream]: [&str; 7]| {
        text += &format!(
            "{family:<11} {pairs:>6}  {reached:>10}  {changed:>8}  {answer:>7}  {direct:>7}  {downstream:>10}\n"
        );
    };
    row(["family", "pairs", "downstream", "changed", "answer", "direct", "downstream"]);
    for found in rows {
        let points = |x: Option<f64>| x.map_or("–".to_owned(), |x| signed(100.0 * x, 1));
        row([
            found.family.as_str(),
            &found.n.to_string(),
            &found.descendants.map_or("–".to_owned(), |x| format!("{x:.1}")),
            &share(found.changed),
            &share(found.answer_changed),
            &points(found.direct),
            &points(found.downstream),
        ]);
    }
    text
}

fn worth(effect: &Effect) -> String {
    match (effect.effect, effect.interval) {
        (Some(worth), Some([low, high])) => {
            format!("{} ± {:.1}", signed(100.0 * worth, 1), 100.0 * (high - worth).max(worth - low))
        }
        (Some(worth), None) => signed(100.0 * worth, 1),
        (None, _) => "not measured".to_owned(),
    }
}

fn share(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

/// A target that fits its column: of a message both ends are cut, so that both are still there.
fn clipped(target: &str) -> String {
    let cut = |id: &str, most: usize| match id.char_indices().nth(most) {
        None => id.to_owned(),
        Some(_) => id.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    };
    match target.split_once(" → ") {
        Some((from, to)) => format!("{} → {}", cut(from, MOST_TARGET / 2), cut(to, MOST_TARGET / 2)),
        None => cut(target, MOST_TARGET),
    }
}

/// The first names, and how many there are beside them.
fn some(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(MOST_NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(MOST_NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

pub fn improvement(found: &Improvement, path: &Path) -> String {
    let mut text = String::new();
    for step in &found.steps {
        text += &told("kept", step);
    }
    for step in &found.taken_back {
        text += &told("taken back", step);
    }
    let [success, tokens, cost] = found.before;
    let [success_after, tokens_after, cost_after] = found.after;
    let percent = |before: f64, after: f64| 100.0 * (after / before.max(1.0) - 1.0);
    text += &format!(
        "\non {} held-out tasks: success {:.1} % → {:.1} %",
        found.held_out,
        100.0 * success,
        100.0 * success_after
    );
    if let (Some(change), Some(interval)) = (found.change, found.interval) {
        text += &format!(" ({})", points(change, interval));
    }
    text += &format!(
        ", tokens {tokens:.0} → {tokens_after:.0} ({} %), cost {} %\nwritten to {}\n",
        signed(percent(tokens, tokens_after), 0),
        signed(percent(cost, cost_after), 0),
        path.display()
    );
    text
}

fn told(word: &str, step: &ImproveStep) -> String {
    let held = match (step.held_out_change, step.held_out_interval) {
        (Some(change), Some(interval)) => format!("; up to here, held out: {}", points(change, interval)),
        _ => String::new(),
    };
    let (success, tokens) = (signed(100.0 * step.success, 1), signed(step.tokens, 0));
    format!("{word}: {} (success {success} points, {tokens} tokens{held})\n", step.change)
}

fn points(change: f64, [low, high]: [f64; 2]) -> String {
    let [change, low, high] = [change, low, high].map(|share| signed(100.0 * share, 1));
    format!("{change} points, 95 % {low} to {high}")
}
