//! Fitting a critic: text, answers, teams, each on predictions that were made without the task at hand.

use crate::linear::{CostModel, LogisticModel};
use crate::model::{CriticError, DecisionCritic, GroupModel, TeamModel, TextModels, rounded};
use crate::optimise::{DenseRows, Loss, Regression, TextRows};
use crate::prefix::{ANSWER_FEATURES, Known, PREFIX_FEATURES, TEXT_VIEWS, answer_features, answers, prefix_features};
use crate::table::{Cell, Table, draws};
use crate::task::{RecordedTask, fingerprint};
use crate::team::{CHOICES, TEAMS, TeamCounts, choice};
use crate::text::{Group, QuestionText, read_question};
use lemon_num::{mean_of, mixed_seed};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// A group with fewer tasks is left out: its estimates would be noise.
const LEAST_TASKS: usize = 20;

/// How a critic is fitted. The defaults were chosen by cross-validation on training items of recorded replies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CriticSettings {
    /// Decides folds and the orders that replies are drawn in.
    pub seed: u64,
    /// Folds of the cross-fitting.
    pub folds: usize,
    /// Orders of the replies of each task.
    pub draws: usize,
    /// Ridge of the text models.
    pub text_ridge: f64,
    /// Ridge of the answer models.
    pub answer_ridge: f64,
    /// Ridge of the worth of teams.
    pub team_ridge: f64,
}

impl Default for CriticSettings {
    fn default() -> Self {
        CriticSettings { seed: 1, folds: 5, draws: 2, text_ridge: 0.7, answer_ridge: 0.3, team_ridge: 0.3 }
    }
}

/// A task with what is read of its question.
pub(crate) struct Read<'a> {
    pub task: &'a RecordedTask,
    pub group: Group,
    pub text: QuestionText,
    pub fold: usize,
}

/// Reads all tasks whose form a critic can learn.
pub(crate) fn read_tasks<'a>(tasks: &'a [RecordedTask], settings: &CriticSettings) -> Vec<Read<'a>> {
    let read = |task: &'a RecordedTask| {
        let group = task.group()?;
        let folds = settings.folds.max(2) as u64;
        // Below the number of folds.
        let fold = (mixed_seed(settings.seed, &["fold", &task.name]) % folds) as usize;
        Some(Read { task, group, text: read_question(&task.question, group), fold })
    };
    tasks.iter().filter_map(read).collect()
}

/// Fits a critic to recorded outcomes. The same tasks, settings and seed give the same critic.
///
/// # Errors
/// There are too few tasks.
pub fn fit_critic(tasks: &[RecordedTask], settings: &CriticSettings) -> Result<DecisionCritic, CriticError> {
    let read = read_tasks(tasks, settings);
    if read.len() < LEAST_TASKS {
        return Err(CriticError::TooFew { needed: LEAST_TASKS, found: read.len() });
    }
    let (text, views) = fit_text(&read, settings);
    let mut groups = BTreeMap::new();
    for group in Group::ALL {
        let of_group: Vec<usize> = (0..read.len()).filter(|at| read[*at].group == group).collect();
        if of_group.len() >= LEAST_TASKS {
            groups.insert(group, fit_group(group, &read, &of_group, &views, settings));
        }
    }
    if groups.is_empty() {
        return Err(CriticError::TooFew { needed: LEAST_TASKS, found: read.len() / Group::ALL.len() });
    }
    let mut fitted: Vec<u32> = read.iter().map(|it| fingerprint(&it.task.question)).collect();
    fitted.sort_unstable();
    let (tasks, seed) = (read.len(), settings.seed);
    Ok(DecisionCritic { model: None, tasks, fitted, seed, text, groups }.compact())
}

