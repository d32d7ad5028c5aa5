//! Runs a team on a worker of your own: here a calculator that needs no model.
//!
//!     cargo run -p lemon --example 302_own_worker
//!
//! A worker answers one conversation. It neither retries nor counts budgets: the executor does both.

use lemon::exec::worker::{AskError, Reply, Request, Usage, Worker};
use lemon::trace::FailureKind;
use lemon::{Lemon, async_trait};
use std::sync::Arc;

/// Adds the whole numbers of the question.
struct Calculator;

#[async_trait]
impl Worker for Calculator {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        // What the conversation was made of: question, role, duty and what the agent reads.
        let Some(prompt) = &request.agent_prompt else {
            return Err(AskError::free(FailureKind::Refused, "a calculator writes no teams"));
        };
        let numbers: Vec<i64> = prompt
            .question
            .split(|letter: char| !letter.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        if numbers.is_empty() {
            // Refused calls are not tried again. This one cost nothing.
            return Err(AskError::free(FailureKind::Refused, "the question holds no number"));
        }
        let text = format!(
            "{} numbers, {} read.\nANSWER: {}",
            numbers.len(),
            prompt.readings.len(),
            numbers.iter().sum::<i64>()
        );
        let words = |text: &str| text.split_whitespace().count() as u64;
        let tokens_in = request.messages.iter().map(|message| words(&message.content)).sum();
        Ok(Reply {
            usage: Usage { tokens_in, tokens_out: words(&text), counted: true },
            text,
            model: Some("calculator".to_owned()),
            simulated_s: None,
            confidence: None,
            truncated: false,
            tool_calls: Vec::new(),
        })
    }
}

const TEAM: &str = "\
agents:
  - {id: add, base: solver, capacity: small}
  - {id: check, base: verifier, capacity: small, after: [add]}
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lemon = Lemon::builder().worker(Arc::new(Calculator)).budget_tokens(5_000).build().await?;
    let plan = lemon.validate(TEAM)?;

    let trace = lemon.run(&plan, "Ana has 3 pens, buys 4 and finds 5. How many pens is that?").await?;
    let summary = trace.summary();
    for agent in &summary.agents {
        println!("{:6} {:?} by {:?}, {} tokens", agent.id, agent.answer, agent.model, agent.tokens());
    }
    println!("answer: {:?}", summary.answer);

    // A failure is part of the trace; it is no error of the call.
    let refused = lemon.run(&plan, "Who wrote Faust?").await?.summary();
    println!("without numbers: {:?}", refused.stop_reason.map(|reason| reason.as_str()));

    if summary.answer.as_deref() != Some("12") || refused.answer.is_some() {
        return Err(format!("expected 12 and no answer, found {:?} and {:?}", summary.answer, refused.answer).into());
    }
    Ok(())
}
