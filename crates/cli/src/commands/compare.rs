//! `lemon compare`: two evaluations, on the items they share.

use crate::args::{Cli, CompareArgs, Endpoints};
use crate::fault::{Fault, read_file};
use crate::{print, print_json};
use lemon_eval::folder::{find, parse};
use lemon_eval::{EvalComparison, Evaluation, Flips, MethodComparison};

pub fn compare(cli: &Cli, args: &CompareArgs) -> Result<u8, Fault> {
    let config = cli.config(&Endpoints::default())?;
    let store = config.store_path(cli.store.as_deref());
    let read = |name: &str| -> Result<Evaluation, Fault> {
        let path = find(&store, name)?;
        Ok(parse(&path, &read_file(&path)?)?)
    };
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let comparison = lemon_eval::compare(&a, &b);
    for warning in &comparison.warnings {
        eprintln!("warning: {warning}");
    }
    if comparison.methods.is_empty() {
        return Err(Fault::new("the two evaluations share no method on a common item")
            .hint("compare evaluations of the same methods on the same sets"));
    }
    match args.json {
        true => print_json(&comparison),
        false => print(&describe(&comparison)),
    }
}

fn describe(comparison: &EvalComparison) -> String {
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let mut text = format!("{} → {}\n", comparison.a.eval_id, comparison.b.eval_id);
    for method in &comparison.methods {
        let [before, after] = method.accuracy;
        let [low, high] = method.interval;
        text += &format!(
            "{:<14} {} % → {} %  ({:+.1} points, 95 % {:+.1} to {:+.1}, p {:.3}, Holm {:.3})  tokens {:.0} → {:.0}  on {}\n",
            method.method,
            percent(before),
            percent(after),
            100.0 * method.change,
            100.0 * low,
            100.0 * high,
            method.permutation_p,
            method.holm_p,
            method.tokens[0],
            method.tokens[1],
            items(method),
        );
        for (word, flips) in [("now right", &method.gained), ("now wrong", &method.lost)] {
            text += &describe_flips(word, flips);
        }
    }
    let alone = [(&comparison.methods_only_a, &comparison.a), (&comparison.methods_only_b, &comparison.b)];
    for (methods, set_up) in alone.iter().filter(|(methods, _)| !methods.is_empty()) {
        text += &format!("only in {}: {}\n", set_up.eval_id, methods.join(", "));
    }
    text
}

/// How many items were compared, and how many could not be.
fn items(method: &MethodComparison) -> String {
    match method.items_only_a + method.items_only_b {
        0 => format!("{} items", method.items),
        alone => format!("{} of {} items", method.items, method.items + alone),
    }
}

fn describe_flips(word: &str, flips: &Flips) -> String {
    if flips.items == 0 {
        return String::new();
    }
    let names: Vec<String> = flips.first.iter().take(8).map(|item| format!("{}/{}", item.set, item.item_id)).collect();
    let more = if flips.items > names.len() { ", …" } else { "" };
    format!("  {word}: {} ({}{more})\n", flips.items, names.join(", "))
}
