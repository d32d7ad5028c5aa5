//! One budget for many runs: every call of every run is reserved here too, before it is made.

use crate::ledger::{Budget, Ledger, LedgerVerdict, Reservation, Want};
use crate::worker::Level;
use lemon_trace::{EventKind, LimitKind, Trace};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What all runs of a command may spend together: tokens and US dollars.
///
/// A call that does not fit waits as long as others are in flight, since they may give some of theirs back. Once a call does
/// not fit and none is in flight, the budget is met: the token given at the beginning is cancelled. So the runs must be
/// given that token, or one that it cancels. They end as cancelled runs do, and can be taken up again.
pub struct SharedBudget {
    // Std mutexes: they are held for arithmetic and never across an await.
    ledger: Mutex<Ledger>,
    met: Mutex<Option<BudgetMet>>,
    journal: Option<Journal>,
    /// What other machines hold of it. It is entered as spent as long as they do.
    lent: Mutex<(u64, f64)>,
    /// Where this budget comes from, if it is part of another machine's.
    lender: Option<Lender>,
    changed: Arc<Notify>,
    cancel: CancellationToken,
}

/// Asks another machine for more of its budget: at least so many tokens and US dollars. It is called once and then again only
/// after [`SharedBudget::borrow`].
type AskLender = Box<dyn Fn(u64, f64) + Send + Sync>;

struct Lender {
    ask: AskLender,
    asking: AtomicBool,
}

/// What became of a wish for part of a budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lending {
    /// It is lent.
    Granted,
    /// Not now: what others hold may come back.
    Wait,
    /// Never: the budget is met, and everything that shares it is cancelled.
    Met,
}

/// Puts on record that so many tokens and US dollars may have been spent, or says why it cannot.
pub type CommitSpend = Box<dyn Fn(u64, f64) -> Result<(), String> + Send + Sync>;

/// What outlives the process: a mark that is moved ahead of what is spent.
struct Journal {
    commit: CommitSpend,
    /// What is on record as spent; never less than what is.
    mark: Mutex<(u64, f64)>,
    /// How far ahead the mark is moved, so that not every call has to wait for a disk.
    step: (u64, f64),
    failure: Mutex<Option<String>>,
}

/// The limit that ended the runs, and what it looked like then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetMet {
    pub limit: LimitKind,
    /// What the next call needs at most.
    pub needed: f64,
    pub left: f64,
}

impl fmt::Debug for SharedBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedBudget").field("spent", &self.spent()).field("met", &self.met()).finish()
    }
}

/// Two are the same only if they are one.
impl PartialEq for SharedBudget {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl SharedBudget {
    /// A budget of tokens and US dollars. `cancel` is cancelled when it is met.
    pub fn new(tokens: Option<u64>, usd: Option<f64>, cancel: CancellationToken) -> Self {
        let budget = Budget { tokens, usd, calls: None, seconds: None };
        SharedBudget {
            ledger: Mutex::new(Ledger::new(budget)),
            met: Mutex::default(),
            journal: None,
            lent: Mutex::default(),
            lender: None,
            changed: Arc::default(),
            cancel,
        }
    }

    /// A part of another machine's budget: nothing at first. A call that does not fit waits while `ask` gets more, and what it
    /// gets is entered with [`SharedBudget::borrow`].
    pub fn borrowed(ask: AskLender, cancel: CancellationToken) -> Self {
        let lender = Some(Lender { ask, asking: AtomicBool::new(false) });
        SharedBudget { lender, ..SharedBudget::new(Some(0), Some(0.0), cancel) }
    }

    /// Enters what was borrowed on request; calls that wait try again.
    pub fn borrow(&self, tokens: u64, usd: f64) {
        {
            let mut ledger = self.ledger();
            let Budget { tokens: limit, usd: limit_usd, .. } = ledger.budget();
            ledger.set_limits(limit.unwrap_or(0).saturating_add(tokens), limit_usd.unwrap_or(0.0) + usd);
        }
        if let Some(lender) = &self.lender {
            lender.asking.store(false, Ordering::SeqCst);
        }
        self.changed.notify_waiters();
    }

    /// Takes what is borrowed and neither spent nor reserved, to be given back: while calls wait too, or two borrowers that
    /// each hold too little would wait for each other.
    pub fn take_unused(&self) -> (u64, f64) {
        if self.lender.is_none() {
            return (0, 0.0);
        }
        let mut ledger = self.ledger();
        let Budget { tokens, usd, .. } = ledger.budget();
        let (held, held_usd) = ledger.committed();
        let unused = (tokens.unwrap_or(0).saturating_sub(held), (usd.unwrap_or(0.0) - held_usd).max(0.0));
        ledger.set_limits(held, held_usd);
        unused
    }

