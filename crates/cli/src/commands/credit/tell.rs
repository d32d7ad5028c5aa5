//! A profile and an improvement in words.

use lemon_profile::{Effect, Improvement, Profile, Step};
use std::path::Path;

/// Effects told one by one; the rest is counted.
const MOST_TOLD: usize = 24;

pub fn profile(profile: &Profile) -> String {
    let base = &profile.baseline;
    let [low, high] = base.interval;
    let mut text = format!(
        "success {:.1} % (95 % {:.1} to {:.1}), {:.0} tokens a run, {} runs\n\n",
        100.0 * base.success,
        100.0 * low,
        100.0 * high,
        base.tokens,
        base.runs
    );
    text += "worth: success with it less success without; the least worth for its cost first\n";
    text += &format!(
        "{:<11} {:<22} {:>16}  {:>8}  {:>6}  advice\n",
        "family", "target", "worth, points", "tokens", "pairs"
    );
    let (measured, rest): (Vec<&Effect>, Vec<&Effect>) =
        profile.effects.iter().partition(|effect| effect.effect.is_some());
    measured.iter().take(MOST_TOLD).for_each(|effect| text += &line(effect));
    if measured.len() > MOST_TOLD {
        text += &format!("… and {} more, with --json\n", measured.len() - MOST_TOLD);
    }
    if !rest.is_empty() {
        text += &format!("{} edits were not measured\n", rest.len());
    }
    text += "\nhow far a change spreads\n";
    text += &format!(
        "{:<11} {:>6}  {:>10}  {:>8}  {:>7}  {:>7}  {:>10}\n",
        "family", "pairs", "downstream", "changed", "answer", "direct", "downstream"
    );
    for row in &profile.cascades {
        let share = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{:.0} %", 100.0 * x));
        let points = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{:+.1}", 100.0 * x));
        text += &format!(
            "{:<11} {:>6}  {:>10}  {:>8}  {:>7}  {:>7}  {:>10}\n",
            row.family.as_str(),
            row.n,
            row.descendants.map_or("–".to_owned(), |x| format!("{x:.1}")),
            share(row.changed),
            share(row.answer_changed),
            points(row.direct),
            points(row.downstream),
        );
    }
    let reuse = &profile.reuse;
    text += &format!(
        "\n{} calls made, {} answered by the original runs ({}); {} tokens spent, {} saved\n",
        reuse.calls,
        reuse.calls_reused,
        reuse.share().map_or("–".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
        reuse.tokens,
        reuse.tokens_saved
    );
    text
}

fn line(effect: &Effect) -> String {
    let worth = match (effect.effect, effect.interval) {
        (Some(worth), Some([low, high])) => {
            format!("{:+.1} ± {:.1}", 100.0 * worth, 100.0 * (high - worth).max(worth - low))
        }
        (Some(worth), None) => format!("{:+.1}", 100.0 * worth),
        (None, _) => "not measured".to_owned(),
    };
    let tokens = effect.tokens.map_or("–".to_owned(), |tokens| format!("{tokens:+.0}"));
    format!(
        "{:<11} {:<22} {worth:>16}  {tokens:>8}  {:>6}  {}\n",
        effect.family.as_str(),
        effect.target,
        effect.n,
        effect.advice
    )
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
    if let (Some(change), Some([low, high])) = (found.change, found.interval) {
        text += &format!(" ({:+.1} points, 95 % {:+.1} to {:+.1})", 100.0 * change, 100.0 * low, 100.0 * high);
    }
    text += &format!(
        ", tokens {tokens:.0} → {tokens_after:.0} ({:+.0} %), cost {:+.0} %\nwritten to {}\n",
        percent(tokens, tokens_after),
        percent(cost, cost_after),
        path.display()
    );
    text
}

fn told(word: &str, step: &Step) -> String {
    let held = match (step.held_out_change, step.held_out_interval) {
        (Some(change), Some([low, high])) => format!(
            "; up to here, held out: {:+.1} points (95 % {:+.1} to {:+.1})",
            100.0 * change,
            100.0 * low,
            100.0 * high
        ),
        _ => String::new(),
    };
    format!("{word}: {} (success {:+.1} points, {:+.0} tokens{held})\n", step.change, 100.0 * step.success, step.tokens)
}
