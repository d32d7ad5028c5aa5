//! A run whose outcome is unknown is missing data: it is counted, and part of no figure.

use crate::common::{WORD_PROBLEMS, counterfactuals, plan, profile_of, simulated, work};
use async_trait::async_trait;
use lemon_exec::worker::{AskError, Reply, Request, Worker};
use lemon_trace::FailureKind;
use lemon_world::{AgentNoise, Preset};
use std::sync::Arc;

/// A fake: calls about one question time out.
struct FakeTimeout {
    question: String,
    worker: Arc<dyn Worker>,
}

#[async_trait]
impl Worker for FakeTimeout {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        match request.messages.iter().any(|message| message.content.contains(&self.question)) {
            true => Err(AskError::free(FailureKind::Timeout, "nothing came")),
            false => self.worker.ask(request).await,
        }
    }
}

#[test]
fn a_timeout_is_missing_data_and_not_a_wrong_answer() {
    const TEAM: &str = "agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: critic, capacity: small, after: [a]}
";
    let plan = plan(TEAM);
    let mut env = simulated(Preset::Teams, AgentNoise::Kept);
    env.settings.retry.attempts = 1;
    let known = profile_of(&counterfactuals(&env), &work(&plan, &WORD_PROBLEMS[..8], &[1]));
    env.backend.worker =
        Arc::new(FakeTimeout { question: WORD_PROBLEMS[8].item.task.question.clone(), worker: env.backend.worker });
    let found = profile_of(&counterfactuals(&env), &work(&plan, &WORD_PROBLEMS[..9], &[1]));
    assert_eq!((found.baseline.runs, found.unknown.len(), found.complete), (8, 1, true));
    assert_eq!(serde_json::to_value(&found.effects).unwrap(), serde_json::to_value(&known.effects).unwrap());
    assert_eq!(found.baseline.success, known.baseline.success);
}
