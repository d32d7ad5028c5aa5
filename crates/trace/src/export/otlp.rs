//! A trace as OpenTelemetry spans, after the conventions for generative AI.
//!
//! ```text
//! invoke_workflow lemon          the run
//! ├ plan orchestrator            one specification being written
//! │ └ chat {model}               the call that wrote it
//! └ invoke_agent {id}            one agent; linked to the agents it reads
//!   ├ chat {model}               one attempt at its call
//!   └ execute_tool {tool}
//! ```
//!
//! Tokens stand on `chat` spans only, so that summing over all spans counts each once. No text of questions, messages or
//! replies is exported. Rewards are attributes of the run; what a part of the team is worth is an event of its agent's span,
//! named after the family of the change that measured it; what was not measured is not there. Ids are made of the run's id and the events' numbers: exporting twice gives the same spans.

use crate::{AgentStatus, Event, EventKind, Failure, ORCHESTRATOR, Spend, StopReason, Trace};
use lemon_num::{fnv1a, splitmix};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event as SpanEvent, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use std::collections::HashMap;

/// The trace as an export request.
pub fn otlp(trace: &Trace) -> ExportTraceServiceRequest {
    let mut exporter = Exporter::new(trace);
    exporter.run();
    trace.events.iter().for_each(|event| exporter.add(event));
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: exporter.finish(), schema_url: String::new() }];
    let resource = Resource { attributes: vec![text("service.name", SERVICE)], ..Resource::default() };
    let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: String::new() }];
    ExportTraceServiceRequest { resource_spans }
}

/// The request in OTLP's JSON encoding.
pub fn otlp_json(trace: &Trace) -> String {
    // The request has only string keys and finite numbers, so that writing it as JSON cannot fail.
    serde_json::to_string_pretty(&otlp(trace)).unwrap_or_default()
}

/// The request in OTLP's binary encoding.
pub fn otlp_protobuf(trace: &Trace) -> Vec<u8> {
    otlp(trace).encode_to_vec()
}

const SERVICE: &str = "lemon";

/// What is known of an agent while its events come in.
struct Agent {
    /// As it came into being.
    span: Span,
    /// As it ended; one that a stop cut off may end again after a resume.
    ended: Option<Span>,
    /// When the attempt under way began.
    attempt_began: Option<f64>,
    /// Failed attempts; they wait for the return that tells the model's name.
    failed: Vec<Span>,
}

struct Exporter<'a> {
    trace: &'a Trace,
    hash: u64,
    spans: Vec<Span>,
    agents: HashMap<&'a str, Agent>,
    /// The spans of all agents so far, by number.
    spawned: HashMap<&'a str, u64>,
    /// Agents in the order they came.
    order: Vec<&'a str>,
    /// Tool calls that have not returned.
    tools: Vec<(&'a str, &'a str, Span)>,
}

impl<'a> Exporter<'a> {
    fn new(trace: &'a Trace) -> Self {
        let hash = fnv1a(trace.header.run_id.bytes());
        let (spans, order, tools) = (Vec::new(), Vec::new(), Vec::new());
        Exporter { trace, hash, spans, agents: HashMap::new(), spawned: HashMap::new(), order, tools }
    }

    /// The root span.
    fn run(&mut self) {
        let summary = self.trace.summary();
        let mut span = self.span(ROOT, format!("invoke_workflow {SERVICE}"), SpanKind::Internal, 0.0, summary.wall_s);
        span.parent_span_id = Vec::new();
        span.attributes = vec![
            text("gen_ai.operation.name", "invoke_workflow"),
            text("gen_ai.workflow.name", SERVICE),
            text("lemon.run_id", &self.trace.header.run_id),
            text("lemon.task_id", &self.trace.header.task_id),
            text("lemon.seed", &self.trace.header.seed.to_string()),
            number("lemon.rounds", u64::from(summary.rounds)),
        ];
        let credit = self.trace.credit();
        span.attributes.extend(credit.right.map(|right| flag("lemon.right", right)));
        let reward = |(name, value): (&&str, &f64)| float(&format!("lemon.reward.{name}"), *value);
        span.attributes.extend(credit.rewards.iter().map(reward));
        if let Some(reason) = summary.stop_reason {
            span.attributes.push(text("lemon.stop_reason", reason.as_str()));
            if reason != StopReason::Answered {
                fail(&mut span, reason.as_str(), "");
            }
        }
        self.spans.push(span);
    }

