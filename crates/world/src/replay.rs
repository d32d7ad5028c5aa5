//! Recorded models as workers: what real models replied to these very questions.
//!
//! The record holds plain questions to single models, so it serves agents that read no other agent; every other call is a
//! miss, or goes to a simulated world where one was given.

use crate::outcomes::RecordedReply;
use crate::preset::LEVELS;
use crate::sim::{World, finish};
use async_trait::async_trait;
use lemon_exec::worker::{AskError, Reply, Request};
use lemon_exec::{Backend, Clock, Level, Worker};
use lemon_trace::FailureKind;
use std::collections::HashMap;
use std::sync::Arc;

/// Tokens a second: no times are on record.
const SPEED: f64 = 100.0;

/// Workers that say what recorded models said.
pub struct Recorded {
    replies: HashMap<String, Vec<RecordedReply>>,
    on_miss: Option<World>,
}

impl Recorded {
    /// Workers with these replies by question. What is not on record fails, or is simulated.
    pub fn new(replies: HashMap<String, Vec<RecordedReply>>, on_miss: Option<World>) -> Self {
        Recorded { replies, on_miss }
    }

    /// Whether a question is on record.
    pub fn knows(&self, question: &str) -> bool {
        self.replies.contains_key(question.trim())
    }

    /// The workers.
    pub fn backend(self) -> Backend {
        let name = if self.on_miss.is_some() { "replay (misses simulated)" } else { "replay (recorded models)" };
        Backend {
            name: name.into(),
            levels: LEVELS
                .map(|level| Level { identity: format!("recorded/{level}").into(), ..Level::new(level) })
                .to_vec(),
            worker: Arc::new(self),
            clock: Clock::Simulated,
            code: None,
        }
    }

    /// The recorded reply; where there are several samples, the seed of the call chooses.
    fn find(&self, request: &Request) -> Result<&RecordedReply, String> {
        let Some(agent_prompt) = &request.agent_prompt else {
            return Err("no recorded model wrote a specification".into());
        };
        if !agent_prompt.readings.is_empty() {
            return Err(format!("`{}` reads others, and the record holds single models only", request.agent));
        }
        let replies = self.replies.get(agent_prompt.question.trim()).ok_or("this task is not on record")?;
        let of_level: Vec<_> = replies.iter().filter(|reply| reply.level == request.level).collect();
        let miss = || format!("the record holds no reply of `{}` to this task", request.capacity);
        let count = of_level.len() as u64;
        let chosen = request.seed.checked_rem(count).and_then(|at| of_level.get(usize::try_from(at).ok()?).copied());
        chosen.ok_or_else(miss)
    }
}

#[async_trait]
impl Worker for Recorded {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        match (self.find(request), &self.on_miss) {
            (Ok(found), _) => finish(request, found.text.clone(), found.model.clone(), SPEED),
            (Err(_), Some(world)) => world.ask(request).await,
            (Err(fact), None) => Err(AskError::free(FailureKind::NotRecorded, fact)),
        }
    }
}
