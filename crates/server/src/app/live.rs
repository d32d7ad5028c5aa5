//! A run as it goes: its events and what they come to, its picture, and its end.

use super::look;
use crate::refusal::Refusal;
use crate::runs::{LiveEvent, LiveRun};
use crate::state::AppState;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use lemon_exec::store::StoreError;
use lemon_exec::{Budget, unix_ms};
use lemon_spec::{AnswerRule, Language, Next, validate_round};
use lemon_trace::{Event, EventKind, Header, StopReason, Trace, VERSION, text};
use lemon_view::app::ended;
use lemon_view::run::graph as draw;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// How often a stream without news says that it is still there.
const STILL_THERE: Duration = Duration::from_secs(15);
/// The longest answer of an agent in the state; the event has the whole reply.
const ANSWER_CHARS: usize = 120;

/// What a run has come to so far.
#[derive(Serialize)]
struct RunState {
    phase: &'static str,
    /// Who wrote the team.
    by: Option<String>,
    /// The one agent that can give the answer, if it is one.
    answering: Option<String>,
    tokens: u64,
    usd: f64,
    calls: u64,
    seconds: f64,
    budget: BudgetState,
    stop_reason: Option<StopReason>,
    agents: Vec<AgentState>,
}

#[derive(Serialize, Clone, Copy)]
struct BudgetState {
    tokens: Option<u64>,
    usd: Option<f64>,
    calls: Option<u64>,
    seconds: Option<f64>,
}

#[derive(Serialize)]
struct AgentState {
    id: String,
    role: String,
    status: &'static str,
    ended: bool,
    tokens: u64,
    answer: Option<String>,
}

/// The events of a run as they come, from the first on; of one that has ended, all of them.
pub async fn events(State(app): State<Arc<AppState>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let language = app.workers.resolved.language.clone();
    if let Some(live) = app.runs.get(&id) {
        let follower = Follower::new(live.question(), &id, language, live.budget());
        return Ok(stream(follow(live, follower)));
    }
    let store = app.store.clone();
    let found = look(move || {
        let id = store.find_run(&id)?;
        let budget = match store.meta(&id) {
            Ok(meta) => meta.budget,
            // Another process has it: what it may spend is that process's affair.
            Err(StoreError::Busy { .. }) => Budget::default(),
            Err(error) => return Err(error.into()),
        };
        Ok((store.trace(&id)?, budget))
    });
    let (trace, budget) = found.await?;
    let mut follower = Follower::new(&trace.header.question, &trace.header.run_id, language, budget);
    let messages: Vec<Message> = trace.events.iter().map(|event| follower.note(event)).collect();
    let end = end_message(&trace, budget);
    Ok(stream(futures::stream::iter(messages.into_iter().chain([end]))))
}

fn stream(messages: impl Stream<Item = Message> + Send + 'static) -> Response {
    let stream = Sse::new(messages.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(STILL_THERE));
    // Proxies must not gather what is sent.
    ([(header::CACHE_CONTROL, "no-store"), (header::HeaderName::from_static("x-accel-buffering"), "no")], stream)
        .into_response()
}

/// The messages of a run that is under way.
fn follow(live: Arc<LiveRun>, follower: Follower) -> impl Stream<Item = Message> + Send {
    let budget = follower.budget;
    let news = live.subscribe().into_stream().scan(follower, |follower, event| {
        let message = match event {
            LiveEvent::Event(event) => follower.note(&event),
            LiveEvent::Delta { agent, text } => {
                json_message("delta", &serde_json::json!({ "agent": &*agent, "text": &*text }))
            }
        };
        futures::future::ready(Some(message))
    });
    let end = futures::stream::once(async move {
        match live.finished().await {
            Ok(trace) => end_message(&trace, budget),
            Err(fault) => {
                let fact = serde_json::json!({ "html": "", "stop_reason": null, "fault": &*fault });
                json_message("end", &fact)
            }
        }
    });
    news.chain(end)
}

fn json_message(name: &'static str, value: &impl Serialize) -> Message {
    // Plain values always have a JSON form; were one not to, the message says so.
    Message::default()
        .event(name)
        .json_data(value)
        .unwrap_or_else(|error| Message::default().comment(error.to_string()))
}

fn end_message(trace: &Trace, budget: Budget) -> Message {
    let reason = trace.summary().stop_reason;
    let end = serde_json::json!({
        "html": ended(trace), "stop_reason": reason, "question": trace.header.question, "budget": state_of(budget),
    });
    json_message("end", &end)
}

fn state_of(Budget { tokens, usd, calls, seconds }: Budget) -> BudgetState {
    BudgetState { tokens, usd, calls, seconds }
}

/// Keeps the trace of a run as it grows.
struct Follower {
    trace: Trace,
    language: Arc<Language>,
    budget: Budget,
    by: Option<String>,
    answering: Option<String>,
}