    /// The lender has nothing left: everything ends.
    pub fn end(&self, met: Option<BudgetMet>) {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner) = met;
        self.cancel.cancel();
        self.changed.notify_waiters();
    }

    /// Lends part of it to another machine. It counts as spent until it comes back.
    pub fn lend(&self, tokens: u64, usd: f64) -> Lending {
        if self.met().is_some() {
            return Lending::Met;
        }
        {
            let mut ledger = self.ledger();
            let (held, held_usd) = ledger.committed();
            let (limit, spent) = (ledger.budget(), ledger.spent());
            let left = limit.tokens.map_or(u64::MAX, |limit| limit.saturating_sub(held));
            // Sums of money are rounded.
            let left_usd = limit.usd.map_or(f64::INFINITY, |limit| limit - held_usd + 1e-9);
            if tokens > left || usd > left_usd {
                // Calls of this machine are in flight, or others hold part of it.
                if held > spent.0 || held_usd > spent.1 || self.is_lent() {
                    return Lending::Wait;
                }
                let met = match tokens > left {
                    true => BudgetMet { limit: LimitKind::Tokens, needed: tokens as f64, left: left as f64 },
                    false => BudgetMet { limit: LimitKind::Usd, needed: usd, left: left_usd.max(0.0) },
                };
                drop(ledger);
                self.end(Some(met));
                return Lending::Met;
            }
            ledger.spend(tokens, usd);
            let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
            *lent = (lent.0.saturating_add(tokens), lent.1 + usd);
        }
        if self.record_ahead() {
            return Lending::Granted;
        }
        self.take_back((0, 0.0), (tokens, usd));
        self.cancel.cancel();
        Lending::Met
    }

    /// What was lent comes back: spent there, or not.
    pub fn take_back(&self, spent: (u64, f64), unused: (u64, f64)) {
        self.ledger().unspend(unused.0, unused.1);
        {
            let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
            let tokens = lent.0.saturating_sub(spent.0.saturating_add(unused.0));
            // Rounding must not leave a trace of money that no machine holds.
            let usd = if tokens == 0 { 0.0 } else { (lent.1 - spent.1 - unused.1).max(0.0) };
            *lent = (tokens, usd);
        }
        self.changed.notify_waiters();
    }

    /// Another machine spends more than was lent to it, because its calls cost more than was reserved for them. That counts as lent
    /// from now on, whether or not there is as much.
    pub fn overspent(&self, tokens: u64, usd: f64) {
        self.ledger().spend(tokens, usd);
        self.hold_again(tokens, usd);
        if !self.record_ahead() {
            self.cancel.cancel();
        }
    }

    /// What was taken back as spent is lent still: another machine has it after all.
    pub fn hold_again(&self, tokens: u64, usd: f64) {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        *lent = (lent.0.saturating_add(tokens), lent.1 + usd);
    }

    fn is_lent(&self) -> bool {
        let lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.0 > 0 || lent.1 > 0.0
    }

    /// The same with a record that outlives the process. Before a call is made, `commit` is told of what may be spent with it.
    /// It is told a thousandth of the limits ahead of time: that much may be lost to a process that is killed.
    pub fn journaled(self, commit: CommitSpend) -> Self {
        let Budget { tokens, usd, .. } = self.ledger().budget();
        let step = (tokens.map_or(10_000, |limit| limit / 1_000), usd.map_or(0.01, |limit| limit / 1_000.0));
        let (mark, failure) = (Mutex::new(self.spent()), Mutex::default());
        SharedBudget { journal: Some(Journal { commit, mark, step, failure }), ..self }
    }

