//! The report on a terminal: a line a method, and which differences are more than chance.

use lemon_eval::{MethodReport, Partial, Report};

const MORE_THAN_CHANCE: &str = "more than chance explains (Holm, 5 %)";

pub fn table(report: &Report) -> String {
    let mut text = block(&report.methods, "all sets");
    let partial = report.partial.map(|Partial { runs, of, compared }| match compared {
        0 => format!("partial: {runs} of {of} runs; no item has a run of every method\n"),
        _ => format!("partial: {runs} of {of} runs; compared on the {compared} runs that each method has\n"),
    });
    if report.sets.len() > 1 {
        report.sets.iter().for_each(|set| text += &format!("\n{}", block(&set.methods, &set.set)));
    } else if let Some(set) = report.set_up.sets.first() {
        text = text.replacen("all sets", set, 1);
    }
    text += &report.methods.iter().filter_map(other_ends).collect::<String>();
    let certain: Vec<_> = report.pairs.iter().filter(|pair| pair.holm_p < 0.05).collect();
    text += &match (report.pairs.len(), certain.len()) {
        (0, _) => String::new(),
        (1, 0) => format!("\nthe difference in accuracy is not {MORE_THAN_CHANCE}\n"),
        (1, _) => format!("\nthe difference in accuracy is {MORE_THAN_CHANCE}:\n"),
        (pairs, 0) => format!("\nnone of the {pairs} differences in accuracy is {MORE_THAN_CHANCE}\n"),
        (pairs, 1) => format!("\n1 of the {pairs} differences in accuracy is {MORE_THAN_CHANCE}:\n"),
        (pairs, certain) => format!("\n{certain} of the {pairs} differences in accuracy are {MORE_THAN_CHANCE}:\n"),
    };
    for pair in certain.iter().take(12) {
        let (better, worse, gain) = match pair.difference >= 0.0 {
            true => (&pair.a, &pair.b, pair.difference),
            false => (&pair.b, &pair.a, -pair.difference),
        };
        text += &format!("  {better} over {worse}: {:.1} points\n", 100.0 * gain);
    }
    if certain.len() > 12 {
        text += &format!("  … and {} more in the report\n", certain.len() - 12);
    }
    partial.unwrap_or_default() + &text
}

/// Says of runs that failed or were cut short that they did: they may be why a method is wrong.
fn other_ends(method: &MethodReport) -> Option<String> {
    let others = || method.ends.iter().filter(|(end, _)| *end != "answered");
    let count: usize = others().map(|(_, runs)| runs).sum();
    let list: Vec<String> = others().map(|(end, runs)| format!("{runs} {end}")).collect();
    let MethodReport { method, runs, .. } = method;
    (count > 0).then(|| format!("{method}: {count} of {runs} runs did not end as planned: {}\n", list.join(", ")))
}

fn block(methods: &[MethodReport], title: &str) -> String {
    let name_width = methods.iter().map(|method| method.method.chars().count()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{title}\n{:<name_width$}  {:>8}  {:>13}  {:>7}  {:>6}  {:>8}  {:>6}  {:>7}\n",
        "method", "accuracy", "95 %", "legacy", "reward", "tokens", "agents", "seconds"
    );
    for method in methods {
        let [low, high] = method.interval;
        text += &format!(
            "{:<name_width$}  {:>6.1} %  {:>13}  {:>5.1} %  {:>6}  {:>8.0}  {:>6.1}  {:>7.1}{}\n",
            method.method,
            100.0 * method.accuracy,
            format!("{:.1} to {:.1}", 100.0 * low, 100.0 * high),
            100.0 * method.legacy_accuracy,
            method.reward.map_or("–".to_owned(), |reward| format!("{reward:.3}")),
            method.tokens,
            method.agents,
            method.seconds[0],
            if method.on_front { "  front" } else { "" },
        );
    }
    text
}
