//! The tokens a profile may spend, over all its runs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A purse that many runs take from. What a run may need at most is taken before it begins and what it did not need is put
/// back after it: the purse is never overdrawn, however many run at once.
#[derive(Debug)]
pub struct Purse {
    // A std mutex: it is held for arithmetic and never across an await.
    account: Mutex<Account>,
    put_back: Notify,
}

#[derive(Debug)]
struct Account {
    left: Option<u64>,
    /// Runs that took and did not put back yet.
    out: usize,
}

impl Purse {
    /// A purse with so many tokens; `None`: without bottom.
    pub fn new(tokens: Option<u64>) -> Self {
        Purse { account: Mutex::new(Account { left: tokens, out: 0 }), put_back: Notify::new() }
    }

    /// Takes what a run may need at most, and waits for others to put back theirs if need be: most need far less than they
    /// may. `false`: there is not enough left, and nobody will put any back. Whoever takes puts back.
    pub async fn take(&self, tokens: u64) -> bool {
        loop {
            let changed = self.put_back.notified();
            tokio::pin!(changed);
            // Enabled before the look, so that what is put back in between is not missed.
            changed.as_mut().enable();
            if let Some(taken) = self.account().take(tokens) {
                return taken;
            }
            changed.await;
        }
    }

    /// Puts back what was taken and not spent.
    pub fn put_back(&self, tokens: u64) {
        let mut account = self.account();
        account.out = account.out.saturating_sub(1);
        account.left = account.left.map(|left| left.saturating_add(tokens));
        drop(account);
        self.put_back.notify_waiters();
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// `None`: not now, but perhaps once somebody puts back.
    fn take(&mut self, tokens: u64) -> Option<bool> {
        let left = match self.left {
            None => None,
            Some(left) if left >= tokens => Some(left - tokens),
            Some(_) => return (self.out == 0).then_some(false),
        };
        self.left = left;
        self.out += 1;
        Some(true)
    }
}
