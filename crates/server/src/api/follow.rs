//! Follows a run to its answer: which pieces of a reply are pieces of it, what else there is to tell, how it ends.

use super::wish::Wish;
use crate::refusal::Refusal;
use crate::runs::{LiveEvent, LiveRun, Subscription};
use crate::state::AppState;
use axum::http::StatusCode;
use lemon::RunResult;
use lemon_spec::{AnswerRule, Next, validate_round};
use lemon_trace::{Event, EventKind, StopReason, Trace};
use serde_json::{Value, json};
use std::sync::Arc;

/// The shortest beginning of a first line that is told before the line is whole: it may still be a label.
const LEAST_LINE: usize = 24;

/// What is told of a run.
#[derive(Debug)]
pub enum Piece {
    /// What the team does.
    Progress(String),
    /// A piece of the answer.
    Text(String),
    /// The whole answer; what of it was not told yet comes before.
    Done(Box<Answered>),
    /// There is none.
    Failed(Refusal),
}

/// How a run ended that answered.
#[derive(Debug)]
pub struct Answered {
    /// The answer, as the request wanted it.
    pub content: String,
    /// Whether it was cut off at `max_tokens`.
    pub truncated: bool,
    /// Prompt and completion tokens of orchestrator and agents.
    pub usage: (u64, u64),
    /// Everything else.
    pub result: RunResult,
}

/// A reader of a run that tells its answer.
pub struct Follow {
    reader: Subscription,
    app: Arc<AppState>,
    wish: Arc<Wish>,
    growing: Growing,
    ended: bool,
    /// What is told before the next event is looked at.
    waiting: Option<Piece>,
}

/// The answer while it is being written.
#[derive(Default)]
struct Growing {
    /// Agents so far.
    agents: Vec<String>,
    /// The one whose reply is the answer, where only one can be.
    answering: Option<String>,
    /// What it has said.
    raw: String,
    /// What was told of it.
    told: String,
    /// Nothing more is told before the end: what comes is not what was begun.
    broken: bool,
}

impl Follow {
    pub fn new(app: Arc<AppState>, run: &Arc<LiveRun>, wish: Arc<Wish>) -> Self {
        Follow { reader: run.subscribe(), app, wish, growing: Growing::default(), ended: false, waiting: None }
    }

    /// The run.
    pub fn run(&self) -> &Arc<LiveRun> {
        self.reader.run()
    }

    /// What is told next. `None`: everything was.
    pub async fn next(&mut self) -> Option<Piece> {
        if let Some(piece) = self.waiting.take() {
            return Some(piece);
        }
        while !self.ended {
            match self.reader.next().await {
                Some(LiveEvent::Delta { agent, text }) => {
                    if self.wish.is_plain()
                        && let Some(more) = self.growing.hear(&agent, &text)
                    {
                        return Some(Piece::Text(more));
                    }
                }
                Some(LiveEvent::Event(event)) => {
                    if let Some(line) = self.note(&event) {
                        return Some(Piece::Progress(line));
                    }
                }
                None => {
                    self.ended = true;
                    return Some(self.conclude());
                }
            }
        }
        None
    }

    /// Takes an event in, and says what is told of it.
    fn note(&mut self, event: &Event) -> Option<String> {
        let growing = &mut self.growing;
        match &event.kind {
            EventKind::Decision { text, .. } => {
                growing.answering = None;
                // Of a text that is no team the rejection tells, which comes next.
                let plan = validate_round(text, &self.app.workers.resolved.language, &growing.agents).ok()?;
                if let ([one], AnswerRule::Last, Next::Stop) = (plan.answer_from(), plan.answer_rule(), plan.next()) {
                    growing.answering = plan.id(*one).map(str::to_owned);
                }
                match plan.agents().len() {
                    1 if growing.agents.is_empty() => None,
                    count => Some(format!("A team of {count} agents was written.")),
                }
            }
            EventKind::Spawn { to, .. } => {
                growing.agents.push(to.clone());
                None
            }
            EventKind::Retry { failure, .. } => {
                growing.void(&event.agent);
                Some(format!("{} is asked again: {}.", event.agent, failure.kind))
            }
            EventKind::Return { status, .. } if growing.agents.len() > 1 => {
                Some(format!("{}: {}.", event.agent, status.as_str()))
            }
            _ => None,
        }
    }

