//! Writes the trace as the run goes: numbers events, finds their causes, hands them to the store and to the observer.

use crate::store::{Durable, Store};
use crate::worker::Clock;
use lemon_trace::{Edge, EdgeKind, Event, EventKind, Header, ORCHESTRATOR, Spend, Trace};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// Receives every event of a run as it is recorded.
pub type Observer = Arc<dyn Fn(&Header, &Event) + Send + Sync>;

/// The trace of one run, growing.
pub struct Recorder {
    header: Header,
    clock: Clock,
    began: Instant,
    /// Seconds the run had taken before this process took it up.
    before: f64,
    store: Option<Arc<Store>>,
    observer: Option<Observer>,
    // A std mutex: it is held for a push and never across an await.
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    marks: Marks,
    /// Events the store has not been sent yet, by number.
    unsent: Vec<(u32, String)>,
}

impl Log {
    /// When the last of these causes came; causes are numbered from 1 in the order of the events.
    fn time_of(&self, causes: &[Edge]) -> f64 {
        let time = |edge: &Edge| Some(self.events.get((edge.src as usize).checked_sub(1)?)?.t);
        causes.iter().filter_map(time).fold(0.0, f64::max)
    }
}

/// The events that later ones point back to.
#[derive(Default)]
struct Marks {
    decision: Option<u32>,
    /// The last event that can end a round or a run.
    turn: Option<u32>,
    spawned: HashMap<String, u32>,
    /// The last event of a call: its beginning, or its last retry.
    called: HashMap<String, u32>,
    returned: HashMap<String, u32>,
    messages: HashMap<String, Vec<u32>>,
    delivered: HashSet<(String, String)>,
}

impl Recorder {
    /// A trace that begins with the events of an earlier process, if there are any.
    pub fn new(trace: Trace, clock: Clock, store: Option<Arc<Store>>, observer: Option<Observer>) -> Self {
        let mut log = Log::default();
        let before = trace.events.iter().map(|event| event.t).fold(0.0, f64::max);
        for event in trace.events {
            log.marks.note(&event);
            log.events.push(event);
        }
        let header = trace.header;
        Recorder { header, clock, began: Instant::now(), before, store, observer, log: Mutex::new(log) }
    }

    /// Seconds the run has taken.
    pub fn now(&self) -> f64 {
        match self.clock {
            Clock::Real => self.before + self.began.elapsed().as_secs_f64(),
            Clock::Simulated => {
                let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                log.events.iter().map(|event| event.t).fold(0.0, f64::max)
            }
        }
    }

    /// What is run.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Records that something happened. It becomes durable with the next event that is [recorded](Recorder::record).
    pub fn note(&self, agent: &str, kind: EventKind, spend: Spend) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let edges = log.marks.edges_to(agent, &kind);
        let id = log.events.len() as u32 + 1;
        let t = match self.clock {
            Clock::Real => self.before + self.began.elapsed().as_secs_f64(),
            Clock::Simulated => log.time_of(&edges) + spend.seconds,
        };
        // Microseconds are enough, and shorter to write and read.
        let t = (t * 1e6).round() / 1e6;
        let event = Event { id, t, agent: agent.to_owned(), kind, spend, edges };
        log.marks.note(&event);
        if self.store.is_some() {
            log.unsent.push((id, crate::store::to_json(&event)));
        }
        if let Some(observe) = &self.observer {
            observe(&self.header, &event);
        }
        log.events.push(event);
    }

    /// Records that something happened, and sends it to the store with all that was noted before. The caller waits for the
    /// result where nothing may go on before it is durable.
    pub fn record(&self, agent: &str, kind: EventKind, spend: Spend) -> Durable {
        self.note(agent, kind, spend);
        let Some(store) = &self.store else { return Durable::already() };
        let unsent = std::mem::take(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner).unsent);
        store.append(&self.header.run_id, unsent)
    }

    /// Whether this agent's coming into being is on record.
    pub fn has_spawned(&self, agent: &str) -> bool {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).marks.spawned.contains_key(agent)
    }

    /// Whether this message is on record.
    pub fn has_message(&self, from: &str, to: &str) -> bool {
        let pair = (from.to_owned(), to.to_owned());
        self.log.lock().unwrap_or_else(PoisonError::into_inner).marks.delivered.contains(&pair)
    }

    /// The whole trace.
    pub fn finish(self) -> Trace {
        let log = self.log.into_inner().unwrap_or_else(PoisonError::into_inner);
        Trace { header: self.header, events: log.events }
    }
}

