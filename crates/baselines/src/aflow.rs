//! AFlow: a tree search over workflows. The result is one workflow for a whole set.
//!
//! As in the public code: a root of one plain call; in each of 20 rounds a parent is drawn among the best four and the root by a
//! soft mixture, `λ/n + (1 − λ) · softmax(α · score in percent)` with α = 0.2 and λ = 0.3; a model is told the parent's experience,
//! its score, its workflow, the operators and three failures, and writes one changed workflow; a modification that the parent has
//! tried is refused; the child is run on all tasks, and stored with whether it improved on its parent. The search ends early when
//! the mean of the best three scores has not changed for five rounds.
//!
//! A workflow is a specification here. Operators: `Custom` is an agent with a duty, `ScEnsemble` is `answer by: judge` over several
//! agents, `Review` and `Revise` a critic and a solver that reads it, `Programmer` and `Test` the base roles of these names.
//!
//! Departures: one change is one changed specification and not code, so loops and conditions are not expressed (retries of the
//! programmer live in its tools); every workflow is run once on each task (the public default of today; five times in the
//! paper); there is no separate validation set of tasks whose scores vary; misspelt names are
//! mended, as in every team that a model writes here. [`Expansion::Random`] makes a random edit in the place of
//! the model: it goes by the name `aflow-random`, and never by AFlow.

mod edit;
mod prompt;

use crate::cards::Domain;
use crate::error::BaselineError;
use crate::trials::{RunScore, TrialJob, Trials};
use async_trait::async_trait;
use lemon_num::Random;
use lemon_spec::{Language, Spec, mend, render, validate};
use prompt::{Shown, failures, modification, specification};
use serde::{Deserialize, Serialize};

const ROUNDS: usize = 20;
const CANDIDATES: usize = 4;
const ALPHA: f64 = 0.2;
const LAMBDA: f64 = 0.3;
const TRIES: u64 = 5;
/// The search ends when the mean of so many best scores has not changed for so many rounds.
const BEST: usize = 3;
const UNCHANGED: usize = 5;

/// A model that proposes workflows.
#[async_trait]
pub trait Expander: Send + Sync {
    /// Its reply to a prompt. `None`: the training was ended before it.
    ///
    /// # Errors
    /// The model did not reply.
    async fn expand(&self, prompt: &str, seed: u64) -> Result<Option<Proposal>, BaselineError>;
}

/// What a model replied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub text: String,
    /// Tokens of the prompt and of the reply.
    pub tokens: u64,
}

/// What proposes workflows.
pub enum Expansion<'a> {
    /// A model.
    Model(&'a dyn Expander),
    /// A random edit.
    Random,
}

/// A workflow that was run.
#[derive(Debug, Clone)]
struct Node {
    spec: Spec,
    score: f64,
    /// What was tried from here: the modification, and the score it came to.
    experience: Vec<(String, f64)>,
    failures: Vec<Shown>,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundWorkflow {
    /// The best workflow.
    pub spec: Spec,
    /// Its mean score on the training tasks.
    #[serde(default)]
    pub score: f64,
    /// Rounds that brought a workflow.
    #[serde(default)]
    pub rounds: usize,
    /// Proposals that were no workflow, or were tried before.
    #[serde(default)]
    pub refused: usize,
}

/// Searches a workflow for the tasks of these trials, which are of one domain.
///
/// # Errors
/// There is no task, a run failed, or the model did not reply.
pub async fn search(
    trials: &mut Trials<'_>,
    language: &Language,
    expansion: &Expansion<'_>,
    seed: u64,
) -> Result<FoundWorkflow, BaselineError> {
    let domain = trials.tasks.first().map(|task| task.domain);
    let domain = domain.ok_or_else(|| BaselineError::Unfit("there is no task to learn from".to_owned()))?;
    let mut search = Search { trials, language, expansion, domain, random: Random::named(seed, "aflow"), calls: 0 };
    let root = search.root();
    let mut tree = vec![search.measured(root, 0).await?];
    let (mut refused, mut unchanged, mut last) = (0, 0, mean_of_best(&tree));
    let mut round = 1;
    while search.trials.goes_on(round - 1, ROUNDS) && unchanged < UNCHANGED {
        let child = search.child(&mut tree, &mut refused).await?;
        if let Some((parent, change, spec)) = child {
            let node = search.measured(spec, round as u64).await?;
            // Cut off by the budget: nothing is known of it.
            if search.trials.is_over() {
                break;
            }
            if let Some(parent) = tree.get_mut(parent) {
                parent.experience.push((change, node.score));
            }
            tree.push(node);
        }
        let mean = mean_of_best(&tree);
        unchanged = if (mean - last).abs() < 1e-12 && tree.len() > BEST { unchanged + 1 } else { 0 };
        last = mean;
        round += 1;
    }
    // Of equals the earlier one.
    let best = tree.iter().rev().max_by(|a, b| a.score.total_cmp(&b.score));
    let (spec, score) = best.map_or_else(|| (search.root(), 0.0), |node| (node.spec.clone(), node.score));
    Ok(FoundWorkflow { spec, score, rounds: tree.len() - 1, refused })
}

fn mean_of_best(tree: &[Node]) -> f64 {
    let mut scores: Vec<f64> = tree.iter().map(|node| node.score).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    scores.truncate(BEST);
    scores.iter().sum::<f64>() / scores.len().max(1) as f64
}

/// The probability of each candidate, by scores from 0 to 1.
fn mixture(scores: &[f64]) -> Vec<f32> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (ALPHA * 100.0 * (score - most)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let count = scores.len() as f64;
    weights.iter().map(|weight| (LAMBDA / count + (1.0 - LAMBDA) * weight / sum) as f32).collect()
}

struct Search<'a, 'b> {
    trials: &'a mut Trials<'b>,
    language: &'a Language,
    expansion: &'a Expansion<'a>,
    domain: Domain,
    random: Random,
    calls: u64,
}

impl Search<'_, '_> {
    /// One plain call; of programs, one agent that writes one.
    fn root(&self) -> Spec {
        let base = if self.domain.is_code() { "programmer" } else { lemon_spec::PLAIN };
        let agent = self.trials.frame.agent(0, base);
        let answer = lemon_spec::Answer { from: vec![agent.id.clone()], by: lemon_spec::AnswerRule::Last };
        Spec { agents: vec![agent], answer, next: lemon_spec::Next::Stop }
    }