    fn conclude(&mut self) -> Piece {
        let outcome = match outcome(&self.app, self.run(), &self.wish) {
            Ok(outcome) => outcome,
            Err(refusal) => return Piece::Failed(refusal),
        };
        let Some(rest) = outcome.content.strip_prefix(self.growing.told.as_str()) else {
            let fact = "the reply broke off after it had begun, and another one is the answer";
            return Piece::Failed(Refusal::internal(fact).of_run(self.run().id()).code("answer_replaced"));
        };
        if rest.is_empty() {
            return Piece::Done(Box::new(outcome));
        }
        let rest = rest.to_owned();
        self.waiting = Some(Piece::Done(Box::new(outcome)));
        Piece::Text(rest)
    }
}

impl Growing {
    /// Takes a piece of a reply in, and returns what can be told of the answer now.
    fn hear(&mut self, agent: &str, piece: &str) -> Option<String> {
        if self.broken || self.answering.as_deref() != Some(agent) {
            return None;
        }
        self.raw.push_str(piece);
        let settled = settled(&self.raw);
        let more = settled.strip_prefix(self.told.as_str()).filter(|more| !more.is_empty())?.to_owned();
        self.told.push_str(&more);
        Some(more)
    }

    /// The pieces so far are void: the agent is asked again.
    fn void(&mut self, agent: &str) {
        if self.answering.as_deref() == Some(agent) {
            self.raw.clear();
            self.broken = !self.told.is_empty();
        }
    }
}

/// The beginning of a reply that is a beginning of the answer, whatever follows: see [`lemon_exec::answer::response`], which
/// takes a label off the beginning and words a last line `#### 21` anew.
fn settled(raw: &str) -> &str {
    let text = raw.trim_start();
    let first = text.lines().next().unwrap_or_default();
    let is_whole = text.contains('\n') || first.len() >= LEAST_LINE;
    if !is_whole || is_labelled(first) {
        return "";
    }
    let last = text.rfind('\n').map_or(0, |at| at + 1);
    let is_marked = text.get(last..).is_some_and(|line| line.trim_start().starts_with('#'));
    text.get(..if is_marked { last } else { text.len() }).unwrap_or_default().trim_end()
}

/// Whether a line may begin with a label like `Answer:`.
fn is_labelled(line: &str) -> bool {
    let line = line.trim_start_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
    line.strip_prefix("final ").unwrap_or(&line).starts_with("answer")
}

/// How a run ended, as the request wanted its answer.
///
/// # Errors
/// It has no answer, or none in the format that was asked for.
pub fn outcome(app: &AppState, run: &LiveRun, wish: &Wish) -> Result<Answered, Refusal> {
    let trace = match run.end() {
        Some(Ok(trace)) => trace,
        Some(Err(reason)) => return Err(Refusal::internal(reason).of_run(run.id())),
        None => return Err(Refusal::internal("the run has not ended").of_run(run.id())),
    };
    let result = RunResult::without_specs(trace, app.workers.resolved.capacities());
    let Some(response) = &result.response else { return Err(unanswered(run, trace)) };
    let content = wish.format.take(wish.cut(response)).map_err(|why| {
        let fact = format!("the answer is not in the format that was asked for: {why}");
        let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "server_error", fact);
        refusal.code("response_format_unmet").of_run(run.id())
    })?;
    let completion: u64 = trace.events.iter().map(|event| event.spend.tokens_out).sum();
    let usage = (result.tokens.total.saturating_sub(completion), completion);
    Ok(Answered { content, truncated: result.truncated, usage, result })
}