impl Marks {
    fn edges_to(&self, agent: &str, kind: &EventKind) -> Vec<Edge> {
        let edge = |kind, src: Option<&u32>| src.map(|src| Edge { src: *src, kind });
        match kind {
            EventKind::Decision { .. } => edge(EdgeKind::Cause, self.turn.as_ref()).into_iter().collect(),
            EventKind::Rejection { .. } | EventKind::Stop { .. } => {
                edge(EdgeKind::Cause, self.turn.as_ref().max(self.decision.as_ref())).into_iter().collect()
            }
            EventKind::Spawn { .. } => edge(EdgeKind::Spawn, self.decision.as_ref()).into_iter().collect(),
            EventKind::Message { from, .. } => edge(EdgeKind::Message, self.returned.get(from)).into_iter().collect(),
            EventKind::Delegate { to, .. } => {
                let messages = self.messages.get(to).into_iter().flatten();
                let messages = messages.map(|src| Edge { src: *src, kind: EdgeKind::Message });
                edge(EdgeKind::Cause, self.spawned.get(to)).into_iter().chain(messages).collect()
            }
            EventKind::Retry { .. } => edge(EdgeKind::Cause, self.called.get(agent)).into_iter().collect(),
            EventKind::Return { .. } => {
                let called = edge(EdgeKind::Return, self.called.get(agent));
                called.or(edge(EdgeKind::Cause, self.spawned.get(agent))).into_iter().collect()
            }
            EventKind::Budget { .. } => edge(EdgeKind::Cause, self.spawned.get(agent)).into_iter().collect(),
            EventKind::Aggregate { candidates, chosen, .. } => {
                // A judge is not among the candidates, but its verdict led here too.
                let judge = chosen.iter().filter(|id| candidates.iter().all(|candidate| candidate.agent != **id));
                let from = candidates.iter().map(|candidate| &candidate.agent).chain(judge);
                from.filter_map(|id| edge(EdgeKind::Aggregate, self.returned.get(id))).collect()
            }
            EventKind::ToolCall { .. } | EventKind::ToolResult { .. } | EventKind::Approval { .. } => {
                let asked = self.called.get(agent).or(self.returned.get(agent)).or(self.decision.as_ref());
                edge(EdgeKind::Cause, asked).into_iter().collect()
            }
            EventKind::Resume { .. } | EventKind::Score { .. } | EventKind::Credit { .. } => Vec::new(),
        }
    }

    fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Decision { .. } => self.decision = Some(event.id),
            EventKind::Rejection { .. } | EventKind::Aggregate { .. } | EventKind::Budget { .. } => {
                self.turn = Some(event.id);
            }
            EventKind::Spawn { to, .. } => {
                self.spawned.insert(to.clone(), event.id);
            }
            EventKind::Delegate { to, .. } if to != ORCHESTRATOR => {
                self.called.insert(to.clone(), event.id);
            }
            EventKind::Retry { .. } => {
                self.called.insert(event.agent.clone(), event.id);
            }
            EventKind::Return { .. } => {
                self.returned.insert(event.agent.clone(), event.id);
                self.called.remove(&event.agent);
            }
            EventKind::Message { from, to, delivered, .. } => {
                self.delivered.insert((from.clone(), to.clone()));
                if *delivered {
                    self.messages.entry(to.clone()).or_default().push(event.id);
                }
            }
            EventKind::Delegate { .. }
            | EventKind::ToolCall { .. }
            | EventKind::ToolResult { .. }
            | EventKind::Approval { .. }
            | EventKind::Stop { .. }
            | EventKind::Resume { .. }
            | EventKind::Score { .. }
            | EventKind::Credit { .. } => {}
        }
    }
}
