//! Counterfactuals of episodes: one decision edited, the edited team run with the same noise seed, and the difference in reward.
//!
//! Most calls of an edited team were made before, by the episode itself or by another of its group. What the reply cache can
//! answer altogether is free and is always run. The rest is offered to the economy of credit, which purchases it or not.

pub(crate) mod oracle;

use super::TrainError;
use super::alternatives::{Alternative, alternatives};
use super::episode::{Episode, EpisodeRunner, Job};
use super::recipe::{CreditSettings, Suffix};
use lemon_credit::economy::{Economy, FamilyLedger, Offer, OfferVerdict};
use lemon_credit::model::{Features, RewardModel};
use lemon_exec::ReplyCache;
use lemon_policy::TrainablePolicy;
use lemon_rollout::{Replies, RolloutError};
use lemon_spec::edit::{Change, Edit, Edited, Family};
use lemon_spec::{AnswerRule, Next, Plan, validate_round};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// One edited decision that could be run.
pub(crate) struct Candidate {
    /// The group and the episode in it.
    pub group: usize,
    pub episode: usize,
    /// The round that is edited, from 0.
    pub round: usize,
    pub edit: Edit,
    pub edited: Edited,
    /// A prefix team of so many agents of the round.
    pub prefix: Option<usize>,
    /// The texts of the changed run.
    texts: Vec<String>,
    /// Whether the rounds that follow are still to be written.
    is_open: bool,
    /// What it is expected to cost.
    cost: u64,
    /// Whether the reply cache may hold all of it.
    may_be_free: bool,
    pub verdict: OfferVerdict,
    /// What the critic reads of the edited team, where it was asked.
    pub read: Option<Features>,
    /// The difference, original less changed; `None`: not measured.
    pub delta: Option<f64>,
    /// What it really cost.
    spent: u64,
}

/// What the counterfactuals of a step came to.
pub(crate) struct Counterfactuals {
    /// Those that were measured.
    pub measured: Vec<Candidate>,
    /// What happened to every family.
    pub ledger: FamilyLedger,
    /// Worker tokens spent.
    pub spent: u64,
}

/// Measures the counterfactuals of a step for at most `allowance` worker tokens.
pub(crate) async fn counterfactuals(
    runner: &EpisodeRunner<'_>,
    policy: &dyn TrainablePolicy,
    groups: &[Vec<Episode>],
    settings: &CreditSettings,
    (economy, critic): (&mut Economy, &RewardModel),
    (allowance, temperature): (u64, f32),
    seed: u64,
) -> Result<Counterfactuals, TrainError> {
    let of_group = |(at, group): (usize, &Vec<Episode>)| of_group(runner, at, group, settings);
    let mut candidates: Vec<Candidate> = groups.iter().enumerate().flat_map(of_group).collect();
    ask_cache(runner, groups, &mut candidates).await?;
    if settings.asks_critic() {
        for candidate in &mut candidates {
            let written = groups[candidate.group][candidate.episode].rounds.get(candidate.round);
            let Some(written) = written else { continue };
            let plan = &candidate.edited.plan;
            candidate.read = Some(runner.reader.other(runner.encoder, candidate.round, plan, written)?);
        }
    }
    let paid: Vec<usize> = (0..candidates.len()).filter(|at| candidates[*at].delta.is_none()).collect();
    let cost_ratio = economy.cost_ratio();
    let offer = |at: &usize| {
        let candidate = &candidates[*at]; // A place among them.
        let unsure = if settings.asks_critic() { unsure(runner, critic, groups, candidate)? } else { 0.0 };
        Ok(Offer { family: candidate.edit.family, cost: candidate.price(cost_ratio), unsure })
    };
    let offers: Vec<Offer> = paid.iter().map(offer).collect::<Result<_, TrainError>>()?;
    let verdicts = economy.decide(&offers, allowance, &settings.economy, seed);
    for (at, verdict) in paid.into_iter().zip(verdicts) {
        candidates[at].verdict = verdict;
    }
    continue_reviews(runner, policy, groups, &mut candidates, temperature).await?;
    run_purchased(runner, groups, &mut candidates, settings, (allowance, cost_ratio, seed)).await?;

    let (mut ledger, mut spent) = (FamilyLedger::default(), 0);
    for candidate in &candidates {
        let family = candidate.edit.family;
        ledger.add(family, candidate.verdict, candidate.delta, candidate.spent);
        match candidate.verdict {
            OfferVerdict::Free => economy.add_free(family, candidate.delta),
            taken if taken.is_taken() => economy.add_paid(family, candidate.delta, candidate.spent, candidate.cost),
            _ => {}
        }
        spent += candidate.spent;
    }
    candidates.retain(|candidate| candidate.delta.is_some());
    Ok(Counterfactuals { measured: candidates, ledger, spent })
}