/// Why there is no answer.
fn unanswered(run: &LiveRun, trace: &Trace) -> Refusal {
    if let Some(refusal) = run.quota() {
        return refusal.clone().of_run(run.id());
    }
    let summary = trace.summary();
    let failure = summary.agents.iter().find_map(|agent| agent.failure.as_ref());
    let why = failure.map(|failure| format!(": {}", failure.message)).unwrap_or_default();
    let refusal = match summary.stop_reason {
        Some(StopReason::TokenBudget | StopReason::CostBudget | StopReason::CallBudget) => {
            let fact = "the budget of the run was used up before there was an answer";
            Refusal::bad(fact).code("run_budget_exceeded").hint("ask with a larger budget")
        }
        Some(StopReason::TimeBudget) => {
            let fact = "the time of the run was up before there was an answer";
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, "server_error", fact).code("run_timeout")
        }
        Some(StopReason::Approval) => {
            let fact = "a person has to allow a call of a tool before the run can go on";
            let refusal = Refusal::new(StatusCode::CONFLICT, "invalid_request_error", fact).code("approval_needed");
            refusal.hint(format!("`lemon run --resume {} --approve AGENT/CALL` makes it", run.id()))
        }
        Some(StopReason::Cancelled) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Refusal::new(status, "server_error", "the run was cancelled").code("run_cancelled")
        }
        reason => {
            let reason = reason.map_or("no reason", StopReason::as_str);
            let fact = format!("no agent answered ({reason}){why}");
            Refusal::new(StatusCode::BAD_GATEWAY, "server_error", fact).code("no_answer")
        }
    };
    refusal.of_run(run.id())
}

impl Answered {
    /// What LEMON adds to a response.
    pub fn lemon(&self, base: &str) -> Value {
        let RunResult { run_id, stop_reason, answer, confidence, cost_usd, wall_s, calls, agents, tokens, .. } =
            &self.result;
        json!({
            "run_id": run_id,
            "url": format!("{base}/runs/{run_id}"),
            "stop_reason": stop_reason,
            "answer": answer,
            "confidence": confidence,
            "cost_usd": cost_usd,
            "seconds": wall_s,
            "calls": calls,
            "agents": agents.len(),
            "tokens": tokens,
        })
    }

    /// The same in headers, where it fits.
    pub fn headers(&self, base: &str) -> Vec<(&'static str, String)> {
        let result = &self.result;
        let mut headers = vec![
            ("x-lemon-run-id", result.run_id.clone()),
            ("x-lemon-url", format!("{base}/runs/{}", result.run_id)),
            ("x-lemon-tokens", result.tokens.total.to_string()),
        ];
        headers.extend(result.stop_reason.map(|reason| ("x-lemon-stop-reason", reason.to_owned())));
        headers.extend(result.cost_usd.map(|usd| ("x-lemon-cost-usd", format!("{usd:.6}"))));
        headers.extend(result.confidence.map(|it| ("x-lemon-confidence", format!("{it:.4}"))));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_exec::answer::response;
    use proptest::prelude::*;

    #[test]
    fn labels_and_marks_are_not_told_early() {
        assert_eq!(settled("Answer: 42"), "");
        assert_eq!(settled("**Final answer:** 42 and more words than a label has"), "");
        assert_eq!(settled("  Dear Ann,\nyours "), "Dear Ann,\nyours");
        assert_eq!(settled("Dear Ann,\n### "), "Dear Ann,");
        assert_eq!(settled("Three and four make"), "");
        assert_eq!(settled("Three and four make seven, and"), "Three and four make seven, and");
    }

    proptest! {
        /// However a reply is cut into pieces, what is told is a beginning of what a person gets of it.
        #[test]
        fn what_is_told_begins_the_answer(
            lines in prop::collection::vec("(Answer: |\\*\\*Final answer:\\*\\* |#### |# |)[ a-z0-9#*:]{0,30}", 1..5),
            cuts in prop::collection::vec(1usize..6, 0..80),
        ) {
            let reply = lines.join("\n");
            let mut growing = Growing { answering: Some("a".into()), ..Growing::default() };
            let mut rest = reply.as_str();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                let heard = growing.hear("a", piece);
                prop_assert!(heard.is_none_or(|more| !more.is_empty()));
                prop_assert!(growing.hear("b", "from another").is_none());
                rest = after;
            }
            let all = response(&reply);
            prop_assert!(all.starts_with(&growing.told), "{all:?} does not begin with {:?}", growing.told);
        }
    }
}
