//! A language model in place of hashed words: a head on an orchestrator's model, fitted to recorded outcomes.
//!
//! The model reads the task as an orchestrator does, and teams as an orchestrator writes them. One text of several agents holds many
//! teams, since each that ends before an agent is one. What is taught is what a vote over the replies of a team comes to; nothing is
//! read of replies, so a team is chosen once.

use crate::model::{CriticError, TeamEstimate};
use crate::task::RecordedTask;
use crate::team::{LEVELS, TEAMS, TeamCounts};
use crate::text::Group;
use crate::walk::{Ask, Walked, fixed};
use lemon_exec::orchestrator::WriteContext;
use lemon_model::{Learning, PolicyError, ValueModel};
use lemon_policy::{HeadRow, HeadSettings, HeadTask, TeamHead, TeamOutcome};
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, Share, Spec, render};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Orders of the replies that the worth of a team is the mean of.
const ORDERS: u64 = 8;

/// The levels of agents in the order they are written. Every team of [`TEAMS`] is the beginning of one of these.
const CHAINS: [&[usize]; 6] =
    [&[2, 2, 2, 2, 2], &[1, 2, 2, 1, 2, 1, 2, 2], &[1, 1, 1], &[0, 2, 2, 0], &[0, 0, 2], &[0, 1, 2]];

/// A head to be fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadTrial {
    /// The folder of the language model.
    pub model: PathBuf,
    /// Whether the model stays as it is, and the head alone is fitted.
    pub frozen: bool,
    pub settings: HeadSettings,
}

impl HeadTrial {
    /// Which weights learn beside the head's.
    pub fn learning(&self) -> Learning {
        if self.frozen { Learning::Nothing } else { Learning::Everything }
    }
}

/// What specifications of recorded teams may say.
fn language() -> Arc<Language> {
    Arc::new(Language { capacities: LEVELS.map(str::to_owned).to_vec(), ..Language::default() })
}

/// The beginning of a chain that a task has replies for.
fn recorded(chain: &'static [usize], available: [usize; 3]) -> Vec<(usize, TeamCounts)> {
    let mut counts = TeamCounts::NONE;
    let mut found = Vec::new();
    for level in chain {
        counts.0[*level] += 1;
        if counts.counts().iter().zip(available).any(|(count, most)| *count > most) {
            break;
        }
        found.push((*level, counts));
    }
    found
}

/// The text of a team in pieces, an agent each.
fn pieces(levels: &[usize]) -> Vec<String> {
    let agent = |(at, level): (usize, &usize)| Agent {
        id: format!("a{}", at + 1),
        base: "solver".to_owned(),
        role: None,
        duty: None,
        capacity: LEVELS[*level].to_owned(),
        after: Vec::new(),
        share: Share::Answer,
        tools: Vec::new(),
    };
    let agents: Vec<Agent> = levels.iter().enumerate().map(agent).collect();
    let from = agents.iter().map(|agent| agent.id.clone()).collect();
    let rendered = render(&Spec { agents, answer: Answer { from, by: AnswerRule::Vote }, next: Next::Stop });
    let mut start = 0;
    let piece = |span: &lemon_spec::AgentSpans| {
        let text = rendered.text.get(start..span.entry.end).unwrap_or_default().to_owned();
        start = span.entry.end;
        text
    };
    rendered.spans.agents.iter().map(piece).collect()
}

/// What a vote comes to, in the mean over orders of the replies.
fn outcome(task: &RecordedTask, counts: TeamCounts, seed: u64) -> TeamOutcome {
    let mut sum = TeamOutcome { success: 0.0, tokens: 0.0 };
    for order in 0..ORDERS {
        let served = task.serve(lemon_num::mixed_seed(seed, &["head", &order.to_string()]), false);
        let walked = fixed(Ask::Vote(counts.counts()), &served);
        sum.success += f64::from(u8::from(walked.right)) / ORDERS as f64;
        sum.tokens += walked.tokens / ORDERS as f64;
    }
    sum
}

/// Whether a head learns from a task: programs cannot be voted on, and get one plain call.
fn is_taught(task: &RecordedTask) -> bool {
    task.group().is_some_and(|group| group != Group::Code) && !task.replies[2].is_empty()
}

