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
    /// The limit.
    pub limit: LimitKind,
    /// What the next call needs at most.
    pub needed: f64,
    /// What is left.
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
mod tests {
    use super::*;
    use crate::ledger::Price;
    use proptest::prelude::*;

    const PRICE: Price = Price { input: 1.0, output: 10.0 };

    fn want(tokens_in: u64, tokens_out: u64) -> Want {
        Want { tokens_in, tokens_out, least_out: 1, price: PRICE, fixed_usd: 0.0, counted: false }
    }

    fn shared(tokens: Option<u64>, usd: Option<f64>) -> (Arc<SharedBudget>, CancellationToken) {
        let cancel = CancellationToken::new();
        (Arc::new(SharedBudget::new(tokens, usd, cancel.clone())), cancel)
    }

    fn run(shared: &Arc<SharedBudget>) -> Ledger {
        Ledger::within(Budget::default(), Some(shared.clone()))
    }

    #[test]
    fn a_run_waits_for_another_and_ends_when_nothing_is_in_flight() {
        let (shared, cancel) = shared(Some(300), None);
        let (mut one, mut two) = (run(&shared), run(&shared));
        let LedgerVerdict::Granted(first) = one.reserve(&want(100, 100)) else { panic!("it fits") };
        assert_eq!(two.reserve(&want(50, 100)), LedgerVerdict::Wait);
        assert!(!cancel.is_cancelled() && shared.met().is_none(), "the first may give some back");
        one.settle(first, 90, 10);
        let LedgerVerdict::Granted(second) = two.reserve(&want(50, 100)) else { panic!("now it fits") };
        two.settle(second, 50, 100);
        assert_eq!((shared.spent().0, two.spent().0), (250, 150));
        // A reply is not cut short for the sake of the budget: a run that goes on has more of it.
        assert_eq!(one.reserve(&want(10, 100)), LedgerVerdict::Wait);
        assert!(cancel.is_cancelled());
        assert_eq!(shared.met(), Some(BudgetMet { limit: LimitKind::Tokens, needed: 110.0, left: 50.0 }));
    }

    #[test]
    fn the_record_is_ahead_of_what_is_spent() {
        let recorded = Arc::new(Mutex::new((0, 0.0)));
        let writes = recorded.clone();
        let (tokens, usd) = (Some(100_000), Some(1.0));
        let shared =
            SharedBudget::new(tokens, usd, CancellationToken::new()).journaled(Box::new(move |tokens, usd| {
                *writes.lock().unwrap() = (tokens, usd);
                Ok(())
            }));
        let shared = Arc::new(shared);
        let mut ledger = run(&shared);
        for _ in 0..50 {
            let LedgerVerdict::Granted(granted) = ledger.reserve(&want(100, 100)) else { panic!("it fits") };
            let (tokens, usd) = *recorded.lock().unwrap();
            assert!(tokens >= shared.spent().0 + 200 && usd >= shared.spent().1 + granted.usd() - 1e-12);
            ledger.settle(granted, 100, 50);
        }
        assert!(recorded.lock().unwrap().0 <= shared.spent().0 + 200 + 100, "and no further than it must be");
        shared.close().unwrap();
        assert_eq!(*recorded.lock().unwrap(), shared.spent());
    }

    #[test]
    fn what_cannot_be_recorded_is_not_spent() {
        let cancel = CancellationToken::new();
        let shared = SharedBudget::new(Some(1_000), None, cancel.clone())
            .journaled(Box::new(|_, _| Err("the disk is full".into())));
        let shared = Arc::new(shared);
        assert_eq!(run(&shared).reserve(&want(10, 10)), LedgerVerdict::Wait);
        assert!(cancel.is_cancelled() && shared.met().is_none());
        assert_eq!((shared.spent(), shared.close()), ((0, 0.0), Err("the disk is full".to_owned())));
    }

    /// What a borrower has asked for last.
    type Wish = Arc<Mutex<Option<(u64, f64)>>>;

