//! The conversation of one agent with its tools: reply, calls, results, and the next reply, until one asks for no call.
//!
//! A call is on record before it is made, and its result before the agent reads it. So a run that is taken up again knows which
//! calls have ended, which may have taken effect, and which were never made.

use crate::call::CallEnd;
use crate::driver::Run;
use crate::form::Form;
use crate::ledger::{Reservation, Want};
use crate::store::StoreError;
use crate::tool::{
    AFTER_RESULT, COMPUTE_NOTE, NO_MORE_CALLS, OfferedTool, PYTHON, RESULTS_NOTE, RequestedCall, ToolRun, fenced,
};
use crate::worker::{AgentPrompt, ChatMessage, Request, Speaker, Usage};
use lemon_spec::PLAIN;
use lemon_spec::edit::tool_sender;
use lemon_trace::{AgentCall, Event, EventKind, LimitKind, NextCall, Spend};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// What an agent is told of a call whose end was not seen.
const UNKNOWN_OUTCOME: &str = "The outcome of this call is unknown: the run was interrupted while it was made. It may have taken \
     effect or not. It is not made again.";
/// What an agent is told of a call that a person denied.
const DENIED: &str = "A person denied this call. It was not made.";
/// What an agent is told of a call whose result is withheld, to find out what it is worth.
const WITHHELD: &str = "This call was not made. Go on without its result.";
/// What an agent is told of calls beyond those that it may make.
const TOO_MANY: &str = "This call was not made: it is one more than you may make.";

/// How the conversation of an agent ended.
pub(crate) enum Talked {
    /// With its last model call. `saved`: what the replies before it cost when they were made, where they were reused.
    Ended { end: CallEnd, saved: Usage },
    /// It waits for a person to decide about this call.
    Paused { call: String },
}

/// A call on record.
#[derive(Debug, Clone)]
pub(crate) struct PastCall {
    call: RequestedCall,
    said: Option<String>,
    stage: Stage,
}

/// How far a call on record is.
#[derive(Debug, Clone)]
enum Stage {
    /// The agent asked for it, and it was not begun.
    Planned,
    /// It waits for a person, or the person has decided.
    Asked(Option<bool>),
    /// It was made, and its end is not on record.
    Made,
    Ended(ToolRun),
}

/// The calls of each agent that are on record.
#[derive(Debug, Default)]
pub(crate) struct PastCalls(HashMap<String, Vec<PastCall>>);

impl PastCalls {
    /// Enters one event of a run that is taken up again.
    pub fn enter(&mut self, event: &Event) {
        let (call, input, tool, stage) = match &event.kind {
            EventKind::ToolCall { tool, input, call: Some(call) } => (call, input, tool, Stage::Made),
            EventKind::Approval { tool, input, call, granted } => (call, input, tool, Stage::Asked(*granted)),
            EventKind::ToolResult { output, ok, call: Some(id), .. } => {
                let text = output.get(if *ok { "text" } else { "error" }).and_then(Value::as_str).unwrap_or_default();
                if let Some(past) = self.find(&event.agent, id) {
                    past.stage = Stage::Ended(ToolRun { ok: *ok, text: text.to_owned(), known: false });
                }
                return;
            }
            _ => return,
        };
        match self.find(&event.agent, &call.id) {
            Some(past) => past.stage = stage,
            None => self.push(event, &call.id, tool, input, call.said.clone(), stage),
        }
        let turn = call.id.split('.').next().unwrap_or_default();
        for (at, NextCall { tool, input }) in call.more.iter().enumerate() {
            let id = format!("{turn}.{}", at + 2);
            if self.find(&event.agent, &id).is_none() {
                self.push(event, &id, tool, input, None, Stage::Planned);
            }
        }
    }

    fn push(&mut self, event: &Event, id: &str, tool: &str, input: &Value, said: Option<String>, stage: Stage) {
        let arguments = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
        let call = RequestedCall { id: id.to_owned(), tool: tool.to_owned(), arguments };
        self.0.entry(event.agent.clone()).or_default().push(PastCall { call, said, stage });
    }

    fn find(&mut self, agent: &str, id: &str) -> Option<&mut PastCall> {
        self.0.get_mut(agent)?.iter_mut().find(|past| past.call.id == id)
    }

    fn take(&mut self, agent: &str) -> Vec<PastCall> {
        self.0.remove(agent).unwrap_or_default()
    }
}

/// What a reply said and cost that asks for calls; it goes on record with the first of them.
#[derive(Default)]
struct Opening {
    said: Option<String>,
    more: Vec<NextCall>,
    spend: Spend,
}

/// What is known while an agent talks.
struct Talk<'t> {
    agent: &'t str,
    offered: Arc<[OfferedTool]>,
    /// Calls so far.
    made: u32,
    /// The tools called so far.
    called: Vec<String>,
}