    async fn measured(&mut self, spec: Spec, round: u64) -> Result<Node, BaselineError> {
        let job = |task: usize| TrialJob { task, spec: spec.clone(), occasion: round };
        let jobs = (0..self.trials.tasks.len()).map(job).collect();
        let scores: Vec<Option<RunScore>> = self.trials.run(jobs).await?;
        let known: Vec<f64> = self.trials.utilities(&scores).into_iter().flatten().collect();
        let score = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let failures = failures(self.trials.tasks, &scores);
        Ok(Node { spec, score, experience: Vec::new(), failures })
    }

    /// A parent, what is changed of it, and the workflow that this gives. `None`: no proposal was one.
    async fn child(
        &mut self,
        tree: &mut [Node],
        refused: &mut usize,
    ) -> Result<Option<(usize, String, Spec)>, BaselineError> {
        for _ in 0..TRIES {
            let parent = self.parent(tree);
            let Some(node) = tree.get(parent) else { return Ok(None) };
            let proposed = match self.expansion {
                Expansion::Random => {
                    edit::random(&node.spec, self.domain, self.language, &self.trials.frame, &mut self.random)
                }
                Expansion::Model(model) => {
                    let shown = self.random.some(&node.failures, 3);
                    let text = prompt::prompt(node, &shown, self.domain, self.language, &self.trials.frame);
                    self.calls += 1;
                    let Some(Proposal { text, tokens }) = model.expand(&text, self.random.next_u64()).await? else {
                        self.trials.end();
                        return Ok(None);
                    };
                    self.trials.account.optimiser_calls += 1;
                    self.trials.account.optimiser_tokens += tokens;
                    modification(&text).zip(specification(&text))
                }
            };
            let is_new = |change: &str| node.experience.iter().all(|(tried, _)| tried != change);
            let child = proposed.filter(|(change, _)| is_new(change)).and_then(|(change, text)| {
                let checked = validate(&text, self.language);
                let plan = checked.or_else(|fault| mend(&fault, self.language, &[]).ok_or(fault)).ok()?;
                let spec = fixed(plan.spec().clone(), self.language, &self.trials.frame);
                (render(&spec).text != render(&node.spec).text).then_some((change, spec))
            });
            if let Some((change, spec)) = child {
                return Ok(Some((parent, change, spec)));
            }
            *refused += 1;
        }
        Ok(None)
    }

    /// One of the best four and the root, by the soft mixture.
    fn parent(&mut self, tree: &[Node]) -> usize {
        let mut best: Vec<usize> = (1..tree.len()).collect();
        let score = |at: &usize| tree.get(*at).map_or(0.0, |node| node.score);
        best.sort_by(|a, b| score(b).total_cmp(&score(a)));
        best.truncate(CANDIDATES - 1);
        best.insert(0, 0);
        let weights = mixture(&best.iter().map(score).collect::<Vec<_>>());
        best.get(crate::nn::draw(&weights, &mut self.random)).copied().unwrap_or(0)
    }
}

/// A workflow whose agents have the capacities of the frame: the search chooses none. Reviews by an orchestrator are no part of it.
fn fixed(mut spec: Spec, language: &Language, frame: &crate::graph::SpecFrame) -> Spec {
    for (at, agent) in spec.agents.iter_mut().enumerate() {
        agent.capacity = frame.capacity(at);
        agent.tools.retain(|tool| language.tools.contains(tool));
    }
    spec.next = lemon_spec::Next::Stop;
    spec
}

#[cfg(test)]
mod tests;
