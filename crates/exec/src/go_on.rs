//! Having an agent go on whose reply was cut off at `max_tokens`, where its reply became the answer.

use crate::call::CallEnd;
use crate::driver::{Run, returned};
use crate::recorder::Observer;
use crate::runner::{RunError, Runner};
use crate::state::{AgentOutcome, RunState, Standing};
use crate::store::{RunMeta, StoreError};
use crate::worker::ChatMessage;
use lemon_trace::{EventKind, Failure, Spend, StopReason, Trace};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What an agent is told whose reply was cut off.
const GO_ON: &str = "Continue exactly where you stopped. Do not repeat anything.";

impl Runner {
    /// Has the agent go on whose reply was cut off and became the answer; both parts together are its reply then. A run
    /// whose answer is complete, or that has none, is left as it is.
    ///
    /// # Errors
    /// The store failed.
    pub async fn go_on(
        &self,
        trace: Trace,
        meta: &RunMeta,
        cancel: &CancellationToken,
        observer: Option<Observer>,
    ) -> Result<Trace, RunError> {
        let summary = trace.summary();
        match summary.answered_by.clone().filter(|_| summary.is_answer_truncated()) {
            Some(agent) => self.run_from(trace, true, meta, cancel, observer, Some(&agent)).await,
            None => Ok(trace),
        }
    }
}

impl Run<'_> {
    /// Asks an agent to go on, and concludes. Whatever happens, no less is left than there was.
    pub(crate) async fn go_on(
        &self,
        state: &mut RunState,
        agent: &str,
        cancel: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut halt = None;
        if let Some((index, before)) = state.find(agent).and_then(|index| Some((index, reply_of(state, index)?))) {
            let deliveries = state.deliveries(index);
            let mut messages = state.conversation(index, &deliveries);
            messages.push(ChatMessage::assistant(&*before));
            messages.push(ChatMessage::user(GO_ON));
            let level = state.members().get(index).map_or(0, |member| member.agent.level);
            // Another seed each time: the same words again would end the same way.
            let request = self.request(agent, level, messages, &format!("go on after {} bytes", before.len()), None);
            let ended = self.interruptible(cancel, self.call(request, GO_ON)).await;
            let (kind, spend) = match ended {
                Err(reason) => {
                    halt = Some(reason);
                    (None, self.forfeit(agent))
                }
                Ok(end) => match end? {
                    CallEnd::Replied { reply, attempts, reused, spend } => {
                        let text: Arc<str> = format!("{before}{}", reply.text).into();
                        let outcome = AgentOutcome { truncated: reply.truncated, ..AgentOutcome::done(text) };
                        let kind = returned(&outcome, reply.model, attempts, reused);
                        state.amend(index, outcome);
                        (Some(kind), spend)
                    }
                    CallEnd::Failed { error, attempts, spend } => {
                        (Some(as_before(before, Some(error.failure), attempts)), spend)
                    }
                    CallEnd::Refused { limit, needed, left, .. } => {
                        self.recorder.note(agent, EventKind::Budget { limit, needed, left }, Spend::default());
                        halt = Some(crate::driver::stop_reason(limit));
                        self.end(state, halt);
                        return Ok(());
                    }
                },
            };
            let kind = kind.or_else(|| Some(as_before(reply_of(state, index)?, None, 0)));
            if let Some(kind) = kind {
                self.recorder.record(agent, kind, spend).wait().await?;
            }
        }
        let halt = self.test_programs(state, cancel, halt).await;
        self.end(state, halt);
        Ok(())
    }

    fn end(&self, state: &RunState, halt: Option<StopReason>) {
        let (reason, answer) = self.conclude(state, halt);
        self.stop(reason, answer);
    }
}

/// The reply as it was: the agent could not go on.
fn as_before(reply: Arc<str>, failure: Option<Failure>, attempts: u32) -> EventKind {
    returned(&AgentOutcome { truncated: true, failure, ..AgentOutcome::done(reply) }, None, attempts, false)
}

fn reply_of(state: &RunState, index: usize) -> Option<Arc<str>> {
    match &state.members().get(index)?.standing {
        Standing::Ended(outcome) => outcome.reply.clone(),
        Standing::Waiting | Standing::Running => None,
    }
}
