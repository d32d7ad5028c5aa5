//! Runs on the models that ship with this crate: no server, no key, no network.
//!
//!     cargo run -p lemon --example 103_bundled_models
//!
//! First the bundled orchestrator writes a team for the question and the bundled workers answer. Then a team of our own runs on
//! the same workers. They are small: they solve arithmetic word problems only, and often wrong.

use lemon::Lemon;
use lemon::trace::{EventKind, Trace};

const QUESTION: &str = "Ana has 3 pens. She buys 4 pens. How many pens does Ana have now?";

const TEAM: &str = "\
agents:
  - {id: medium, base: solver, capacity: medium}
  - {id: large, base: solver, capacity: large}
answer: {from: [medium, large], by: vote}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lemon = Lemon::builder().bundled().notices(|line| println!("{line}\n")).build().await?;

    let written = lemon.ask(QUESTION).await?;
    for event in &written.events {
        if let EventKind::Decision { by, text, .. } = &event.kind {
            println!("written by {by}:\n{}\n", text.trim_end());
        }
    }
    show("the written team", &written)?;

    let ours = lemon.run(&lemon.validate(TEAM)?, QUESTION).await?;
    show("our team", &ours)
}

fn show(name: &str, trace: &Trace) -> Result<(), Box<dyn std::error::Error>> {
    let summary = trace.summary();
    for agent in &summary.agents {
        let confidence = agent.confidence.map_or_else(String::new, |it| format!(", confidence {:.0} %", 100.0 * it));
        println!("  {:10} {:?}{confidence}", agent.id, agent.answer);
    }
    println!("{name}: {:?}, {} tokens\n", summary.answer, summary.tokens.total);
    match summary.answer.as_deref() {
        Some("7") => Ok(()),
        other => Err(format!("{name}: expected the answer 7, found {other:?}").into()),
    }
}
