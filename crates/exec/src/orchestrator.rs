//! Orchestrators write the team. They decide what to write or which model to ask; the driver makes the call.

mod guard;
mod prompted;
mod words;

pub use guard::{Guard, MAX_COST, plain_team};
pub use prompted::{ModelNote, Prompted};
pub use words::{assignment, assignment_within, instructions};

use crate::answer;
use crate::form::Form;
use crate::worker::ChatMessage;
use async_trait::async_trait;
use lemon_spec::{Diagnostic, Language, Plan};
use lemon_trace::AgentStatus;
use std::sync::Arc;

/// Writes the team of a round.
///
/// An implementation must not block the thread it is polled on: work that keeps a processor busy belongs on
/// [`tokio::task::spawn_blocking`] or a thread of its own.
#[async_trait]
pub trait Orchestrator: Send + Sync {
    /// The specification of the next round, or the call that asks a model for it. `None`: this orchestrator does not write
    /// such a round.
    ///
    /// # Errors
    /// The orchestrator itself failed. The driver records the error and ends the run: it is neither repaired nor replaced by
    /// [`Self::fallback`].
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError>;

    /// A second try, after the first was refused. `None`: there is none.
    ///
    /// # Errors
    /// As [`Self::draft`].
    async fn repair(&self, _: &WriteContext<'_>, _: &Refused<'_>) -> Result<Option<Draft>, OrchestratorError> {
        Ok(None)
    }

    /// The team to run where the drafts gave no valid one. `None`: the run is rejected.
    fn fallback(&self, _: &WriteContext<'_>) -> Option<String> {
        None
    }

    /// The team to run in place of a valid one that was drafted. `None`: the one that was drafted.
    fn amend(&self, _: &WriteContext<'_>, _: &Plan) -> Option<String> {
        None
    }

    /// Whether [`Self::amend`] may put a team in the place of another. Such runs are not sent to other machines.
    fn amends(&self) -> bool {
        false
    }
}

/// Why an orchestrator could not write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrchestratorError {
    /// Its model cannot be loaded.
    #[error("the orchestrator's model `{model}` cannot be loaded: {reason}")]
    Load {
        /// The model's name or folder.
        model: String,
        /// The loader's message.
        reason: String,
    },
    /// Its policy failed while it wrote.
    #[error("the orchestrator's policy `{model}` failed: {reason}")]
    Policy {
        /// The policy's name.
        model: String,
        /// The policy's message.
        reason: String,
    },
}

/// What an orchestrator is told.
pub struct WriteContext<'a> {
    /// The task.
    pub question: &'a str,
    /// The round to write, from 1.
    pub round: u32,
    /// What the agents of the rounds before gave.
    pub results: Vec<RoundResult<'a>>,
    /// What a specification may say.
    pub language: &'a Language,
    /// The form of the answer that the task wants.
    pub form: Form,
    /// Tokens left, if they are limited.
    pub tokens_left: Option<u64>,
    /// The seed of whatever is drawn in writing this round.
    pub seed: u64,
}

impl WriteContext<'_> {
    /// The answers that agents of the rounds before state, in their order. Some of them state none: a plan, a program.
    pub fn stated(&self) -> Vec<String> {
        let done = self.results.iter().filter(|result| result.status == AgentStatus::Done);
        done.filter_map(|result| answer::extract(result.reply?)).collect()
    }

    /// Whether all agents so far are done and give the same answer, by its value; there are at least two.
    pub fn agree(&self) -> bool {
        let options = if self.form == Form::Choice { answer::options_in(self.question) } else { Vec::new() };
        let ballot = |result: &RoundResult<'_>| {
            let reply = result.reply.filter(|_| result.status == AgentStatus::Done)?;
            Some(answer::ballot(&answer::answer_of(reply, self.form), self.form, &options))
        };
        let ballots: Option<Vec<String>> = self.results.iter().map(ballot).collect();
        ballots.is_some_and(|ballots| match ballots.as_slice() {
            [first, rest @ ..] => !rest.is_empty() && rest.iter().all(|other| other == first),
            [] => false,
        })
    }

    /// What a vote of all so far would weigh each answer with, in the order first given: the percent that those who gave it are
    /// sure, over all agents. `None`: not all are done, give an answer, and say how sure they are.
    pub fn weights(&self) -> Option<Vec<(String, u32)>> {
        let mut weights: Vec<(String, u32)> = Vec::new();
        for result in &self.results {
            if result.status != AgentStatus::Done {
                return None;
            }
            let (stated, sure) = (answer::extract(result.reply?)?, u32::from(result.sure?));
            match weights.iter_mut().find(|(known, _)| answer::vote_key(known) == answer::vote_key(&stated)) {
                Some((_, weight)) => *weight += sure,
                None => weights.push((stated, sure)),
            }
        }
        let count = u32::try_from(self.results.len()).ok().filter(|count| *count > 0)?;
        Some(weights.into_iter().map(|(answer, weight)| (answer, weight / count)).collect())
    }
}

