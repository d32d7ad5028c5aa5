//! The coordinator's side of a budget that workers share: it lends parts of it, and counts what is lent as spent until a worker
//! says otherwise. So the limit holds whatever becomes of a worker or of a message.

use crate::wire::{Amount, Answer, LeaseAccount, LeaseAsk};
use lemon_exec::{Lending, SharedBudget};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Differences of sums of money up to here come from rounding.
const ROUNDING: f64 = 1e-9;

/// The accounts of the workers.
pub(crate) struct Lenders {
    budget: Option<Arc<SharedBudget>>,
    /// A worker that says nothing for so long has spent what it held, for all that is known.
    silent: Duration,
    accounts: Mutex<HashMap<String, Account>>,
}

/// The account of one worker.
struct Account {
    /// What it said of itself last.
    told: LeaseAccount,
    /// What was lent to it, in all.
    lent: Amount,
    /// The last wish that was granted.
    granted: u64,
    heard: Instant,
    /// What it held when it fell silent, and others need not wait for any more.
    forfeit: Amount,
}

impl Lenders {
    pub fn new(budget: Option<Arc<SharedBudget>>, silent: Duration) -> Self {
        Lenders { budget, silent, accounts: Mutex::default() }
    }

    /// Whether there is a budget at all.
    pub fn is_limited(&self) -> bool {
        self.budget.is_some()
    }

    /// The answer to a wish, or to what a worker says of its account.
    pub fn answer(&self, ask: &LeaseAsk) -> Answer {
        let Some(budget) = &self.budget else { return Answer::Refused("there is no budget".to_owned()) };
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.entry(ask.node.clone()).or_insert_with(Account::new);
        account.heard = Instant::now();
        let forfeit = std::mem::take(&mut account.forfeit);
        // It was only slow: it holds that still.
        budget.hold_again(forfeit.tokens, forfeit.usd);
        account.note(ask.account, budget);
        let Some(wanted) = ask.wanted else { return Answer::Done };
        // The grant of this wish was lost on its way.
        if ask.wish <= account.granted {
            return Answer::Granted { wish: ask.wish };
        }
        match budget.lend(wanted.tokens, wanted.usd) {
            Lending::Granted => {
                account.lent.tokens += wanted.tokens;
                account.lent.usd += wanted.usd;
                account.granted = ask.wish;
                Answer::Granted { wish: ask.wish }
            }
            Lending::Wait => Answer::Wait,
            Lending::Met => Answer::Met(budget.met().map(Into::into)),
        }
    }

    /// Gives up what workers held that are gone: it may have been spent, and others need not wait for it.
    pub fn forfeit_silent(&self) {
        let Some(budget) = &self.budget else { return };
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        for account in accounts.values_mut().filter(|account| account.heard.elapsed() > self.silent) {
            let LeaseAccount { spent, returned, .. } = account.told;
            let held = Amount {
                tokens: account.lent.tokens.saturating_sub(spent.tokens + returned.tokens + account.forfeit.tokens),
                usd: (account.lent.usd - spent.usd - returned.usd - account.forfeit.usd).max(0.0),
            };
            budget.take_back((held.tokens, held.usd), (0, 0.0));
            account.forfeit.tokens += held.tokens;
            account.forfeit.usd += held.usd;
        }
    }
}

impl Account {
    fn new() -> Self {
        Account {
            told: LeaseAccount::default(),
            lent: Amount::default(),
            granted: 0,
            heard: Instant::now(),
            forfeit: Amount::default(),
        }
    }

