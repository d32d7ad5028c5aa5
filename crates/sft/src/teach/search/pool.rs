//! The search for the best team of a pool of tasks.

use super::TeamSearchSettings;
use super::rounds::Staged;
use crate::teach::broad::TeamSampler;
use crate::teach::words::{BRIEF, REWORDED, WORKED, worded};
use crate::teach::{SearchProgress, TeachContext, WIDTH, draw};
use futures::stream::{self, StreamExt, TryStreamExt};
use lemon_eval::{mutant, seed_teams};
use lemon_exec::orchestrator::Fixed;
use lemon_num::Random;
use lemon_policy::pair::canonical_ids;
use lemon_policy::{TaskKind, featurize};
use lemon_rollout::{Case, Earned, RolloutError};
use lemon_spec::{Agent, Answer, AnswerRule, Share, Spec, render, validate};
use std::collections::HashSet;
use std::sync::Arc;

/// A third of the teams is kept after these parts of the runs that one is chosen by in the end.
const RUNGS: [usize; 2] = [20, 5];
/// One in so many is kept.
const KEPT: usize = 3;
/// Teams that are changed in a generation, and teams that come of it.
const PARENTS: usize = 6;
const BROOD: usize = 24;
/// Teams that run to the end.
const FINALISTS: usize = 5;
/// Changes drawn before giving up on finding a new team.
const MOST_DRAWS: usize = 50;
/// A team that challenges the best is given up after these parts of all runs, if it is behind by more than chance explains.
const HURDLES: [usize; 4] = [20, 8, 3, 1];

/// The tasks of one search.
pub(super) struct Pool<'a> {
    pub context: &'a TeachContext<'a>,
    pub cases: Vec<&'a Case>,
    pub kind: TaskKind,
    /// How to search.
    pub settings: &'a TeamSearchSettings,
    /// What the seeds are made from.
    pub name: String,
    /// Which of how many such searches it is.
    pub turn: (usize, usize),
}

/// A team that is tried.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// The team, with marks for duties.
    pub team: Spec,
    /// What it earned: through the tasks in turn, then again with the next seed.
    pub earned: Vec<Earned>,
}

impl Candidate {
    /// The mean of its runs.
    pub fn mean(&self) -> Earned {
        let sum = self.earned.iter().fold(Earned::default(), |sum, earned| sum.plus(earned));
        sum.over(self.earned.len().max(1) as f64)
    }

    /// How much less it earned than another, and the standard error of that. Runs of one task share what makes it hard, so
    /// that tasks are what is counted.
    fn behind(&self, other: &Candidate, tasks: usize) -> (f64, f64) {
        let task = |at: usize| {
            let pairs = self.earned.iter().zip(&other.earned).skip(at).step_by(tasks);
            let differences: Vec<f64> = pairs.map(|(own, other)| other.reward - own.reward).collect();
            (!differences.is_empty()).then(|| differences.iter().sum::<f64>() / differences.len() as f64)
        };
        let means: Vec<f64> = (0..tasks).filter_map(task).collect();
        let count = means.len().max(1) as f64;
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, (squares / count / count).sqrt())
    }

    /// Whether it is no more than a standard error behind.
    fn is_close_to(&self, best: &Candidate, tasks: usize) -> bool {
        let (behind, error) = self.behind(best, tasks);
        behind <= error
    }
}