impl Follower {
    fn new(question: &str, run_id: &str, language: Arc<Language>, budget: Budget) -> Self {
        let trace = Trace { header: header_of(run_id, question), events: Vec::new() };
        Follower { trace, language, budget, by: None, answering: None }
    }

    /// Takes an event in, and tells it with what the run has come to.
    fn note(&mut self, event: &Event) -> Message {
        if let EventKind::Decision { text, by, .. } = &event.kind {
            self.by = Some(by.clone());
            self.answering = self.answering_in(text);
        }
        self.trace.events.push(event.clone());
        let told = serde_json::json!({ "event": event, "state": self.state() });
        json_message("trace", &told).id(event.id.to_string())
    }

    fn state(&self) -> RunState {
        let summary = self.trace.summary();
        let phase = match (summary.stop_reason, summary.agents.is_empty()) {
            (Some(_), _) => "ended",
            (None, true) => "writing",
            (None, false) => "running",
        };
        let agents = summary.agents.iter().map(|agent| AgentState {
            id: agent.id.clone(),
            role: agent.role.clone(),
            status: text::status(agent),
            ended: agent.status.is_some(),
            tokens: agent.tokens(),
            answer: agent.answer.as_deref().map(|answer| text::line(answer, ANSWER_CHARS)),
        });
        RunState {
            phase,
            by: self.by.clone(),
            answering: self.answering.clone(),
            tokens: summary.tokens.total,
            usd: summary.usd,
            calls: summary.calls,
            seconds: summary.wall_s,
            budget: state_of(self.budget),
            stop_reason: summary.stop_reason,
            agents: agents.collect(),
        }
    }

    /// The agent that alone can give the answer: its reply can be shown while it is written.
    fn answering_in(&self, text: &str) -> Option<String> {
        let spawned = self.trace.events.iter().filter_map(|event| match &event.kind {
            EventKind::Spawn { to, .. } => Some(to.clone()),
            _ => None,
        });
        let mut earlier: Vec<String> = Vec::new();
        spawned.for_each(|id| {
            if !earlier.contains(&id) {
                earlier.push(id)
            }
        });
        // A text that is no team makes no agent answer.
        let plan = validate_round(text, &self.language, &earlier).ok()?;
        match (plan.answer_from(), plan.answer_rule(), plan.next()) {
            ([one], AnswerRule::Last, Next::Stop) => plan.id(*one).map(str::to_owned),
            _ => None,
        }
    }
}

fn header_of(run_id: &str, question: &str) -> Header {
    Header {
        version: VERSION,
        run_id: run_id.to_owned(),
        task_id: run_id.to_owned(),
        question: question.to_owned(),
        started_at_ms: unix_ms(),
        seed: 0,
        workers: String::new(),
    }
}

/// Ends a run early.
pub async fn cancel(State(app): State<Arc<AppState>>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    match app.runs.get(&id) {
        Some(live) => {
            live.cancel();
            Ok(StatusCode::NO_CONTENT)
        }
        None => Err(Refusal::not_found(format!("the run `{id}` is not under way"))),
    }
}

/// What a person says about a call of a tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallDecision {
    /// `AGENT/CALL`.
    call: String,
    approve: bool,
}

/// Lets a run go on that waits for a person.
pub async fn decide(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    Json(CallDecision { call, approve }): Json<CallDecision>,
) -> Result<impl IntoResponse, Refusal> {
    let run = app.decide(&id, call, approve).await?;
    Ok((StatusCode::ACCEPTED, Json(serde_json::json!({ "run_id": run.id() }))))
}

/// The team of a run as it is now, as a piece of a page.
pub async fn graph(State(app): State<Arc<AppState>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let picture = match app.runs.get(&id) {
        Some(live) => draw(&Trace { header: header_of(&id, live.question()), events: live.events() }),
        None => {
            let store = app.store.clone();
            look(move || Ok(draw(&store.trace(&store.find_run(&id)?)?))).await?
        }
    };
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, picture).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_trace::sample::eight;

    #[test]
    fn what_a_run_comes_to_follows_its_events() {
        let trace = eight();
        let mut follower =
            Follower::new(&trace.header.question, &trace.header.run_id, Arc::default(), Budget::default());
        assert_eq!(follower.state().phase, "writing");
        let mut phases = Vec::new();
        for event in &trace.events {
            drop(follower.note(event));
            phases.push(follower.state().phase);
        }
        phases.dedup();
        assert_eq!(phases, ["writing", "running", "ended"]);
        let state = follower.state();
        // Eight agents, and the judge.
        assert_eq!((state.agents.len(), state.tokens), (9, trace.summary().tokens.total));
        assert!(state.agents.iter().all(|agent| agent.ended));
    }
}
