//! Made-up rewards for all texts of a small table.

use super::{LabSettings, signal_of};
use crate::alternatives::{Alternative, alternatives};
use crate::counterfactual::Candidate;
use crate::episode::{Episode, Round};
use crate::recipe::{CreditForm, CreditSettings, FieldStart, Recipe, RewardBaseline};
use crate::rollout::{Outcome, Run};
use crate::sample;
use lemon_credit::model::RewardModel;
use lemon_exec::ReplyCache;
use lemon_exec::orchestrator::WriteContext;
use lemon_model::{Policy, PolicyError, SampleRequest, SampleSettings};
use lemon_num::{Random, fnv1a, mix};
use lemon_policy::fields::{FieldPromptEncoder, FieldTable, Text};
use lemon_policy::{Encoded, PromptEncoder};
use lemon_spec::{Language, Plan, Spec, validate};
use lemon_trace::{Header, Summary, Trace, VERSION};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Texts that a table may have at most.
pub(super) const MOST_TEXTS: usize = 2_000;
/// How strongly the choices of the table depend on one another, and on themselves, in logits.
const SPREAD: f32 = 0.6;
/// The deviation of the effect of a decision, and of a pair of decisions, on the reward.
const EFFECT: f64 = 0.15;

/// Groups that the critic is taught with, and what makes their seeds others than those of estimators.
const CRITIC_GROUPS: u64 = 200;
const UNSEEN: u64 = 1 << 63;

/// A table, all its texts, and what each earns.
pub(super) struct Lab {
    pub settings: LabSettings,
    pub table: FieldTable,
    encoder: FieldPromptEncoder,
    language: Arc<Language>,
    pub request: SampleRequest,
    pub texts: Vec<Text>,
    /// Decisions of the longest text.
    pub decisions: usize,
    /// One episode for each text, with its mean reward.
    episodes: Vec<Episode>,
    teams: Vec<Team>,
    /// Parsing takes most of the time of a comparison, and there are few texts.
    encoded: Mutex<HashMap<String, Option<Encoded>>>,
    known: Mutex<HashMap<(usize, String), Known>>,
}

/// The alternatives of a text, and what each earns.
type Known = Arc<Vec<(Alternative, Team)>>;

/// What a team earns: its mean, and the calls that bring noise.
#[derive(Debug, Clone)]
struct Team {
    mean: f64,
    calls: Vec<u64>,
}

impl Lab {
    pub fn new(settings: &LabSettings) -> Result<Lab, PolicyError> {
        let start = FieldStart { slots: 2, kinds: 1, bases: 1, duties: 1, conditioned: true, ..FieldStart::default() };
        let language = Arc::new(Language::default());
        let mut table = FieldTable::new(&start, &language)?;
        table.randomise(settings.seed, SPREAD);
        let encoder = FieldPromptEncoder::new(&start, language.clone(), 2)?;
        let request = encoder.request(&WriteContext {
            question: "How much are 3 apples at 2 dollars each?",
            round: 1,
            results: Vec::new(),
            language: &language,
            form: lemon_exec::Form::default(),
            tokens_left: None,
            seed: settings.seed,
        })?;
        let texts = table.texts(&request, MOST_TEXTS)?;
        let mut episodes = Vec::with_capacity(texts.len());
        let mut teams = Vec::with_capacity(texts.len());
        for text in &texts {
            let plan = validate(&text.sample.text, &language)
                .map_err(|rejection| PolicyError::Request(format!("the table wrote an invalid text: {rejection}")))?;
            teams.push(Team::new(plan.spec(), settings.seed));
            let mut episode = Episode::new(0, 0, 0, Arc::new(ReplyCache::default()));
            episode.rounds.push(Round { request: request.clone(), sample: text.sample.clone(), plan: Some(plan) });
            episodes.push(episode);
        }
        let count = |text: &Text| text.sample.forced.iter().filter(|forced| !**forced).count();
        let decisions = texts.iter().map(count).max().unwrap_or(1);
        let (encoded, known) = (Mutex::default(), Mutex::default());
        Ok(Lab {
            settings: *settings,
            table,
            encoder,
            language,
            request,
            texts,
            decisions,
            episodes,
            teams,
            encoded,
            known,
        })
    }

