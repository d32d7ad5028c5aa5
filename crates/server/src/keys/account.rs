//! The account of one key in one period.

use super::ServerKey;
use crate::refusal::Refusal;
use axum::http::StatusCode;
use lemon_exec::{CommitSpend, SharedBudget};
use rusqlite::{Connection, params};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const MINUTE: Duration = Duration::from_secs(60);

/// What a key has spent in a period, and which runs spend more of it.
pub struct KeyAccount {
    period: String,
    spending: Arc<Spending>,
    /// When it asked during the last minute.
    calls: VecDeque<Instant>,
    database: Arc<Mutex<Connection>>,
}

/// A budget, and the runs under way in it.
struct Spending {
    shared: Arc<SharedBudget>,
    cancel: CancellationToken,
    runs: AtomicUsize,
}

/// Room for one run in the budget of a key. Dropping it ends the run's part.
pub struct Grant {
    spending: Option<Arc<Spending>>,
    cancel: CancellationToken,
    /// What is told when the budget is met.
    quota: Option<Refusal>,
}

impl KeyAccount {
    pub fn new(
        key: &ServerKey,
        period: String,
        spent: (u64, f64),
        calls: VecDeque<Instant>,
        database: Arc<Mutex<Connection>>,
    ) -> Self {
        let spending = Spending::new(key, &period, spent, database.clone());
        KeyAccount { period, spending, calls, database }
    }

    pub fn period(&self) -> &str {
        &self.period
    }

    pub fn into_calls(self) -> VecDeque<Instant> {
        self.calls
    }

    pub fn admit(&mut self, key: &ServerKey) -> Result<Grant, Refusal> {
        let now = Instant::now();
        while self.calls.front().is_some_and(|at| now.duration_since(*at) >= MINUTE) {
            self.calls.pop_front();
        }
        if let (Some(rpm), Some(first)) = (key.limits.rpm, self.calls.front())
            && self.calls.len() as u64 >= rpm
        {
            let wait = MINUTE.saturating_sub(now.duration_since(*first)).as_secs() as u32 + 1; // at most 60
            let fact = format!("the key `{}` may make {rpm} requests a minute", key.name);
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", fact);
            return Err(refusal.code("rate_limit_exceeded").retry_after(wait));
        }
        let spent = self.spending.shared.spent();
        let used_up = key.limits.budget_tokens.is_some_and(|limit| spent.0 >= limit)
            || key.limits.budget_usd.is_some_and(|limit| spent.1 >= limit);
        let met = self.spending.shared.met().is_some() || self.spending.cancel.is_cancelled();
        if used_up || met && self.spending.runs.load(Ordering::Acquire) > 0 {
            return Err(quota(key));
        }
        if met {
            // A call did not fit, which ended the runs of then. A smaller one may.
            self.spending = Spending::new(key, &self.period, spent, self.database.clone());
        }
        self.calls.push_back(now);
        self.spending.runs.fetch_add(1, Ordering::AcqRel);
        let (spending, cancel) = (self.spending.clone(), self.spending.cancel.clone());
        Ok(Grant { spending: Some(spending), cancel, quota: Some(quota(key)) })
    }
}

/// That the budget of a key is used up.
fn quota(key: &ServerKey) -> Refusal {
    let limits = &key.limits;
    let tokens = limits.budget_tokens.map(|limit| format!("{limit} tokens"));
    let usd = limits.budget_usd.map(|limit| format!("{limit} USD"));
    let all = tokens.into_iter().chain(usd).collect::<Vec<_>>().join(", ");
    let per = match limits.per {
        super::Period::Ever => String::new(),
        per => format!(" per {per}"),
    };
    let fact = format!("the budget of the key `{}` ({all}{per}) is used up, or too small for the next call", key.name);
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "insufficient_quota", fact).code("insufficient_quota")
}

impl Spending {
    fn new(key: &ServerKey, period: &str, spent: (u64, f64), database: Arc<Mutex<Connection>>) -> Arc<Self> {
        let cancel = CancellationToken::new();
        let limits = &key.limits;
        let shared = SharedBudget::new(limits.budget_tokens, limits.budget_usd, cancel.clone());
        shared.enter(spent.0, spent.1);
        let (id, period) = (key.id.clone(), period.to_owned());
        let commit: CommitSpend = Box::new(move |tokens, usd| {
            let database = database.lock().unwrap_or_else(PoisonError::into_inner);
            let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
            let sql = "INSERT INTO spent (key, period, tokens, usd) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (key, period) DO UPDATE SET tokens = excluded.tokens, usd = excluded.usd";
            let mut statement = database.prepare_cached(sql).map_err(|error| error.to_string())?;
            statement.execute(params![id, period, tokens, usd]).map(|_| ()).map_err(|error| error.to_string())
        });
        Arc::new(Spending { shared: Arc::new(shared.journaled(commit)), cancel, runs: AtomicUsize::new(0) })
    }
}

impl Grant {
    /// For a client without a key.
    pub fn unlimited() -> Self {
        Grant { spending: None, cancel: CancellationToken::new(), quota: None }
    }

    /// Cancelled when the budget is met.
    pub fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// That the budget is met, if it is.
    pub fn met(&self) -> Option<Refusal> {
        self.quota.clone().filter(|_| self.cancel.is_cancelled())
    }

    /// The budget that the run's calls are reserved in.
    pub fn shared(&self) -> Option<Arc<SharedBudget>> {
        self.spending.as_ref().map(|spending| spending.shared.clone())
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(spending) = &self.spending
            && spending.runs.fetch_sub(1, Ordering::AcqRel) == 1
        {
            // Nothing is in flight: the record can say exactly what was spent. Where that fails, it stays ahead of the truth,
            // and the next reservation that needs the record is refused.
            let _ = spending.shared.close();
        }
    }
}
