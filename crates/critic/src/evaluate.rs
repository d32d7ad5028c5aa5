//! Testing critics on tasks that they never saw, beside every fixed method, a router and the best choice in hindsight.

use crate::fit::{CriticSettings, fit_critic, read_tasks};
use crate::head::{follow_head, team_estimates, unseen};
use crate::model::{CriticError, DecisionCritic, Rule, TeamEstimate};
use crate::report::{CurveRow, PairedRow, calibration_error, interval, mutual_information};
use crate::router::Router;
use crate::task::RecordedTask;
use crate::team::TeamCounts;
use crate::walk::{FIXED, Walked, fixed, walk};
use lemon_num::stats::permutation;
use lemon_num::{mean_of, mixed_seed};
use lemon_policy::TeamHead;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// How a critic is tested.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationSettings {
    /// Rewards that 1,000 tokens are worth.
    pub prices: Vec<f64>,
    /// One fit and one order of the replies for each.
    pub seeds: Vec<u64>,
    /// Rounds of calls at most.
    pub rounds: u32,
    /// Whether the critic's first team must not be worse than one reasoner.
    pub guard: bool,
    /// Whether confidences are hidden, as with endpoints that report none.
    pub hide_sure: bool,
    /// How critics are fitted; their seed is that of the trial.
    pub fit: CriticSettings,
}

impl Default for EvaluationSettings {
    fn default() -> Self {
        EvaluationSettings {
            prices: vec![1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.01],
            seeds: (1..=5).collect(),
            rounds: 3,
            guard: false,
            hide_sure: false,
            fit: CriticSettings::default(),
        }
    }
}

/// A method that was tested.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tested {
    Fixed(usize),
    Router(usize),
    /// A head on a language model, at a price.
    Head(usize),
    /// The critic with one round only, at a price.
    OneRound(usize),
    Critic(usize),
    Hindsight,
}

/// What a test found.
#[derive(Debug)]
pub struct CriticEvaluation {
    prices: Vec<f64>,
    rounds: u32,
    names: Vec<String>,
    sets: Vec<String>,
    /// The set of each task.
    set_of: Vec<usize>,
    /// For each method, each seed, each task.
    walked: BTreeMap<Tested, Vec<Vec<Walked>>>,
    /// Mean tokens of the critic by price, on training tasks where it was fitted here: what a price is chosen by.
    spent: Vec<f64>,
}

/// What one seed gave: the results of each task, and what the critic spends at each price.
type OfSeed = (Vec<BTreeMap<Tested, Walked>>, Option<Vec<f64>>);

/// Fits a critic on `train` for every seed and tests it on `test`. Where there are heads, each seed tests one of them beside it, in turn,
/// and tasks that one of them was fitted to are left out.
///
/// # Errors
/// There are too few tasks to fit or test on.
pub fn evaluate(
    train: &[RecordedTask],
    test: &[RecordedTask],
    settings: &EvaluationSettings,
    heads: &[TeamHead],
) -> Result<CriticEvaluation, CriticError> {
    let mut in_turn = heads.iter().cycle();
    trial(&unseen(heads, test)?, settings, |test, sets, seed| {
        let fit = CriticSettings { seed, ..settings.fit };
        let (critic, router) = (fit_critic(train, &fit)?, Router::fit(&read_tasks(train, &fit), &fit));
        let estimates: Vec<Vec<TeamEstimate>> = match in_turn.next() {
            None => Vec::new(),
            Some(head) => test.par_iter().map(|task| team_estimates(head, task)).collect::<Result<_, _>>()?,
        };
        let spent = settings.prices.iter().map(|price| tokens_on(train, &critic, *price, settings, sets, seed));
        let spent = spent.collect();
        let one = |(at, task): (usize, &&RecordedTask)| {
            let beside = Beside { router: Some(&router), estimates: estimates.get(at).map(Vec::as_slice) };
            one_task(task, &critic, beside, settings, seed)
        };
        Ok((test.par_iter().enumerate().map(one).collect(), Some(spent)))
    })
}