    /// One budget and the parts of it that two other machines borrowed.
    #[test]
    fn what_is_lent_and_what_is_spent_here_stay_within_the_limit() {
        let (home, cancel) = shared(Some(500), None);
        assert_eq!(home.lend(300, 0.1), Lending::Granted);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asks = asked.clone();
        let ask: AskLender = Box::new(move |tokens, _| asks.lock().unwrap().push(tokens));
        let away = Arc::new(SharedBudget::borrowed(ask, CancellationToken::new()));
        let mut there = run(&away);
        assert_eq!(there.reserve(&want(100, 100)), LedgerVerdict::Wait);
        assert_eq!(there.reserve(&want(100, 100)), LedgerVerdict::Wait);
        assert_eq!(*asked.lock().unwrap(), [200], "asked once");
        away.borrow(300, 0.1);
        let LedgerVerdict::Granted(call) = there.reserve(&want(100, 100)) else { panic!("it fits now") };
        there.settle(call, 100, 20);
        let unused = away.take_unused();
        assert_eq!((away.spent().0, unused.0), (120, 180));
        // Here, a call that does not fit waits as long as others may give something back.
        let mut here = run(&home);
        assert_eq!(here.reserve(&want(100, 150)), LedgerVerdict::Wait);
        assert_eq!(home.lend(300, 0.0), Lending::Wait);
        home.take_back(away.spent(), unused);
        let LedgerVerdict::Granted(call) = here.reserve(&want(100, 150)) else { panic!("it came back") };
        assert_eq!(home.lend(100, 0.0), Lending::Granted);
        home.take_back((100, 0.0), (0, 0.0));
        assert_eq!(home.lend(100, 0.0), Lending::Wait, "a call is in flight here");
        assert!(!cancel.is_cancelled());
        here.settle(call, 100, 150);
        assert_eq!(home.lend(100, 0.0), Lending::Met);
        assert!(cancel.is_cancelled());
        assert_eq!(home.spent().0, 120 + 100 + 250);
    }

    proptest! {
        /// However the parts of a budget are lent, spent and given back, no more is spent in all than the limit.
        #[test]
        fn no_limit_is_overrun_by_borrowers(
            limit in 0u64..5_000,
            steps in prop::collection::vec((0usize..3, 0u64..500, 1u64..500, any::<bool>(), 0.0f64..=1.0), 0..150),
        ) {
            let (home, _) = shared(Some(limit), None);
            let wishes: [Wish; 3] = Default::default();
            let mut away = [0, 1, 2].map(|at: usize| {
                let wish = wishes[at].clone();
                let ask: AskLender = Box::new(move |tokens, usd| *wish.lock().unwrap() = Some((tokens, usd)));
                let part = Arc::new(SharedBudget::borrowed(ask, CancellationToken::new()));
                let ledger = run(&part);
                (part, ledger, Vec::<Reservation>::new(), 0u64)
            });
            for (at, tokens_in, tokens_out, finish, share) in steps {
                let (part, ledger, open, told) = &mut away[at];
                if finish && !open.is_empty() {
                    let call = open.remove(0);
                    ledger.settle(call, call.tokens_in, (call.tokens_out as f64 * share) as u64);
                } else if let LedgerVerdict::Granted(call) = ledger.reserve(&want(tokens_in, tokens_out)) {
                    open.push(call);
                }
                if let Some((tokens, usd)) = *wishes[at].lock().unwrap() && home.lend(tokens, usd) == Lending::Granted {
                    part.borrow(tokens, usd);
                }
                let mut wish = wishes[at].lock().unwrap();
                if wish.is_some() && !part.lender.as_ref().unwrap().asking.load(Ordering::SeqCst) {
                    *wish = None;
                }
                let unused = part.take_unused();
                let spent = part.spent().0;
                home.take_back((spent - *told, 0.0), unused);
                *told = spent;
                let in_all: u64 = away.iter().map(|(part, ..)| part.ledger().committed().0).sum();
                prop_assert!(in_all <= limit && home.ledger().committed().0 <= limit);
                prop_assert!(home.ledger().committed().0 >= in_all);
            }
        }

        /// However many runs share it and whatever they do, spent and held together stay within the limits.
        #[test]
        fn no_limit_is_overrun(
            limit in 0u64..20_000,
            cents in 0u64..200,
            steps in prop::collection::vec((0usize..4, 0u64..2_000, 1u64..2_000, any::<bool>(), 0.0f64..=1.0), 0..200),
        ) {
            let usd = cents as f64 / 1000.0;
            let (shared, cancel) = shared(Some(limit), Some(usd));
            let mut runs = [(); 4].map(|()| (run(&shared), Vec::<Reservation>::new()));
            for (at, tokens_in, tokens_out, finish, part) in steps {
                let flying = runs.iter().any(|(_, open)| !open.is_empty());
                let (ledger, open) = &mut runs[at];
                if finish && !open.is_empty() {
                    let reservation = open.remove(0);
                    let used = (reservation.tokens_out as f64 * part) as u64;
                    ledger.settle(reservation, reservation.tokens_in, used);
                } else {
                    let met = cancel.is_cancelled();
                    match ledger.reserve(&want(tokens_in, tokens_out)) {
                        LedgerVerdict::Granted(reservation) => {
                            prop_assert!(!met && reservation.tokens_out == tokens_out);
                            open.push(reservation);
                        }
                        LedgerVerdict::Wait => prop_assert!(flying || cancel.is_cancelled(), "waiting ends"),
                        LedgerVerdict::Exhausted { .. } => prop_assert!(false, "the runs themselves have no limit"),
                    }
                    prop_assert!(met || !flying || !cancel.is_cancelled(), "nothing in flight is ever cut off");
                }
                let (tokens, dollars) = shared.ledger().committed();
                prop_assert!(tokens <= limit && dollars <= usd + 1e-9);
            }
        }
    }
}
