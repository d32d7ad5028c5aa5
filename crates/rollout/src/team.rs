//! Who writes the team of a rollout.

use async_trait::async_trait;
use lemon_exec::orchestrator::{Draft, Fixed, Orchestrator, OrchestratorError, Planned, WriteContext};
use lemon_exec::worker::{AskError, Reply, Request, Worker};
use lemon_spec::Plan;
use lemon_trace::FailureKind;
use std::sync::Arc;

/// Who writes the team of a rollout.
#[derive(Clone)]
pub enum Team {
    /// A validated team. Counterfactuals need one.
    Plan {
        /// The team.
        plan: Arc<Plan>,
        /// Writes the rounds after the first, where the plan asks for them.
        reviewer: Option<Arc<dyn Orchestrator>>,
    },
    /// One round as text, valid or not.
    Text(String),
    /// Every round as a policy wrote it, valid or not. A run that asks for one more ends with what there is.
    Rounds(Vec<String>),
    Orchestrator(Arc<dyn Orchestrator>),
}

impl Team {
    pub(crate) fn orchestrator(&self) -> Arc<dyn Orchestrator> {
        match self {
            Team::Plan { plan, reviewer } => {
                Arc::new(Planned { rounds: vec![plan.clone()], reviewer: reviewer.clone() })
            }
            Team::Text(text) => Arc::new(Fixed { text: text.clone(), reviewer: None }),
            Team::Rounds(texts) => Arc::new(WrittenRounds { texts: texts.clone() }),
            Team::Orchestrator(orchestrator) => orchestrator.clone(),
        }
    }
}

impl From<Arc<dyn Orchestrator>> for Team {
    fn from(orchestrator: Arc<dyn Orchestrator>) -> Self {
        Team::Orchestrator(orchestrator)
    }
}

/// Rounds that are written already.
struct WrittenRounds {
    texts: Vec<String>,
}

#[async_trait]
impl Orchestrator for WrittenRounds {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let text = context.round.checked_sub(1).and_then(|at| self.texts.get(at as usize)).cloned();
        Ok(text.map(|text| Draft::Learned { text, model: "student".to_owned() }))
    }
}

/// In the place of the workers where only the reply cache may answer.
pub(crate) struct CacheOnly(pub Arc<dyn Worker>);

#[async_trait]
impl Worker for CacheOnly {
    async fn ask(&self, _: &Request) -> Result<Reply, AskError> {
        Err(AskError::free(FailureKind::NotRecorded, "the reply cache does not hold this call"))
    }

    fn cache_key(&self, request: &Request) -> Option<Vec<u8>> {
        self.0.cache_key(request)
    }

    fn wants_team(&self) -> bool {
        self.0.wants_team()
    }
}