/// Tests a critic on those of `test` that it was not fitted to. A seed draws the order in which replies are served.
///
/// # Errors
/// There are no such tasks.
pub fn evaluate_critic(
    critic: &DecisionCritic,
    test: &[RecordedTask],
    settings: &EvaluationSettings,
) -> Result<CriticEvaluation, CriticError> {
    let unseen: Vec<RecordedTask> = test.iter().filter(|task| !critic.was_fitted_to(task)).cloned().collect();
    trial(&unseen, settings, |test, _, seed| {
        let one = |task: &&RecordedTask| one_task(task, critic, Beside::default(), settings, seed);
        Ok((test.par_iter().map(one).collect(), None))
    })
}

/// Cross-validation: the tasks are divided into parts, and each part is tested with critics fitted to the others.
///
/// # Errors
/// There are too few tasks.
pub fn cross_validate(
    tasks: &[RecordedTask],
    parts: usize,
    settings: &EvaluationSettings,
) -> Result<CriticEvaluation, CriticError> {
    let parts = parts.max(2) as u64;
    let part_of = |task: &RecordedTask| mixed_seed(0, &["part", &task.name]) % parts;
    trial(tasks, settings, |test, _, seed| {
        let fit = CriticSettings { seed, ..settings.fit };
        let fitted = (0..parts).map(|part| {
            let others: Vec<RecordedTask> = tasks.iter().filter(|task| part_of(task) != part).cloned().collect();
            Ok((fit_critic(&others, &fit)?, Router::fit(&read_tasks(&others, &fit), &fit)))
        });
        let fitted: Vec<(DecisionCritic, Router)> = fitted.collect::<Result<_, CriticError>>()?;
        let one = |task: &&RecordedTask| {
            // Below the number of parts.
            let own = fitted.get(part_of(task) as usize);
            own.map(|(critic, router)| {
                let beside = Beside { router: Some(router), ..Beside::default() };
                one_task(task, critic, beside, settings, seed)
            })
            .unwrap_or_default()
        };
        Ok((test.par_iter().map(one).collect(), None))
    })
}

fn trial(
    test: &[RecordedTask],
    settings: &EvaluationSettings,
    mut of_seed: impl FnMut(&[&RecordedTask], &[String], u64) -> Result<OfSeed, CriticError>,
) -> Result<CriticEvaluation, CriticError> {
    // Tasks whose form no critic learns are left to plain calls: they say nothing here.
    let known = |task: &&RecordedTask| task.group().is_some() && !task.replies[2].is_empty();
    let test: Vec<&RecordedTask> = test.iter().filter(known).collect();
    if test.is_empty() {
        return Err(CriticError::TooFew { needed: 1, found: 0 });
    }
    let sets: BTreeSet<&str> = test.iter().map(|task| task.set.as_str()).collect();
    let sets: Vec<String> = sets.into_iter().map(str::to_owned).collect();
    let place = |task: &RecordedTask| sets.iter().position(|set| *set == task.set);
    let mut walked: BTreeMap<Tested, Vec<Vec<Walked>>> = BTreeMap::new();
    let mut on_training = Vec::new();
    for seed in &settings.seeds {
        let (results, spent) = of_seed(&test, &sets, *seed)?;
        on_training.extend(spent);
        let mut seeds: BTreeMap<Tested, Vec<Walked>> = BTreeMap::new();
        results.into_iter().flatten().for_each(|(tested, result)| seeds.entry(tested).or_default().push(result));
        seeds.into_iter().for_each(|(tested, of_seed)| walked.entry(tested).or_default().push(of_seed));
    }
    let set_of = test.iter().filter_map(|task| place(task)).collect();
    let names = test.iter().map(|task| task.name.clone()).collect();
    let (prices, rounds) = (settings.prices.clone(), settings.rounds);
    let mut found = CriticEvaluation { prices, rounds, names, sets, set_of, walked, spent: Vec::new() };
    let spent = |at: usize| {
        let training = mean_of(on_training.iter().filter_map(|prices: &Vec<f64>| prices.get(at).copied()));
        training.unwrap_or_else(|| found.over_sets(&found.mean_by_task(&Tested::Critic(at), |walked| walked.tokens)))
    };
    found.spent = (0..found.prices.len()).map(spent).collect();
    Ok(found)
}

