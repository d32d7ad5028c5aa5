//! The one account of a run: tokens, money and calls are reserved before a call and settled after it.
//!
//! Pure arithmetic without clock or locks, but for a budget that other runs share. The invariant, held by a property test: spent plus reserved never exceeds a
//! limit, whatever the order of reservations and settlements, as long as no call costs more than it reserved.

use crate::shared::SharedBudget;
use lemon_trace::LimitKind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The limits of one run. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// Prompt and completion tokens, of workers and orchestrator together.
    pub tokens: Option<u64>,
    /// US dollars, by the configured prices.
    pub usd: Option<f64>,
    /// Calls, every attempt counted.
    pub calls: Option<u64>,
    /// Wall time.
    pub seconds: Option<f64>,
}

/// What a model's tokens cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// US dollars per million prompt tokens.
    pub input: f64,
    /// US dollars per million completion tokens.
    pub output: f64,
}

impl Price {
    /// What so many tokens cost, in US dollars.
    pub fn usd(&self, tokens_in: u64, tokens_out: u64) -> f64 {
        (tokens_in as f64 * self.input + tokens_out as f64 * self.output) / 1e6
    }
}

/// What a call asks of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Want {
    /// Prompt tokens, at most.
    pub tokens_in: u64,
    /// Completion tokens the call would like to be allowed.
    pub tokens_out: u64,
    /// Completion tokens below which the call is not worth making.
    pub least_out: u64,
    /// The price of the model.
    pub price: Price,
    /// US dollars that the call costs besides its tokens: all that a tool costs.
    pub fixed_usd: f64,
    /// Whether the call was counted already, by [`Ledger::count_retry`].
    pub counted: bool,
}

/// The ledger's word on a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LedgerVerdict {
    /// Go ahead, within this.
    Granted(Reservation),
    /// Not now: calls in flight may give some of theirs back. Where a shared budget is used up, the run is cancelled instead.
    Wait,
    /// Never: too little is left and nothing is in flight.
    Exhausted {
        /// The limit met.
        limit: LimitKind,
        /// What the call needs at least.
        needed: f64,
        left: f64,
    },
}

/// Room for one call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reservation {
    /// Prompt tokens reserved.
    pub tokens_in: u64,
    /// Completion tokens reserved: the call's `max_tokens`.
    pub tokens_out: u64,
    price: Price,
    fixed_usd: f64,
}

impl Reservation {
    /// What its tokens cost.
    pub(crate) fn price(&self) -> Price {
        self.price
    }

    /// What the call costs besides its tokens.
    pub(crate) fn fixed_usd(&self) -> f64 {
        self.fixed_usd
    }

    /// All tokens reserved.
    pub fn tokens(&self) -> u64 {
        self.tokens_in + self.tokens_out
    }

    /// What they cost if all of them are used, in US dollars.
    pub fn usd(&self) -> f64 {
        self.price.usd(self.tokens_in, self.tokens_out) + self.fixed_usd
    }
}

/// The account of one run.
#[derive(Debug, Clone)]
pub struct Ledger {
    budget: Budget,
    spent_tokens: u64,
    spent_usd: f64,
    calls: u64,
    open: Vec<Reservation>,
    shared: Option<Arc<SharedBudget>>,
}

impl Ledger {
    /// An account with nothing spent.
    pub fn new(budget: Budget) -> Self {
        Ledger::within(budget, None)
    }

    /// The same within a budget that other runs share: what is reserved here is reserved there too.
    pub fn within(budget: Budget, shared: Option<Arc<SharedBudget>>) -> Self {
        Ledger { budget, spent_tokens: 0, spent_usd: 0.0, calls: 0, open: Vec::new(), shared }
    }

    /// Asks for room for one call.
    pub fn reserve(&mut self, want: &Want) -> LedgerVerdict {
        if !want.counted && !self.call_left() {
            return LedgerVerdict::Exhausted { limit: LimitKind::Calls, needed: 1.0, left: 0.0 };
        }
        let fits = self.tokens_out_that_fit(want);
        // Less than wanted is taken only when waiting cannot bring more: a reply cut short is worth less than one a little
        // later.
        if fits < want.tokens_out && !self.open.is_empty() {
            return LedgerVerdict::Wait;
        }
        let is_affordable = self.usd_left().is_none_or(|left| want.fixed_usd <= left);
        if !is_affordable && !self.open.is_empty() {
            return LedgerVerdict::Wait;
        }
        // A tool writes no tokens: it needs none.
        let needs_tokens = want.tokens_in + want.tokens_out > 0;
        if !is_affordable || needs_tokens && (fits < want.least_out.min(want.tokens_out) || fits == 0) {
            return self.exhausted(want);
        }
        let granted = Reservation {
            tokens_in: want.tokens_in,
            tokens_out: fits.min(want.tokens_out),
            price: want.price,
            fixed_usd: want.fixed_usd,
        };
        if self.shared.as_ref().is_some_and(|shared| !shared.reserve(&granted)) {
            return LedgerVerdict::Wait;
        }
        self.calls += u64::from(!want.counted);
        self.open.push(granted);
        LedgerVerdict::Granted(granted)
    }

