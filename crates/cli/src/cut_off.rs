//! What to say of an answer that was cut off at `max_tokens`.

use lemon_exec::Level;
use lemon_trace::{EventKind, Trace};

/// Warns on standard error, if the answer was cut off.
pub fn warn(trace: &Trace, levels: &[Level]) {
    if let Some((fact, hint)) = warning(trace, levels) {
        let style = console::Style::new().for_stderr();
        eprintln!("{}: {fact}", style.clone().yellow().bold().apply_to("warning"));
        eprintln!("{}: {hint}", style.cyan().bold().apply_to("hint"));
    }
}

/// What is so, and what to do about it.
fn warning(trace: &Trace, levels: &[Level]) -> Option<(String, String)> {
    let summary = trace.summary();
    let agent = summary.answered_by.as_deref().filter(|_| summary.is_answer_truncated())?;
    let capacity = &summary.agent(agent)?.capacity;
    let max_tokens = levels.iter().find(|level| level.name == *capacity)?.max_tokens;
    let written =
        trace.events.iter().rev().find(|event| event.agent == agent && is_return(&event.kind))?.spend.tokens_out;
    if (1..max_tokens).contains(&written) {
        let fact = format!(
            "the answer is cut off: `{agent}` had room for {written} tokens only, less than max_tokens = {max_tokens}"
        );
        return Some((
            fact,
            "raise the budget, for instance with --budget-tokens N, or ask a model that reads more".into(),
        ));
    }
    let fact = format!("the answer is cut off: `{agent}` reached max_tokens = {max_tokens} of capacity `{capacity}`");
    let hint = format!(
        "raise `max_tokens` in [capacity.{capacity}] of lemon.toml, or give --max-tokens N; \
         `lemon run --resume {} --continue` goes on where it stopped",
        trace.header.run_id
    );
    Some((fact, hint))
}

fn is_return(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Return { .. })
}
