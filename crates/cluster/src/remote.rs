//! A worker's side of what stays with the coordinator: the orchestrator, the reply cache and the replies on record of a job.

use crate::asks::key_text;
use crate::node::Caller;
use crate::wire::{Answer, Ask, Drafted, WireContext};
use async_trait::async_trait;
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, Refused, WriteContext};
use lemon_exec::worker::Reply;
use lemon_exec::{ReplyRecord, ReplySource};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The orchestrator of a job: the first round came with it, each further one is asked for.
pub(crate) struct RemoteOrchestrator {
    caller: Arc<Caller>,
    first: Mutex<Option<Drafted>>,
    fallback: Mutex<Option<String>>,
}

impl RemoteOrchestrator {
    pub fn new(caller: Arc<Caller>, first: Drafted) -> Self {
        RemoteOrchestrator { caller, first: Mutex::new(Some(first)), fallback: Mutex::default() }
    }

    fn drafted(&self, drafted: Drafted) -> Result<Option<Draft>, OrchestratorError> {
        lock(&self.fallback).clone_from(&drafted.fallback);
        drafted.draft()
    }

    async fn asked(&self, ask: Ask) -> Result<Option<Draft>, OrchestratorError> {
        match self.caller.ask(&ask).await {
            Ok(Answer::Drafted(drafted)) => self.drafted(drafted),
            other => {
                // What this run comes to is never sent.
                self.caller.give_up(other);
                Ok(None)
            }
        }
    }
}

#[async_trait]
impl Orchestrator for RemoteOrchestrator {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let first = if context.round == 1 { lock(&self.first).take() } else { None };
        match first {
            Some(first) => self.drafted(first),
            None => {
                let (job, context) = (self.caller.job.clone(), WireContext::of(context));
                self.asked(Ask::Draft { job, context }).await
            }
        }
    }

    async fn repair(
        &self,
        context: &WriteContext<'_>,
        refused: &Refused<'_>,
    ) -> Result<Option<Draft>, OrchestratorError> {
        let (job, context, text) = (self.caller.job.clone(), WireContext::of(context), refused.text.to_owned());
        self.asked(Ask::Repair { job, context, text }).await
    }

    fn fallback(&self, _: &WriteContext<'_>) -> Option<String> {
        lock(&self.fallback).clone()
    }
}

/// The reply cache of a job.
pub(crate) struct RemoteReplies(pub Arc<Caller>);

#[async_trait]
impl ReplySource for RemoteReplies {
    async fn ask(&self, key: &[u8; 32]) -> Option<Reply> {
        let mut lent = None;
        loop {
            let ask = Ask::Recall { job: self.0.job.clone(), key: key_text(key) };
            match self.0.ask(&ask).await {
                Ok(Answer::Reply(reply)) => return Some(reply.into()),
                Ok(Answer::Yours) => return None,
                // Another job makes the call; the coordinator has waited a while already.
                Ok(Answer::Wait) => {
                    lent.get_or_insert_with(|| self.0.lend_slot());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                other => {
                    self.0.give_up(other);
                    // The run is cancelled: this future is dropped.
                    return std::future::pending().await;
                }
            }
        }
    }

    fn put(&self, key: &[u8; 32], reply: Option<&Reply>) {
        let reply = reply.map(|reply| reply.clone().into());
        let ask = Ask::Remember { job: self.0.job.clone(), key: key_text(key), reply };
        self.0.tell(ask);
    }
}

/// The replies on record at the coordinator of a job.
pub(crate) struct RemoteRecord(pub Arc<Caller>);

#[async_trait]
impl ReplyRecord for RemoteRecord {
    async fn recall(&self, key: &[u8; 32]) -> Option<Reply> {
        match self.0.ask(&Ask::OnRecord { job: self.0.job.clone(), key: key_text(key) }).await {
            Ok(Answer::Reply(reply)) => Some(reply.into()),
            Ok(Answer::Yours) => None,
            other => {
                self.0.give_up(other);
                // As above.
                std::future::pending().await
            }
        }
    }

    fn remember(&self, key: &[u8; 32], reply: &Reply) {
        self.0.tell(Ask::Record { job: self.0.job.clone(), key: key_text(key), reply: reply.clone().into() });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
