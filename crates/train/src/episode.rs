//! Episodes: what is written for a task, round by round, and the run that follows.
//!
//! All first rounds of a step are written together, run together, and so are the second rounds of those that ask for a
//! review: a run is begun anew with one more text, and the reply cache answers for the rounds before.

use super::TrainError;
use super::rollout::{self, Run};
use super::signal::critic::CriticReader;
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_exec::ReplyCache;
use lemon_exec::orchestrator::{RoundResult, WriteContext, percent};
use lemon_model::{Sample, SampleRequest, SampleSettings};
use lemon_policy::{PromptEncoder, TrainablePolicy};
use lemon_rollout::{Case, Replies, RolloutEnv, RolloutError};
use lemon_spec::{Language, Next, Plan, validate_round};
use lemon_trace::AgentStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run and everything that was written for it.
#[derive(Clone)]
pub(crate) struct Episode {
    /// The position of its task.
    pub case: usize,
    /// The seed of its workers.
    pub seed: u64,
    pub writer_seed: u64,
    /// The reply cache that it shares with others of the same noise seed.
    pub memory: Arc<ReplyCache>,
    /// The place of its group in the step.
    pub group: usize,
    /// The tree that it is a branch of, in a tree group.
    pub branch: Option<Branch>,
    /// What was written, round by round.
    pub rounds: Vec<Round>,
    /// What came of it; `None` before the first round.
    pub run: Option<Run>,
}

/// A text that shares its beginning with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The number of the tree in its group.
    pub tree: usize,
    /// How many branches the tree has.
    pub branches: usize,
    /// The first token that a branch has for itself, in the first round.
    pub fork: usize,
    /// Whether the others continue this one.
    pub is_trunk: bool,
}

/// What was written for one round.
#[derive(Clone)]
pub(crate) struct Round {
    /// What the writer was asked.
    pub request: SampleRequest,
    /// What it wrote.
    pub sample: Sample,
    /// `None`: it is not valid.
    pub plan: Option<Plan>,
}

/// A run to be made.
pub(crate) struct Job {
    /// The position of its task.
    pub case: usize,
    /// What is written for it, round by round.
    pub texts: Vec<String>,
    /// The seed of its workers.
    pub seed: u64,
    /// The reply cache.
    pub memory: Arc<ReplyCache>,
}

impl Episode {
    pub fn new(case: usize, seed: u64, writer_seed: u64, memory: Arc<ReplyCache>) -> Self {
        Episode { case, seed, writer_seed, memory, group: 0, branch: None, rounds: Vec::new(), run: None }
    }

    /// The run of what is written.
    pub fn job(&self) -> Job {
        Job { case: self.case, texts: self.texts(), seed: self.seed, memory: self.memory.clone() }
    }

    /// The texts of its rounds.
    pub fn texts(&self) -> Vec<String> {
        self.rounds.iter().map(|round| round.sample.text.clone()).collect()
    }

    /// The ids of the agents before round number `round`, from 0; judges are among them.
    pub fn earlier(&self, round: usize) -> Vec<String> {
        let agents = self.run.iter().flat_map(|run| &run.summary.agents);
        agents.filter(|agent| agent.round as usize <= round).map(|agent| agent.id.clone()).collect()
    }

    /// Whether one more round is to be written.
    fn is_open(&self, most_rounds: u32) -> bool {
        match self.rounds.last() {
            None => true,
            Some(last) => {
                let asks = last.plan.as_ref().is_some_and(|plan| plan.next() == Next::Review);
                let known = self.run.as_ref().is_some_and(|run| run.outcome.is_some());
                asks && known && self.rounds.len() < most_rounds as usize
            }
        }
    }
}

/// Everything that episodes are run with.
pub(crate) struct EpisodeRunner<'a> {
    pub env: &'a Arc<RolloutEnv>,
    pub encoder: &'a dyn PromptEncoder,
    pub cases: &'a Arc<Vec<Case>>,
    pub rounds: u32,
    pub width: usize,
    /// How the critic of the training reads teams.
    pub reader: CriticReader<'a>,
}

/// Seconds that sampling and running took, and tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Played {
    pub sampling: Duration,
    pub running: Duration,
    /// Worker tokens that had to be paid.
    pub spent: u64,
}

