//! The tokens and the money a profile may spend, over all its runs.

use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A budget that many runs share. What a run may need at most is taken before it begins, and what it did not need is put back
/// after it: the budget is never overdrawn, however many run at once.
#[derive(Debug)]
pub struct TokenBudget {
    // A std mutex: it is held for arithmetic and never across an await.
    account: Mutex<Account>,
    put_back: Notify,
}

/// Tokens, and what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    pub tokens: u64,
    /// US dollars.
    pub usd: f64,
}

impl Cost {
    /// What is left of it after some was spent.
    pub fn less(self, spent: Cost) -> Cost {
        Cost { tokens: self.tokens.saturating_sub(spent.tokens), usd: (self.usd - spent.usd).max(0.0) }
    }
}

/// Tokens that cost nothing.
impl From<u64> for Cost {
    fn from(tokens: u64) -> Self {
        Cost { tokens, usd: 0.0 }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        let add = |sum: Cost, it: Cost| Cost { tokens: sum.tokens.saturating_add(it.tokens), usd: sum.usd + it.usd };
        costs.fold(Cost::default(), add)
    }
}

/// What may be spent. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SpendingLimits {
    pub tokens: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
}

/// A limit on tokens alone.
impl From<Option<u64>> for SpendingLimits {
    fn from(tokens: Option<u64>) -> Self {
        SpendingLimits { tokens, usd: None }
    }
}

impl SpendingLimits {
    /// What is left after some was spent.
    pub fn less(self, spent: Cost) -> SpendingLimits {
        SpendingLimits {
            tokens: self.tokens.map(|tokens| tokens.saturating_sub(spent.tokens)),
            usd: self.usd.map(|usd| (usd - spent.usd).max(0.0)),
        }
    }

    /// Half of it, but as much as `least` if there is that much.
    pub fn half(self, least: Cost) -> SpendingLimits {
        SpendingLimits {
            tokens: self.tokens.map(|tokens| (tokens / 2).max(least.tokens.min(tokens))),
            usd: self.usd.map(|usd| (usd / 2.0).max(least.usd.min(usd))),
        }
    }
}

#[derive(Debug)]
struct Account {
    left: SpendingLimits,
    /// Runs that took and did not put back yet.
    out: usize,
}

impl TokenBudget {
    /// A budget of so much.
    pub fn new(left: impl Into<SpendingLimits>) -> Self {
        TokenBudget { account: Mutex::new(Account { left: left.into(), out: 0 }), put_back: Notify::new() }
    }

    /// Takes what a run may need at most. Where too little is left it waits for other runs to put back theirs: most need far
    /// less than they may. `false`: too little is left, and no run is under way. Every `take` must be paired with a
    /// [`TokenBudget::put_back`].
    pub async fn take(&self, most: impl Into<Cost>) -> bool {
        let most = most.into();
        loop {
            let changed = self.put_back.notified();
            tokio::pin!(changed);
            // Enabled before the check, so that what is put back in between is not missed.
            changed.as_mut().enable();
            if let Some(taken) = self.account().take(most) {
                return taken;
            }
            changed.await;
        }
    }

    /// Puts back what was taken and not spent.
    pub fn put_back(&self, unspent: impl Into<Cost>) {
        let unspent = unspent.into();
        let mut account = self.account();
        account.out = account.out.saturating_sub(1);
        account.left = SpendingLimits {
            tokens: account.left.tokens.map(|left| left.saturating_add(unspent.tokens)),
            usd: account.left.usd.map(|left| left + unspent.usd),
        };
        drop(account);
        self.put_back.notify_waiters();
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// `None`: not now, but perhaps once a run puts back.
    fn take(&mut self, most: Cost) -> Option<bool> {
        let enough = self.left.tokens.is_none_or(|left| left >= most.tokens)
            && self.left.usd.is_none_or(|left| left >= most.usd);
        if !enough {
            return (self.out == 0).then_some(false);
        }
        self.left = self.left.less(most);
        self.out += 1;
        Some(true)
    }
}