/// What came of one call, unless the conversation ends with it.
type Made = Result<ToolRun, Halted>;

/// Why a conversation ends with a call.
enum Halted {
    /// The call waits for a person.
    Paused(String),
    /// A limit stood in the way.
    Refused { limit: LimitKind, needed: f64, left: f64 },
}

impl Run<'_> {
    /// Has an agent do its duty with its tools.
    ///
    /// # Errors
    /// The store failed: nothing may go on that cannot be recorded.
    pub(crate) async fn converse(
        &self,
        mut request: Request,
        duty: &str,
        tools: &[String],
    ) -> Result<Talked, StoreError> {
        let mut saved = Usage::default();
        if tools.is_empty() {
            return Ok(Talked::Ended { end: self.call(request, duty).await?, saved });
        }
        let agent = request.agent.clone();
        let offered = self.offered(&agent, tools).await;
        let mut talk = Talk { agent: &agent, offered, made: 0, called: Vec::new() };
        add_notes(&mut request, tools);
        let most = self.runner.settings.tool_calls;
        let mut turn = 0;
        let past = self.past_calls().take(&agent);
        for calls in turns(past) {
            turn += 1;
            let said = calls.first().and_then(|first| first.said.clone()).unwrap_or_default();
            let requested = calls.iter().map(|past| past.call.clone()).collect();
            request.messages.push(ChatMessage::calling(said, requested));
            for past in calls {
                let too_many = matches!(past.stage, Stage::Planned) && talk.made >= most;
                talk.made += u32::from(!too_many);
                let id = past.call.id.clone();
                let tool = past.call.tool.clone();
                let taken = if too_many { Ok(ToolRun::failed(TOO_MANY)) } else { self.take_up(&talk, past).await? };
                talk.called.push(tool.clone());
                match taken {
                    Ok(run) => request.messages.push(ChatMessage::result(id, told(&tool, &run))),
                    Err(halted) => return Ok(halted.talked(saved)),
                }
            }
        }
        loop {
            let may_call = talk.made < most && !talk.offered.is_empty();
            if !may_call && talk.made > 0 {
                // Said once: a reply to a request without tools is the last one.
                request.messages.push(ChatMessage::user(NO_MORE_CALLS));
            }
            request.tools = may_call.then(|| talk.offered.clone());
            let end = self.call(request.clone(), duty).await?;
            let (mut reply, spend) = match end {
                CallEnd::Replied { reply, spend, reused, .. } if !reply.tool_calls.is_empty() && may_call => {
                    if reused {
                        saved.tokens_in += reply.usage.tokens_in;
                        saved.tokens_out += reply.usage.tokens_out;
                        saved.counted |= reply.usage.counted;
                    }
                    (reply, spend)
                }
                end => return Ok(Talked::Ended { end, saved }),
            };
            turn += 1;
            for (at, call) in reply.tool_calls.iter_mut().enumerate() {
                call.id = format!("c{turn}.{}", at + 1);
            }
            let said = Some(std::mem::take(&mut reply.text)).filter(|text| !text.trim().is_empty());
            request.messages.push(ChatMessage::calling(said.clone().unwrap_or_default(), reply.tool_calls.clone()));
            let next = |call: &RequestedCall| NextCall { tool: call.tool.clone(), input: call.input() };
            let mut opening = Opening { said, more: reply.tool_calls.iter().skip(1).map(next).collect(), spend };
            for call in &reply.tool_calls {
                let opening = std::mem::take(&mut opening);
                let run = if talk.made >= most {
                    ToolRun::failed(TOO_MANY)
                } else {
                    talk.made += 1;
                    let made = self.make(&talk, call, opening).await?;
                    talk.called.push(call.tool.clone());
                    match made {
                        Ok(run) => run,
                        Err(halted) => return Ok(halted.talked(saved)),
                    }
                };
                request.messages.push(ChatMessage::result(&call.id, told(&call.tool, &run)));
            }
        }
    }

    /// The tools of an agent that can be called. Of the others the trace says why.
    async fn offered(&self, agent: &str, names: &[String]) -> Arc<[OfferedTool]> {
        let offers = match &self.runner.backend.tools {
            Some(tools) => tools.offered(names).await,
            None => names.iter().map(|_| Err("no tool is run here".to_owned())).collect(),
        };
        let mut known = Vec::with_capacity(offers.len());
        for (name, offer) in names.iter().zip(offers) {
            match offer {
                Ok(tool) => known.push(tool),
                Err(fact) => {
                    let output = json!({ "error": fact });
                    let result = EventKind::ToolResult { tool: name.clone(), output, ok: false, call: None };
                    self.recorder.note(agent, result, Spend::default());
                }
            }
        }
        known.into()
    }

    /// Makes a call that was not begun yet.
    async fn make(&self, talk: &Talk<'_>, call: &RequestedCall, opening: Opening) -> Result<Made, StoreError> {
        // In case the run ends while a person is asked, say.
        self.unrecorded().insert(talk.agent.to_owned(), opening.spend);
        let (tool, arguments) = match talk.checked(call) {
            Ok(checked) => checked,
            Err(fact) => return self.refuse(talk, call, opening, fact).await.map(Ok),
        };
        if self.withholds(talk, call) {
            return self.refuse(talk, call, opening, WITHHELD.to_owned()).await.map(Ok);
        }
        if tool.approve {
            let Opening { said, more, spend } = opening;
            let asked = AgentCall { id: call.id.clone(), said, usd: None, more };
            let kind = EventKind::Approval { tool: tool.name.clone(), input: arguments, call: asked, granted: None };
            self.unrecorded().remove(talk.agent);
            self.recorder.record(talk.agent, kind, spend).wait().await?;
            return Ok(Err(Halted::Paused(call.id.clone())));
        }
        self.carry_out(talk, call, &tool, arguments, opening, false).await
    }

    /// Whether the result of this call is withheld: that of the agent's first call of the tool.
    fn withholds(&self, talk: &Talk<'_>, call: &RequestedCall) -> bool {
        let sender = tool_sender(&call.tool);
        let is_withheld = self.withheld.iter().any(|(from, to)| *from == sender && to == talk.agent);
        is_withheld && !talk.called.contains(&call.tool)
    }

    /// Takes a call on record up where it stands.
    async fn take_up(&self, talk: &Talk<'_>, past: PastCall) -> Result<Made, StoreError> {
        let PastCall { call, stage, .. } = past;
        let granted = match stage {
            Stage::Ended(run) => return Ok(Ok(run)),
            Stage::Planned => return self.make(talk, &call, Opening::default()).await,
            Stage::Made => {
                let again = talk.checked(&call).ok().filter(|(tool, _)| tool.idempotent);
                return match again {
                    Some((tool, arguments)) => {
                        self.carry_out(talk, &call, &tool, arguments, Opening::default(), false).await
                    }
                    None => {
                        let run = ToolRun::failed(UNKNOWN_OUTCOME);
                        self.record_result(talk.agent, &call, &run, Spend::default()).await?;
                        Ok(Ok(run))
                    }
                };
            }
            Stage::Asked(Some(granted)) => granted,
            Stage::Asked(None) => {
                let name = format!("{}/{}", talk.agent, call.id);
                let Some(granted) = self.runner.settings.decisions.get(&name).copied() else {
                    return Ok(Err(Halted::Paused(call.id)));
                };
                let decided = AgentCall { id: call.id.clone(), ..AgentCall::default() };
                let (tool, input) = (call.tool.clone(), call.input());
                let kind = EventKind::Approval { tool, input, call: decided, granted: Some(granted) };
                self.recorder.record(talk.agent, kind, Spend::default()).wait().await?;
                granted
            }
        };
        match talk.checked(&call) {
            Ok((tool, arguments)) if granted => {
                self.carry_out(talk, &call, &tool, arguments, Opening::default(), true).await
            }
            Ok(_) => self.refuse(talk, &call, Opening::default(), DENIED.to_owned()).await.map(Ok),
            Err(fact) => self.refuse(talk, &call, Opening::default(), fact).await.map(Ok),
        }
    }

    /// Reserves, records, runs, settles, records. A call that a person `approved` needs no other permission.
    async fn carry_out(
        &self,
        talk: &Talk<'_>,
        call: &RequestedCall,
        tool: &OfferedTool,
        arguments: Value,
        opening: Opening,
        approved: bool,
    ) -> Result<Made, StoreError> {
        let Some(tools) = &self.runner.backend.tools else {
            let fact = "no tool is run here".to_owned();
            return self.refuse(talk, call, opening, fact).await.map(Ok);
        };
        if !tool.read_only
            && !approved
            && let Err(fact) = tools.permit(tool).await
        {
            return self.refuse(talk, call, opening, fact).await.map(Ok);
        }
        let reservation = match self.reserve_call(talk.agent, tool.price).await {
            Ok(reservation) => reservation,
            Err((limit, needed, left)) => {
                self.refuse(talk, call, opening, format!("the {limit} of the run are used up")).await?;
                return Ok(Err(Halted::Refused { limit, needed, left }));
            }
        };
        self.record_call(talk.agent, call, opening, Some(tool.price)).await?;
        let began = Instant::now();
        let run = tools.call(tool, &arguments).await;
        self.in_flight().remove(talk.agent);
        let usd = if run.known { 0.0 } else { tool.price };
        match run.known {
            true => self.ledger().give_back(reservation),
            false => self.ledger().settle(reservation, 0, 0),
        }
        self.ledger_changed.notify_waiters();
        let spend = Spend { usd, seconds: self.seconds_since(began), ..Spend::default() };
        self.record_result(talk.agent, call, &run, spend).await?;
        Ok(Ok(run))
    }

    /// Puts on record that a call is not made, and why.
    async fn refuse(
        &self,
        talk: &Talk<'_>,
        call: &RequestedCall,
        opening: Opening,
        fact: String,
    ) -> Result<ToolRun, StoreError> {
        self.record_call(talk.agent, call, opening, None).await?;
        let run = ToolRun::failed(fact);
        self.record_result(talk.agent, call, &run, Spend::default()).await?;
        Ok(run)
    }

    async fn record_call(
        &self,
        agent: &str,
        call: &RequestedCall,
        Opening { said, more, spend }: Opening,
        usd: Option<f64>,
    ) -> Result<(), StoreError> {
        let by_agent = Some(AgentCall { id: call.id.clone(), said, usd, more });
        let kind = EventKind::ToolCall { tool: call.tool.clone(), input: call.input(), call: by_agent };
        self.unrecorded().remove(agent);
        self.recorder.record(agent, kind, spend).wait().await
    }

    async fn record_result(
        &self,
        agent: &str,
        call: &RequestedCall,
        run: &ToolRun,
        spend: Spend,
    ) -> Result<(), StoreError> {
        let output = if run.ok { json!({ "text": run.text }) } else { json!({ "error": run.text }) };
        let (tool, ok, call) = (call.tool.clone(), run.ok, Some(call.id.clone()));
        self.recorder.record(agent, EventKind::ToolResult { tool, output, ok, call }, spend).wait().await
    }

    async fn reserve_call(&self, agent: &str, usd: f64) -> Result<Reservation, (LimitKind, f64, f64)> {
        let want = Want { fixed_usd: usd, ..Want::default() };
        let reservation = self.room_for(&want).await?;
        self.in_flight().insert(agent.to_owned(), reservation);
        Ok(reservation)
    }
}

