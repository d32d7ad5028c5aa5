//! Runs a team on an OpenAI-compatible endpoint and prints its events as they come.
//!
//!     cargo run -p lemon --example 102_run_a_team -- http://localhost:11434/v1 qwen2.5:7b
//!
//! Without arguments it starts a fake endpoint, which gives the same reply to every request.

use lemon::Lemon;
use lemon::trace::EventKind;
use lemon_fakes::{Behaviour, FakeEndpoint};

const TEAM: &str = include_str!("team.yaml");
const QUESTION: &str = "A jacket costs 80 dollars and is 15 % off. What does it cost, in dollars?";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let fake = match arguments.is_empty() {
        true => Some(FakeEndpoint::start(Behaviour::text("15 % of 80 is 12, so it costs 68.\nANSWER: 68"))?),
        false => None,
    };
    let (base_url, model) = match (&fake, arguments.as_slice()) {
        (Some(fake), _) => (fake.base_url(), "fake".to_owned()),
        (None, [base_url, model]) => (base_url.clone(), model.clone()),
        _ => return Err("expected no arguments, or an address and a model".into()),
    };
    if fake.is_some() {
        println!("no endpoint is given: a fake one at {base_url} answers\n");
    }

    // The team uses two capacities; here one model serves both.
    let lemon = Lemon::builder()
        .endpoint("small", &base_url, &model)
        .endpoint("medium", &base_url, &model)
        .budget_tokens(20_000)
        .seed(1)
        .build()
        .await?;
    let plan = lemon.validate(TEAM)?;

    let mut run = lemon.start(&plan, QUESTION)?;
    let mut events = 0;
    while let Some(event) = run.next_event().await {
        events += 1;
        let what = match &event.kind {
            EventKind::Spawn { to, role, .. } => format!("creates {to}, {role}"),
            EventKind::Delegate { to, .. } => format!("gives {to} its duty"),
            EventKind::Message { from, to, .. } => format!("message from {from} to {to}"),
            EventKind::Return { answer, .. } => format!("returns {answer:?}"),
            EventKind::Aggregate { rule, answer, .. } => format!("answers {answer:?} by {rule:?}"),
            EventKind::Stop { reason, .. } => format!("ends: {}", reason.as_str()),
            _ => continue,
        };
        println!("{:7.3} s  {:12} {what}", event.t, event.agent);
    }

    let trace = run.finish().await?;
    let summary = trace.summary();
    println!("\nanswer: {:?}, {} calls, {} tokens", summary.answer, summary.calls, summary.tokens.total);
    if events != trace.events.len() || summary.answer.is_none() {
        return Err(format!("{events} of {} events came, answer {:?}", trace.events.len(), summary.answer).into());
    }
    if fake.is_some() && summary.answer.as_deref() != Some("68") {
        return Err(format!("expected the answer 68, found {:?}", summary.answer).into());
    }
    Ok(())
}
