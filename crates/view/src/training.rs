//! A run as one page: opens offline, loads nothing and runs nothing, in light and dark, on a desk, on a phone and on paper.
//!
//! Questions and specifications are untrusted text, and so is the title. They reach the markup only through `escape`.

mod chart;
mod credit;
mod curves;
mod scale;
mod stack;
mod teams;

use super::metrics::{BeforeAfter, Means, Metrics, Timing};
use lemon_eval::report::words::{number, percent, plural};
use lemon_trace::export::escape;
use stack::{Part, stack};
use std::fmt::Write;

/// The page: how a run went, what credit bought, where tokens and time went, and how teams changed.
pub fn page(title: &str, recipe_toml: &str, metrics: &[Metrics], timings: &[Timing], teams: &[BeforeAfter]) -> String {
    let steps = (
        metrics.iter().map(|it| it.step).min().unwrap_or(0) as f64,
        metrics.iter().map(|it| it.step).max().unwrap_or(0) as f64,
    );
    let sections = [
        ("outcomes", "Results of the teams", "Results", curves::outcomes(metrics, steps)),
        ("policy", "The policy: the model that writes the teams", "Policy", curves::inner(metrics, steps)),
        ("credit", "Credit: what each kind of decision is worth", "Credit", credit::families(metrics, steps)),
        ("tokens", "Where the worker tokens went", "Tokens", credit::tokens(metrics)),
        ("time", "Where the time went", "Time", time(timings)),
        ("teams", "Teams for the same tasks, before and after", "Teams", teams::teams(teams)),
        ("recipe", "Recipe", "Recipe", recipe(recipe_toml)),
    ];
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{style}</style>\n</head>\n\
         <body>\n<header>\n<p class=\"run\"><b>LEMON</b> training</p>\n<h1>{title}</h1>\n{headline}</header>\n\
         <nav aria-label=\"Sections\"><div>",
        title = escape(title),
        style = include_str!("page/page.css"),
        headline = headline(metrics),
    );
    for (id, _, name, _) in &sections {
        let _ = write!(page, "<a href=\"#{id}\">{name}</a>");
    }
    page.push_str("</div></nav>\n<main>\n");
    for (id, title, _, body) in &sections {
        let _ = write!(page, "<section id=\"{id}\">\n<h2>{title}</h2>\n{body}</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// What came of it, in sentences.
fn headline(metrics: &[Metrics]) -> String {
    let mut html = String::from("<div class=\"findings\">");
    for sentence in held_out(metrics) {
        let _ = write!(html, "<p>{sentence}</p>");
    }
    if let Some(last) = metrics.last() {
        let _ = write!(html, "<p>{}</p>", spent(metrics, last));
    }
    let skipped = metrics.iter().filter(|it| it.skipped).count();
    if skipped > 0 {
        let _ = write!(html, "<p>{} left out because a number was not finite.</p>", were(skipped, "step"));
    }
    let unmeasured = metrics.iter().map(|it| it.unmeasured).sum();
    if unmeasured > 0 {
        let _ = write!(html, "<p>{} left out because their reward could not be measured.</p>", were(unmeasured, "run"));
    }
    html.push_str("</div>\n");
    html
}

fn were(count: usize, noun: &str) -> String {
    format!("{} {}", plural(count, noun), if count == 1 { "was" } else { "were" })
}

/// What the reward is, in words; the recipe has its weights.
const REWARD: &str = "The reward is the number that training raises: 1 for a right answer, a little more for few tokens, \
                      less for each agent, each reference between agents and each invalid specification \
                      (weights: the recipe below and docs/reward.md).";

/// What changed on held-out tasks: right answers and tokens first, then the reward and what that is.
fn held_out(metrics: &[Metrics]) -> Vec<String> {
    let mut looks = metrics.iter().filter_map(|it| Some((it.step, it.look?)));
    let Some((from, first)) = looks.next() else {
        return vec!["There is no held-out evaluation yet.".to_owned()];
    };
    let reward = |means: &Means| chart::written(means.reward, scale::Unit::Plain);
    let success = |means: &Means| percent(means.success);
    let tokens = |means: &Means| number(means.tokens);
    let Some((to, last)) = looks.next_back() else {
        let measured = format!(
            "At step {from}, on held-out tasks: <b>{}</b> of the answers are right, with <b>{}</b> tokens per run.",
            success(&first),
            tokens(&first)
        );
        return vec![measured, format!("{REWARD} It is <b>{}</b>.", reward(&first))];
    };
    let went = |of: &dyn Fn(&Means) -> String, change: f64| {
        let (before, after) = (of(&first), of(&last));
        match before == after || !change.is_finite() || change == 0.0 {
            true => format!("stayed at <b>{after}</b>"),
            false => format!("{} from {before} to <b>{after}</b>", if change > 0.0 { "rose" } else { "fell" }),
        }
    };
    let change = 100.0 * (last.tokens / first.tokens - 1.0);
    let change = match change.round() {
        change if !change.is_finite() || change == 0.0 => String::new(),
        change => format!(" ({}{:.0} %)", if change < 0.0 { "−" } else { "+" }, change.abs()),
    };
    vec![
        format!(
            "On held-out tasks, from step {from} to step {to}: right answers {}; tokens per run {}{change}.",
            went(&success, last.success - first.success),
            went(&tokens, last.tokens - first.tokens)
        ),
        format!(
            "{REWARD} It {}. Each number is a mean over {}.",
            went(&reward, last.reward - first.reward),
            plural(last.runs, "run")
        ),
    ]
}

fn spent(metrics: &[Metrics], last: &Metrics) -> String {
    let total = |of: fn(&Metrics) -> u64| metrics.iter().map(|it| of(it) as f64).sum::<f64>();
    let (rollouts, credit) = (total(|it| it.rollout_tokens), total(|it| it.credit_tokens));
    let on_credit = if credit > 0.0 {
        format!(", <b>{}</b> of them on counterfactuals", percent(credit / (rollouts + credit)))
    } else {
        String::new()
    };
    let steps = metrics.iter().filter(|it| it.rollouts.runs > 0);
    let reused = steps.clone().map(|it| it.reused).filter(|share| share.is_finite()).sum::<f64>();
    let steps = steps.count();
    let reused = match reused / steps as f64 {
        share if share > 0.0 => {
            format!(" On average, {} of a step’s reply tokens came from the cache and cost nothing.", percent(share))
        }
        _ => String::new(),
    };
    format!(
        "{} took <b>{}</b> worker tokens{on_credit}.{reused}",
        plural(steps, "step"),
        number(last.worker_tokens as f64)
    )
}

fn time(timings: &[Timing]) -> String {
    let part = |name, class, of: fn(&Timing) -> f64| {
        let value = timings.iter().map(of).filter(|seconds| seconds.is_finite()).sum();
        Part { name, class, value, written: duration(value) }
    };
    stack(&[
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

fn recipe(toml: &str) -> String {
    format!("<details><summary>All settings, as TOML</summary><pre>{}</pre></details>\n", escape(toml))
}

#[cfg(test)]
mod tests;