fn head_task(head: &TeamHead, task: &RecordedTask, seed: u64) -> Result<HeadTask, PolicyError> {
    let available = task.serve(seed, false).available();
    let row = |chain: &&'static [usize]| {
        let found = recorded(chain, available);
        let levels: Vec<usize> = found.iter().map(|(level, _)| *level).collect();
        let outcomes = found.iter().map(|(_, counts)| outcome(task, *counts, seed)).collect();
        (!levels.is_empty()).then(|| HeadRow { pieces: pieces(&levels), outcomes })
    };
    let rows = CHAINS.iter().filter_map(row).collect();
    Ok(HeadTask { name: task.name.clone(), prompt: prompt(head, task)?, rows })
}

fn prompt(head: &TeamHead, task: &RecordedTask) -> Result<Vec<u32>, PolicyError> {
    let language = language();
    head.prompt(&WriteContext {
        question: &task.question,
        round: 1,
        results: Vec::new(),
        language: &language,
        form: task.form,
        tokens_left: None,
        seed: 0,
    })
}

/// Fits a head to recorded outcomes. `say` gets a line for each pass.
///
/// # Errors
/// The model cannot be read, or there are too few tasks.
pub fn fit_head(tasks: &[RecordedTask], trial: &HeadTrial, say: &mut dyn FnMut(&str)) -> Result<TeamHead, CriticError> {
    let mut head = TeamHead::new(ValueModel::load(&trial.model, trial.learning())?, language());
    let taught: Vec<HeadTask> = tasks
        .iter()
        .filter(|task| is_taught(task))
        .map(|task| head_task(&head, task, trial.settings.seed))
        .collect::<Result<_, _>>()?;
    if taught.len() < 20 {
        return Err(CriticError::TooFew { needed: 20, found: taught.len() });
    }
    head.fit(&taught, &trial.settings, say)?;
    Ok(head)
}

/// Reads a head that was fitted to recorded outcomes.
///
/// # Errors
/// As [`TeamHead::load`].
pub fn load_head(folder: &Path) -> Result<TeamHead, CriticError> {
    Ok(TeamHead::load(folder, language())?)
}

/// The tasks that no head was fitted to.
///
/// # Errors
/// A task cannot be read.
pub(crate) fn unseen(heads: &[TeamHead], tasks: &[RecordedTask]) -> Result<Vec<RecordedTask>, CriticError> {
    let mut found = Vec::with_capacity(tasks.len());
    for task in tasks {
        let mut known = false;
        for head in heads.iter().filter(|_| is_taught(task)) {
            known |= head.was_fitted_to(&prompt(head, task)?);
        }
        if !known {
            found.push(task.clone());
        }
    }
    Ok(found)
}

/// What a head says of every team that a task has replies for. Empty for tasks that it does not learn from.
///
/// # Errors
/// Its model fails.
pub(crate) fn team_estimates(head: &TeamHead, task: &RecordedTask) -> Result<Vec<TeamEstimate>, CriticError> {
    if !is_taught(task) {
        return Ok(Vec::new());
    }
    let available = task.serve(0, false).available();
    let chains: Vec<Vec<(usize, TeamCounts)>> =
        CHAINS.iter().map(|chain| recorded(chain, available)).filter(|chain| !chain.is_empty()).collect();
    let texts: Vec<Vec<String>> =
        chains.iter().map(|chain| pieces(&chain.iter().map(|(level, _)| *level).collect::<Vec<_>>())).collect();
    let worths = head.estimates(&prompt(head, task)?, &texts)?;
    let candidates: Vec<TeamCounts> =
        (0..TEAMS.len()).filter_map(|team| TeamCounts::NONE.after(team, available)).collect();
    let mut found: Vec<TeamEstimate> = Vec::new();
    for ((_, team), worth) in chains.iter().flatten().zip(worths.iter().flatten()) {
        if candidates.contains(team) && !found.iter().any(|known| known.team == *team) {
            let (success, error, tokens) = (worth.success, worth.error, worth.tokens);
            found.push(TeamEstimate { team: *team, success, error, tokens });
        }
    }
    Ok(found)
}