    /// Notes what the worker says of itself. Counts only grow: an older message says nothing new.
    fn note(&mut self, now: LeaseAccount, budget: &SharedBudget) {
        let before = self.told;
        let told = &mut self.told;
        told.spent.tokens = now.spent.tokens.max(before.spent.tokens);
        told.spent.usd = now.spent.usd.max(before.spent.usd);
        told.returned.tokens = now.returned.tokens.max(before.returned.tokens);
        told.returned.usd = now.returned.usd.max(before.returned.usd);
        // Calls may cost more than was borrowed for them. That is on account too, though nothing granted it.
        let over = Amount {
            tokens: (told.spent.tokens + told.returned.tokens).saturating_sub(self.lent.tokens),
            usd: (told.spent.usd + told.returned.usd - self.lent.usd).max(0.0),
        };
        if over.tokens > 0 || over.usd > ROUNDING {
            budget.overspent(over.tokens, over.usd);
            self.lent.tokens += over.tokens;
            self.lent.usd += over.usd;
        }
        budget.take_back(
            (told.spent.tokens - before.spent.tokens, told.spent.usd - before.spent.usd),
            (told.returned.tokens - before.returned.tokens, told.returned.usd - before.returned.usd),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    fn ask(node: usize, wish: u64, wanted: Option<u64>, spent: u64, returned: u64) -> LeaseAsk {
        let amount = |tokens| Amount { tokens, usd: 0.0 };
        let account = LeaseAccount { granted: amount(0), spent: amount(spent), returned: amount(returned) };
        LeaseAsk { node: node.to_string(), wish, wanted: wanted.map(amount), account }
    }

    proptest! {
        /// Whatever is wished, lost, repeated or given back, and when a worker that is taken for dead speaks again: what workers hold
        /// or have spent is never more than the limit, but for what their calls cost more than was reserved; and all of it stays on
        /// account.
        #[test]
        fn no_more_is_lent_than_there_is(
            limit in 0u64..2_000,
            steps in prop::collection::vec(
                (0usize..3, 0u64..400, 0u64..400, any::<bool>(), any::<bool>(), prop_oneof![4 => Just(0u64), 1 => 1u64..300]),
                0..100,
            ),
        ) {
            let budget = Arc::new(SharedBudget::new(Some(limit), None, CancellationToken::new()));
            let lenders = Lenders::new(Some(budget.clone()), Duration::ZERO);
            // Held, spent, returned, and the number of the last wish, of three workers.
            let mut workers = [(0u64, 0u64, 0u64, 0u64); 3];
            let mut excess = 0;
            for (at, tokens, part, lost, again, over) in steps {
                let (held, spent, returned, wish) = &mut workers[at];
                *wish += 1;
                let question = ask(at, *wish, Some(tokens), *spent, *returned);
                let mut answer = lenders.answer(&question);
                if again {
                    answer = lenders.answer(&question);
                }
                // A lost grant is asked for again under the same number.
                if lost {
                    answer = lenders.answer(&question);
                }
                if let Answer::Granted { .. } = answer {
                    *held += tokens;
                }
                let used = part.min(*held);
                *held -= used;
                *spent += used + over;
                excess += over;
                if again {
                    *returned += *held;
                    *held = 0;
                }
                lenders.answer(&ask(at, *wish, None, *spent, *returned));
                let in_all: u64 = workers.iter().map(|(held, spent, ..)| held + spent).sum();
                prop_assert!(in_all <= limit + excess, "{in_all} of {limit} and {excess}");
                // What one worker holds hides what its calls cost too much, until it is spent or given back.
                let all_told: u64 = workers.iter().map(|(held, spent, ..)| if *held > 0 { 0 } else { *spent }).sum();
                prop_assert!(budget.spent().0 >= all_told && budget.spent().0 <= limit + excess);
                prop_assert!(excess > 0 || budget.spent().0 >= in_all);
                if part % 3 == 0 {
                    lenders.forfeit_silent();
                    prop_assert!(budget.spent().0 >= all_told && budget.spent().0 <= limit + excess);
                    prop_assert!(excess > 0 || budget.spent().0 >= in_all);
                }
            }
            // In the end nothing is held, and what was spent is on account to the token.
            for (at, (held, spent, returned, wish)) in workers.into_iter().enumerate() {
                lenders.answer(&ask(at, wish, None, spent, returned + held));
            }
            prop_assert_eq!(budget.spent().0, workers.iter().map(|(_, spent, ..)| spent).sum::<u64>());
        }
    }
}