impl Talk<'_> {
    /// The tool and the arguments of a call, as far as they can be checked without the tool.
    fn checked(&self, call: &RequestedCall) -> Result<(OfferedTool, Value), String> {
        let tool = self.offered.iter().find(|tool| tool.name == call.tool).ok_or_else(|| {
            let names: Vec<&str> = self.offered.iter().map(|tool| tool.name.as_str()).collect();
            format!("there is no such tool; the tools are {}", names.join(", "))
        })?;
        Ok((tool.clone(), call.object()?))
    }
}

impl Halted {
    fn talked(self, saved: Usage) -> Talked {
        match self {
            Halted::Paused(call) => Talked::Paused { call },
            Halted::Refused { limit, needed, left } => {
                Talked::Ended { end: CallEnd::Refused { limit, needed, left, attempts: 0 }, saved }
            }
        }
    }
}

/// Calls by the reply that asked for them: `c2.1` belongs to the second.
fn turns(calls: Vec<PastCall>) -> Vec<Vec<PastCall>> {
    let mut turns: Vec<Vec<PastCall>> = Vec::new();
    for past in calls {
        let of = |id: &str| id.split('.').next().unwrap_or_default().to_owned();
        match turns.last_mut().filter(|turn| turn.first().is_some_and(|first| of(&first.call.id) == of(&past.call.id)))
        {
            Some(turn) => turn.push(past),
            None => turns.push(vec![past]),
        }
    }
    turns
}

/// A result, and what to do with it.
fn told(tool: &str, run: &ToolRun) -> String {
    format!("{}\n\n{AFTER_RESULT}", fenced(tool, run))
}

/// Tells the agent what to think of results, and one without a role how to use Python where a number is asked for.
fn add_notes(request: &mut Request, tools: &[String]) {
    let asks_for_number =
        |prompt: &Arc<AgentPrompt>| prompt.base == PLAIN && Form::of(&prompt.question) == Form::Number;
    let computes = request.agent_prompt.as_ref().is_some_and(asks_for_number) && tools.iter().any(|it| it == PYTHON);
    let messages = &mut request.messages;
    if let Some(user) = messages.iter_mut().rfind(|message| message.role == Speaker::User).filter(|_| computes) {
        user.content.push_str("\n\n");
        user.content.push_str(COMPUTE_NOTE);
    }
    match messages.first_mut().filter(|first| first.role == Speaker::System) {
        Some(system) => {
            system.content.push_str("\n\n");
            system.content.push_str(RESULTS_NOTE);
        }
        None => messages.insert(0, ChatMessage::system(RESULTS_NOTE)),
    }
}
