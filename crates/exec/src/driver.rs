//! The driver: has rounds written, asks agents, records, stops.

use crate::call::CallEnd;
use crate::compute::Computation;
use crate::ledger::{Ledger, Reservation};
use crate::recorder::Recorder;
use crate::runner::Runner;
use crate::state::{AgentOutcome, RunState, Standing, Step};
use crate::store::{Durable, StoreError};
use crate::tokens;
use crate::tool_loop::{PastCalls, Talked};
use crate::worker::{AgentPrompt, ChatMessage, Clock, Progress, Reply, Request, Usage};
use crate::write::Written;
use futures::stream::{FuturesUnordered, StreamExt};
use lemon_num::hashed_seed;
use lemon_spec::Next;
use lemon_trace::{
    AgentStatus, Candidate, EventKind, Failure, FailureKind, LimitKind, ORCHESTRATOR, Spend, StopReason,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// One run under way.
pub(crate) struct Run<'a> {
    pub(crate) runner: &'a Runner,
    pub(crate) recorder: Recorder,
    /// Something was given back: by this run, or by one that shares its budget.
    pub(crate) ledger_changed: Arc<Notify>,
    // Std mutexes: they are held for arithmetic and never across an await.
    ledger: Mutex<Ledger>,
    in_flight: Mutex<HashMap<String, Reservation>>,
    /// How agents ended whose end is on record, though perhaps not durable yet.
    recorded: Mutex<HashMap<usize, AgentOutcome>>,
    /// What calls cost whose programs are running: the end of such a call is not on record yet.
    unrecorded: Mutex<HashMap<String, Spend>>,
    /// The calls of tools that are on record, of agents that have not gone on yet.
    past_calls: Mutex<PastCalls>,
    /// Ends that are on their way to the store. Nothing acts on them before they are durable: see `settled`.
    unsettled: Mutex<Vec<Durable>>,
    /// Messages and results that are withheld: sender and reader.
    pub(crate) withheld: &'a [(String, String)],
}

/// Why no more agents start.
type Halt = Option<StopReason>;

impl<'a> Run<'a> {
    pub(crate) fn new(runner: &'a Runner, recorder: Recorder, withheld: &'a [(String, String)]) -> Self {
        let shared = &runner.settings.shared;
        Run {
            runner,
            recorder,
            ledger_changed: shared.as_ref().map(|shared| shared.changed()).unwrap_or_default(),
            ledger: Mutex::new(Ledger::within(runner.settings.budget, shared.clone())),
            in_flight: Mutex::default(),
            recorded: Mutex::default(),
            unrecorded: Mutex::default(),
            past_calls: Mutex::default(),
            unsettled: Mutex::default(),
            withheld,
        }
    }
}