    /// The reward of a text without noise.
    pub fn mean_reward(&self, at: usize) -> f64 {
        self.teams.get(at).map_or(0.0, |team| team.mean)
    }

    /// A group of texts that the policy writes, with their rewards.
    pub fn group(&self, recipe: &Recipe, number: u64) -> Result<Vec<Episode>, PolicyError> {
        let mut random = Random::new(mix(self.settings.seed ^ mix(number)));
        let seed = random.next_u64();
        let trunks = (recipe.rollouts.group / recipe.rollouts.branches.max(1)).max(1);
        let mut group: Vec<Episode> = (0..trunks).map(|_| self.draw(random.uniform(), seed)).collect();
        if recipe.rollouts.branches > 1 {
            let recipe = Recipe { seed: self.settings.seed, ..recipe.clone() };
            let forks = sample::branches(&mut group, &recipe, number);
            let begun: Vec<(SampleRequest, Vec<u32>)> =
                forks.iter().map(|(trunk, branch)| self.begun(&group[*trunk], branch)).collect();
            let settings = SampleSettings { temperature: 1.0, ..SampleSettings::default() };
            for ((_, mut branch), written) in forks.into_iter().zip(self.table.resume(&begun, &settings)?) {
                let at = self.texts.iter().position(|text| text.sample.text == written.text);
                let at = at.ok_or_else(|| PolicyError::Request("a branch is none of the texts".to_owned()))?;
                branch.rounds = self.episodes[at].rounds.clone(); // A position of `texts`, which episodes follow.
                branch.run = Some(self.run(&self.teams[at], seed));
                group.push(branch);
            }
        }
        Ok(group)
    }

    /// A critic that was taught with groups that no estimator sees.
    pub fn critic(&self) -> Result<RewardModel, PolicyError> {
        let mut recipe = Recipe::default();
        recipe.rollouts.group = self.settings.group;
        (recipe.credit.form, recipe.credit.baseline) = (CreditForm::None, RewardBaseline::Critic);
        let mut critic = RewardModel::default();
        for number in 0..CRITIC_GROUPS {
            let group = self.group(&recipe, number ^ UNSEEN)?;
            critic.add(&signal_of(self, &critic, &recipe, group, &[])?.lessons);
        }
        Ok(critic)
    }

    fn begun(&self, trunk: &Episode, branch: &Episode) -> (SampleRequest, Vec<u32>) {
        let tokens = trunk.rounds.first().map_or(&[][..], |round| round.sample.tokens.as_slice());
        let fork = branch.branch.map_or(0, |branch| branch.fork);
        let request = SampleRequest { seed: branch.writer_seed, ..self.request.clone() };
        (request, tokens.get(..fork).unwrap_or_default().to_vec())
    }

    fn draw(&self, uniform: f64, seed: u64) -> Episode {
        let mut reached = 0.0;
        let found = self.texts.iter().position(|text| {
            reached += text.probability;
            reached > uniform
        });
        // The sum can fall short of 1 by rounding.
        let at = found.unwrap_or(self.texts.len() - 1);
        Episode { seed, run: Some(self.run(&self.teams[at], seed)), ..self.episodes[at].clone() }
    }

    fn run(&self, team: &Team, seed: u64) -> Run {
        let reward = team.reward(seed, self.settings.noise);
        let outcome = Outcome { reward, success: 0.0, tokens: 1, cost: 1.0, weighted: 1.0, valid: 1.0 };
        Run { outcome: Some(outcome), failure: None, summary: nothing(), spent: 0 }
    }

