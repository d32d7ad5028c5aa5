//! What workers ask about jobs: the next round, the reply to a call, a lost object, part of the budget.

use crate::coordinator::Shared;
use crate::wire::{Answer, Ask, Drafted, ExactReply};
use lemon_exec::orchestrator::{Orchestrator, Refused};
use lemon_exec::store::Store;
use lemon_exec::{OpenReply, ReplyCache};
use lemon_rollout::RemoteRun;
use lemon_spec::{Language, validate_round};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a worker is kept waiting for a call that another job makes. Then it asks again.
const PATIENCE: Duration = Duration::from_secs(2);

/// What stays here of a job: what it shares with other runs.
pub(crate) struct Kept {
    orchestrator: Arc<dyn Orchestrator>,
    language: Arc<Language>,
    question: String,
    cache: Option<Arc<ReplyCache>>,
    /// Where replies are on record, if they are reused.
    store: Option<Arc<Store>>,
    calls: Mutex<Calls>,
}

/// The calls of a job.
#[derive(Default)]
struct Calls {
    /// Those it was left to make.
    open: HashMap<[u8; 32], OpenReply>,
    /// Those it has made. Made anew by another worker, it makes them again: its result must not depend on how often it is made.
    made: HashSet<[u8; 32]>,
    /// Those whose replies it has put on record, for the same reason.
    recorded: HashSet<[u8; 32]>,
}

impl Kept {
    pub fn of(run: &RemoteRun<'_>) -> Self {
        Kept {
            orchestrator: run.runner.orchestrator.clone(),
            language: run.runner.language.clone(),
            question: run.job.question.clone(),
            cache: run.runner.reply_cache.clone(),
            store: run.runner.store.clone().filter(|_| run.runner.settings.reuse),
            calls: Mutex::default(),
        }
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn recall(&self, key: [u8; 32]) -> Answer {
        let Some(cache) = &self.cache else { return Answer::Yours };
        {
            let calls = self.calls();
            if calls.open.contains_key(&key) || calls.made.contains(&key) {
                return Answer::Yours;
            }
        }
        match tokio::time::timeout(PATIENCE, cache.claim(&key)).await {
            Ok(Ok(reply)) => Answer::Reply(reply.into()),
            Ok(Err(open)) => {
                self.calls().open.insert(key, open);
                Answer::Yours
            }
            Err(_) => Answer::Wait,
        }
    }

    fn remember(&self, key: [u8; 32], reply: Option<ExactReply>) -> Answer {
        let mut calls = self.calls();
        let open = calls.open.remove(&key);
        if let Some(reply) = reply {
            calls.made.insert(key);
            if let Some(open) = open {
                open.fill(reply.into());
            }
        }
        Answer::Done
    }

    fn on_record(&self, key: [u8; 32]) -> Answer {
        let Some(store) = self.store.as_ref().filter(|_| !self.calls().recorded.contains(&key)) else {
            return Answer::Yours;
        };
        match store.recall(&key) {
            Ok(Some(reply)) => Answer::Reply(reply.into()),
            Ok(None) => Answer::Yours,
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    fn record(&self, key: [u8; 32], reply: ExactReply) -> Answer {
        if let Some(store) = &self.store {
            store.remember(key, &reply.into());
            self.calls().recorded.insert(key);
        }
        Answer::Done
    }
}

/// The answer to a message.
pub(crate) async fn answer(shared: &Shared, message: &[u8]) -> Answer {
    let ask = match serde_json::from_slice(message) {
        Ok(ask) => ask,
        Err(error) => return Answer::Refused(error.to_string()),
    };
    match ask {
        Ask::Draft { job, context } => {
            let Some(kept) = shared.kept(&job) else { return Answer::Unknown };
            let context = context.context(&kept.question, &kept.language);
            let draft = kept.orchestrator.draft(&context).await;
            Answer::Drafted(Drafted::of(draft, kept.orchestrator.fallback(&context)))
        }
        Ask::Repair { job, context, text } => {
            let Some(kept) = shared.kept(&job) else { return Answer::Unknown };
            let earlier = context.earlier();
            let diagnostics = match validate_round(&text, &kept.language, &earlier) {
                Ok(_) => Vec::new(),
                Err(rejection) => rejection.diagnostics,
            };
            let context = context.context(&kept.question, &kept.language);
            let refused = Refused { text: &text, diagnostics: &diagnostics };
            let draft = kept.orchestrator.repair(&context, &refused).await;
            Answer::Drafted(Drafted::of(draft, kept.orchestrator.fallback(&context)))
        }
        Ask::Recall { job, key } => match of_call(shared, &job, &key) {
            Ok((kept, key)) => kept.recall(key).await,
            Err(answer) => *answer,
        },
        Ask::Remember { job, key, reply } => match of_call(shared, &job, &key) {
            Ok((kept, key)) => kept.remember(key, reply),
            Err(answer) => *answer,
        },
        Ask::OnRecord { job, key } => match of_call(shared, &job, &key) {
            Ok((kept, key)) => kept.on_record(key),
            Err(answer) => *answer,
        },
        Ask::Record { job, key, reply } => match of_call(shared, &job, &key) {
            Ok((kept, key)) => kept.record(key, reply),
            Err(answer) => *answer,
        },
        Ask::Lost { object } => match shared.put_back(&object).await {
            Ok(true) => Answer::Done,
            Ok(false) => Answer::Unknown,
            Err(error) => Answer::Refused(error.to_string()),
        },
        Ask::Lease(ask) => shared.lenders.answer(&ask),
    }
}

/// What is kept of a job, and the key of one of its calls.
fn of_call(shared: &Shared, job: &str, key: &str) -> Result<(Arc<Kept>, [u8; 32]), Box<Answer>> {
    let Some(kept) = shared.kept(job) else { return Err(Box::new(Answer::Unknown)) };
    match key_of(key) {
        Some(key) => Ok((kept, key)),
        None => Err(Box::new(Answer::Refused(format!("`{key}` is no key")))),
    }
}

pub(crate) fn key_text(key: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*key).to_hex().to_string()
}

fn key_of(text: &str) -> Option<[u8; 32]> {
    blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
}