    fn add(&mut self, event: &'a Event) {
        match &event.kind {
            EventKind::Decision { round, by, model, .. } => self.decision(event, *round, by, model.as_deref()),
            EventKind::Rejection { failure: Some(failure), .. } => self.orchestrator_failure(event, failure),
            EventKind::Spawn { to, .. } => self.spawn(event, to),
            EventKind::Delegate { to, .. } => {
                let start = self.nanos(event.t);
                if let Some(agent) = self.agents.get_mut(to.as_str()) {
                    agent.ended = None;
                    agent.span.start_time_unix_nano = start;
                    agent.attempt_began = Some(event.t);
                }
            }
            EventKind::Retry { failure, .. } if event.agent == ORCHESTRATOR => {
                self.orchestrator_failure(event, failure)
            }
            EventKind::Retry { failure, wait_s, .. } => self.retry(event, failure, *wait_s),
            EventKind::Return { .. } => self.end(event),
            EventKind::ToolCall { tool, .. } => self.tool_call(event, tool),
            EventKind::ToolResult { tool, ok, .. } => self.tool_result(event, tool, *ok),
            _ => {}
        }
    }

    fn decision(&mut self, event: &Event, round: u32, by: &str, model: Option<&str>) {
        let start = event.t - event.spend.seconds;
        let mut plan = self.span(of(event), format!("plan {ORCHESTRATOR}"), SpanKind::Internal, start, event.t);
        plan.attributes = vec![
            text("gen_ai.operation.name", "plan"),
            text("gen_ai.agent.name", ORCHESTRATOR),
            number("lemon.round", u64::from(round)),
            text("lemon.written_by", by),
        ];
        self.spans.push(plan);
        if model.is_some() || event.spend.tokens() > 0 {
            let chat = self.chat(event, of(event), start, model);
            self.spans.push(chat);
        }
    }

    fn orchestrator_failure(&mut self, event: &Event, failure: &Failure) {
        let mut chat = self.chat(event, ROOT, event.t - event.spend.seconds, None);
        fail(&mut chat, failure.kind.as_str(), &failure.message);
        self.spans.push(chat);
    }

    fn spawn(&mut self, event: &Event, id: &'a str) {
        let EventKind::Spawn { round, base, role, capacity, after, .. } = &event.kind else { return };
        let mut span = self.span(of(event), format!("invoke_agent {id}"), SpanKind::Internal, event.t, event.t);
        span.attributes = vec![
            text("gen_ai.operation.name", "invoke_agent"),
            text("gen_ai.provider.name", self.provider()),
            text("gen_ai.agent.id", id),
            text("gen_ai.agent.name", id),
            text("gen_ai.agent.description", role),
            text("lemon.base", base),
            text("lemon.capacity", capacity),
            number("lemon.round", u64::from(*round)),
        ];
        let parents = after.iter().filter_map(|parent| self.spawned.get(parent.as_str()));
        let link = |parent: &u64| {
            let (trace_id, span_id) = (span.trace_id.clone(), self.id(*parent));
            Link { trace_id, span_id, attributes: vec![text("lemon.edge", "message")], ..Link::default() }
        };
        span.links = parents.map(link).collect();
        self.order.push(id);
        self.spawned.insert(id, of(event));
        self.agents.insert(id, Agent { span, ended: None, attempt_began: None, failed: Vec::new() });
    }

    fn retry(&mut self, event: &Event, failure: &Failure, wait_s: f64) {
        let Some(agent) = self.agents.get(event.agent.as_str()) else { return };
        let mut chat = self.chat(event, ROOT, agent.attempt_began.unwrap_or(event.t), None);
        chat.parent_span_id.clone_from(&agent.span.span_id);
        fail(&mut chat, failure.kind.as_str(), &failure.message);
        if let Some(agent) = self.agents.get_mut(event.agent.as_str()) {
            agent.failed.push(chat);
            agent.attempt_began = Some(event.t + wait_s);
        }
    }