    /// The counterfactuals of a group, as training would measure them.
    pub fn counterfactuals(
        &self,
        group: &[Episode],
        credit: &CreditSettings,
        number: u64,
        measured: f64,
    ) -> Vec<Candidate> {
        if credit.form == CreditForm::None {
            return Vec::new();
        }
        let mut random = Random::new(mix(number ^ 0x6d65_6173));
        let mut found = Vec::new();
        for (at, episode) in group.iter().enumerate() {
            let Some(round) = episode.rounds.first() else { continue };
            let (Some(plan), Some(outcome)) = (&round.plan, episode.run.as_ref().and_then(|run| run.outcome)) else {
                continue;
            };
            for (alternative, team) in self.alternatives(plan, credit).iter() {
                if measured < 1.0 && !random.chance(measured) {
                    continue;
                }
                let seed = if credit.common_noise { episode.seed } else { random.next_u64() };
                let delta = outcome.reward - team.reward(seed, self.settings.noise);
                found.push(Candidate::measured((0, at, 0), alternative.clone(), delta));
            }
        }
        found
    }

    fn alternatives(&self, plan: &Plan, credit: &CreditSettings) -> Known {
        let families = credit.families.iter().fold(0, |set, family| set | 1 << (*family as usize));
        let flags = families << 2 | usize::from(credit.simplify_only) << 1 | usize::from(credit.prefix_truncation);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let team = |it: Alternative| {
                let team = Team::new(it.edited.plan.spec(), self.settings.seed);
                (it, team)
            };
            Arc::new(alternatives(plan, &self.language, credit).into_iter().map(team).collect())
        };
        known.entry((flags, plan.source().to_owned())).or_insert_with(make).clone()
    }
}

impl PromptEncoder for Lab {
    fn request(&self, context: &WriteContext<'_>) -> Result<SampleRequest, PolicyError> {
        self.encoder.request(context)
    }

    fn encode(&self, request: &SampleRequest, text: &str, like: &[u32]) -> Option<Encoded> {
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = encoded.get(text) {
            return known.clone();
        }
        let found = self.encoder.encode(request, text, like);
        encoded.insert(text.to_owned(), found.clone());
        found
    }
}

impl Team {
    fn new(spec: &Spec, seed: u64) -> Team {
        let mut decisions = vec![format!("agents={}", spec.agents.len()), format!("by={}", spec.answer.by.as_str())];
        decisions.push(format!("next={}", spec.next.as_str()));
        let mut calls: Vec<(String, u64)> = Vec::new();
        for (at, agent) in spec.agents.iter().enumerate() {
            decisions.push(format!("{at} capacity={}", agent.capacity));
            decisions.push(format!("{at} share={}", agent.share.as_str()));
            decisions.push(format!("{at} reads={}", agent.after.len()));
            // A call is what the agent is asked: its own fields, and what those it reads were asked and share.
            let parents = calls.iter().filter(|(id, _)| agent.after.contains(id)).map(|(_, call)| call.to_string());
            let shares =
                spec.agents.iter().filter(|it| agent.after.contains(&it.id)).map(|it| it.share.as_str().to_owned());
            let asked: Vec<String> = [agent.capacity.clone()].into_iter().chain(parents).chain(shares).collect();
            calls.push((agent.id.clone(), fnv1a(format!("{at} {}", asked.join(" ")).bytes())));
        }
        let effect = |name: &str| EFFECT * Random::named(seed, name).normal();
        let single: f64 = decisions.iter().map(|decision| effect(decision)).sum();
        let pairs =
            decisions.iter().enumerate().flat_map(|(at, one)| decisions.iter().skip(at + 1).map(move |two| (one, two)));
        let both: f64 = pairs.map(|(one, two)| effect(&format!("{one} and {two}"))).sum();
        Team { mean: 0.5 + single + both, calls: calls.into_iter().map(|(_, call)| call).collect() }
    }

    fn reward(&self, seed: u64, noise: f64) -> f64 {
        self.mean + self.calls.iter().map(|call| noise * Random::new(mix(seed ^ call)).normal()).sum::<f64>()
    }
}

/// The summary of a run in which nothing happened.
pub(crate) fn nothing() -> Summary {
    let header = Header {
        version: VERSION,
        run_id: String::new(),
        task_id: String::new(),
        question: String::new(),
        started_at_ms: 0,
        seed: 0,
        workers: String::new(),
    };
    Trace { header, events: Vec::new() }.summary()
}