/// The text models on all tasks, and for each task what models without its fold say of it.
fn fit_text(read: &[Read<'_>], settings: &CriticSettings) -> (TextModels, Vec<[f64; TEXT_VIEWS]>) {
    let folds = settings.folds.max(2);
    // The last fit leaves no fold out.
    let jobs: Vec<(usize, usize)> =
        (0..=folds).flat_map(|fold| (0..TEXT_VIEWS).map(move |view| (fold, view))).collect();
    let fitted: Vec<Vec<f64>> =
        jobs.par_iter().map(|(fold, view)| fit_view(read, *fold, *view, settings.text_ridge)).collect();
    let models: Vec<TextModels> = fitted.chunks(TEXT_VIEWS).map(|views| TextModels { views: views.to_vec() }).collect();
    let of = |read: &Read<'_>| models.get(read.fold).map_or([0.0; TEXT_VIEWS], |model| model.views(&read.text));
    let views = read.iter().map(of).collect();
    (models.into_iter().next_back().unwrap_or(TextModels { views: Vec::new() }), views)
}

/// One text model on the tasks outside a fold.
fn fit_view(read: &[Read<'_>], fold: usize, view: usize, ridge: f64) -> Vec<f64> {
    let level = view / 2;
    let is_success = view.is_multiple_of(2);
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for task in read.iter().filter(|task| task.fold != fold) {
        let replies = task.task.replies.get(level).map(Vec::as_slice).unwrap_or_default();
        let value = |reply: &crate::ScoredReply| match is_success {
            true => f64::from(u8::from(reply.right)),
            false => reply.tokens.max(1.0).ln(),
        };
        if let Some(target) = mean_of(replies.iter().map(value)) {
            rows.push(&task.text);
            targets.push(target);
        }
    }
    let weights = vec![1.0; targets.len()];
    let (loss, ridge) = if is_success { (Loss::Logistic, ridge) } else { (Loss::Squared, 3.0) };
    rounded(Regression { rows: &TextRows(rows), targets: &targets, weights: &weights, loss, ridge }.solve())
}

fn fit_group(
    group: Group,
    read: &[Read<'_>],
    of_group: &[usize],
    views: &[[f64; TEXT_VIEWS]],
    settings: &CriticSettings,
) -> GroupModel {
    let folds = settings.folds.max(2);
    let answer_models: Vec<LogisticModel> =
        (0..=folds).into_par_iter().map(|fold| fit_answers(group, read, of_group, views, fold, settings)).collect();
    let tables: Vec<(usize, Table)> = of_group
        .par_iter()
        .flat_map_iter(|at| {
            let (task, model) = (&read[*at], answer_models.get(read[*at].fold));
            let served = draws(task.task, settings.seed, settings.draws.max(1));
            served
                .map(|served| (*at, Table::new(&served, group, model, &views[*at], &read[*at].text.numbers)))
                .collect::<Vec<_>>()
        })
        .collect();
    let mut available = [0; 3];
    for (_, table) in &tables {
        available.iter_mut().zip(table.available).for_each(|(most, has)| *most = (*most).max(has));
    }
    let teams: Vec<Option<TeamModel>> =
        (0..CHOICES).into_par_iter().map(|team| fit_team(team, read, &tables, views, settings)).collect();
    let teams = teams.into_iter().enumerate().filter_map(|(team, model)| Some((team, model?))).collect();
    // There is one model more than folds.
    let answer = answer_models.into_iter().next_back();
    let answer = answer.unwrap_or_else(|| fit_answers(group, read, of_group, views, folds, settings));
    let stop = fit_stop(read, &tables, views, settings);
    GroupModel { available, answer, stop, teams }
}

/// Whether a prefix of a task is learned from. Those that one team leads to always are; of the others every task draws a third,
/// which is as much as is needed, and takes half of the time.
fn is_drawn(seed: u64, task: &RecordedTask, counts: TeamCounts, hide_sure: bool) -> bool {
    let hidden = if hide_sure { "hidden" } else { "known" };
    counts.is_usual()
        || mixed_seed(seed, &["prefix", hidden, &counts.position().to_string(), &task.name]).is_multiple_of(3)
}

/// The answer model on the tasks outside a fold: whether an answer of a prefix is right.
fn fit_answers(
    group: Group,
    read: &[Read<'_>],
    of_group: &[usize],
    views: &[[f64; TEXT_VIEWS]],
    fold: usize,
    settings: &CriticSettings,
) -> LogisticModel {
    let mut rows = DenseRows::new(ANSWER_FEATURES);
    let (mut targets, mut weights) = (Vec::new(), Vec::new());
    for at in of_group.iter().filter(|at| read[**at].fold != fold) {
        let from = targets.len();
        for served in draws(read[*at].task, settings.seed, settings.draws.clamp(1, 2)) {
            let available = served.available();
            let (numbers, hide_sure) = (&read[*at].text.numbers, served.hide_sure);
            let known = Known { views: &views[*at], numbers, hide_sure };
            for counts in TeamCounts::all().skip(1) {
                let exceeds = counts.counts().iter().zip(available).any(|(count, most)| *count > most);
                if exceeds || !is_drawn(settings.seed, read[*at].task, counts, served.hide_sure) {
                    continue;
                }
                let replies = served.prefix(counts);
                let seen: Vec<_> = replies.iter().map(|reply| &reply.seen).collect();
                let found = answers(&seen, group != Group::Code);
                for (own, support) in found.iter().enumerate() {
                    rows.push(&answer_features(&seen, &found, own, known));
                    let right = support.iter().filter_map(|at| replies.get(*at));
                    targets.push(mean_of(right.map(|reply| f64::from(u8::from(reply.right)))).unwrap_or_default());
                }
            }
        }
        // Every task counts once, however many prefixes it has.
        let count = targets.len() - from;
        weights.extend(std::iter::repeat_n(1.0 / count.max(1) as f64, count));
    }
    LogisticModel::fit(&rows.standardised(), &targets, &weights, settings.answer_ridge, false)
}

/// What to stop is worth after every prefix.
fn fit_stop(
    read: &[Read<'_>],
    tables: &[(usize, Table)],
    views: &[[f64; TEXT_VIEWS]],
    settings: &CriticSettings,
) -> LogisticModel {
    let mut rows = DenseRows::new(PREFIX_FEATURES);
    let (mut targets, mut weights) = (Vec::new(), Vec::new());
    for of_task in tables.chunk_by(|(left, _), (right, _)| left == right) {
        let from = targets.len();
        for (at, table) in of_task {
            for counts in TeamCounts::all().skip(1) {
                let Some(cell) = table.get(counts) else { continue };
                if !is_drawn(settings.seed, read[*at].task, counts, table.hide_sure) {
                    continue;
                }
                let (stand, plain) = (&cell.stand, &read[*at].text.plain);
                rows.push(&prefix_features(counts, stand.probability, stand.second, &views[*at], plain));
                targets.push(f64::from(u8::from(cell.right)));
            }
        }
        let count = targets.len() - from;
        weights.extend(std::iter::repeat_n(1.0 / count.max(1) as f64, count));
    }
    LogisticModel::fit(&rows.standardised(), &targets, &weights, settings.team_ridge, false)
}

/// Where a choice ends: after its team, or after the team that follows where answers differ. `None`: not on record.
fn outcome(position: usize, counts: TeamCounts, table: &Table) -> Option<&Cell> {
    let (first, then) = choice(position)?;
    let middle = counts.after(first, table.available)?;
    let cell = table.get(middle)?;
    let Some(then) = then else { return Some(cell) };
    let end = table.get(middle.after(then, table.available)?)?;
    Some(if cell.agrees { cell } else { end })
}

/// What a team is worth after every prefix it can follow; `None`: too few tasks have it on record.
fn fit_team(
    team: usize,
    read: &[Read<'_>],
    tables: &[(usize, Table)],
    views: &[[f64; TEXT_VIEWS]],
    settings: &CriticSettings,
) -> Option<TeamModel> {
    let mut rows = DenseRows::new(PREFIX_FEATURES);
    let (mut targets, mut costs, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    let mut tasks = 0;
    for of_task in tables.chunk_by(|(left, _), (right, _)| left == right) {
        let from = targets.len();
        for (at, table) in of_task {
            for counts in TeamCounts::all() {
                let Some(before) = table.get(counts) else { continue };
                if !is_drawn(settings.seed, read[*at].task, counts, table.hide_sure) {
                    continue;
                }
                let Some(after) = outcome(team, counts, table) else { continue };
                let stand = &before.stand;
                let plain = &read[*at].text.plain;
                rows.push(&prefix_features(counts, stand.probability, stand.second, &views[*at], plain));
                targets.push(f64::from(u8::from(after.right)));
                costs.push(after.tokens - before.tokens);
            }
        }
        let count = targets.len() - from;
        tasks += usize::from(count > 0);
        weights.extend(std::iter::repeat_n(1.0 / count.max(1) as f64, count));
    }
    let rows = (tasks >= LEAST_TASKS).then(|| rows.standardised())?;
    Some(TeamModel {
        success: LogisticModel::fit(&rows, &targets, &weights, settings.team_ridge, team < TEAMS.len()),
        tokens: CostModel::fit(&rows, &costs, &weights, 1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rule;
    use crate::synthetic;
    use crate::task::SeenReply;

    #[test]
    fn a_critic_learns_which_team_a_question_needs() {
        let critic = fit_critic(&synthetic::tasks(200, 1), &CriticSettings::default()).unwrap();
        let best = |question: &str, price: f64| {
            let prepared = critic.prepare(question, lemon_exec::Form::Number).unwrap();
            let stand = prepared.standpoint(&[], false);
            prepared.choose(TeamCounts::NONE, &stand, [9; 3], &Rule::priced(price), true).unwrap().team
        };
        let (easy, hard) = (
            "An easy sum of apples: there are 4 and 7. How many?",
            "A hard puzzle about trains: there are 4 and 7. How many?",
        );
        assert_eq!(best(easy, 0.3), TeamCounts([0, 1, 0]));
        assert!(best(hard, 0.1).counts()[2] >= 2, "{:?}", best(hard, 0.1));
        assert!(best(hard, 20.0).calls() == 1, "a high price allows one call only");
    }

    #[test]
    fn agreement_raises_the_worth_of_stopping() {
        let critic = fit_critic(&synthetic::tasks(200, 2), &CriticSettings::default()).unwrap();
        let prepared =
            critic.prepare("A hard puzzle about trains: there are 4 and 7. How many?", lemon_exec::Form::Number);
        let prepared = prepared.unwrap();
        let reply = |answer: &str| SeenReply { level: 2, answer: Some(answer.into()), log_sure: None, log_length: 5.0 };
        let stand = |answers: [&str; 2]| {
            let seen = answers.map(reply);
            prepared.standpoint(&seen.iter().collect::<Vec<_>>(), false).probability
        };
        assert!(stand(["5", "5"]) > stand(["5", "6"]) + 0.2);
    }

    #[test]
    fn the_same_seed_gives_the_same_critic_and_its_file_the_same_estimates() {
        let tasks = synthetic::tasks(60, 3);
        let fit = |seed| fit_critic(&tasks, &CriticSettings { seed, ..CriticSettings::default() }).unwrap();
        let critic = fit(1);
        assert_eq!(critic, fit(1));
        assert_ne!(critic, fit(2));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("critic.json");
        critic.save(&path).unwrap();
        let loaded = DecisionCritic::load(&path).unwrap();
        assert_eq!(
            critic.estimates("How many?", lemon_exec::Form::Number, &[], [9; 3]),
            loaded.estimates("How many?", lemon_exec::Form::Number, &[], [9; 3])
        );
        let estimates = loaded.estimates("How many?", lemon_exec::Form::Number, &[], [9; 3]);
        let single = |team: &&TeamCounts| team.counts()[0] <= 1;
        let teams = crate::team::TEAMS.iter().filter(single).count();
        assert_eq!(estimates.len(), teams, "plans are no teams, and no task has a second brief reply");
        assert!(estimates.iter().all(|it| (0.0..=1.0).contains(&it.success) && it.error > 0.0 && it.tokens > 0.0));
    }

    #[test]
    fn a_critic_knows_its_model_by_letters_and_digits() {
        let critic = fit_critic(&synthetic::tasks(60, 4), &CriticSettings::default()).unwrap();
        assert!(critic.fits("anything"));
        let critic = critic.for_model(Some("qwen2.5-coder-1.5b".to_owned()));
        for name in ["Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "/m/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"] {
            assert!(critic.fits(name), "{name}");
        }
        for name in ["qwen2.5-coder:7b", "qwen2.5:1.5b", ""] {
            assert!(!critic.fits(name), "{name}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let critic = fit_critic(&synthetic::tasks(60, 4), &CriticSettings::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("critic.json");
        critic.save(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let refused = |text: &str| DecisionCritic::from_text(text).unwrap_err().to_string();
        assert!(refused("").contains("expected two lines"));
        assert!(refused("{}\n{}").contains("line 1"));
        assert!(refused(&text.replacen("\"version\":3", "\"version\":9", 1)).contains("version 9"));
        assert!(refused(&text.replacen("\"tasks\":60", "\"tasks\":61", 1)).contains("checksum"));
        assert!(refused(&text[..text.len() / 2]).contains("checksum"));
        // A file whose checksum is right may still hold nonsense.
        let forged = |edit: fn(&mut DecisionCritic)| {
            let mut critic = critic.clone();
            edit(&mut critic);
            critic.save(&path).unwrap();
            DecisionCritic::load(&path).unwrap_err().to_string()
        };
        assert!(forged(|it| it.text.views.truncate(2)).contains("text.views: expected 6, found 2"));
        assert!(forged(|it| it.groups.values_mut().for_each(|it| it.available = [9; 3])).contains("available"));
    }

    #[test]
    fn too_few_tasks_are_refused() {
        let error = fit_critic(&synthetic::tasks(5, 5), &CriticSettings::default()).unwrap_err();
        assert_eq!(error.to_string(), "expected at least 20 tasks with recorded replies, found 5");
    }
}