    fn end(&mut self, event: &Event) {
        let EventKind::Return { status, failure, model, confidence, truncated, attempts, reused, .. } = &event.kind
        else {
            return;
        };
        let Some(agent) = self.agents.get_mut(event.agent.as_str()) else { return };
        let (mut span, attempt_began) = (agent.span.clone(), agent.attempt_began.take());
        let failed = std::mem::take(&mut agent.failed);
        let end = self.nanos(event.t).max(span.start_time_unix_nano);
        span.end_time_unix_nano = end;
        // One that was never asked took no time, however long it waited.
        if attempt_began.is_none() {
            span.start_time_unix_nano = end;
        }
        span.attributes.push(text("lemon.status", status.as_str()));
        span.attributes.push(number("lemon.attempts", u64::from(*attempts)));
        let failure = (*status != AgentStatus::Done).then(|| {
            failure.as_ref().map_or((status.as_str(), ""), |failure| (failure.kind.as_str(), failure.message.as_str()))
        });
        if let Some((kind, message)) = failure {
            fail(&mut span, kind, message);
        }
        if *truncated {
            span.attributes.push(flag("lemon.truncated", true));
        }
        if *reused {
            span.attributes.push(flag("lemon.reused", true));
        }
        if let Some(model) = model {
            span.attributes.push(text("gen_ai.request.model", model));
        }
        if let Some(confidence) = confidence {
            span.attributes.push(float("lemon.confidence", *confidence));
        }
        let chats = failed.into_iter().map(|chat| named(chat, model.as_deref()));
        self.spans.extend(chats);
        // An agent that was cut off while waiting for another attempt had none under way.
        let under_way = |began: &f64| !reused && (*began < event.t || event.spend.tokens() > 0);
        if let Some(began) = attempt_began.filter(under_way) {
            let mut chat = self.chat(event, ROOT, began.min(event.t), model.as_deref());
            chat.parent_span_id.clone_from(&span.span_id);
            if let Some((kind, message)) = failure {
                fail(&mut chat, kind, message);
            }
            self.spans.push(chat);
        }
        if let Some(agent) = self.agents.get_mut(event.agent.as_str()) {
            agent.ended = Some(span);
        }
    }

