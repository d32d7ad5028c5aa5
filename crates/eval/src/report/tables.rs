//! The tables of a report, before they become Markdown or HTML.

use super::words::{NONE, few, measured, number, p_value, percent, percent_range, points, range, times};
use super::words::{token_difference, usd};
use crate::{MethodReport, PairReport};
pub use lemon_view::table::{Align, Cell, Table};
use std::collections::BTreeSet;

use Align::{Left, Right};

/// What each method came to.
pub fn methods(methods: &[MethodReport]) -> Table {
    let columns = [
        ("Method", Left),
        ("Accuracy", Right),
        ("Legacy", Right),
        ("Reward", Right),
        ("Tokens", Right),
        ("Orchestrator", Right),
        ("Workers", Right),
        ("Retried", Right),
        ("Failed", Right),
        ("Calls", Right),
        ("Agents", Right),
        ("Seconds", Right),
        ("Cost", Right),
        ("Runs", Right),
        ("Front", Left),
    ];
    let rows = methods.iter().map(method).collect();
    let kinds: BTreeSet<&str> = methods.iter().map(|method| method.interval_kind.as_str()).collect();
    let kinds: Vec<&str> = kinds.into_iter().collect();
    let caption = format!(
        "Accuracy: the share of right answers, with its 95 % interval ({}); legacy: the share by the rule of the \
                   public repositories; reward: success, \
                   less what tokens and structure cost (docs/reward.md). Tokens, calls, agents, seconds and cost are means over runs; seconds with \
                   median and 95th percentile. Retried and failed tokens are part of those of the orchestrator and the \
                   workers. Front: no other method is as accurate for fewer tokens or more accurate for as many.",
        kinds.join(", ")
    );
    Table::new(&columns, rows, &caption)
}

fn method(method: &MethodReport) -> Vec<Cell> {
    let by = &method.tokens_by;
    let [low, high] = method.tokens_interval;
    let [mean, median, slow] = method.seconds;
    let tokens = |x: f64| Cell::number(x, number(x));
    vec![
        Cell::text(&method.method).strong_if(method.on_front),
        Cell::number(method.accuracy, percent(method.accuracy)).noted(percent_range(method.interval)),
        Cell::number(method.legacy_accuracy, percent(method.legacy_accuracy))
            .noted(percent_range(method.legacy_interval)),
        reward(method),
        tokens(method.tokens).noted(format!("{}–{}", number(low), number(high))),
        tokens(by.orchestrator),
        tokens(by.workers),
        tokens(by.retried),
        tokens(by.failed),
        Cell::number(method.calls, few(method.calls)),
        Cell::number(method.agents, few(method.agents)),
        Cell::number(mean, few(mean)).noted(format!("{}, {}", few(median), few(slow))),
        Cell::number(method.usd.unwrap_or(f64::NAN), usd(method.usd)),
        Cell::number(method.runs as f64, number(method.runs as f64)),
        Cell::text(if method.on_front { "yes" } else { "no" }).strong_if(method.on_front),
    ]
}

fn reward(method: &MethodReport) -> Cell {
    let (Some(reward), Some([low, high])) = (method.reward, method.reward_interval) else {
        return Cell::number(f64::NAN, "–".to_owned());
    };
    Cell::number(reward, format!("{reward:.3}")).noted(format!("{low:.3}–{high:.3}"))
}

/// Every pair of methods.
pub fn pairs(pairs: &[PairReport]) -> Table {
    let columns = [
        ("A", Left),
        ("B", Left),
        ("A − B, points", Right),
        ("Only A", Right),
        ("Only B", Right),
        ("Runs", Right),
        ("p, McNemar", Right),
        ("p, permutation", Right),
        ("p, Holm", Right),
        ("A − B, tokens", Right),
    ];
    let rows = pairs.iter().map(pair).collect();
    let caption = "On the items and seeds both ran, with 95 % intervals (bootstrap, clustered by item, or by those that look \
                   alike where clusters were asked for). McNemar’s exact test exists for one run of each only. Holm: the \
                   permutation test’s p, corrected for all pairs.";
    Table::new(&columns, rows, caption)
}