    /// Closes a reservation with what the call really cost.
    pub fn settle(&mut self, reservation: Reservation, tokens_in: u64, tokens_out: u64) {
        if let Some(at) = self.open.iter().position(|open| *open == reservation) {
            self.open.swap_remove(at);
            if let Some(shared) = &self.shared {
                shared.settle(reservation, tokens_in, tokens_out);
            }
        }
        let usd = reservation.price.usd(tokens_in, tokens_out) + reservation.fixed_usd;
        self.spend(tokens_in.saturating_add(tokens_out), usd);
    }

    /// Closes the reservation of a call that was not made.
    pub fn give_back(&mut self, reservation: Reservation) {
        if let Some(at) = self.open.iter().position(|open| *open == reservation) {
            self.open.swap_remove(at);
            if let Some(shared) = &self.shared {
                shared.give_back(reservation);
            }
        }
    }

    /// Counts another attempt at a call before the wait for it, so that no other agent takes the last one meanwhile. `false`: none
    /// is left.
    pub fn count_retry(&mut self) -> bool {
        let left = self.call_left();
        self.calls += u64::from(left);
        left
    }

    /// Enters what was spent before this process took the run up.
    pub fn spend(&mut self, tokens: u64, usd: f64) {
        self.spent_tokens = self.spent_tokens.saturating_add(tokens);
        self.spent_usd += usd;
    }

    /// Takes back part of what was entered as spent, because it was not.
    pub(crate) fn unspend(&mut self, tokens: u64, usd: f64) {
        self.spent_tokens = self.spent_tokens.saturating_sub(tokens);
        self.spent_usd = (self.spent_usd - usd).max(0.0);
    }

    /// Moves the limits of tokens and US dollars.
    pub(crate) fn set_limits(&mut self, tokens: u64, usd: f64) {
        (self.budget.tokens, self.budget.usd) = (Some(tokens), Some(usd));
    }

    /// Enters calls made before this process took the run up.
    pub fn count_calls(&mut self, calls: u64) {
        self.calls += calls;
    }

    /// The limits.
    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// Tokens and US dollars spent or reserved.
    pub(crate) fn committed(&self) -> (u64, f64) {
        let held: u64 = self.open.iter().map(Reservation::tokens).sum();
        let held_usd: f64 = self.open.iter().map(Reservation::usd).sum();
        (self.spent_tokens.saturating_add(held), self.spent_usd + held_usd)
    }

    /// Tokens and US dollars spent.
    pub fn spent(&self) -> (u64, f64) {
        (self.spent_tokens, self.spent_usd)
    }

    /// Tokens neither spent nor reserved, if they are limited.
    pub fn tokens_left(&self) -> Option<u64> {
        let held: u64 = self.open.iter().map(Reservation::tokens).sum();
        Some(self.budget.tokens?.saturating_sub(self.spent_tokens).saturating_sub(held))
    }

    fn call_left(&self) -> bool {
        self.budget.calls.is_none_or(|limit| self.calls < limit)
    }

    fn usd_left(&self) -> Option<f64> {
        let held: f64 = self.open.iter().map(Reservation::usd).sum();
        Some((self.budget.usd? - self.spent_usd - held).max(0.0))
    }

    fn tokens_out_that_fit(&self, want: &Want) -> u64 {
        let by_tokens = self.tokens_left().map_or(u64::MAX, |left| left.saturating_sub(want.tokens_in));
        let by_usd = match self.usd_left() {
            None => u64::MAX,
            Some(left) => {
                let after_input = left - want.fixed_usd - want.price.usd(want.tokens_in, 0);
                if after_input < 0.0 {
                    0
                } else if want.price.output <= 0.0 {
                    u64::MAX
                } else {
                    // `as` saturates: a huge budget is no limit.
                    (after_input * 1e6 / want.price.output) as u64
                }
            }
        };
        by_tokens.min(by_usd)
    }