/// How unsure the critic is of a difference. As long as it knows nothing it is as unsure of every one.
fn unsure(
    runner: &EpisodeRunner<'_>,
    critic: &RewardModel,
    groups: &[Vec<Episode>],
    candidate: &Candidate,
) -> Result<f64, TrainError> {
    let written = groups[candidate.group][candidate.episode].rounds.get(candidate.round);
    let written = written.and_then(|round| Some((round, round.plan.as_ref()?)));
    let (Some((written, plan)), Some(after)) = (written, &candidate.read) else { return Ok(1.0) };
    let before = runner.reader.written(candidate.round, plan, written)?;
    Ok(critic.error_of_difference(&before, after).unwrap_or(1.0))
}

impl Candidate {
    /// What it may cost, if its cost ratio is that of the others. What is not free costs something.
    fn price(&self, cost_ratio: f64) -> u64 {
        (cost_ratio * self.cost.max(1) as f64).ceil() as u64
    }
}

/// Every edit of every episode of a group that was measured and can be changed.
fn of_group(
    runner: &EpisodeRunner<'_>,
    group: usize,
    episodes: &[Episode],
    settings: &CreditSettings,
) -> Vec<Candidate> {
    let asked: HashSet<Ask> = episodes.iter().flat_map(asks_of).collect();
    let has_cache_keys = settings.common_noise && runner.env.backend.worker.has_cache_keys();
    let mut candidates = Vec::new();
    for (at, episode) in episodes.iter().enumerate() {
        if episode.run.as_ref().is_none_or(|run| run.outcome.is_none()) {
            continue;
        }
        let mut seen: HashSet<(Option<usize>, Vec<String>)> = HashSet::new();
        for (round, written) in episode.rounds.iter().enumerate() {
            let Some(plan) = &written.plan else { continue };
            for alternative in alternatives(plan, runner.language(), settings) {
                let Some((texts, is_open)) = changed(runner, episode, round, &alternative, settings) else { continue };
                // Two ways to the same team are one counterfactual; a prefix team is measured for another purpose.
                if !seen.insert((alternative.prefix, texts.clone())) {
                    continue;
                }
                let edit = &alternative.edit;
                let (cost, known) = expected(episode, (round, is_open), edit, &alternative.edited, &asked, settings);
                let may_be_free = !is_open && (known || (has_cache_keys && may_share_cache_keys(&edit.change)));
                // What no agent reads changes nothing; no run has to show it.
                let nothing = settings.common_noise && changes_nothing(episode, round, plan, edit);
                let delta = nothing.then_some(0.0);
                let open = Candidate::new((group, at, round), alternative);
                candidates.push(Candidate { texts, is_open, cost, may_be_free, delta, ..open });
            }
        }
    }
    candidates
}