fn pair(pair: &PairReport) -> Vec<Cell> {
    let [low, high] = pair.interval;
    let [fewest, most] = pair.token_interval;
    let count = |n: usize| Cell::number(n as f64, number(n as f64));
    let real = super::findings::survives(pair);
    vec![
        Cell::text(&pair.a),
        Cell::text(&pair.b),
        Cell::number(pair.difference, points(pair.difference))
            .noted(range(&points(low), &points(high)))
            .strong_if(real),
        count(pair.only_a),
        count(pair.only_b),
        count(pair.runs),
        Cell::number(pair.mcnemar_p.unwrap_or(f64::NAN), pair.mcnemar_p.map_or_else(|| NONE.to_owned(), p_value)),
        Cell::number(pair.permutation_p, p_value(pair.permutation_p)),
        Cell::number(pair.holm_p, p_value(pair.holm_p)).strong_if(real),
        Cell::number(pair.token_difference, token_difference(pair.token_difference))
            .noted(range(&token_difference(fewest), &token_difference(most))),
    ]
}

/// The four groups of metrics, bands of equal length together, so that methods are compared on runs as long as each
/// other's.
pub fn bands(methods: &[MethodReport]) -> Table {
    let columns = [
        ("Events", Left),
        ("Method", Left),
        ("Runs", Right),
        ("Success", Right),
        ("Speed-up", Right),
        ("Useful agents", Right),
        ("Redundancy", Right),
        ("Error amplification", Right),
        ("Overhead", Right),
    ];
    let start = |events: &str| {
        let digits: String = events.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or(u64::MAX)
    };
    let names: BTreeSet<(u64, &str)> = methods
        .iter()
        .flat_map(|method| &method.bands)
        .map(|band| (start(&band.events), band.events.as_str()))
        .collect();
    let optional = |x: Option<f64>, text: String| Cell::number(x.unwrap_or(f64::NAN), text);
    let mut rows = Vec::new();
    for (start, name) in names {
        for method in methods {
            rows.extend(method.bands.iter().filter(|band| band.events == name).map(|band| {
                vec![
                    Cell { text: name.to_owned(), value: Some(start as f64), ..Cell::default() },
                    Cell::text(&method.method),
                    Cell::number(band.runs as f64, number(band.runs as f64)),
                    Cell::number(band.success, percent(band.success)),
                    optional(band.parallel_speedup, times(band.parallel_speedup)),
                    optional(band.useful_agents, measured(band.useful_agents)),
                    optional(band.message_redundancy, measured(band.message_redundancy)),
                    optional(band.error_amplification, times(band.error_amplification)),
                    optional(band.protocol_overhead, measured(band.protocol_overhead)),
                ]
            }));
        }
    }
    let caption = "Task success: right answers. Parallelism efficiency: speed-up (T_serial / T_parallel) and useful \
                   agents (share with a part in the answer). Collaboration quality: redundancy (share of messages said \
                   before) and error amplification (how much likelier an agent errs for having read an error). Protocol \
                   overhead: share of tokens spent on coordination. Means over the runs where each can be measured.";
    Table::new(&columns, rows, caption)
}

/// How the runs ended.
pub fn ends(methods: &[MethodReport]) -> Table {
    let mut rows = Vec::new();
    for method in methods {
        rows.extend(method.ends.iter().map(|(end, runs)| {
            let share = *runs as f64 / method.runs.max(1) as f64;
            vec![
                Cell::text(&method.method),
                Cell::text(&end.replace('_', " ")),
                Cell::number(*runs as f64, number(*runs as f64)),
                Cell::number(share, percent(share)),
            ]
        }));
    }
    Table::new(&[("Method", Left), ("End", Left), ("Runs", Right), ("Share", Right)], rows, "Why each run stopped.")
}