/// The seed of the order that replies are served in when a critic is tested: another than those it was fitted with.
fn served_seed(seed: u64) -> u64 {
    mixed_seed(seed, &["test"])
}

/// What chooses beside the critic.
#[derive(Clone, Copy, Default)]
struct Beside<'a> {
    router: Option<&'a Router>,
    /// What a head says of the teams of the task.
    estimates: Option<&'a [TeamEstimate]>,
}

fn one_task(
    task: &RecordedTask,
    critic: &DecisionCritic,
    beside: Beside<'_>,
    settings: &EvaluationSettings,
    seed: u64,
) -> BTreeMap<Tested, Walked> {
    let served = task.serve(served_seed(seed), settings.hide_sure);
    let results: Vec<Walked> = FIXED.iter().map(|(_, ask)| fixed(*ask, &served)).collect();
    let mut found: BTreeMap<Tested, Walked> =
        results.iter().enumerate().map(|(at, walked)| (Tested::Fixed(at), *walked)).collect();
    let plain = results.get(2).copied().unwrap_or_default();
    let text = task.group().map(|group| crate::text::read_question(&task.question, group));
    for (at, price) in settings.prices.iter().enumerate() {
        let rule = Rule { guard: settings.guard, ..Rule::priced(*price) };
        let followed = |rounds| walk(critic, task, &served, &rule, rounds).unwrap_or(plain);
        found.insert(Tested::Critic(at), followed(settings.rounds));
        found.insert(Tested::OneRound(at), followed(1));
        if let Some(estimates) = beside.estimates {
            // Where it has no estimates, it does what the critic does: a plain call.
            let chosen = follow_head(estimates, &served, *price);
            found.insert(Tested::Head(at), chosen.unwrap_or_else(|| followed(1)));
        }
        let Some(router) = beside.router else { continue };
        let routed = text.as_ref().and_then(|text| results.get(router.choose(text, *price)));
        found.insert(Tested::Router(at), routed.copied().unwrap_or(plain));
    }
    let cheaper = |a: &&Walked, b: &&Walked| (b.right, a.tokens).partial_cmp(&(a.right, b.tokens));
    let best = results.iter().min_by(|a, b| cheaper(a, b).unwrap_or(std::cmp::Ordering::Equal));
    found.insert(Tested::Hindsight, best.copied().unwrap_or(plain));
    found
}

/// Mean tokens over the tested sets, on their training tasks.
fn tokens_on(
    train: &[RecordedTask],
    critic: &DecisionCritic,
    price: f64,
    settings: &EvaluationSettings,
    sets: &[String],
    seed: u64,
) -> f64 {
    let rule = Rule { guard: settings.guard, ..Rule::priced(price) };
    let of_set = |set: &String| {
        let tasks: Vec<&RecordedTask> = train.iter().filter(|task| task.set == *set).collect();
        let spent = |task: &&RecordedTask| {
            let served = task.serve(served_seed(seed), settings.hide_sure);
            walk(critic, task, &served, &rule, settings.rounds).map(|walked| walked.tokens)
        };
        mean_of(tasks.iter().filter_map(spent))
    };
    mean_of(sets.iter().filter_map(of_set)).unwrap_or_default()
}

impl CriticEvaluation {
    /// A row for each fixed method, then each price of the router, the critic with one round, the critic, and the best
    /// fixed method of each task in hindsight.
    pub fn curve(&self) -> Vec<CurveRow> {
        self.walked.keys().map(|tested| self.row(tested)).collect()
    }