    /// Puts on record what is spent and held now, to the token: at the end, or when nothing is in flight for a while.
    ///
    /// # Errors
    /// The record cannot be written, now or before.
    pub fn close(&self) -> Result<(), String> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if let Some(failure) = journal.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(failure);
        }
        // Read under the lock of the mark: a reservation made meanwhile is above the mark, and moves it.
        let mut mark = journal.mark.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.ledger().committed();
        (journal.commit)(now.0, now.1)?;
        *mark = now;
        Ok(())
    }

    /// Enters what was spent before.
    pub fn enter(&self, tokens: u64, usd: f64) {
        self.ledger().spend(tokens, usd);
    }

    /// Enters what a run on record has spent. A call whose end is not on record counts as all that was reserved for it.
    pub fn enter_run(&self, trace: &Trace, levels: &[Level]) {
        let mut open: HashMap<&str, u64> = HashMap::new();
        let (mut tokens, mut usd) = (0u64, 0.0);
        for event in &trace.events {
            tokens = tokens.saturating_add(event.spend.tokens());
            usd += event.spend.usd;
            match &event.kind {
                EventKind::Delegate { to, reserved, .. } => {
                    open.insert(to, *reserved);
                }
                EventKind::Resume { lost_tokens, .. } => {
                    open.clear();
                    tokens = tokens.saturating_add(*lost_tokens);
                }
                EventKind::Stop { .. } => open.clear(),
                EventKind::Decision { .. }
                | EventKind::Rejection { .. }
                | EventKind::ToolCall { call: Some(_), .. }
                | EventKind::Approval { .. }
                | EventKind::Return { .. }
                | EventKind::Budget { .. } => {
                    open.remove(event.agent.as_str());
                }
                _ => {}
            }
        }
        let lost: u64 = open.values().sum();
        let dearest = levels.iter().map(|level| level.price.input.max(level.price.output)).fold(0.0, f64::max);
        self.enter(tokens.saturating_add(lost), usd + lost as f64 * dearest / 1e6);
    }

    /// Tokens and US dollars spent so far.
    pub fn spent(&self) -> (u64, f64) {
        self.ledger().spent()
    }

    /// The limit that ended the runs, if one did.
    pub fn met(&self) -> Option<BudgetMet> {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notified when something was given back.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Makes room for a call. `false`: not now, or never; then everything is cancelled.
    pub(crate) fn reserve(&self, reservation: &Reservation) -> bool {
        let want = Want {
            tokens_in: reservation.tokens_in,
            tokens_out: reservation.tokens_out,
            // Nothing is cut short for the sake of what comes later: it ends here, and can go on with more.
            least_out: reservation.tokens_out,
            price: reservation.price(),
            fixed_usd: reservation.fixed_usd(),
            counted: true,
        };
        if self.met().is_some() {
            return false;
        }
        let verdict = self.ledger().reserve(&want);
        match verdict {
            LedgerVerdict::Granted(granted) => {
                let recorded = self.record_ahead();
                if !recorded {
                    self.ledger().give_back(granted);
                    self.cancel.cancel();
                }
                recorded
            }
            LedgerVerdict::Wait | LedgerVerdict::Exhausted { .. } if self.lender.is_some() => {
                self.ask_for(reservation);
                false
            }
            LedgerVerdict::Wait => false,
            LedgerVerdict::Exhausted { .. } if self.is_lent() => false,
            LedgerVerdict::Exhausted { limit, needed, left } => {
                *self.met.lock().unwrap_or_else(PoisonError::into_inner) = Some(BudgetMet { limit, needed, left });
                self.cancel.cancel();
                false
            }
        }
    }

    /// Asks the lender for what a call needs, unless it is asked already.
    fn ask_for(&self, reservation: &Reservation) {
        let Some(lender) = &self.lender else { return };
        if !lender.asking.swap(true, Ordering::SeqCst) {
            // A rounding error must not make the call ask for ever.
            (lender.ask)(reservation.tokens(), reservation.usd() * (1.0 + 1e-9) + 1e-9);
        }
    }

    /// Moves the mark ahead of what is spent and held. `false`: it cannot be put on record.
    fn record_ahead(&self) -> bool {
        let Some(journal) = &self.journal else { return true };
        let (tokens, usd) = self.ledger().committed();
        let mut mark = journal.mark.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens <= mark.0 && usd <= mark.1 {
            return true;
        }
        let ahead = (tokens.saturating_add(journal.step.0), usd + journal.step.1);
        match (journal.commit)(ahead.0, ahead.1) {
            Ok(()) => {
                *mark = ahead;
                true
            }
            Err(failure) => {
                *journal.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                false
            }
        }
    }

    /// Closes a reservation with what the call cost.
    pub(crate) fn settle(&self, reservation: Reservation, tokens_in: u64, tokens_out: u64) {
        self.ledger().settle(reservation, tokens_in, tokens_out);
        self.changed.notify_waiters();
    }

    /// Closes the reservation of a call that was not made.
    pub(crate) fn give_back(&self, reservation: Reservation) {
        self.ledger().give_back(reservation);
        self.changed.notify_waiters();
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
