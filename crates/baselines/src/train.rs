//! From the name of a method to what it learned: one trainer for all of them.

use crate::aflow::{self, Expander, Expansion};
use crate::cards::Domain;
use crate::designer::{Designer, TrainedRival, set_of};
use crate::edges::{self, EdgeMethod};
use crate::encoder::Encoder;
use crate::error::BaselineError;
use crate::graph::SpecFrame;
use crate::ofa_mas::{self, OfaPretrained};
use crate::trials::{EnvScorer, RivalObjective, TrainingAccount, Trials};
use crate::{arg_designer, g_designer, masrouter};
use lemon_eval::{Method, PublishedMethod, TeamSource, Variant};
use lemon_rollout::{Case, RolloutEnv};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Trains methods in one environment.
pub struct RivalTrainer<'a> {
    /// What runs and scores teams.
    pub env: &'a RolloutEnv,
    /// What makes vectors of texts.
    pub encoder: Arc<Encoder>,
    /// The model that proposes workflows, where there is one.
    pub expander: Option<Arc<dyn Expander>>,
    /// Worker tokens that each training spends, by model that is learned. `None`: each method makes its own number of runs.
    pub limit: Option<u64>,
    /// Ends it early.
    pub cancel: &'a CancellationToken,
    /// What OFA-MAS learns without runs, by seed.
    pretrained: Mutex<HashMap<u64, (OfaPretrained, f64)>>,
}

impl<'a> RivalTrainer<'a> {
    /// A trainer without a model that proposes workflows.
    pub fn new(env: &'a RolloutEnv, encoder: Arc<Encoder>, cancel: &'a CancellationToken) -> Self {
        RivalTrainer { env, encoder, expander: None, limit: None, cancel, pretrained: Mutex::default() }
    }

    /// Trains a method on these cases, one model for each set; OFA-MAS and MasRouter learn one for all of them. Every agent gets
    /// this capacity, where the method chooses none. The same seed learns the same.
    ///
    /// # Errors
    /// The method does not learn, there is nothing to learn from, or a run failed.
    pub async fn train(
        &self,
        method: &Method,
        capacity: Option<&str>,
        cases: &[Case],
        seed: u64,
    ) -> Result<TrainedRival, BaselineError> {
        let Some(TeamSource::Trained(rival)) = method.source() else {
            return Err(BaselineError::Unfit(format!("`{}` does not learn to design teams", method.name())));
        };
        let mut groups: BTreeMap<String, Vec<Case>> = BTreeMap::new();
        for case in cases {
            let set = if matches!(rival, PublishedMethod::OfaMas | PublishedMethod::MasRouter) {
                ""
            } else {
                set_of(&case.set)
            };
            groups.entry(set.to_owned()).or_default().push(case.clone());
        }
        if groups.is_empty() {
            return Err(BaselineError::Unfit("there is no task to learn from".to_owned()));
        }
        let frame = SpecFrame::new(&self.env.language, capacity);
        let mut account = TrainingAccount::default();
        let mut designers = BTreeMap::new();
        for (set, cases) in &groups {
            let scorer = EnvScorer { env: self.env, cases, cancel: self.cancel };
            let tasks = scorer.tasks();
            let mut trials = Trials::new(&scorer, &tasks, frame.clone(), seed);
            if method.is(Variant::Cost) {
                trials.objective = RivalObjective::Cost;
            }
            trials.limit = self.limit;
            let (designer, before) = self.learn(method, rival, &mut trials, seed).await?;
            let domain = tasks.first().map_or(Domain::Math, |task| task.domain);
            designers.insert(set.clone(), (domain, designer));
            let mut spent = trials.closed();
            spent.seconds += before;
            let items = account.items + spent.items;
            account = TrainingAccount { items, ..account.and(&spent) };
        }
        let encoder = reads_vectors(rival).then(|| self.encoder.name().to_owned());
        Ok(TrainedRival { method: method.name(), seed, encoder, account, frame, designers })
    }

    /// What a method learns, and the seconds that went into it elsewhere.
    async fn learn(
        &self,
        method: &Method,
        rival: PublishedMethod,
        trials: &mut Trials<'_>,
        seed: u64,
    ) -> Result<(Designer, f64), BaselineError> {
        let (long, encoder) = (method.is(Variant::Long), &*self.encoder);
        let designer = match rival {
            PublishedMethod::GptSwarm | PublishedMethod::AgentPrune | PublishedMethod::AgentDropout => {
                let kind = match rival {
                    PublishedMethod::GptSwarm => EdgeMethod::GptSwarm,
                    PublishedMethod::AgentPrune => EdgeMethod::AgentPrune,
                    _ => EdgeMethod::AgentDropout,
                };
                Designer::Edges(edges::learn(kind, method.number(), long, trials, seed).await?)
            }
            PublishedMethod::GDesigner => Designer::Gcn(g_designer::learn(long, trials, encoder, seed).await?),
            PublishedMethod::GDesignerPaper => {
                Designer::Variational(g_designer::paper::learn(long, trials, encoder, seed).await?)
            }
            PublishedMethod::ArgDesigner => Designer::Arg(arg_designer::learn(trials, encoder, seed).await?),
            PublishedMethod::OfaMas => {
                let (pretrained, seconds) = self.pretrained(trials, seed).await?;
                return Ok((Designer::Ofa(ofa_mas::learn(trials, &pretrained, encoder, seed).await?), seconds));
            }
            PublishedMethod::MasRouter => Designer::Router(masrouter::learn(long, trials, encoder, seed).await?),
            PublishedMethod::AFlow => {
                let Some(model) = &self.expander else {
                    let reason = "AFlow needs a model that proposes workflows; without one there is `aflow-random`";
                    return Err(BaselineError::Unfit(reason.to_owned()));
                };
                let language = &self.env.language;
                let found = aflow::search(trials, language, &Expansion::Model(&**model), seed).await?;
                Designer::Workflow(found)
            }
            PublishedMethod::AFlowRandom => {
                let found = aflow::search(trials, &self.env.language, &Expansion::Random, seed).await?;
                Designer::Workflow(found)
            }
        };
        Ok((designer, 0.0))
    }

    async fn pretrained(&self, trials: &Trials<'_>, seed: u64) -> Result<(OfaPretrained, f64), BaselineError> {
        let mut known = self.pretrained.lock().await;
        if let Some(found) = known.get(&seed) {
            return Ok(found.clone());
        }
        let started = std::time::Instant::now();
        let made = ofa_mas::pretrain(trials, &self.encoder, seed)?;
        known.insert(seed, (made.clone(), started.elapsed().as_secs_f64()));
        // The clock of these trials has counted it.
        Ok((made, 0.0))
    }
}

/// Whether a method reads vectors of texts.
pub fn reads_vectors(rival: PublishedMethod) -> bool {
    use PublishedMethod::{ArgDesigner, GDesigner, GDesignerPaper, MasRouter, OfaMas};
    matches!(rival, ArgDesigner | GDesigner | GDesignerPaper | MasRouter | OfaMas)
}