/// Whether an edit changes what an agent shares though no agent and no judge reads it, now or later.
fn changes_nothing(episode: &Episode, round: usize, plan: &Plan, edit: &Edit) -> bool {
    let (Change::ShareAnswer { agent } | Change::ShareReply { agent }) = &edit.change else { return false };
    let is_last = round + 1 == episode.rounds.len() && plan.next() == Next::Stop;
    let is_read = plan.spec().agents.iter().any(|reader| reader.after.contains(agent));
    is_last && !is_read && plan.answer_rule() != AnswerRule::Judge
}

/// The texts of the changed run, and whether the rounds after them are still to be written; `None` where it cannot be measured.
fn changed(
    runner: &EpisodeRunner<'_>,
    episode: &Episode,
    round: usize,
    alternative: &Alternative,
    settings: &CreditSettings,
) -> Option<(Vec<String>, bool)> {
    let is_last = round + 1 == episode.rounds.len();
    let mut texts = episode.texts();
    texts[round] = alternative.edited.plan.source().to_owned();
    match alternative.edit.change {
        _ if alternative.prefix.is_some() => {
            texts.truncate(round + 1);
            return Some((texts, false));
        }
        // Only where there is room for another round, and none was written.
        Change::Review if !is_last || round + 1 >= runner.rounds as usize => return None,
        Change::Review => return Some((texts, true)),
        // A review without a second round is a stop already.
        Change::Stop if is_last => return None,
        Change::Stop => {
            texts.truncate(round + 1);
            return Some((texts, false));
        }
        _ => {}
    }
    // Later rounds were written with the results of the original.
    if !is_last && settings.suffix == Suffix::Weigh {
        texts.truncate(round + 1);
        return Some((texts, true));
    }
    let mut earlier = episode.earlier(round);
    earlier.extend(alternative.edited.plan.spec().agents.iter().map(|agent| agent.id.clone()));
    for later in texts.iter().skip(round + 1) {
        // A later text that names what the edit took away is no team, so that there is no such counterfactual.
        let plan = validate_round(later, runner.language(), &earlier).ok()?;
        earlier.extend(plan.spec().agents.iter().map(|agent| agent.id.clone()));
    }
    Some((texts, false))
}

/// What an agent is asked, as far as the specification says it: enough to see that the reply cache cannot hold a call.
type Ask = (usize, String, String, Option<String>, Option<String>, String, Vec<(String, bool)>);

fn asks_of(episode: &Episode) -> Vec<Ask> {
    let plans = episode.rounds.iter().filter_map(|round| round.plan.as_ref());
    plans.enumerate().flat_map(|(round, plan)| asks(round, plan)).collect()
}

fn asks(round: usize, plan: &Plan) -> Vec<Ask> {
    let shares: BTreeMap<&str, bool> =
        plan.spec().agents.iter().map(|agent| (agent.id.as_str(), agent.share == lemon_spec::Share::Answer)).collect();
    let ask = |agent: &lemon_spec::Agent| {
        let read = |id: &String| (id.clone(), shares.get(id.as_str()).copied().unwrap_or(false));
        (
            round,
            agent.id.clone(),
            agent.base.clone(),
            agent.role.clone(),
            agent.duty.clone(),
            agent.capacity.clone(),
            agent.after.iter().map(read).collect(),
        )
    };
    plan.spec().agents.iter().map(ask).collect()
}