/// What one agent gave in a round before.
#[derive(Clone, Copy)]
pub struct RoundResult<'a> {
    pub agent: &'a str,
    pub role: &'a str,
    /// How it ended.
    pub status: AgentStatus,
    pub reply: Option<&'a str>,
    /// How sure it was of it, in percent, where it says.
    pub sure: Option<u8>,
}

/// How sure an agent was, from 0 to 1, in whole percent.
pub fn percent(confidence: f64) -> u8 {
    // Between 0 and 100 after the clamp; what is no number becomes 0.
    (100.0 * confidence.clamp(0.0, 1.0)).round() as u8
}

/// A specification, or the call that asks a model for one.
pub enum Draft {
    /// It is written already.
    Text(String),
    /// It is written and validated already. The driver checks it again only where it was validated for another language or
    /// after other agents.
    Plan {
        /// The team.
        plan: Arc<Plan>,
        /// The policy that wrote it, where one did.
        model: Option<String>,
    },
    /// The guard decided on it without asking the orchestrator it guards.
    Guarded(String),
    /// A policy wrote it.
    Learned {
        /// What it wrote.
        text: String,
        /// The policy's name.
        model: String,
    },
    /// A model has to be asked.
    Ask {
        /// The capacity of the model: a position in [`Language::capacities`].
        level: usize,
        /// The conversation.
        messages: Vec<ChatMessage>,
        /// The schema of the reply.
        schema: Option<Arc<serde_json::Value>>,
    },
}

/// A text that was refused.
pub struct Refused<'a> {
    pub text: &'a str,
    /// Why.
    pub diagnostics: &'a [Diagnostic],
}

/// A team from a file; further rounds, where it asks for them, come from another orchestrator.
pub struct Fixed {
    /// The specification.
    pub text: String,
    /// Writes the rounds after the first.
    pub reviewer: Option<Arc<dyn Orchestrator>>,
}

#[async_trait]
impl Orchestrator for Fixed {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        match &self.reviewer {
            _ if context.round == 1 => Ok(Some(Draft::Text(self.text.clone()))),
            Some(reviewer) => reviewer.draft(context).await,
            None => Ok(None),
        }
    }

    async fn repair(
        &self,
        context: &WriteContext<'_>,
        refused: &Refused<'_>,
    ) -> Result<Option<Draft>, OrchestratorError> {
        match &self.reviewer {
            // A file is the user's word: a fault in it is reported, not worked around.
            Some(reviewer) if context.round > 1 => reviewer.repair(context, refused).await,
            _ => Ok(None),
        }
    }
}

/// Teams that are validated already, one for each round.
pub struct Planned {
    /// The teams, the first round first.
    pub rounds: Vec<Arc<Plan>>,
    /// Writes the rounds after those.
    pub reviewer: Option<Arc<dyn Orchestrator>>,
}

#[async_trait]
impl Orchestrator for Planned {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        match (self.round(context.round), &self.reviewer) {
            (Some(plan), _) => Ok(Some(Draft::Plan { plan: plan.clone(), model: None })),
            (None, Some(reviewer)) => reviewer.draft(context).await,
            (None, None) => Ok(None),
        }
    }

    async fn repair(
        &self,
        context: &WriteContext<'_>,
        refused: &Refused<'_>,
    ) -> Result<Option<Draft>, OrchestratorError> {
        match (self.round(context.round), &self.reviewer) {
            (None, Some(reviewer)) => reviewer.repair(context, refused).await,
            _ => Ok(None),
        }
    }
}

impl Planned {
    fn round(&self, round: u32) -> Option<&Arc<Plan>> {
        self.rounds.get(round.checked_sub(1)? as usize)
    }
}

/// The specification inside a model's reply: the last fenced block if there is one, all of it otherwise.
pub fn specification_in(reply: &str) -> &str {
    let Some(close) = reply.rfind("```") else { return reply.trim() };
    let before = reply.get(..close).unwrap_or_default();
    let Some(open) = before.rfind("```") else { return reply.trim() };
    let block = before.get(open + 3..).unwrap_or_default();
    // The word after an opening fence names the language.
    block.split_once('\n').map_or(block, |(_, text)| text).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reply: &str, expected: &str) {
        assert_eq!(specification_in(reply), expected);
    }

    #[test]
    fn the_specification_is_found_in_what_models_write() {
        check("agents: []", "agents: []");
        check("Here you go:\n```yaml\nagents: []\n```\nEnjoy!", "agents: []");
        check("```\nagents: []\n```", "agents: []");
        check("```json\n{\"agents\": []}\n```", "{\"agents\": []}");
        check("First\n```yaml\na: 1\n```\nbetter\n```yaml\nb: 2\n```", "b: 2");
        check("``` only one fence", "``` only one fence");
        check("", "");
    }
}
