//! The runs for a spreadsheet: a header and one line a run.

use crate::{Evaluation, Row};
use lemon_trace::StopReason;

const COLUMNS: [&str; 27] = [
    "set",
    "item",
    "item_id",
    "method",
    "seed",
    "run_id",
    "right",
    "legacy_right",
    "answer",
    "stop_reason",
    "tokens",
    "tokens_orchestrator",
    "tokens_workers",
    "tokens_retried",
    "tokens_failed",
    "usd",
    "wall_s",
    "calls",
    "agents",
    "events",
    "messages",
    "parallel_speedup",
    "busy_time",
    "useful_agents",
    "message_redundancy",
    "error_amplification",
    "protocol_overhead",
];

/// The runs as CSV (RFC 4180, with line feeds). What does not exist is empty. Texts are not changed: a spreadsheet that
/// takes an answer such as `=1+1` for a formula has to be told that the column is text.
pub fn csv(evaluation: &Evaluation) -> String {
    let mut csv = COLUMNS.join(",");
    csv.push('\n');
    for row in &evaluation.rows {
        csv.push_str(&fields(row).map(|field| quoted(&field)).join(","));
        csv.push('\n');
    }
    csv
}

fn fields(row: &Row) -> [String; COLUMNS.len()] {
    let measured = |x: Option<f64>| x.filter(|x| x.is_finite()).map(|x| x.to_string()).unwrap_or_default();
    let metrics = &row.metrics;
    [
        row.set.to_string(),
        row.item.to_string(),
        row.item_id.to_string(),
        row.method.to_string(),
        row.seed.to_string(),
        row.run_id.clone(),
        row.right.to_string(),
        row.legacy_right.to_string(),
        row.answer.as_deref().unwrap_or_default().to_owned(),
        row.stop_reason.map_or("", StopReason::as_str).to_owned(),
        row.tokens.total.to_string(),
        row.tokens.orchestrator.to_string(),
        row.tokens.workers.to_string(),
        row.tokens.retried.to_string(),
        row.tokens.failed.to_string(),
        measured(row.usd),
        measured(Some(row.wall_s)),
        row.calls.to_string(),
        row.agents.len().to_string(),
        metrics.events.to_string(),
        metrics.messages.to_string(),
        measured(metrics.parallel_speedup),
        measured(metrics.busy_time),
        measured(metrics.useful_agents),
        measured(metrics.message_redundancy),
        measured(metrics.error_amplification),
        measured(metrics.protocol_overhead),
    ]
}

/// A field as CSV has it: in quotes where it needs them.
pub fn quoted(field: &str) -> String {
    let is_plain = !field.contains(['"', ',', '\n', '\r']) && field.trim() == field;
    if is_plain { field.to_owned() } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_where_needed() {
        let check = |field, expected: &str| assert_eq!(quoted(field), expected);
        check("", "");
        check("plain text", "plain text");
        check("a,b", "\"a,b\"");
        check("say \"x\"", "\"say \"\"x\"\"\"");
        check("two\nlines", "\"two\nlines\"");
        check("two\rlines", "\"two\rlines\"");
        check(" padded", "\" padded\"");
        check("=1+1", "=1+1");
    }
}
