//! The model that proposes workflows for AFlow. A proposal is a run like any other: reserved in the budget that all runs share,
//! tried again where that may help, ended with the training, and on record.

use super::Notices;
use super::request::EvalRequest;
use super::rivals::asks_a_model;
use crate::error::Error;
use async_trait::async_trait;
use lemon_baselines::BaselineError;
use lemon_baselines::aflow::{Expander, Proposal};
use lemon_eval::Method;
use lemon_exec::orchestrator::Fixed;
use lemon_exec::store::{RunMeta, Store};
use lemon_exec::worker::Backend;
use lemon_exec::{Budget, Form, Job, Runner, Settings, fresh_id};
use lemon_rollout::RolloutError;
use lemon_spec::{Language, PLAIN};
use lemon_trace::StopReason;
use lemon_workers::{Config, Resolved, WorkerFiles, WorkerSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Completion tokens of a proposal at most.
const MOST_PROPOSED: u64 = 1_000;
const TEMPERATURE: f64 = 0.7;
/// What such runs are on record as.
const TASK: &str = "aflow";

/// The model that proposes workflows: the strongest of its capacities.
pub(super) struct ProposalModel {
    backend: Backend,
}

impl ProposalModel {
    /// The workers' own model where they are models, and otherwise the configured one. `None`: no method asks it, or what asks it was
    /// trained before.
    ///
    /// # Errors
    /// A method asks it and there is none, or it cannot be used, or a budget in money is given and it has no price.
    pub(super) async fn find(
        config: &Config,
        methods: &[Method],
        workers: &WorkerSet,
        request: &EvalRequest,
        notices: Notices,
    ) -> Result<Option<Self>, Error> {
        if !methods.iter().any(asks_a_model) {
            return Ok(None);
        }
        if workers.resolved.kind.asks_models() {
            return Ok(Some(ProposalModel::new(workers.backend.clone())));
        }
        let was_trained = [&request.trained, &request.baselines].into_iter().flatten().any(|folder| folder.is_dir());
        if config.capacity.is_empty() && was_trained {
            // What is missing among it says so when it is to be trained.
            return Ok(None);
        }
        if config.capacity.is_empty() {
            let fact = "the method `aflow` needs a model that proposes workflows";
            return Err(Error::input(fact)
                .with_hint("name one with --base-url and --model, or --model FILE.gguf; `aflow-random` needs none"));
        }
        let resolved = Resolved::new(config, None, &[], notices.tell).await?;
        // Asked for the check alone: the budget is that of the runs.
        request.together.shared(resolved.capacities(), &CancellationToken::new())?;
        let (backend, _) = resolved.backend(&WorkerFiles::default())?;
        Ok(Some(ProposalModel::new(backend)))
    }

    fn new(mut backend: Backend) -> Self {
        for level in &mut backend.levels {
            level.limit_replies(MOST_PROPOSED);
            level.temperature = Some(TEMPERATURE);
            // The request says what the reply looks like.
            level.style = None;
        }
        // A proposal is read and not run.
        (backend.code, backend.tools) = (None, None);
        ProposalModel { backend }
    }

    /// What asks it, with the settings of the runs that the method learns from: their budget is shared. A proposal has no budget of
    /// its own, and is never read off an earlier one: what learning costs must not depend on what was learned before.
    pub(super) fn expander(
        &self,
        settings: &Settings,
        store: Option<Arc<Store>>,
        cancel: &CancellationToken,
    ) -> Arc<dyn Expander> {
        let capacities: Vec<String> = self.backend.levels.iter().map(|level| level.name.clone()).collect();
        // A plain agent gets the question as it stands.
        let strongest = capacities.last().map_or("", String::as_str);
        let text = format!("agents:\n  - {{id: propose, base: {PLAIN}, capacity: {strongest:?}}}\n");
        let runner = Runner {
            backend: self.backend.clone(),
            orchestrator: Arc::new(Fixed { text, reviewer: None }),
            language: Arc::new(Language { capacities, ..Language::default() }),
            store,
            reply_cache: None,
            reply_record: None,
            settings: Settings { budget: Budget::default(), reuse: false, ..settings.clone() },
            on_delta: None,
        };
        Arc::new(ModelExpander { runner, cancel: cancel.clone() })
    }
}

struct ModelExpander {
    runner: Runner,
    cancel: CancellationToken,
}

#[async_trait]
impl Expander for ModelExpander {
    async fn expand(&self, prompt: &str, seed: u64) -> Result<Option<Proposal>, BaselineError> {
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        let meta = RunMeta { form: Some(Form::Open), ..RunMeta::default() };
        let run_id = format!("t-{}", fresh_id());
        let job = Job { run_id, task_id: TASK.to_owned(), question: prompt.to_owned(), seed, meta };
        let trace = self.runner.run(&job, &self.cancel, None).await.map_err(RolloutError::from)?;
        let summary = trace.summary();
        if summary.stop_reason == Some(StopReason::Cancelled) {
            return Ok(None);
        }
        let tokens = summary.tokens.total;
        let agent = summary.agents.into_iter().next();
        let (reply, failure) = agent.map(|agent| (agent.reply, agent.failure)).unwrap_or_default();
        match reply {
            Some(text) => Ok(Some(Proposal { text, tokens })),
            None => {
                let why = failure.map_or_else(|| "it gave no reply".to_owned(), |failure| failure.message);
                Err(BaselineError::Unfit(format!(
                    "the model that proposes workflows failed: {why} (run {})",
                    job.run_id
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_exec::SharedBudget;
    use lemon_exec::store::Sync;
    use lemon_exec::worker::{AskError, Clock, Level, Reply, Request, Usage, Worker};
    use std::sync::Mutex;
    use std::time::Duration;

    /// A fake model: keeps what it is asked, and replies once it is let.
    struct Fake {
        asked: Mutex<Vec<Request>>,
        replies: bool,
    }

    #[async_trait]
    impl Worker for Fake {
        async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
            self.asked.lock().unwrap().push(request.clone());
            if !self.replies {
                std::future::pending::<()>().await;
            }
            let usage = Usage { tokens_in: 30, tokens_out: 12, counted: false };
            let text = "Answer: <graph>agents: x</graph>".to_owned();
            Ok(Reply {
                text,
                usage,
                model: None,
                simulated_s: None,
                confidence: None,
                truncated: false,
                tool_calls: Vec::new(),
            })
        }
    }

    fn model(replies: bool) -> (Arc<Fake>, ProposalModel) {
        let fake = Arc::new(Fake { asked: Mutex::default(), replies });
        let levels = vec![Level::new("weak"), Level::new("strong")];
        let worker = fake.clone();
        let name = "own".to_owned();
        (fake, ProposalModel::new(Backend { worker, name, levels, clock: Clock::Real, code: None, tools: None }))
    }

    #[tokio::test]
    async fn a_proposal_is_asked_of_the_strongest_and_spent_and_on_record() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(&folder.path().join("lemon.db"), Sync::Normal).unwrap());
        let cancel = CancellationToken::new();
        let shared = Arc::new(SharedBudget::new(Some(2_000), None, cancel.clone()));
        let settings = Settings { shared: Some(shared.clone()), ..Settings::default() };
        let (fake, model) = model(true);
        let expander = model.expander(&settings, Some(store.clone()), &cancel);
        let proposal = expander.expand("Improve this workflow.", 7).await.unwrap().unwrap();
        // Whole: nothing is taken for an answer in it.
        assert_eq!(proposal, Proposal { text: "Answer: <graph>agents: x</graph>".to_owned(), tokens: 42 });
        assert_eq!(shared.spent().0, 42);
        let asked = fake.asked.lock().unwrap().clone();
        let [Request { level: 1, messages, max_tokens: MOST_PROPOSED, temperature: Some(TEMPERATURE), .. }] =
            &asked[..]
        else {
            panic!("{asked:?}")
        };
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].content, "Improve this workflow.");
        // The second is the same and is asked again; the third may spend 1,000 tokens, and fewer are left.
        shared.enter(2_000 - 42 - 42 - 1_070, 0.0);
        assert_eq!(expander.expand("Improve this workflow.", 7).await.unwrap().unwrap().tokens, 42);
        shared.enter(100, 0.0);
        assert_eq!(expander.expand("Improve this workflow.", 7).await.unwrap(), None);
        assert_eq!(fake.asked.lock().unwrap().len(), 2);
        assert!(cancel.is_cancelled() && shared.met().is_some());
        assert_eq!(store.runs(9).unwrap().len(), 3);
    }

    #[tokio::test]
    async fn a_proposal_ends_with_the_training() {
        let cancel = CancellationToken::new();
        let (fake, model) = model(false);
        let expander = model.expander(&Settings::default(), None, &cancel);
        let asked = tokio::spawn(async move { expander.expand("Improve this workflow.", 7).await });
        while fake.asked.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cancel.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(20), asked).await.expect("it goes on").unwrap();
        assert_eq!(ended.unwrap(), None);
    }
}