impl EpisodeRunner<'_> {
    /// The language that plans are checked in.
    pub fn language(&self) -> &Arc<Language> {
        &self.env.language
    }

    /// Draws branches of what is written, each from the fork of its trunk on. `forks` has the branch and the place of its trunk.
    pub fn branch(
        &self,
        policy: &dyn TrainablePolicy,
        episodes: &mut Vec<Episode>,
        forks: Vec<(usize, Episode)>,
        temperature: f32,
    ) -> Result<(), TrainError> {
        let mut begun = Vec::with_capacity(forks.len());
        for (trunk, branch) in &forks {
            let first = episodes.get(*trunk).and_then(|trunk| trunk.rounds.first());
            let (Some(first), Some(Branch { fork, .. })) = (first, branch.branch) else { continue };
            let tokens = first.sample.tokens.get(..fork).unwrap_or_default().to_vec();
            begun.push((SampleRequest { seed: branch.writer_seed, ..first.request.clone() }, tokens));
        }
        let settings = SampleSettings { temperature, top_p: 1.0, most_tokens: lemon_policy::MOST_TOKENS };
        let samples = policy.resume(&begun, &settings)?;
        for (((_, mut episode), (request, _)), sample) in forks.into_iter().zip(begun).zip(samples) {
            // As below: a text that is not valid is data.
            let plan = validate_round(&sample.text, self.language(), &[]).ok();
            episode.rounds.push(Round { request, sample, plan });
            episodes.push(episode);
        }
        Ok(())
    }

    /// Writes and runs until no episode asks for another round.
    pub async fn play(
        &self,
        policy: &dyn TrainablePolicy,
        episodes: &mut [Episode],
        temperature: f32,
    ) -> Result<Played, TrainError> {
        let mut played = Played::default();
        loop {
            let open: Vec<usize> = (0..episodes.len()).filter(|at| episodes[*at].is_open(self.rounds)).collect();
            if open.is_empty() || self.env.cancel.is_cancelled() {
                return Ok(played);
            }
            let began = Instant::now();
            self.write(policy, episodes, &open, temperature)?;
            played.sampling += began.elapsed();
            let began = Instant::now();
            let jobs = open.iter().map(|at| episodes[*at].job()).collect();
            let runs = self.run_all(jobs, Replies::Workers).await?;
            for (at, run) in open.into_iter().zip(runs) {
                played.spent += run.spent;
                episodes[at].run = Some(run);
            }
            played.running += began.elapsed();
        }
    }

    /// Has the first rounds written and does not run them yet.
    pub fn first_rounds(
        &self,
        policy: &dyn TrainablePolicy,
        episodes: &mut [Episode],
        temperature: f32,
    ) -> Result<(), TrainError> {
        let all: Vec<usize> = (0..episodes.len()).collect();
        self.write(policy, episodes, &all, temperature)
    }

    /// Runs what is written; returns the worker tokens that had to be paid.
    pub async fn run_written(&self, episodes: &mut [Episode]) -> Result<u64, TrainError> {
        let runs = self.run_all(episodes.iter().map(Episode::job).collect(), Replies::Workers).await?;
        let spent = runs.iter().map(|run| run.spent).sum();
        for (episode, run) in episodes.iter_mut().zip(runs) {
            episode.run = Some(run);
        }
        Ok(spent)
    }

    /// Has the next round of these episodes written, all at once.
    fn write(
        &self,
        policy: &dyn TrainablePolicy,
        episodes: &mut [Episode],
        open: &[usize],
        temperature: f32,
    ) -> Result<(), TrainError> {
        let requests = open.iter().map(|at| self.request(&episodes[*at])).collect::<Result<Vec<_>, _>>()?;
        let settings = SampleSettings { temperature, top_p: 1.0, most_tokens: lemon_policy::MOST_TOKENS };
        let samples = policy.sample(&requests, &settings)?;
        for ((at, request), sample) in open.iter().zip(requests).zip(samples) {
            let episode = &mut episodes[*at];
            let earlier = episode.earlier(episode.rounds.len());
            // A text that is not valid is data: its run is recorded as rejected, with the reasons.
            let plan = validate_round(&sample.text, self.language(), &earlier).ok();
            episode.rounds.push(Round { request, sample, plan });
        }
        Ok(())
    }

    fn request(&self, episode: &Episode) -> Result<SampleRequest, TrainError> {
        let summary = episode.run.as_ref().map(|run| &run.summary);
        let result =
            |agent: &'_ lemon_trace::AgentSummary| -> (String, String, AgentStatus, Option<String>, Option<u8>) {
                let status = agent.status.unwrap_or(AgentStatus::Skipped);
                let reply = agent.reply.clone().filter(|_| status == AgentStatus::Done);
                (agent.id.clone(), agent.role.clone(), status, reply, agent.confidence.map(percent))
            };
        let told: Vec<_> = summary.iter().flat_map(|summary| &summary.agents).map(result).collect();
        let results = told.iter().map(|(agent, role, status, reply, sure)| RoundResult {
            agent,
            role,
            status: *status,
            reply: reply.as_deref(),
            sure: *sure,
        });
        let round = episode.rounds.len() as u32 + 1;
        let context = WriteContext {
            question: self.cases.get(episode.case).map_or("", |case| case.item.task.question.as_str()),
            round,
            results: results.collect(),
            language: self.language(),
            form: lemon_exec::Form::default(),
            tokens_left: None,
            // Each round draws anew.
            seed: episode.writer_seed.wrapping_add(u64::from(round) << 48),
        };
        Ok(self.encoder.request(&context)?)
    }

    /// Runs these, many at a time, in their order.
    pub async fn run_all(&self, jobs: Vec<Job>, replies: Replies) -> Result<Vec<Run>, RolloutError> {
        let one = |Job { case, texts, seed, memory }: Job| {
            let (env, cases) = (self.env.clone(), self.cases.clone());
            // A task of its own for the runtime: woken alone, not with all the others.
            let run = tokio::spawn(async move {
                // Positions are those of `cases`.
                rollout::run(&env, &cases[case], texts, seed, memory, replies).await
            });
            async move { run.await.unwrap_or_else(|error| Err(RolloutError::BrokeOff(error.to_string()))) }
        };
        stream::iter(jobs).map(one).buffered(self.width.max(1)).try_collect().await
    }
}