    fn row(&self, tested: &Tested) -> CurveRow {
        let price = match tested {
            Tested::Router(at) | Tested::Head(at) | Tested::OneRound(at) | Tested::Critic(at) => {
                self.prices.get(*at).copied()
            }
            Tested::Fixed(_) | Tested::Hindsight => None,
        };
        let right = self.mean_by_task(tested, |walked| f64::from(u8::from(walked.right)));
        let tokens = self.mean_by_task(tested, |walked| walked.tokens);
        let by_set: Vec<(f64, f64)> =
            (0..self.sets.len()).map(|set| (self.of_set(&right, set), self.of_set(&tokens, set))).collect();
        let all: Vec<&Walked> = self.walked.get(tested).into_iter().flatten().flatten().collect();
        let firsts = || self.walked.get(tested).into_iter().flatten().map(|seed| seed.iter().map(|it| it.first));
        let learned = matches!(tested, Tested::Head(_) | Tested::OneRound(_) | Tested::Critic(_));
        CurveRow {
            method: self.name(tested),
            price,
            accuracy: self.over_sets(&right),
            interval: interval(&self.by_seed(tested), &self.set_of, self.sets.len()),
            tokens: self.over_sets(&tokens),
            rounds: mean_of(all.iter().map(|walked| f64::from(walked.rounds))).unwrap_or_default(),
            by_set,
            information: learned
                .then(|| mutual_information(&firsts().map(|it| it.collect()).collect::<Vec<Vec<TeamCounts>>>())),
            calibration: learned.then(|| calibration_error(all.iter().map(|walked| (walked.expected, walked.right)))),
        }
    }

    /// The critic beside every fixed method, at the price whose tokens (on training tasks, where it was fitted here) are the
    /// most that do not exceed the method's; and at every price beside the most accurate fixed method and the last one, which
    /// stops on agreement.
    pub fn paired(&self) -> (Vec<PairedRow>, Vec<PairedRow>) {
        let fixed: Vec<CurveRow> = (0..FIXED.len()).map(|at| self.row(&Tested::Fixed(at))).collect();
        let matched = fixed.iter().enumerate().filter_map(|(at, row)| {
            let affordable = self.spent.iter().enumerate().filter(|(_, tokens)| **tokens <= row.tokens);
            let (price, _) = affordable.max_by(|a, b| a.1.total_cmp(b.1))?;
            Some(self.pair(price, at, row))
        });
        let matched = matched.collect();
        let best = fixed.iter().enumerate().max_by(|a, b| a.1.accuracy.total_cmp(&b.1.accuracy));
        let mut strong: Vec<(usize, &CurveRow)> =
            best.into_iter().chain(fixed.iter().enumerate().next_back()).collect();
        strong.dedup_by_key(|(at, _)| *at);
        let against = |(at, row)| (0..self.prices.len()).map(move |price| self.pair(price, at, row));
        (matched, strong.into_iter().flat_map(against).collect())
    }

    fn pair(&self, price: usize, method: usize, row: &CurveRow) -> PairedRow {
        let (critic, other) = (Tested::Critic(price), Tested::Fixed(method));
        let own = self.row(&critic);
        let difference = |value: fn(&Walked) -> f64| -> Vec<f64> {
            let (left, right) = (self.mean_by_task(&critic, value), self.mean_by_task(&other, value));
            left.iter().zip(right).map(|(left, right)| left - right).collect()
        };
        let right = difference(|walked| f64::from(u8::from(walked.right)));
        let tokens = difference(|walked| walked.tokens);
        PairedRow {
            method: row.method.clone(),
            price: own.price.unwrap_or_default(),
            accuracy: own.accuracy - row.accuracy,
            interval: interval(&self.differences(&critic, &other), &self.set_of, self.sets.len()),
            p_accuracy: permutation(&self.weighted(&right), 1),
            tokens: own.tokens / row.tokens.max(1e-9) - 1.0,
            p_tokens: permutation(&self.weighted(&tokens), 2),
        }
    }

    /// The sets, in the order of [`CurveRow::by_set`].
    pub fn sets(&self) -> &[String] {
        &self.sets
    }

    /// Tasks of each set.
    pub fn tasks(&self) -> Vec<usize> {
        (0..self.sets.len()).map(|set| self.set_of.iter().filter(|at| **at == set).count()).collect()
    }