/// What a counterfactual is expected to cost, and whether the reply cache may hold all of it.
fn expected(
    episode: &Episode,
    (round, is_open): (usize, bool),
    edit: &Edit,
    edited: &Edited,
    asked: &HashSet<Ask>,
    settings: &CreditSettings,
) -> (u64, bool) {
    let Some(summary) = episode.run.as_ref().map(|run| &run.summary) else { return (0, false) };
    let tokens = |id: &str| summary.agent(id).map_or(0, |agent| agent.tokens().saturating_add(agent.saved));
    let all: u64 = summary.agents.iter().map(|agent| tokens(&agent.id)).sum();
    let mean = all / summary.agents.len().max(1) as u64;
    if !settings.common_noise {
        return (all.max(1), false);
    }
    if edit.change == Change::Review {
        // A later round has about one agent, which reads what the others wrote.
        return (2 * mean + 1, false);
    }
    // Agents whose call is new, and all that read them, in this round and in those after it.
    let mut new: HashSet<String> = HashSet::new();
    // Prefix teams and rounds that are to be written anew have none of the later rounds.
    let has_later = !is_open && !matches!(edit.change, Change::PrefixTruncation { .. } | Change::Stop);
    let later = episode.rounds.iter().skip(round + 1).filter(|_| has_later).filter_map(|round| round.plan.as_ref());
    for (at, plan) in std::iter::once(&edited.plan).chain(later).enumerate() {
        for ask in asks(round + at, plan) {
            let reads_new = ask.6.iter().any(|(id, _)| new.contains(id));
            if reads_new || !asked.contains(&ask) {
                new.insert(ask.1);
            }
        }
    }
    let mut cost: u64 = new.iter().map(|id| tokens(id).max(1)).sum();
    if is_open {
        cost += 2 * mean + 1;
    }
    let judges = edited.plan.answer_rule() == AnswerRule::Judge && edited.plan.answer_from().len() > 1;
    if judges && (edit.family == Family::Answer || !new.is_empty()) {
        cost += mean;
    }
    (cost, cost == 0 || (edit.change == Change::AnswerBy { rule: AnswerRule::Judge } && new.is_empty()))
}

/// Whether the calls of an edit that is new to the specification may still have known cache keys: a worker may supply a narrower
/// key than the full request. An agent that reads one more is told more, and so is a judge; a review needs a round that is not
/// written.
fn may_share_cache_keys(change: &Change) -> bool {
    !matches!(change, Change::AddReference { .. } | Change::Review | Change::AnswerBy { rule: AnswerRule::Judge })
}

/// Runs what the reply cache may answer, and keeps the differences of what it does answer.
async fn ask_cache(
    runner: &EpisodeRunner<'_>,
    groups: &[Vec<Episode>],
    candidates: &mut [Candidate],
) -> Result<(), RolloutError> {
    let unknown = |at: &usize| candidates[*at].may_be_free && candidates[*at].delta.is_none();
    let asked: Vec<usize> = (0..candidates.len()).filter(unknown).collect();
    let jobs = asked.iter().map(|at| job(groups, &candidates[*at])).collect();
    let runs = runner.run_all(jobs, Replies::CacheOnly).await?;
    for (at, run) in asked.into_iter().zip(runs) {
        let Some(changed) = run.outcome else { continue };
        candidates[at].delta = reward(groups, &candidates[at]).map(|reward| reward - changed.reward);
    }
    Ok(())
}

/// Has the rounds written that would have followed the edited one, and runs them.
async fn continue_reviews(
    runner: &EpisodeRunner<'_>,
    policy: &dyn TrainablePolicy,
    groups: &[Vec<Episode>],
    candidates: &mut [Candidate],
    temperature: f32,
) -> Result<(), TrainError> {
    let reviews: Vec<usize> =
        (0..candidates.len()).filter(|at| candidates[*at].is_open && candidates[*at].verdict.is_taken()).collect();
    let mut forks: Vec<Episode> = Vec::new();
    for at in &reviews {
        let candidate = &candidates[*at];
        let mut fork = groups[candidate.group][candidate.episode].clone();
        fork.rounds.truncate(candidate.round + 1);
        if let Some(last) = fork.rounds.last_mut() {
            last.sample.text = candidate.edited.plan.source().to_owned();
            last.plan = Some(candidate.edited.plan.clone());
        }
        fork.writer_seed ^= 0x5eed;
        forks.push(fork);
    }
    // What the next round is told are the results of the edited one.
    let first = runner.run_written(&mut forks).await?;
    let played = runner.play(policy, &mut forks, temperature).await?;
    let each = (first + played.spent) / forks.len().max(1) as u64;
    for (at, fork) in reviews.into_iter().zip(forks) {
        let candidate = &mut candidates[at];
        candidate.texts = fork.texts();
        candidate.spent = each;
        let after = fork.run.and_then(|run| run.outcome);
        candidate.delta = reward(groups, candidate).zip(after).map(|(before, after)| before - after.reward);
    }
    Ok(())
}