impl Pool<'_> {
    /// Tries so many teams, gives most of them up early, lets others challenge the best, and takes of those that ran to the
    /// end the cheapest that is not clearly worse than the best, in two rounds where that is wanted and pays. `None`: cancelled.
    pub async fn best(&self) -> Result<Option<(Candidate, Option<Staged>)>, RolloutError> {
        let TeamSearchSettings { teams, runs, challengers, two_rounds, .. } = *self.settings;
        if let Some(team) = &self.settings.team {
            let mut given = Candidate { team: team.clone(), earned: Vec::new() };
            return match self.measure(&mut given, "final", runs).await? {
                true if two_rounds => self.in_rounds(given).await,
                true => Ok(Some((given, None))),
                false => Ok(None),
            };
        }
        let mut random = Random::new(draw(self.context.seed, &["search", &self.name]));
        let mut known = HashSet::new();
        let mut brood = self.seed_teams(&mut known);
        brood.truncate(teams);
        let mut tried: Vec<Candidate> = Vec::new();
        while !brood.is_empty() {
            if !self.halve(&mut brood, runs).await? {
                return Ok(None);
            }
            tried.append(&mut brood);
            tried.sort_by(by_reward);
            self.tell(known.len().min(teams), &tried);
            brood = self.brood(&tried, BROOD.min(teams.saturating_sub(known.len())), &mut known, &mut random);
        }
        if challengers > 0 {
            if !self.challenge(&mut tried, &mut known, &mut random).await? {
                return Ok(None);
            }
            tried = foremost(&tried, FINALISTS);
        }
        tried.truncate(FINALISTS);
        for candidate in &mut tried {
            // New seeds: the rewards that selected them are biased upwards.
            candidate.earned.clear();
            if !self.measure(candidate, "final", runs).await? {
                return Ok(None);
            }
        }
        match cheapest_of_the_best(tried, self.cases.len()) {
            Some(best) if two_rounds => self.in_rounds(best).await,
            best => Ok(best.map(|best| (best, None))),
        }
    }

    /// Edits of the best and of the cheapest teams challenge the best one by one. A challenger that is behind by more than a standard
    /// error is dropped. One that is not after all runs is kept, and may be edited in turn. `false`: cancelled.
    ///
    /// Halving separates teams that differ by several points. The best of them differ by less, which takes all runs to measure.
    async fn challenge(
        &self,
        kept: &mut Vec<Candidate>,
        known: &mut HashSet<String>,
        random: &mut Random,
    ) -> Result<bool, RolloutError> {
        let TeamSearchSettings { teams, runs, challengers, .. } = *self.settings;
        kept.truncate(PARENTS);
        for candidate in kept.iter_mut() {
            if !self.measure(candidate, "halve", runs).await? {
                return Ok(false);
            }
        }
        kept.sort_by(by_reward);
        for number in 0..challengers {
            self.tell(teams + number, kept);
            let Some(mut challenger) = self.brood(&foremost(kept, PARENTS), 1, known, random).pop() else { break };
            let Some(is_close) = self.race(&mut challenger, None, "halve", kept.first()).await? else {
                return Ok(false);
            };
            if is_close {
                kept.push(challenger);
                kept.sort_by(by_reward);
                if let Some(best) = kept.first().cloned() {
                    kept.retain(|candidate| candidate.is_close_to(&best, self.cases.len()));
                }
            }
        }
        Ok(true)
    }

    fn tell(&self, teams: usize, sorted: &[Candidate]) {
        if let (Some(watch), Some(best)) = (self.context.watch, sorted.first()) {
            let (each, (at, count)) = (self.settings.teams + self.settings.challengers, self.turn);
            watch(&SearchProgress { teams: at * each + teams, of: count * each, best: best.mean() });
        }
    }

    /// The best of so many teams drawn at random, each run so many times on every task. `None`: cancelled.
    pub async fn best_of_few(&self) -> Result<Option<Candidate>, RolloutError> {
        let TeamSearchSettings { teams, runs, .. } = *self.settings;
        let mut random = Random::new(draw(self.context.seed, &["few", &self.name]));
        let mut known = HashSet::new();
        let mut tried = self.seed_teams(&mut known);
        random.shuffle(&mut tried);
        let drawn = self.brood(&tried, teams.div_ceil(2), &mut known, &mut random);
        tried.truncate(teams.saturating_sub(drawn.len()).max(1));
        tried.extend(drawn);
        for candidate in &mut tried {
            if !self.measure(candidate, "few", runs * self.cases.len()).await? {
                return Ok(None);
            }
        }
        tried.sort_by(by_reward);
        Ok(tried.into_iter().next())
    }

    /// The first teams: random ones, where the settings ask for them, and standard shapes, each with duties that show the working and
    /// with brief ones.
    fn seed_teams(&self, known: &mut HashSet<String>) -> Vec<Candidate> {
        let language = &self.context.env.language;
        let marked = |team: &Spec, mark: &str| {
            let mut team = team.clone();
            for agent in &mut team.agents {
                agent.duty = Some(mark.to_owned());
            }
            shared_sparingly(team)
        };
        let teams = seed_teams(language, self.kind == TaskKind::Program);
        let variants = teams.iter().flat_map(|team| [marked(team, WORKED), marked(team, BRIEF)]);
        let mut sampler = TeamSampler::new(draw(self.context.seed, &["drawn", &self.name]));
        let TeamSearchSettings { drawn, most_agents, .. } = *self.settings;
        let drawn = (0..drawn).map(|_| sampler.voters(self.kind, most_agents, language));
        let variants = drawn.chain(variants);
        variants.filter(|team| self.is_new(team, known)).map(|team| Candidate { team, earned: Vec::new() }).collect()
    }

    fn is_new(&self, team: &Spec, known: &mut HashSet<String>) -> bool {
        let text = render(team).text;
        let language = &self.context.env.language;
        team.agents.len() <= self.settings.most_agents && validate(&text, language).is_ok() && known.insert(text)
    }

    /// Up to so many new teams, each a change of one of the best.
    fn brood(
        &self,
        tried: &[Candidate],
        size: usize,
        known: &mut HashSet<String>,
        random: &mut Random,
    ) -> Vec<Candidate> {
        let parents = tried.get(..PARENTS.min(tried.len())).unwrap_or_default();
        let mut brood = Vec::new();
        for _ in 0..size {
            let mut draws = (0..MOST_DRAWS).filter_map(|_| {
                let parent = parents.get(random.below(parents.len()))?;
                self.changed(&parent.team, random)
            });
            brood
                .extend(draws.find(|team| self.is_new(team, known)).map(|team| Candidate { team, earned: Vec::new() }));
        }
        brood
    }

    /// The team with a change of its structure, of a mark, or of both; or with one more like one of those who vote, who reads the
    /// task in other words.
    fn changed(&self, team: &Spec, random: &mut Random) -> Option<Spec> {
        let language = &self.context.env.language;
        let what = random.below(4);
        let mut changed = team.clone();
        if what == 3 {
            let votes = |agent: &&Agent| agent.after.is_empty() && team.answer.from.contains(&agent.id);
            let voters: Vec<&Agent> = team.agents.iter().filter(votes).collect();
            let like = *voters.get(random.below(voters.len()))?;
            let id = format!("a{}", team.agents.len() + 1);
            changed.answer = Answer { by: AnswerRule::Vote, ..changed.answer };
            changed.answer.from.push(id.clone());
            changed.agents.push(Agent { id, duty: Some(REWORDED.to_owned()), ..like.clone() });
            return Some(canonical_ids(&changed));
        }
        if what != 0 {
            // A team that breaks a limit of the language has no mutants.
            let plan = validate(&render(team).text, language).ok()?;
            changed = mutant(&plan, language, self.kind == TaskKind::Program, random)?.spec().clone();
        }
        if what != 1 {
            let at = random.below(changed.agents.len());
            let marks = [None, Some(WORKED), Some(BRIEF), Some(REWORDED)];
            changed.agents.get_mut(at)?.duty = marks.get(random.below(marks.len()))?.map(str::to_owned);
        }
        Some(changed)
    }

    /// Measures teams on more and more runs and gives up those that do worse. `false`: cancelled.
    async fn halve(&self, teams: &mut Vec<Candidate>, runs: usize) -> Result<bool, RolloutError> {
        for part in RUNGS {
            for candidate in teams.iter_mut() {
                if !self.measure(candidate, "halve", (runs / part).max(1)).await? {
                    return Ok(false);
                }
            }
            teams.sort_by(by_reward);
            teams.truncate(teams.len().div_ceil(KEPT));
        }
        Ok(true)
    }

    /// A team, or its best division into two rounds if that earned more in as many runs with the same noise seeds. `None`: cancelled.
    async fn in_rounds(&self, team: Candidate) -> Result<Option<(Candidate, Option<Staged>)>, RolloutError> {
        let mut best = (team.clone(), None);
        for way in Staged::ways(&canonical_ids(&team.team)) {
            let mut candidate = Candidate { team: team.team.clone(), earned: Vec::new() };
            let race = self.race(&mut candidate, Some(&way), "final", Some(&best.0)).await?;
            let Some(is_close) = race else { return Ok(None) };
            if is_close && candidate.mean().reward > best.0.mean().reward {
                best = (candidate, Some(way));
            }
        }
        Ok(Some(best))
    }

    /// Runs a team on more and more of the runs, while it is no more than a standard error behind the best, and says whether it
    /// is not after all of them. `None`: cancelled.
    async fn race(
        &self,
        candidate: &mut Candidate,
        way: Option<&Staged>,
        stage: &str,
        best: Option<&Candidate>,
    ) -> Result<Option<bool>, RolloutError> {
        for part in HURDLES {
            if !self.measure_way(candidate, way, stage, (self.settings.runs / part).max(1)).await? {
                return Ok(None);
            }
            if best.is_some_and(|best| !candidate.is_close_to(best, self.cases.len())) {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }

    /// Runs a team until it has run so often. `false`: cancelled.
    async fn measure(&self, candidate: &mut Candidate, stage: &str, runs: usize) -> Result<bool, RolloutError> {
        self.measure_way(candidate, None, stage, runs).await
    }

    /// The same for a team that is asked in two rounds.
    async fn measure_way(
        &self,
        candidate: &mut Candidate,
        way: Option<&Staged>,
        stage: &str,
        runs: usize,
    ) -> Result<bool, RolloutError> {
        let team = &candidate.team;
        let run = |at: usize| async move {
            let Some(case) = self.cases.get(at % self.cases.len().max(1)) else { return Ok(None) };
            let seed = draw(self.context.seed, &[stage, &self.name, &(at / self.cases.len().max(1)).to_string()]);
            let task = &case.item.task;
            let subject = task.subject.as_deref().filter(|_| self.settings.subjects);
            let writer = match way {
                Some(way) => way.writer(&task.question, subject, seed),
                None => {
                    let text = render(&worded(team, &featurize(&task.question, subject), &task.question, seed)).text;
                    Arc::new(Fixed { text, reviewer: None })
                }
            };
            self.context.env.run_written(case, writer, seed, self.context.cancel).await
        };
        let wanted = candidate.earned.len()..runs;
        let earned: Vec<Option<Earned>> = stream::iter(wanted).map(run).buffered(WIDTH).try_collect::<Vec<_>>().await?;
        let complete = earned.iter().all(Option::is_some);
        candidate.earned.extend(earned.into_iter().flatten());
        Ok(complete)
    }
}

/// The team in which every agent shares the answer alone, which costs its readers least.
fn shared_sparingly(mut team: Spec) -> Spec {
    let read: HashSet<String> = team.agents.iter().flat_map(|agent| agent.after.clone()).collect();
    let hands_on_answers = |agent: &Agent| read.contains(&agent.id) && agent.base != "planner";
    for agent in team.agents.iter_mut().filter(|agent| hands_on_answers(agent)) {
        agent.share = Share::Answer;
    }
    team
}

/// The better first; of equals the cheaper, then the one whose text comes first.
fn by_reward(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    let (left, right) = (a.mean(), b.mean());
    let by_text = || render(&a.team).text.cmp(&render(&b.team).text);
    right.reward.total_cmp(&left.reward).then(left.tokens.total_cmp(&right.tokens)).then_with(by_text)
}

/// Of teams in the order of their rewards so many: the best, and for the other half the cheapest.
fn foremost(sorted: &[Candidate], count: usize) -> Vec<Candidate> {
    let (best, others) = sorted.split_at(count.div_ceil(2).min(sorted.len()));
    let mut others: Vec<&Candidate> = others.iter().collect();
    others.sort_by(|a, b| a.mean().tokens.total_cmp(&b.mean().tokens));
    best.iter().chain(others.into_iter().take(count / 2)).cloned().collect()
}

/// The one with fewest tokens among those that are no more than a standard error behind the best.
fn cheapest_of_the_best(mut finalists: Vec<Candidate>, tasks: usize) -> Option<Candidate> {
    finalists.sort_by(by_reward);
    let best = finalists.first()?.clone();
    let close = finalists.into_iter().filter(|candidate| candidate.is_close_to(&best, tasks));
    close.min_by(|a, b| a.mean().tokens.total_cmp(&b.mean().tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::Language;

    /// A team of this level that earned this, for so many tokens a run.
    fn candidate(rewards: &[f64], tokens: f64) -> Candidate {
        let team = seed_teams(&Language::default(), false).remove(0);
        let earned = rewards.iter().map(|reward| Earned { reward: *reward, success: 0.0, tokens }).collect();
        Candidate { team, earned }
    }

    #[track_caller]
    fn check(candidates: &[(&[f64], f64)], tasks: usize, tokens: f64) {
        let all = candidates.iter().map(|(rewards, tokens)| candidate(rewards, *tokens)).collect();
        assert_eq!(cheapest_of_the_best(all, tasks).unwrap().mean().tokens, tokens);
    }

    #[test]
    fn of_equals_the_cheapest_is_taken_and_a_clearly_better_one_whatever_it_costs() {
        let (good, bad, mixed) = ([1.0; 8], [0.0; 8], [1.0, 0.9, 1.0, 1.1, 1.0, 0.9, 1.0, 1.0]);
        check(&[(&good, 9.0), (&good, 3.0), (&bad, 1.0)], 8, 3.0);
        check(&[(&good, 9.0), (&bad, 1.0)], 8, 9.0);
        check(&[(&good, 9.0), (&mixed, 3.0)], 8, 3.0);
        let behind = candidate(&mixed, 1.0).behind(&candidate(&good, 1.0), 8);
        assert!((behind.0 - 0.0125).abs() < 1e-12 && behind.1 > 0.0);
        assert!(cheapest_of_the_best(Vec::new(), 3).is_none());
    }

    #[test]
    fn half_of_the_foremost_are_the_best_and_half_the_cheapest() {
        let sorted: Vec<Candidate> = [9.0, 5.0, 7.0, 3.0, 8.0, 1.0].map(|tokens| candidate(&[1.0], tokens)).to_vec();
        let tokens = |count| foremost(&sorted, count).iter().map(|it| it.mean().tokens).collect::<Vec<_>>();
        assert_eq!(tokens(4), [9.0, 5.0, 1.0, 3.0]);
        assert_eq!(tokens(5), [9.0, 5.0, 7.0, 1.0, 3.0]);
        assert_eq!(tokens(9), [9.0, 5.0, 7.0, 3.0, 8.0, 1.0]);
        assert!(foremost(&[], 3).is_empty());
    }
}
