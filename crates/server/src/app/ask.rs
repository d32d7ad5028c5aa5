//! The page on which one asks, and how it starts a run.

use super::{Page, look};
use crate::api::question::{LAST, Question, compose};
use crate::guard::Caller;
use crate::refusal::Refusal;
use crate::state::{AppState, Origin, RunOrder};
use crate::workers::TeamChoice;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use lemon_exec::Budget;
use lemon_exec::store::Store;
use lemon_exec::worker::ChatMessage;
use lemon_spec::{Language, PLAIN, render, validate};
use lemon_trace::{EventKind, Trace};
use lemon_view::app::{AskPage, CapacityChoice, ask};
use lemon_workers::bundled;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// Earlier runs of a conversation that a question may refer to.
const MOST_EARLIER: usize = 20;
/// What the name of a model begins with that is a saved team, or a trained orchestrator.
pub(super) const TEAM: &str = "lemon/";
const POLICY: &str = "lemon/policy:";

pub async fn page(State(app): State<Arc<AppState>>) -> Page {
    let workers = &app.workers;
    let capacities = workers.resolved.capacities();
    let is_bundled = bundled::serve_all(capacities);
    let named = |prefix: &str| {
        let models = workers.models().into_iter();
        models.filter_map(|model| model.name.strip_prefix(prefix).map(str::to_owned)).collect::<Vec<_>>()
    };
    let (teams, policies) = (named(TEAM), named(POLICY));
    let examples: &[&str] = match is_bundled {
        true => &[
            "Maya had 24 stickers. She gave 3 to each of 5 friends and then bought 2 packs of 6. How many does she have?",
            "A baker made 7 trays of 12 rolls and sold 55. How many rolls are left?",
            "Tom reads 15 pages a day for 6 days. The book has 120 pages. How many pages are left?",
        ],
        false => &[
            "Which is heavier, a litre of milk or a litre of oil? Explain in two sentences.",
            "A jacket costs 80 dollars and is 15 % off. What does it cost?",
            "Write a Python function that returns the longest common prefix of a list of strings.",
        ],
    };
    let notice = is_bundled
        .then(|| "The small bundled models answer: arithmetic word problems only, and often wrong.".to_owned());
    Page(ask(&AskPage {
        orchestrator: "Orchestrator".to_owned(),
        capacities: choices(&app),
        teams: teams.into_iter().filter(|name| !name.starts_with("policy:")).collect(),
        policies: policies.into_iter().map(|path| (path.clone(), path)).collect(),
        budget_tokens: workers.settings.budget.tokens,
        has_prices: capacities.iter().any(|(_, capacity)| capacity.price.is_some()),
        notice,
        examples: examples.iter().map(|example| (*example).to_owned()).collect(),
        is_chat: !is_bundled,
    }))
}

/// The capacities with their models, weakest first.
pub(super) fn choices(app: &AppState) -> Vec<CapacityChoice> {
    let resolved = &app.workers.resolved;
    let model = |name: &String| resolved.config.capacity(name).map_or("", |capacity| capacity.model_name()).to_owned();
    resolved.language.capacities.iter().map(|name| CapacityChoice { name: name.clone(), model: model(name) }).collect()
}

/// What the page asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    question: String,
    #[serde(default)]
    team: AskedTeam,
    /// What serves every agent, in place of what the team says.
    #[serde(default)]
    capacity: Option<String>,
    #[serde(default)]
    budget: AskedBudget,
    #[serde(default)]
    seed: Option<u64>,
    /// Runs that came before in the conversation.
    #[serde(default)]
    earlier: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum AskedTeam {
    /// The configured orchestrator writes it.
    #[default]
    Auto,
    /// One agent.
    One,
    /// A saved team.
    File { name: String },
    /// The text of a team.
    Text { text: String },
    /// The team of another run.
    Run { name: String },
    /// A trained orchestrator writes it.
    Policy { name: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedBudget {
    #[serde(default)]
    tokens: Option<u64>,
    #[serde(default)]
    usd: Option<f64>,
    #[serde(default)]
    calls: Option<u64>,
    #[serde(default)]
    seconds: Option<f64>,
}

pub async fn start(
    State(app): State<Arc<AppState>>,
    Extension(caller): Extension<Caller>,
    Json(asked): Json<Asked>,
) -> Result<impl IntoResponse, Refusal> {
    let question = asked.question.trim();
    if question.is_empty() {
        return Err(Refusal::field("question", "the question is empty"));
    }
    let AskedBudget { tokens, usd, calls, seconds } = asked.budget;
    let is_amount = |amount: Option<f64>| amount.is_none_or(|amount| amount.is_finite() && amount >= 0.0);
    if !is_amount(usd) || !is_amount(seconds) {
        return Err(Refusal::field("budget", "a limit must be a number of at least 0"));
    }
    let (team, model) = team(&app, asked.team, asked.capacity.as_deref()).await?;
    let question = match asked.earlier.is_empty() {
        true => Question { text: question.to_owned(), form: None },
        false => in_context(&app, asked.earlier, question.to_owned()).await?,
    };
    let order = RunOrder {
        team,
        model,
        seed: asked.seed,
        form: question.form,
        budget: Budget { tokens, usd, calls, seconds },
        ..RunOrder::new(question.text, Origin::App, caller)
    };
    let run = app.start(order).await?;
    run.on_record().await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "run_id": run.id() }))))
}