/// What the team comes to that is worth most under a price. `None`: there are no estimates.
pub(crate) fn follow_head(estimates: &[TeamEstimate], served: &crate::task::Served<'_>, price: f64) -> Option<Walked> {
    let worth = |it: &TeamEstimate| it.success - price * it.tokens / 1000.0;
    let best = estimates.iter().max_by(|a, b| worth(a).total_cmp(&worth(b)))?;
    let walked = fixed(Ask::Vote(best.team.counts()), served);
    Some(Walked { first: best.team, expected: best.success, ..walked })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use lemon_model::ModelConfig;
    use lemon_policy::small_model;

    #[test]
    fn every_team_begins_a_chain() {
        let all: Vec<TeamCounts> =
            CHAINS.iter().flat_map(|chain| recorded(chain, crate::team::MOST)).map(|(_, counts)| counts).collect();
        for team in TEAMS {
            assert!(all.contains(&team), "{team:?}");
        }
        assert_eq!(recorded(CHAINS[1], [1, 0, 5]), []);
        assert_eq!(recorded(CHAINS[0], [1, 0, 2]).len(), 2);
    }

    #[test]
    fn pieces_make_the_text_of_the_team() {
        let found = pieces(&[1, 2]);
        assert_eq!(found.len(), 2);
        let whole = pieces(&[1]).concat();
        assert_eq!(found[0], whole, "the team that ends there has the same text");
        assert!(found.concat().starts_with("agents:\n  - id: a1\n") && found[1].contains("capacity: reasoned"));
    }

    /// A model of our own with few weights, on disk.
    fn folder() -> tempfile::TempDir {
        let (config, tokenizer) = small_model(vec![pieces(&[0, 1, 2]).concat()], 512, 32, 2).unwrap();
        let config = ModelConfig { positions: 512, ..config };
        let folder = tempfile::tempdir().unwrap();
        ValueModel::fresh(config, tokenizer, 1, Learning::Nothing).unwrap().save(folder.path()).unwrap();
        folder
    }

    fn trial(model: &std::path::Path, frozen: bool) -> HeadTrial {
        let settings = HeadSettings { epochs: 12, batch: 8, learning_rate: 4e-3, ..HeadSettings::default() };
        HeadTrial { model: model.to_owned(), frozen, settings }
    }

    #[test]
    fn a_head_learns_which_team_a_question_needs_and_the_price_decides() {
        let folder = folder();
        let mut lines = 0;
        let head = fit_head(&synthetic::tasks(160, 1), &trial(folder.path(), false), &mut |_| lines += 1).unwrap();
        let report = *head.report();
        assert_eq!(lines, 12);
        assert!(report.held_out > 10 && report.log_loss < 0.85 * report.log_loss_of_mean, "{report:?}");
        let left = tempfile::tempdir().unwrap();
        head.save(left.path()).unwrap();
        let head = load_head(left.path()).unwrap();
        // Of the same words a few questions are the same.
        let heads = std::slice::from_ref(&head);
        assert!(unseen(heads, &synthetic::tasks(160, 1)).unwrap().is_empty());
        let tested = unseen(heads, &synthetic::tasks(60, 2)).unwrap();
        assert!(tested.len() > 50);
        let mut calls = std::collections::BTreeMap::new();
        for task in tested {
            let estimates = team_estimates(&head, &task).unwrap();
            assert_eq!(estimates.len(), TEAMS.len() - 3, "a task has one brief reply");
            assert!(estimates.iter().all(|it| (0.0..=1.0).contains(&it.success) && it.error > 0.0 && it.tokens > 0.0));
            let served = task.serve(0, false);
            for (name, price) in [("low", 0.1), ("high", 20.0)] {
                let kind = if task.question.contains("easy") { "easy" } else { "hard" };
                let chosen = follow_head(&estimates, &served, price).unwrap().first;
                calls.entry((kind, name)).or_insert_with(Vec::new).push(chosen.calls() as f64);
            }
        }
        let mean = |kind, price| lemon_num::mean_of(calls[&(kind, price)].iter().copied()).unwrap();
        assert!(mean("hard", "low") > mean("easy", "low") + 0.8, "{} {}", mean("hard", "low"), mean("easy", "low"));
        assert_eq!((mean("hard", "high"), mean("easy", "high")), (1.0, 1.0));
    }

    #[test]
    fn no_replies_and_too_few_tasks_are_told_apart() {
        let folder = folder();
        let few = fit_head(&synthetic::tasks(5, 1), &trial(folder.path(), true), &mut |_| {});
        assert!(matches!(few.err().unwrap(), CriticError::TooFew { needed: 20, found: 5 }));
        let none = fit_head(&synthetic::tasks(40, 1), &trial(&folder.path().join("none"), true), &mut |_| {});
        assert!(none.err().unwrap().to_string().contains("config.json"));
    }
}