    fn tool_call(&mut self, event: &'a Event, tool: &'a str) {
        let mut span = self.span(of(event), format!("execute_tool {tool}"), SpanKind::Internal, event.t, event.t);
        if let Some(agent) = self.agents.get(event.agent.as_str()) {
            span.parent_span_id.clone_from(&agent.span.span_id);
        }
        span.attributes = vec![text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", tool)];
        self.tools.push((&event.agent, tool, span));
    }

    fn tool_result(&mut self, event: &Event, tool: &str, ok: bool) {
        let call = self.tools.iter().position(|(agent, name, _)| *name == tool && *agent == event.agent);
        let Some(place) = call.or_else(|| self.tools.iter().position(|(_, name, _)| *name == tool)) else { return };
        let (_, _, mut span) = self.tools.remove(place);
        span.end_time_unix_nano = self.nanos(event.t).max(span.start_time_unix_nano);
        if !ok {
            fail(&mut span, "tool_error", "");
        }
        self.spans.push(span);
    }

    /// The agents' spans, and what was under way when the trace ends: that ends with its last event.
    fn finish(mut self) -> Vec<Span> {
        let end = self.nanos(self.trace.events.iter().map(|event| event.t).fold(0.0, f64::max));
        let until_end = |mut span: Span| {
            span.end_time_unix_nano = end;
            span
        };
        for Agent { span, ended, failed, .. } in self.order.iter().filter_map(|id| self.agents.remove(id)) {
            self.spans.extend(failed);
            self.spans.push(ended.unwrap_or_else(|| until_end(span)));
        }
        self.spans.extend(self.tools.into_iter().map(|(_, _, span)| until_end(span)));
        add_credit(&mut self.spans, self.trace);
        self.spans
    }

    /// A call to a model that ended with `event`.
    fn chat(&self, event: &Event, parent: u64, start: f64, model: Option<&str>) -> Span {
        let mut span = self.span(of(event) + 1, "chat".to_owned(), SpanKind::Client, start, event.t);
        span.parent_span_id = self.id(parent);
        let Spend { tokens_in, tokens_out, .. } = event.spend;
        span.attributes = vec![
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.provider.name", self.provider()),
            text("gen_ai.agent.name", &event.agent),
            number("gen_ai.usage.input_tokens", tokens_in),
            number("gen_ai.usage.output_tokens", tokens_out),
        ];
        named(span, model)
    }

    fn span(&self, number: u64, name: String, kind: SpanKind, start: f64, end: f64) -> Span {
        let start = self.nanos(start);
        Span {
            trace_id: [splitmix(self.hash), splitmix(!self.hash).max(1)].iter().flat_map(|n| n.to_be_bytes()).collect(),
            span_id: self.id(number),
            parent_span_id: self.id(ROOT),
            name,
            kind: kind.into(),
            start_time_unix_nano: start,
            end_time_unix_nano: self.nanos(end).max(start),
            // Present though unset: not every reader of the JSON form takes a null.
            status: Some(Status::default()),
            ..Span::default()
        }
    }

    /// The id of a span: one for each number, since [`splitmix`] maps no two to the same. Zero is not allowed.
    fn id(&self, number: u64) -> Vec<u8> {
        splitmix(self.hash.wrapping_add(number)).max(1).to_be_bytes().to_vec()
    }

    fn nanos(&self, t: f64) -> u64 {
        // A float too large for the integer becomes the largest integer.
        let since = (t.max(0.0) * 1e9).round() as u64;
        self.trace.header.started_at_ms.saturating_mul(1_000_000).saturating_add(since)
    }

    /// Who is asked. All real endpoints speak one protocol, and the conventions name it after its inventor.
    fn provider(&self) -> &str {
        match self.trace.header.workers.as_str() {
            "endpoints" => "openai",
            other => other,
        }
    }
}

/// What was measured of a part of the team, as an event at the end of its agent's span; of anything else, of the run's.
fn add_credit(spans: &mut [Span], trace: &Trace) {
    let credit = trace.credit();
    for part in credit.measured() {
        let name = part.agent().map(|id| format!("invoke_agent {id}"));
        let place = spans.iter().position(|span| Some(&span.name) == name.as_ref()).unwrap_or(0);
        let Some(span) = spans.get_mut(place) else { return };
        let mut attributes = vec![text("lemon.unit", part.unit), text("lemon.target", part.target)];
        attributes.extend(part.edit.map(|edit| text("lemon.edit", edit)));
        attributes.extend(part.worth.effect().map(|effect| float("lemon.effect", effect)));
        attributes.extend(part.worth.standard_error().map(|error| float("lemon.standard_error", error)));
        attributes.push(number("lemon.pairs", part.n.into()));
        let name = part.family.map_or("lemon.credit".to_owned(), |family| format!("lemon.credit.{family}"));
        let time_unix_nano = span.end_time_unix_nano;
        span.events.push(SpanEvent { time_unix_nano, name, attributes, ..SpanEvent::default() });
    }
}

/// The number of the root's span.
const ROOT: u64 = 0;

/// The number of an event's span; that of the call it ended follows.
fn of(event: &Event) -> u64 {
    2 * u64::from(event.id)
}

fn named(mut chat: Span, model: Option<&str>) -> Span {
    if let Some(model) = model {
        chat.name = format!("chat {model}");
        chat.attributes.push(text("gen_ai.request.model", model));
    }
    chat
}

fn fail(span: &mut Span, kind: &str, message: &str) {
    span.attributes.push(text("error.type", kind));
    span.status = Some(Status { code: StatusCode::Error.into(), message: message.to_owned() });
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn flag(key: &str, value: bool) -> KeyValue {
    attribute(key, Value::BoolValue(value))
}

fn float(key: &str, value: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
