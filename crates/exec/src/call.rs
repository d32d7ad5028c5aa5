//! One call, from the reuse cache to the settled account: cache, gate, reservation, attempts, waits.

use crate::driver::Run;
use crate::ledger::{LedgerVerdict, Reservation, Want};
use crate::reply_cache::Known;
use crate::runner::Runner;
use crate::store::{Store, StoreError};
use crate::tokens;
use crate::tool;
use crate::worker::{AskError, Clock, FailedCost, Level, Reply, Request};
use lemon_num::hashed_seed;
use lemon_trace::{EventKind, Failure, FailureKind, LimitKind, ORCHESTRATOR, Spend};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How a call ended.
pub(crate) enum CallEnd {
    /// With a reply.
    Replied { reply: Reply, attempts: u32, reused: bool, spend: Spend },
    /// Without one, for good.
    Failed { error: AskError, attempts: u32, spend: Spend },
    /// A limit stood in the way.
    Refused { limit: LimitKind, needed: f64, left: f64, attempts: u32 },
}

impl Run<'_> {
    /// Makes a call on behalf of `request.agent`, whose duty is `duty`.
    ///
    /// # Errors
    /// The store failed: nothing may go on that cannot be recorded.
    pub(crate) async fn call(&self, mut request: Request, duty: &str) -> Result<CallEnd, StoreError> {
        let began = Instant::now();
        let Some(level) = self.runner.backend.levels.get(request.level) else {
            let error = AskError::free(FailureKind::Refused, format!("no worker serves `{}`", request.capacity));
            return Ok(CallEnd::Failed { error, attempts: 0, spend: Spend::default() });
        };
        let key = self.reuse_key(&request, level);
        let mut place = match self.reusable(&request, level, key.as_ref()).await? {
            Known::Reply(reply) => {
                // Not waited for: the end of the call is, and it comes after it.
                drop(self.announce(&request, duty, 0));
                let spend = Spend { seconds: self.seconds_since(began), ..Spend::default() };
                return Ok(CallEnd::Replied { reply, attempts: 0, reused: true, spend });
            }
            Known::Open(place) => place,
        };
        let wanted = request.max_tokens;
        let mut attempt = 0;
        let mut waited_for_model = 0.0;
        let mut announced = false;
        loop {
            // The gate comes first: a call that waits at it must not hold tokens that others could use.
            let Ok(_permit) = level.gate.acquire().await else {
                let error = AskError::free(FailureKind::Cancelled, "the workers were closed");
                return Ok(CallEnd::Failed { error, attempts: attempt, spend: Spend::default() });
            };
            let reservation = match self.reserve(&request, level, announced).await {
                Ok(reservation) => reservation,
                Err((limit, needed, left)) => {
                    return Ok(CallEnd::Refused { limit, needed, left, attempts: attempt });
                }
            };
            attempt += 1;
            request.max_tokens = reservation.tokens_out;
            if !std::mem::replace(&mut announced, true) {
                // On its way to the store before the request is on its way to the endpoint; waiting for it would only
                // narrow a window that is shorter than any call.
                drop(self.announce(&request, duty, reservation.tokens()));
            }
            let asked = Instant::now();
            let result = tool::ask(&*self.runner.backend.worker, &request).await;
            let mut spend = self.settle(&request.agent, level, reservation, &result);
            match result {
                Ok(reply) if reply.truncated && request.agent == ORCHESTRATOR => {
                    // Half a specification may read like a whole one.
                    spend.seconds = self.seconds_since(began);
                    return Ok(CallEnd::Failed { error: cut_off(reply, &request), attempts: attempt, spend });
                }
                Ok(reply) => {
                    // A reply that only this budget cut short is no reply to the same call with another.
                    let lasting = !reply.truncated || request.max_tokens == wanted;
                    if let (true, Some(key)) = (lasting, key) {
                        self.remember(key, &reply);
                    }
                    if let (true, Some(place)) = (lasting, &mut place) {
                        **place = Some(reply.clone());
                    }
                    spend.seconds = reply.simulated_s.unwrap_or_else(|| self.seconds_since(began));
                    return Ok(CallEnd::Replied { reply, attempts: attempt, reused: false, spend });
                }
                Err(error) if error.failure.kind == FailureKind::Loading => {
                    let wait = match self.wait_for_model(waited_for_model) {
                        Ok(wait) => wait,
                        Err(why) => {
                            spend.seconds = self.seconds_since(began);
                            let error = with_reason(error, Some(why.into()));
                            return Ok(CallEnd::Failed { error, attempts: attempt, spend });
                        }
                    };
                    let kind = EventKind::Retry { attempt, failure: error.failure, wait_s: wait.as_secs_f64() };
                    // Not waited for: the end of the call is, and it comes after it.
                    drop(self.recorder.record(&request.agent, kind, spend));
                    drop(_permit);
                    waited_for_model += wait.as_secs_f64();
                    // No model was asked: it is none of the few attempts.
                    attempt -= 1;
                    tokio::time::sleep(wait).await;
                }
                Err(error) => match self.wait_before_next(&request, attempt, &error) {
                    Err(why) => {
                        spend.seconds = self.seconds_since(began);
                        return Ok(CallEnd::Failed { error: with_reason(error, why), attempts: attempt, spend });
                    }
                    Ok(wait) => {
                        spend.seconds = self.seconds_since(asked);
                        let wait_s = wait.as_secs_f64();
                        let kind = EventKind::Retry { attempt, failure: error.failure, wait_s };
                        drop(self.recorder.record(&request.agent, kind, spend));
                        drop(_permit);
                        tokio::time::sleep(wait).await;
                    }
                },
            }
        }
    }

    /// Seconds by our clock; none by a simulated one, on which only replies take time.
    pub(crate) fn seconds_since(&self, began: Instant) -> f64 {
        match self.runner.backend.clock {
            Clock::Real => began.elapsed().as_secs_f64(),
            Clock::Simulated => 0.0,
        }
    }

    /// Puts on record that a call begins, and what it may cost at most.
    fn announce(&self, request: &Request, duty: &str, reserved: u64) -> crate::store::Durable {
        let kind = EventKind::Delegate { to: request.agent.clone(), duty: duty.to_owned(), reserved };
        self.recorder.record(ORCHESTRATOR, kind, Spend::default())
    }

    async fn reserve(
        &self,
        request: &Request,
        level: &Level,
        counted: bool,
    ) -> Result<Reservation, (LimitKind, f64, f64)> {
        let want = Want {
            tokens_in: tokens::at_most(&tool::written_out(request)),
            // After the first attempt what that one was granted: its announcement says what the call may cost at most.
            tokens_out: request.max_tokens,
            // A brief reply is worth as little as it is.
            least_out: self.runner.settings.least_reply_tokens.min(level.max_tokens),
            price: level.price,
            fixed_usd: 0.0,
            counted,
        };
        let reservation = self.room_for(&want).await?;
        self.in_flight().insert(request.agent.clone(), reservation);
        Ok(reservation)
    }

    /// Waits until there is room for a call.
    pub(crate) async fn room_for(&self, want: &Want) -> Result<Reservation, (LimitKind, f64, f64)> {
        loop {
            let changed = self.ledger_changed.notified();
            tokio::pin!(changed);
            // Enabled before the look, so that a settlement in between is not missed.
            changed.as_mut().enable();
            let verdict = self.ledger().reserve(want);
            match verdict {
                LedgerVerdict::Granted(reservation) => return Ok(reservation),
                LedgerVerdict::Exhausted { limit, needed, left } => return Err((limit, needed, left)),
                LedgerVerdict::Wait => changed.await,
            }
        }
    }

    fn settle(&self, agent: &str, level: &Level, reservation: Reservation, result: &Result<Reply, AskError>) -> Spend {
        self.in_flight().remove(agent);
        let (tokens_in, tokens_out, counted) = match result {
            Ok(reply) => (reply.usage.tokens_in, reply.usage.tokens_out, reply.usage.counted),
            Err(error) => match error.cost {
                FailedCost::Nothing => (0, 0, false),
                FailedCost::Known(usage) => (usage.tokens_in, usage.tokens_out, usage.counted),
                FailedCost::Unknown => (reservation.tokens_in, reservation.tokens_out, true),
            },
        };
        self.ledger().settle(reservation, tokens_in, tokens_out);
        self.ledger_changed.notify_waiters();
        Spend { tokens_in, tokens_out, usd: level.price.usd(tokens_in, tokens_out), seconds: 0.0, counted }
    }

    /// How long to wait before the next attempt, or why there is none.
    fn wait_before_next(&self, request: &Request, attempt: u32, error: &AskError) -> Result<Duration, Option<String>> {
        if !error.worth_retrying() {
            return Err(None);
        }
        let spread = hashed_seed(self.recorder.header().seed, &[&request.agent, "wait", &attempt.to_string()]);
        let retry = &self.runner.settings.retry;
        // Without its schema it is another request, which has not failed yet.
        let schema_refused = error.failure.kind == FailureKind::SchemaRefused;
        let wait = schema_refused.then_some(Duration::ZERO).or_else(|| retry.wait(attempt, error.retry_after, spread));
        let Some(wait) = wait else {
            return Err(Some(match error.retry_after {
                Some(asked) if attempt < retry.attempts => {
                    format!("it asks to be left alone for {} s, longer than this run waits", asked.as_secs())
                }
                _ => format!("given up after {attempt} attempts"),
            }));
        };
        match self.seconds_left() {
            Some(left) if wait.as_secs_f64() >= left => Err(Some("the time budget ends before another attempt".into())),
            _ if !self.ledger().count_retry() => Err(Some("no call is left for another attempt".into())),
            _ => Ok(wait),
        }
    }

    /// How long to wait for a server that loads its model, or why it is not waited for.
    fn wait_for_model(&self, waited_s: f64) -> Result<Duration, &'static str> {
        let wait = self.runner.settings.retry.wait_for_model(waited_s);
        let wait = wait.ok_or("it was waited for, in vain")?;
        match self.seconds_left() {
            Some(left) if wait.as_secs_f64() >= left => Err("the time budget ends before it can be asked again"),
            _ => Ok(wait),
        }
    }

    /// The reply to this very call, from the reply cache or the store; or the place in the cache where it is to be put.
    async fn reusable(&self, request: &Request, level: &Level, key: Option<&[u8; 32]>) -> Result<Known, StoreError> {
        let mut place = None;
        if let Some(cache) = &self.runner.reply_cache
            && let Some(key) = self.cache_key(request, level, key)
        {
            match cache.ask(&key).await {
                Known::Open(open) => place = open,
                known => return Ok(known),
            }
        }
        let recalled = match (key, &self.runner.reply_record, self.reusing_store()) {
            (Some(key), Some(record), _) => record.recall(key).await,
            (Some(key), None, Some(store)) => store.recall(key)?,
            _ => None,
        };
        let Some(reply) = recalled else { return Ok(Known::Open(place)) };
        if let Some(place) = &mut place {
            **place = Some(reply.clone());
        }
        Ok(Known::Reply(reply))
    }

    /// The key of a call in the reply cache: the worker's own where it supplies one. The store uses full requests only, or
    /// the cost of a run would depend on the runs before it.
    fn cache_key(&self, request: &Request, level: &Level, key: Option<&[u8; 32]>) -> Option<[u8; 32]> {
        let worker = &self.runner.backend.worker;
        let plain = (request.speaks_of_tools() && !worker.calls_tools(request.level))
            .then(|| Request { messages: tool::written_out(request).into_owned(), ..request.clone() });
        match worker.cache_key(plain.as_ref().unwrap_or(request)) {
            Some(narrow) => hash(&(&level.identity, narrow)),
            None => key.copied(),
        }
    }

    /// Puts a reply on record, where replies are reused.
    fn remember(&self, key: [u8; 32], reply: &Reply) {
        match (&self.runner.reply_record, self.reusing_store()) {
            (Some(record), _) => record.remember(&key, reply),
            (None, Some(store)) => store.remember(key, reply),
            (None, None) => {}
        }
    }

    fn reusing_store(&self) -> Option<&Arc<Store>> {
        self.runner.store.as_ref().filter(|_| self.runner.settings.reuse)
    }

    /// Everything that determines a reply, as a key; `None` where replies are not reused.
    fn reuse_key(&self, request: &Request, level: &Level) -> Option<[u8; 32]> {
        let Runner { reply_cache, reply_record, .. } = self.runner;
        if self.reusing_store().is_none() && reply_cache.is_none() && reply_record.is_none() {
            return None;
        }
        let parts = (
            &level.identity,
            &request.messages,
            request.max_tokens,
            request.temperature,
            request.seed,
            &request.schema,
        );
        match &request.tools {
            None => hash(&parts),
            Some(tools) => hash(&(parts, tools)),
        }
    }
}

/// `None` never comes: texts, numbers and JSON values always serialise. It would mean a call that is not reused.
fn hash(parts: &impl serde::Serialize) -> Option<[u8; 32]> {
    Some(*blake3::hash(&serde_json::to_vec(parts).ok()?).as_bytes())
}

/// A reply that is useless because it is not complete.
fn cut_off(reply: Reply, request: &Request) -> AskError {
    let message = format!("the text was cut off at {} tokens (max_tokens)", request.max_tokens);
    AskError {
        cost: FailedCost::Known(reply.usage),
        partial: Some(reply.text),
        ..AskError::free(FailureKind::Truncated, message)
    }
}

fn with_reason(error: AskError, why: Option<String>) -> AskError {
    let Some(why) = why else { return error };
    let message = format!("{} ({why})", error.failure.message);
    AskError { failure: Failure { message, ..error.failure }, ..error }
}