    fn exhausted(&self, want: &Want) -> LedgerVerdict {
        let least = want.least_out.min(want.tokens_out).max(u64::from(want.tokens_in > 0));
        let tokens = want.tokens_in + least;
        match self.tokens_left() {
            Some(left) if left < tokens => {
                LedgerVerdict::Exhausted { limit: LimitKind::Tokens, needed: tokens as f64, left: left as f64 }
            }
            _ => LedgerVerdict::Exhausted {
                limit: LimitKind::Usd,
                needed: want.price.usd(want.tokens_in, least) + want.fixed_usd,
                left: self.usd_left().unwrap_or_default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRICE: Price = Price { input: 1.0, output: 10.0 };

    fn want(tokens_in: u64, tokens_out: u64) -> Want {
        Want { tokens_in, tokens_out, least_out: 10, price: PRICE, fixed_usd: 0.0, counted: false }
    }

    fn tokens(limit: u64) -> Ledger {
        Ledger::new(Budget { tokens: Some(limit), ..Budget::default() })
    }

    #[track_caller]
    fn granted(verdict: LedgerVerdict) -> Reservation {
        match verdict {
            LedgerVerdict::Granted(reservation) => reservation,
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    #[test]
    fn a_second_call_waits_for_the_first_and_then_takes_what_is_left() {
        let mut ledger = tokens(300);
        let first = granted(ledger.reserve(&want(100, 150)));
        assert_eq!(ledger.reserve(&want(100, 150)), LedgerVerdict::Wait);
        ledger.settle(first, 80, 20);
        assert_eq!(granted(ledger.reserve(&want(100, 150))).tokens_out, 100);
    }

    #[test]
    fn too_little_left_is_said_with_numbers() {
        let expected = LedgerVerdict::Exhausted { limit: LimitKind::Tokens, needed: 110.0, left: 105.0 };
        assert_eq!(tokens(105).reserve(&want(100, 150)), expected);
        let mut poor = Ledger::new(Budget { usd: Some(0.0001), ..Budget::default() });
        let LedgerVerdict::Exhausted { limit: LimitKind::Usd, .. } = poor.reserve(&want(100, 150)) else {
            panic!("granted")
        };
    }

    #[test]
    fn calls_are_counted_when_they_begin() {
        let mut ledger = Ledger::new(Budget { calls: Some(1), ..Budget::default() });
        let first = granted(ledger.reserve(&want(1, 10)));
        ledger.settle(first, 1, 1);
        let LedgerVerdict::Exhausted { limit: LimitKind::Calls, .. } = ledger.reserve(&want(1, 10)) else {
            panic!("granted")
        };
    }

    proptest! {
        /// Any interleaving of calls that keep to their reservations stays within every limit.
        #[test]
        fn no_limit_is_ever_overrun(
            limit in 0u64..20_000,
            cents in 0u64..200,
            calls in 0u64..80,
            steps in prop::collection::vec((0u64..2_000, 1u64..2_000, any::<bool>(), 0.0f64..=1.0), 0..200),
        ) {
            let usd = cents as f64 / 1000.0;
            let mut ledger = Ledger::new(Budget { tokens: Some(limit), usd: Some(usd), calls: Some(calls), seconds: None });
            let mut open = Vec::new();
            for (tokens_in, tokens_out, finish, part) in steps {
                if finish && !open.is_empty() {
                    let reservation: Reservation = open.remove(0);
                    ledger.settle(reservation, reservation.tokens_in, (reservation.tokens_out as f64 * part) as u64);
                } else if let LedgerVerdict::Granted(reservation) = ledger.reserve(&want(tokens_in, tokens_out)) {
                    prop_assert!(reservation.tokens_out <= tokens_out);
                    open.push(reservation);
                }
                let held: u64 = open.iter().map(Reservation::tokens).sum();
                let held_usd: f64 = open.iter().map(Reservation::usd).sum();
                prop_assert!(ledger.spent_tokens + held <= limit);
                prop_assert!(ledger.spent_usd + held_usd <= usd + 1e-9);
                prop_assert!(ledger.calls <= calls);
            }
        }

        /// Waiting is only ever asked for while something is in flight, so it always ends.
        #[test]
        fn waiting_ends(limit in 0u64..1_000, tokens_in in 0u64..2_000, tokens_out in 1u64..2_000) {
            prop_assert_ne!(tokens(limit).reserve(&want(tokens_in, tokens_out)), LedgerVerdict::Wait);
        }
    }
}