/// The team, and what the record calls it.
async fn team(app: &Arc<AppState>, asked: AskedTeam, capacity: Option<&str>) -> Result<(TeamChoice, String), Refusal> {
    let language = &app.workers.resolved.language;
    if let Some(name) = capacity.filter(|name| !language.capacities.iter().any(|known| known == name)) {
        let known = language.capacities.join(", ");
        return Err(Refusal::field("capacity", format!("expected one of {known}, found `{name}`")));
    }
    let (choice, model) = match asked {
        AskedTeam::Auto if capacity.is_some() => {
            let fact = "the orchestrator chooses the capacity of each agent";
            return Err(Refusal::field("capacity", fact).hint("leave the capacity to the team, or choose a team"));
        }
        AskedTeam::Auto => (TeamChoice::Configured, "lemon".to_owned()),
        AskedTeam::One => (TeamChoice::Text(alone(app, capacity)), "one agent".to_owned()),
        AskedTeam::File { name } => {
            let model = format!("{TEAM}{name}");
            (app.workers.choice(&model)?, model)
        }
        AskedTeam::Policy { name } => {
            let model = format!("{POLICY}{name}");
            (app.workers.choice(&model)?, model)
        }
        AskedTeam::Text { text } => (TeamChoice::Text(text), "a text".to_owned()),
        AskedTeam::Run { name } => {
            let (store, id) = (app.store.clone(), name.clone());
            let found = look(move || team_of(&store, &id)).await?;
            let text = found.ok_or_else(|| Refusal::field("team", format!("the run `{name}` has no team")))?;
            (TeamChoice::Text(text), format!("the team of {name}"))
        }
    };
    let choice = match choice {
        TeamChoice::Text(text) => TeamChoice::Text(with_capacity(&text, capacity, language)?),
        choice => choice,
    };
    Ok((choice, model))
}

/// One agent, of the strongest capacity where none is named.
fn alone(app: &AppState, capacity: Option<&str>) -> String {
    let resolved = &app.workers.resolved;
    let capacity = capacity.or(resolved.language.capacities.last().map(String::as_str)).unwrap_or("small");
    // The bundled models know the questions of their roles only.
    let base = if bundled::serve_all(resolved.capacities()) { "solver" } else { PLAIN };
    format!("agents:\n  - {{id: answer, base: {base}, capacity: {capacity}}}\n")
}

/// The team in which this capacity serves every agent. A text that is no team is refused with its faults.
fn with_capacity(text: &str, capacity: Option<&str>, language: &Language) -> Result<String, Refusal> {
    let plan = validate(text, language).map_err(|rejection| {
        let fact = format!("the team is not valid: {rejection}");
        Refusal::field("team", fact).hint("the editor of teams shows every fault")
    })?;
    let Some(capacity) = capacity else { return Ok(text.to_owned()) };
    let mut spec = plan.spec().clone();
    spec.agents.iter_mut().for_each(|agent| capacity.clone_into(&mut agent.capacity));
    Ok(render(&spec).text)
}

/// The text of the team that a run began with.
pub(super) fn team_of(store: &Store, name: &str) -> Result<Option<String>, Refusal> {
    Ok(first_team(&store.trace(&store.find_run(name)?)?))
}

/// The text of the first round; one that was refused is followed by another.
fn first_team(trace: &Trace) -> Option<String> {
    let mut found = None;
    for event in &trace.events {
        match &event.kind {
            EventKind::Decision { round: 1, text, .. } => found = Some(text.clone()),
            EventKind::Rejection { .. } => found = None,
            EventKind::Spawn { .. } => break,
            _ => {}
        }
    }
    found
}

/// The question with what was said before.
async fn in_context(app: &Arc<AppState>, mut earlier: Vec<String>, question: String) -> Result<Question, Refusal> {
    earlier.drain(..earlier.len().saturating_sub(MOST_EARLIER));
    let store = app.store.clone();
    let said = look(move || {
        let mut said = Vec::new();
        for id in earlier {
            let trace = store.trace(&store.find_run(&id)?)?;
            let answer = trace.summary().answer;
            said.push((trace.header.question, answer));
        }
        Ok(said)
    });
    conversation(&said.await?, &question)
}

/// What was said before, and the question. An earlier question that had a conversation before it stands without it.
fn conversation(said: &[(String, Option<String>)], question: &str) -> Result<Question, Refusal> {
    let mut messages = Vec::new();
    for (asked, answer) in said {
        let asked = asked.rsplit_once(LAST).map_or(asked.as_str(), |(_, asked)| asked);
        messages.push(ChatMessage::user(asked));
        messages.push(ChatMessage::assistant(answer.as_deref().unwrap_or("(no answer)")));
    }
    messages.push(ChatMessage::user(question));
    compose(&messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_does_not_repeat_the_one_before() {
        let first = conversation(&[("What is 2 + 2?".into(), Some("4".into()))], "And twice that?").unwrap().text;
        let said = [("What is 2 + 2?".into(), Some("4".into())), (first.clone(), None)];
        let second = conversation(&said, "Why?").unwrap().text;
        assert_eq!(second.matches("What is 2 + 2?").count(), 1);
        assert!(first.ends_with("\n\nAnd twice that?") && second.contains("User: And twice that?"));
        assert!(second.contains("(no answer)") && second.ends_with("\n\nWhy?"));
    }

    #[test]
    fn a_capacity_takes_the_place_of_those_of_a_team() {
        let language = Language::default();
        let text = "agents:\n  - {id: a, base: solver, capacity: small}\n  - {id: b, base: critic, capacity: large, after: [a]}\n";
        let changed = with_capacity(text, Some("medium"), &language).unwrap();
        let plan = validate(&changed, &language).unwrap();
        assert!(plan.agents().iter().all(|agent| agent.capacity == "medium"));
        assert_eq!(with_capacity(text, None, &language).unwrap(), text);
        let refused = with_capacity("agents: []", None, &language).unwrap_err();
        assert!(refused.fact.contains("not valid"), "{}", refused.fact);
    }
}
