//! Counterfactuals of episodes: one decision edited, the edited team run with the same noise seed, and the difference in reward.
//!
//! Most calls of an edited team were made before, by the episode itself or by another of its group. What the reply cache can
//! answer altogether is free and is always run. The rest is offered to the economy of credit, which purchases it or not.

use super::TrainError;
use super::episode::{Episode, EpisodeRunner, Job};
use super::recipe::CreditSettings;
use lemon_credit::economy::{Economy, FamilyLedger, Offer, OfferVerdict};
use lemon_exec::ReplyCache;
use lemon_policy::TrainablePolicy;
use lemon_rollout::{Replies, RolloutError};
use lemon_spec::edit::{Change, Edit, Edited, Family, apply, edits, prefix_truncations};
use lemon_spec::{AnswerRule, Language, Next, Plan, validate_round};
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
    /// The texts of the changed run. For a review that was not asked for, the round that would follow is still to be written.
    texts: Vec<String>,
    /// What it is expected to cost.
    cost: u64,
    /// Whether the reply cache may hold all of it.
    may_be_free: bool,
    pub verdict: OfferVerdict,
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
    economy: &mut Economy,
    (allowance, temperature): (u64, f32),
    seed: u64,
) -> Result<Counterfactuals, TrainError> {
    let of_group = |(at, group): (usize, &Vec<Episode>)| of_group(runner, at, group, settings);
    let mut candidates: Vec<Candidate> = groups.iter().enumerate().flat_map(of_group).collect();
    ask_cache(runner, groups, &mut candidates).await?;
    let paid: Vec<usize> = (0..candidates.len()).filter(|at| candidates[*at].delta.is_none()).collect();
    let cost_ratio = economy.cost_ratio();
    let offer = |at: &usize| Offer { family: candidates[*at].edit.family, cost: candidates[*at].price(cost_ratio) };
    let offers: Vec<Offer> = paid.iter().map(offer).collect();
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
        let mut seen: HashSet<Vec<String>> = HashSet::new();
        for (round, written) in episode.rounds.iter().enumerate() {
            let Some(plan) = &written.plan else { continue };
            for edit in changes(plan, runner.language(), settings.prefix_truncation) {
                let wanted = settings.families.contains(&edit.family) && edit.family != Family::Message;
                if !wanted || (settings.simplify_only && !edit.forward) {
                    continue;
                }
                let Some((edited, texts)) = changed(runner, episode, round, plan, &edit) else { continue };
                // Two ways to the same team are one counterfactual.
                if !seen.insert(texts.clone()) {
                    continue;
                }
                let (cost, known) = expected(episode, round, &edit, &edited, &asked, settings);
                let may_be_free = known || (has_cache_keys && may_share_cache_keys(&edit.change));
                let (verdict, spent) = (OfferVerdict::Free, 0);
                // What no agent reads changes nothing; no run has to show it.
                let nothing = settings.common_noise && changes_nothing(episode, round, plan, &edit);
                let delta = nothing.then_some(0.0);
                candidates.push(Candidate {
                    group,
                    episode: at,
                    round,
                    edit,
                    edited,
                    texts,
                    cost,
                    may_be_free,
                    verdict,
                    delta,
                    spent,
                });
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

/// What can be edited. A team is written agent by agent, so that the alternative to one more agent is a prefix truncation; a
/// team that goes on without one agent is what another decision would have led to.
fn changes(plan: &Plan, language: &Language, prefixes: bool) -> Vec<Edit> {
    let mut changes = edits(plan, language);
    if prefixes {
        changes.retain(|edit| edit.family != Family::Agent);
        changes.extend(prefix_truncations(plan, language));
    }
    changes
}

/// The changed team and the texts of its run; `None` where the rounds after it could not be as they are.
fn changed(
    runner: &EpisodeRunner<'_>,
    episode: &Episode,
    round: usize,
    plan: &Plan,
    edit: &Edit,
) -> Option<(Edited, Vec<String>)> {
    let is_last = round + 1 == episode.rounds.len();
    match edit.change {
        // Only where there is room for another round, and none was written.
        Change::Review if !is_last || round + 1 >= runner.rounds as usize => return None,
        // A review without a second round is a stop already.
        Change::Stop if is_last => return None,
        _ => {}
    }
    let edited = apply(plan, edit, runner.language()).ok()?;
    let mut texts = episode.texts();
    texts[round] = edited.plan.source().to_owned();
    if edit.change == Change::Stop {
        texts.truncate(round + 1);
        return Some((edited, texts));
    }
    let mut earlier = episode.earlier(round);
    earlier.extend(edited.plan.spec().agents.iter().map(|agent| agent.id.clone()));
    for later in texts.iter().skip(round + 1) {
        let plan = validate_round(later, runner.language(), &earlier).ok()?;
        earlier.extend(plan.spec().agents.iter().map(|agent| agent.id.clone()));
    }
    Some((edited, texts))
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
    round: usize,
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
    let later = episode.rounds.iter().skip(round + 1).filter_map(|round| round.plan.as_ref());
    for (at, plan) in std::iter::once(&edited.plan).chain(later).enumerate() {
        for ask in asks(round + at, plan) {
            let reads_new = ask.6.iter().any(|(id, _)| new.contains(id));
            if reads_new || !asked.contains(&ask) {
                new.insert(ask.1);
            }
        }
    }
    let mut cost: u64 = new.iter().map(|id| tokens(id).max(1)).sum();
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

/// Has the rounds written that would have followed where a review was not asked for.
async fn continue_reviews(
    runner: &EpisodeRunner<'_>,
    policy: &dyn TrainablePolicy,
    groups: &[Vec<Episode>],
    candidates: &mut [Candidate],
    temperature: f32,
) -> Result<(), TrainError> {
    let reviews: Vec<usize> = (0..candidates.len())
        .filter(|at| candidates[*at].edit.change == Change::Review && candidates[*at].verdict.is_taken())
        .collect();
    let mut forks: Vec<Episode> = Vec::new();
    for at in &reviews {
        let candidate = &candidates[*at];
        let mut fork = groups[candidate.group][candidate.episode].clone();
        if let Some(last) = fork.rounds.last_mut() {
            last.sample.text = candidate.edited.plan.source().to_owned();
            last.plan = Some(candidate.edited.plan.clone());
        }
        fork.writer_seed ^= 0x5eed;
        forks.push(fork);
    }
    let played = runner.play(policy, &mut forks, temperature).await?;
    let each = played.spent / forks.len().max(1) as u64;
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
        if candidate.verdict.is_taken() && candidate.delta.is_none() && candidate.edit.change != Change::Review {
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

#[cfg(test)]
impl Candidate {
    /// A counterfactual that came to this difference.
    pub fn measured(place: (usize, usize, usize), edit: Edit, edited: Edited, delta: f64) -> Self {
        let ((group, episode, round), texts) = (place, Vec::new());
        let (cost, may_be_free, verdict, delta, spent) = (0, true, OfferVerdict::Free, Some(delta), 0);
        Candidate { group, episode, round, edit, edited, texts, cost, may_be_free, verdict, delta, spent }
    }
}