    /// One line of comma-separated values for each method, seed and task.
    pub fn rows(&self) -> String {
        let mut text = String::from("method,price,seed,task,right,tokens,rounds,brief,program,reasoned\n");
        for (tested, seeds) in &self.walked {
            let row = (self.name(tested), self.row_price(tested));
            for (seed, tasks) in seeds.iter().enumerate() {
                for (name, walked) in self.names.iter().zip(tasks) {
                    let [brief, program, reasoned] = walked.first.0;
                    let (right, tokens, rounds) = (u8::from(walked.right), walked.tokens, walked.rounds);
                    text += &format!(
                        "\"{}\",{},{seed},{name},{right},{tokens},{rounds},{brief},{program},{reasoned}\n",
                        row.0, row.1
                    );
                }
            }
        }
        text
    }

    /// How many seeds were tested.
    pub fn seeds(&self) -> usize {
        self.walked.values().map(Vec::len).max().unwrap_or_default()
    }

    fn row_price(&self, tested: &Tested) -> String {
        match tested {
            Tested::Router(at) | Tested::Head(at) | Tested::OneRound(at) | Tested::Critic(at) => {
                self.prices.get(*at).map(f64::to_string).unwrap_or_default()
            }
            Tested::Fixed(_) | Tested::Hindsight => String::new(),
        }
    }

    fn name(&self, tested: &Tested) -> String {
        match tested {
            Tested::Fixed(at) => FIXED.get(*at).map_or_else(String::new, |(name, _)| (*name).to_owned()),
            Tested::Router(_) => "router".to_owned(),
            Tested::Head(_) => "language model's head".to_owned(),
            Tested::OneRound(_) => "critic, one round".to_owned(),
            Tested::Critic(_) => format!("critic, up to {} rounds", self.rounds),
            Tested::Hindsight => "best fixed method in hindsight".to_owned(),
        }
    }

    /// The mean over seeds, for each task.
    fn mean_by_task(&self, tested: &Tested, value: impl Fn(&Walked) -> f64) -> Vec<f64> {
        let seeds = self.walked.get(tested).map(Vec::as_slice).unwrap_or_default();
        let of_task = |task: usize| mean_of(seeds.iter().filter_map(|seed| seed.get(task)).map(&value));
        (0..self.set_of.len()).map(|task| of_task(task).unwrap_or_default()).collect()
    }

    /// Whether each task was right, for each seed.
    fn by_seed(&self, tested: &Tested) -> Vec<Vec<f64>> {
        let seeds = self.walked.get(tested).map(Vec::as_slice).unwrap_or_default();
        seeds.iter().map(|seed| seed.iter().map(|walked| f64::from(u8::from(walked.right))).collect()).collect()
    }

    fn differences(&self, left: &Tested, right: &Tested) -> Vec<Vec<f64>> {
        let pairs = self.by_seed(left).into_iter().zip(self.by_seed(right));
        pairs.map(|(left, right)| left.iter().zip(right).map(|(left, right)| left - right).collect()).collect()
    }

    /// Values that add up to the mean over sets.
    fn weighted(&self, values: &[f64]) -> Vec<f64> {
        let sizes = self.tasks();
        let weight = |set: usize| 1.0 / (sizes.get(set).copied().unwrap_or(1).max(1) * self.sets.len().max(1)) as f64;
        values.iter().zip(&self.set_of).map(|(value, set)| value * weight(*set)).collect()
    }

    fn over_sets(&self, values: &[f64]) -> f64 {
        self.weighted(values).iter().sum()
    }