impl Run<'_> {
    pub(crate) async fn drive(&self, state: &mut RunState, cancel: &CancellationToken) -> Result<(), StoreError> {
        let mut write_next = state.round() == 0;
        let (reason, answer) = loop {
            if write_next {
                match self.interruptible(cancel, self.write_round(state)).await {
                    Ok(written) => match written? {
                        Written::Plan(plan) => state.add_round(*plan),
                        Written::Nothing if state.round() > 0 => break self.conclude(state, None),
                        Written::Nothing => break (StopReason::Rejected, None),
                        Written::Halt(reason) => break self.conclude(state, Some(reason)),
                    },
                    Err(reason) => {
                        self.abandon_writing(reason, state.round() + 1);
                        break self.conclude(state, Some(reason));
                    }
                }
            }
            let halt = self.work(state, cancel).await?;
            let halt = self.test_programs(state, cancel, halt).await;
            let more =
                halt.is_none() && state.next() == Next::Review && state.round() < self.runner.settings.max_rounds;
            let concluded = self.conclude(state, halt);
            if !more {
                break concluded;
            }
            self.settled().await?;
            write_next = true;
        };
        self.stop(reason, answer);
        Ok(())
    }

    /// Puts the end of the run on record. It is durable with what [`Runner::run`] waits for last.
    pub(crate) fn stop(&self, reason: StopReason, answer: Option<String>) {
        let stop = EventKind::Stop { reason, answer };
        self.later(self.recorder.record(ORCHESTRATOR, stop, Spend::default()));
    }

    /// Waits for a record with the next that is waited for: several ends become durable at the price of one.
    fn later(&self, record: Durable) {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    /// The ends that nothing has waited for yet.
    pub(crate) fn unsettled(&self) -> Vec<Durable> {
        std::mem::take(&mut *self.unsettled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until every end so far is durable.
    async fn settled(&self) -> Result<(), StoreError> {
        for record in self.unsettled() {
            record.wait().await?;
        }
        Ok(())
    }

    /// Works a round off. An agent starts the moment its own parents are done.
    async fn work(&self, state: &mut RunState, cancel: &CancellationToken) -> Result<Halt, StoreError> {
        self.spawn_members(state);
        let mut halt = None;
        let mut running = FuturesUnordered::new();
        loop {
            let room = self.runner.settings.max_parallel.saturating_sub(running.len());
            match state.next_step(room) {
                Step::Go { ask, skipped } => {
                    // An end is durable before another agent acts on it.
                    self.settled().await?;
                    self.spawn_members(state);
                    skipped.iter().for_each(|index| self.record_skipped(state, *index));
                    ask.into_iter().for_each(|index| running.push(self.prepare(state, index)));
                    continue;
                }
                Step::RoundOver => break,
                Step::Wait => {}
            }
            match self.interruptible(cancel, running.next()).await {
                Ok(Some(ended)) => {
                    let Ended { index, outcome, met } = ended?;
                    state.end(index, outcome);
                    if met.is_some() {
                        halt = halt.or(met);
                        state.halt();
                    }
                }
                // Waiting while no agent runs cannot be: every waiting agent's parents end. Ending is safer than hanging.
                Ok(None) => break,
                Err(reason) => {
                    halt = Some(reason);
                    drop(running);
                    break;
                }
            }
        }
        if let Some(reason) = halt {
            state.halt();
            self.record_unfinished(state, reason);
        }
        Ok(halt)
    }

    /// Everything needed to ask an agent, taken from the state now; the asking borrows nothing of it.
    fn prepare<'s>(
        &'s self,
        state: &RunState,
        index: usize,
    ) -> impl Future<Output = Result<Ended, StoreError>> + use<'s> {
        let deliveries = state.deliveries(index);
        let messages = state.conversation(index, &deliveries);
        let agent = state.members().get(index).map(|member| &member.agent);
        let (id, duty, level) =
            agent.map(|agent| (agent.id.clone(), agent.duty.clone(), agent.level)).unwrap_or_default();
        let round = state.members().get(index).map_or(0, |member| member.round);
        let tools = agent.map(|agent| agent.tools.clone()).unwrap_or_default();
        for delivery in &deliveries {
            let Some(from) = state.members().get(delivery.from).map(|member| &member.agent.id) else { continue };
            if let Some(content) = &delivery.content
                && !self.recorder.has_message(from, &id)
            {
                let kind = EventKind::Message {
                    from: from.clone(),
                    to: id.clone(),
                    share: delivery.share,
                    tokens: tokens::estimate(content),
                    content: content.to_string(),
                    delivered: delivery.delivered,
                };
                self.recorder.note(from, kind, Spend::default());
            }
        }
        let mut request = self.request(&id, level, messages, &round.to_string(), None);
        // The likeliest reply is the best that one call can give; agents that vote have to differ, so the next ones are drawn.
        if state.is_first_alike(index) {
            request.temperature = request.temperature.or(Some(0.0));
        }
        if let Some(known) = self.runner.backend.levels.get(level) {
            request.max_tokens = state.most_tokens(index, known);
        }
        request.agent_prompt = state.agent_prompt(index, &deliveries).map(|prompt| {
            let wanted = self.runner.backend.worker.wants_team();
            let team = || Arc::new(state.team(|agent, round| self.call_seed(agent, &round.to_string())));
            Arc::new(AgentPrompt { team: wanted.then(team), ..prompt })
        });
        let asked = Asked { index, request, duty, tools };
        self.ask(asked, state.fence(&deliveries), Computation::of(state, index))
    }

    /// Asks an agent, and sends its end to the store.
    async fn ask(
        &self,
        Asked { index, request, duty, tools }: Asked,
        fence: Option<String>,
        computation: Option<Computation>,
    ) -> Result<Ended, StoreError> {
        let id = request.agent.clone();
        let (mut end, saved) = match self.converse(request, &duty, &tools).await? {
            Talked::Ended { end, saved } => (end, saved),
            Talked::Paused { call } => return self.pause(index, &id, &call).await,
        };
        if let (CallEnd::Replied { reply, .. }, Some(code)) = (&mut end, fence)
            && reply.text.contains(&code)
        {
            let text = crate::answer::without_fences(&reply.text, &code);
            reply.text = if text.is_empty() { std::mem::take(&mut reply.text) } else { text };
        }
        let failure = match (&mut end, computation) {
            (CallEnd::Replied { reply, spend, .. }, Some(computation)) => {
                self.compute(&id, reply, *spend, &computation).await.err()
            }
            _ => None,
        };
        let met = match &end {
            CallEnd::Refused { limit, needed, left, .. } => {
                let kind = EventKind::Budget { limit: *limit, needed: *needed, left: *left };
                self.recorder.note(&id, kind, Spend::default());
                Some(stop_reason(*limit))
            }
            _ => None,
        };
        let (kind, outcome, spend) = ended(end, failure, saved);
        self.recorded().insert(index, outcome.clone());
        self.later(self.recorder.record(&id, kind, spend));
        Ok(Ended { index, outcome, met })
    }

    /// Ends an agent whose call waits for a person. It goes on where it stands when the run is resumed with the decision.
    async fn pause(&self, index: usize, id: &str, call: &str) -> Result<Ended, StoreError> {
        let message = format!("its call {id}/{call} waits for a person");
        let failure = Failure { kind: FailureKind::Cancelled, message };
        let outcome = AgentOutcome::without_reply(AgentStatus::Cancelled, failure);
        self.recorded().insert(index, outcome.clone());
        self.recorder.record(id, returned(&outcome, None, 0, false), Spend::default()).wait().await?;
        Ok(Ended { index, outcome, met: Some(StopReason::Approval) })
    }

    pub(crate) fn request(
        &self,
        agent: &str,
        level: usize,
        messages: Vec<ChatMessage>,
        occasion: &str,
        schema: Option<Arc<serde_json::Value>>,
    ) -> Request {
        let known = self.runner.backend.levels.get(level);
        Request {
            agent: agent.to_owned(),
            level,
            capacity: known.map(|level| level.name.clone()).unwrap_or_default(),
            messages,
            max_tokens: known.map_or(0, |level| level.max_tokens),
            temperature: known.and_then(|level| level.temperature),
            seed: self.call_seed(agent, occasion),
            schema,
            tools: None,
            agent_prompt: None,
            progress: self.progress_of(agent),
        }
    }

    /// The seed of a call. Seeds of 31 bits are taken by every endpoint.
    fn call_seed(&self, agent: &str, occasion: &str) -> u64 {
        hashed_seed(self.recorder.header().seed, &[agent, occasion]) >> 33
    }

    fn progress_of(&self, agent: &str) -> Option<Progress> {
        let tell = self.runner.on_delta.clone()?;
        let (header, agent) = (self.recorder.header().clone(), agent.to_owned());
        Some(Progress::new(move |piece| tell(&header, &agent, piece)))
    }

    /// Makes the answer of what there is, puts it on record and says why the run would end now.
    pub(crate) fn conclude(&self, state: &RunState, halt: Halt) -> (StopReason, Option<String>) {
        let aggregation = state.aggregate();
        let id = |index: usize| state.members().get(index).map(|member| member.agent.id.clone());
        let candidate =
            |(index, answer): &(usize, String)| Some(Candidate { agent: id(*index)?, answer: answer.clone() });
        if state.round() > 0 {
            let kind = EventKind::Aggregate {
                round: state.round(),
                rule: aggregation.rule,
                candidates: aggregation.candidates.iter().filter_map(candidate).collect(),
                chosen: aggregation.chosen.and_then(id),
                answer: aggregation.answer.clone(),
            };
            self.recorder.note(ORCHESTRATOR, kind, Spend::default());
        }
        let reason = match halt {
            Some(reason) => reason,
            None if aggregation.answer.is_none() => StopReason::AllAgentsFailed,
            None if !aggregation.as_written => StopReason::AnswerAgentsFailed,
            None => StopReason::Answered,
        };
        (reason, aggregation.answer)
    }

    /// Waits for something, unless the run is cancelled or its time is up first.
    pub(crate) async fn interruptible<T>(
        &self,
        cancel: &CancellationToken,
        work: impl Future<Output = T>,
    ) -> Result<T, StopReason> {
        if self.seconds_left().is_some_and(|left| left <= 0.0) {
            return Err(StopReason::TimeBudget);
        }
        let time_up = async {
            match self.seconds_left() {
                // A simulated clock stands still while we wait: the look before was enough.
                Some(_) if self.runner.backend.clock == Clock::Simulated => std::future::pending().await,
                // A limit too far off to count is none.
                Some(left) => match Duration::try_from_secs_f64(left.max(0.0)) {
                    Ok(left) => tokio::time::sleep(left).await,
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(StopReason::Cancelled),
            done = work => Ok(done),
            () = time_up => Err(StopReason::TimeBudget),
        }
    }

    fn spawn_members(&self, state: &RunState) {
        for member in state.members() {
            let agent = &member.agent;
            if self.recorder.has_spawned(&agent.id) {
                continue;
            }
            let id = |index: &usize| state.members().get(*index).map(|parent| parent.agent.id.clone());
            let kind = EventKind::Spawn {
                to: agent.id.clone(),
                round: member.round,
                base: agent.base.name.clone(),
                role: agent.role.clone(),
                capacity: agent.capacity.clone(),
                level: agent.level,
                after: agent.parents.iter().filter_map(id).collect(),
            };
            self.recorder.note(ORCHESTRATOR, kind, Spend::default());
        }
    }

    fn record_skipped(&self, state: &RunState, index: usize) {
        if let Some(member) = state.members().get(index)
            && let Standing::Ended(outcome) = &member.standing
        {
            self.recorder.note(&member.agent.id, returned(outcome, None, 0, false), Spend::default());
        }
    }

    /// Puts on record what became of the agents that were running or waiting when no more could start.
    fn record_unfinished(&self, state: &mut RunState, reason: StopReason) {
        if reason == StopReason::TimeBudget {
            let needed = self.recorder.now();
            let left = self.runner.settings.budget.seconds.map_or(0.0, |limit| limit - needed).max(0.0);
            let kind = EventKind::Budget { limit: LimitKind::Seconds, needed, left };
            self.recorder.note(ORCHESTRATOR, kind, Spend::default());
        }
        // An agent that waited for the store when the run was interrupted has ended all the same.
        self.recorded().drain().for_each(|(index, outcome)| state.end(index, outcome));
        for index in 0..state.members().len() {
            let Some(member) = state.members().get(index) else { continue };
            let (status, message) = match member.standing {
                Standing::Running => (AgentStatus::Cancelled, "it was running when the run ended"),
                Standing::Waiting => (AgentStatus::Skipped, "the run ended before it could start"),
                Standing::Ended(_) => continue,
            };
            let id = member.agent.id.clone();
            let spend = self.forfeit(&id);
            let failure = Failure { kind: FailureKind::Cancelled, message: message.into() };
            let outcome = AgentOutcome::without_reply(status, failure);
            self.recorder.note(&id, returned(&outcome, None, 0, false), spend);
            state.end(index, outcome);
        }
    }

    /// What an abandoned call cost: all that was reserved for it, because its end is never seen.
    pub(crate) fn forfeit(&self, agent: &str) -> Spend {
        let Some(reservation) = self.in_flight().remove(agent) else {
            return self.unrecorded().remove(agent).unwrap_or_default();
        };
        self.ledger().settle(reservation, reservation.tokens_in, reservation.tokens_out);
        Spend {
            tokens_in: reservation.tokens_in,
            tokens_out: reservation.tokens_out,
            usd: reservation.usd(),
            seconds: 0.0,
            counted: true,
        }
    }

    pub(crate) fn seconds_left(&self) -> Option<f64> {
        Some(self.runner.settings.budget.seconds? - self.recorder.now())
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unrecorded(&self) -> MutexGuard<'_, HashMap<String, Spend>> {
        self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn past_calls(&self) -> MutexGuard<'_, PastCalls> {
        self.past_calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recorded(&self) -> MutexGuard<'_, HashMap<usize, AgentOutcome>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, HashMap<String, Reservation>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an agent is asked.
struct Asked {
    index: usize,
    request: Request,
    duty: String,
    tools: Vec<String>,
}

/// How an agent ended, and why no other starts, if that is so.
struct Ended {
    index: usize,
    outcome: AgentOutcome,
    met: Option<StopReason>,
}

/// `program`: why the program of a reply gave no answer. `before`: what earlier replies cost that were reused.
fn ended(end: CallEnd, program: Option<Failure>, before: Usage) -> (EventKind, AgentOutcome, Spend) {
    match end {
        CallEnd::Replied { reply, attempts, reused, spend } => {
            let Reply { confidence, truncated, .. } = reply;
            let outcome = AgentOutcome { confidence, truncated, ..AgentOutcome::done(reply.text) };
            let outcome = match program {
                Some(failure) => AgentOutcome { status: AgentStatus::Failed, failure: Some(failure), ..outcome },
                None => outcome,
            };
            let mut kind = returned(&outcome, reply.model, attempts, reused);
            if let EventKind::Return { saved, .. } = &mut kind {
                let last = if reused { reply.usage } else { Usage::default() };
                let (tokens_in, tokens_out) = (last.tokens_in + before.tokens_in, last.tokens_out + before.tokens_out);
                let counted = last.counted || before.counted;
                let cost = Spend { tokens_in, tokens_out, usd: 0.0, seconds: spend.seconds, counted };
                *saved = (reused || before != Usage::default()).then_some(cost);
            }
            (kind, outcome, spend)
        }
        CallEnd::Failed { error, attempts, spend } => {
            let outcome = AgentOutcome::without_reply(AgentStatus::Failed, error.failure);
            let partial = error.partial.map(Into::into);
            let kind = returned(&AgentOutcome { reply: partial, ..outcome.clone() }, None, attempts, false);
            (kind, outcome, spend)
        }
        CallEnd::Refused { limit, needed, left, attempts } => {
            let unit = match limit {
                LimitKind::Tokens => "tokens",
                LimitKind::Usd => "USD",
                LimitKind::Calls => "calls",
                LimitKind::Seconds => "seconds",
            };
            let message = format!("it needs {needed} {unit} at least, {left} are left");
            let outcome =
                AgentOutcome::without_reply(AgentStatus::Skipped, Failure { kind: FailureKind::Budget, message });
            (returned(&outcome, None, attempts, false), outcome, Spend::default())
        }
    }
}

pub(crate) fn returned(outcome: &AgentOutcome, model: Option<String>, attempts: u32, reused: bool) -> EventKind {
    let done = outcome.status == AgentStatus::Done;
    EventKind::Return {
        status: outcome.status,
        reply: outcome.reply.as_ref().map(ToString::to_string),
        answer: outcome.reply.as_deref().filter(|_| done).and_then(crate::answer::extract),
        failure: outcome.failure.clone(),
        model,
        confidence: outcome.confidence,
        truncated: outcome.truncated,
        attempts,
        reused,
        saved: None,
    }
}

pub(crate) fn stop_reason(limit: LimitKind) -> StopReason {
    match limit {
        LimitKind::Tokens => StopReason::TokenBudget,
        LimitKind::Usd => StopReason::CostBudget,
        LimitKind::Calls => StopReason::CallBudget,
        LimitKind::Seconds => StopReason::TimeBudget,
    }
}