/// Runs what was purchased. The counterfactuals of a group follow one another, so that what one asks the next need not; groups
/// run side by side.
async fn run_purchased(
    runner: &EpisodeRunner<'_>,
    groups: &[Vec<Episode>],
    candidates: &mut [Candidate],
    settings: &CreditSettings,
    (allowance, cost_ratio, seed): (u64, f64, u64),
) -> Result<(), RolloutError> {
    let mut spent: u64 = candidates.iter().map(|candidate| candidate.spent).sum();
    let mut by_group: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, candidate) in candidates.iter().enumerate() {
        if candidate.verdict.is_taken() && candidate.delta.is_none() && !candidate.is_open {
            by_group.entry(candidate.group).or_default().push(at);
        }
    }
    let mut lanes: Vec<std::collections::VecDeque<usize>> = by_group.into_values().map(Into::into).collect();
    while lanes.iter().any(|lane| !lane.is_empty()) {
        let mut now: Vec<usize> = Vec::new();
        for at in lanes.iter_mut().filter_map(std::collections::VecDeque::pop_front) {
            // What was expected to be cheaper may have used up what this one was to have.
            let ahead: u64 = now.iter().map(|at| candidates[*at].price(cost_ratio)).sum();
            if spent + ahead + candidates[at].price(cost_ratio) <= allowance {
                now.push(at);
            } else if let OfferVerdict::Worth(worth) | OfferVerdict::Drawn(worth) = candidates[at].verdict {
                candidates[at].verdict = OfferVerdict::Capped(worth);
            }
        }
        let jobs = now.iter().map(|at| {
            let job = job(groups, &candidates[*at]);
            if settings.common_noise {
                job
            } else {
                Job { seed: job.seed ^ seed ^ (*at as u64) << 32, memory: Arc::new(ReplyCache::default()), ..job }
            }
        });
        let runs = runner.run_all(jobs.collect(), Replies::Workers).await?;
        for (at, run) in now.into_iter().zip(runs) {
            spent += run.spent;
            let candidate = &mut candidates[at];
            candidate.spent = run.spent;
            candidate.delta = reward(groups, candidate).zip(run.outcome).map(|(before, after)| before - after.reward);
        }
    }
    Ok(())
}

fn job(groups: &[Vec<Episode>], candidate: &Candidate) -> Job {
    // Groups and episodes are those the candidate was made of.
    Job { texts: candidate.texts.clone(), ..groups[candidate.group][candidate.episode].job() }
}

/// The reward of the original.
fn reward(groups: &[Vec<Episode>], candidate: &Candidate) -> Option<f64> {
    let run = groups[candidate.group][candidate.episode].run.as_ref()?;
    run.outcome.map(|outcome| outcome.reward)
}

impl Candidate {
    /// A counterfactual of which nothing is known yet.
    fn new((group, episode, round): (usize, usize, usize), alternative: Alternative) -> Self {
        let Alternative { edit, edited, prefix } = alternative;
        let (texts, is_open, cost, may_be_free) = (Vec::new(), false, 0, true);
        let (verdict, delta, spent) = (OfferVerdict::Free, None, 0);
        Candidate {
            group,
            episode,
            round,
            edit,
            edited,
            prefix,
            texts,
            is_open,
            cost,
            may_be_free,
            read: None,
            verdict,
            delta,
            spent,
        }
    }

    /// A counterfactual that came to this difference.
    pub fn measured(place: (usize, usize, usize), alternative: Alternative, delta: f64) -> Self {
        Candidate { delta: Some(delta), ..Candidate::new(place, alternative) }
    }
}