    fn of_set(&self, values: &[f64], set: usize) -> f64 {
        let own = values.iter().zip(&self.set_of).filter(|(_, of)| **of == set).map(|(value, _)| *value);
        mean_of(own).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn a_critic_beats_every_fixed_method_where_questions_differ() {
        let settings =
            EvaluationSettings { seeds: vec![1, 2], prices: vec![0.3, 0.1], ..EvaluationSettings::default() };
        let found = evaluate(&synthetic::tasks(250, 1), &synthetic::tasks(200, 2), &settings, &[]).unwrap();
        let curve = found.curve();
        assert_eq!(curve.len(), FIXED.len() + 3 * 2 + 1);
        let reward = |row: &CurveRow| row.accuracy - 0.1 * row.tokens / 1000.0;
        let best_fixed = curve.iter().take(FIXED.len()).map(reward).fold(f64::NEG_INFINITY, f64::max);
        let critic = curve.iter().find(|row| row.method.starts_with("critic, up") && row.price == Some(0.1)).unwrap();
        assert!(reward(critic) > best_fixed + 0.02, "{} against {best_fixed}", reward(critic));
        assert!(critic.information.unwrap() > 0.5, "{critic:?}");
        assert!(critic.calibration.unwrap() < 0.1, "{critic:?}");
        let hindsight = curve.last().unwrap();
        assert!(curve.iter().take(FIXED.len()).all(|row| row.accuracy <= hindsight.accuracy));
        let (matched, best) = found.paired();
        assert!(!matched.is_empty() && [2, 4].contains(&best.len()), "one method or two, at two prices");
        assert_eq!(found.rows().lines().count(), 1 + curve.len() * 2 * 200);
        assert!(found.markdown().contains("| critic, up to 3 rounds | 0.10 |"), "{}", found.markdown());
    }

    #[test]
    fn a_critic_is_tested_on_tasks_it_was_not_fitted_to() {
        let (own, others) = (synthetic::tasks(100, 1), synthetic::tasks(80, 2));
        let critic = fit_critic(&own, &CriticSettings::default()).unwrap();
        let settings =
            EvaluationSettings { seeds: vec![1, 2], prices: vec![0.3, 0.1], ..EvaluationSettings::default() };
        let all: Vec<RecordedTask> = own.iter().chain(&others).cloned().collect();
        let found = evaluate_critic(&critic, &all, &settings).unwrap();
        // Of the same words a few questions are the same.
        let unseen = others.iter().filter(|task| !critic.was_fitted_to(task)).count();
        assert_eq!(found.tasks(), [unseen]);
        assert!(unseen > 60 && own.iter().all(|task| critic.was_fitted_to(task)));
        assert!(found.curve().iter().all(|row| row.method != "router"), "no router is fitted");
        assert!(matches!(evaluate_critic(&critic, &own, &settings), Err(CriticError::TooFew { .. })));
    }

    #[test]
    fn cross_validation_tests_every_task_once_for_each_seed() {
        let tasks = synthetic::tasks(120, 3);
        let settings = EvaluationSettings { seeds: vec![1], prices: vec![0.1], ..EvaluationSettings::default() };
        let found = cross_validate(&tasks, 3, &settings).unwrap();
        assert_eq!(found.tasks(), [120]);
        let critic = found.curve().into_iter().find(|row| row.method.starts_with("critic, up")).unwrap();
        assert!(critic.accuracy > 0.6 && critic.tokens > 50.0, "{critic:?}");
    }

    #[test]
    fn the_guard_asks_nothing_worse_than_a_reasoner_first() {
        let critic = fit_critic(&synthetic::tasks(150, 1), &CriticSettings::default()).unwrap();
        let settings =
            |guard| EvaluationSettings { seeds: vec![1], prices: vec![5.0], guard, ..EvaluationSettings::default() };
        let accuracy = |guard| {
            let found = evaluate_critic(&critic, &synthetic::tasks(150, 2), &settings(guard)).unwrap();
            let curve = found.curve();
            let of =
                |name: &str| curve.iter().find(|row| row.method.starts_with(name)).map(|row| row.accuracy).unwrap();
            (of("critic, up"), of("one reasoner"))
        };
        let ((free, _), (guarded, plain)) = (accuracy(false), accuracy(true));
        assert!(free < plain - 0.05, "at a high price the critic saves tokens: {free} {plain}");
        assert!(guarded > plain - 0.02, "{guarded} {plain}");
    }

    #[test]
    fn no_tasks_are_refused() {
        let error = evaluate(&synthetic::tasks(60, 1), &[], &EvaluationSettings::default(), &[]).unwrap_err();
        assert!(matches!(error, CriticError::TooFew { .. }));
    }
}
