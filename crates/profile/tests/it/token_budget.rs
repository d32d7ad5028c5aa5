//! The budget is never overdrawn, however many take from it at once.

use crate::common::wait;
use lemon_profile::{Cost, SpendingLimits, TokenBudget};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_out_is_never_more_than_was_in(
        tokens in 0u64..2_000,
        wishes in prop::collection::vec(prop::collection::vec((0u64..500, 0.0f64..=1.0), 1..40), 1..5),
    ) {
        let budget = &TokenBudget::new(Some(tokens));
        let [out, most_out, spent] = &[(); 3].map(|()| AtomicU64::new(0));
        let one = |most: u64, part: f64| async move {
            if !budget.take(most).await {
                return;
            }
            most_out.fetch_max(out.fetch_add(most, SeqCst) + most, SeqCst);
            tokio::task::yield_now().await;
            let used = (most as f64 * part) as u64;
            spent.fetch_add(used, SeqCst);
            // Counted back before it is put back, so that the count is never above the truth.
            out.fetch_sub(most - used, SeqCst);
            budget.put_back(most - used);
        };
        std::thread::scope(|scope| {
            for own in &wishes {
                scope.spawn(move || wait(futures::future::join_all(own.iter().map(|(most, part)| one(*most, *part)))));
            }
        });
        prop_assert!(most_out.load(SeqCst) <= tokens);
        // What was not spent is all still there, and not a token more.
        let left = tokens - spent.load(SeqCst);
        prop_assert!(wait(budget.take(left)));
        budget.put_back(0u64);
        prop_assert!(!wait(budget.take(1u64)));
    }
}

#[test]
fn a_budget_without_a_limit_gives_everything() {
    let budget = TokenBudget::new(None::<u64>);
    assert!(wait(budget.take(u64::MAX)) && wait(budget.take(u64::MAX)));
    budget.put_back(1u64);
    assert!(wait(budget.take(u64::MAX)));
}

#[test]
fn more_than_is_in_it_is_not_given_and_takes_nothing() {
    let budget = TokenBudget::new(Some(10));
    assert!(!wait(budget.take(11u64)) && wait(budget.take(10u64)));
    budget.put_back(0u64);
    assert!(!wait(budget.take(1u64)) && wait(budget.take(0u64)));
}

/// Most runs need far less than they may: a run that comes while much is out waits for what is put back.
#[test]
fn who_finds_too_little_waits_as_long_as_others_may_put_back() {
    let budget = TokenBudget::new(Some(10));
    let taken = wait(async {
        assert!(budget.take(10u64).await);
        let (taken, ()) = tokio::join!(budget.take(8u64), async { budget.put_back(9u64) });
        taken
    });
    assert!(taken);
}

/// Money and tokens are both kept: whichever is short first decides.
#[test]
fn money_is_kept_as_tokens_are() {
    let budget = TokenBudget::new(SpendingLimits { tokens: Some(100), usd: Some(0.5) });
    let cost = |tokens, usd| Cost { tokens, usd };
    assert!(!wait(budget.take(cost(1, 0.6))) && !wait(budget.take(cost(101, 0.1))));
    assert!(wait(budget.take(cost(60, 0.5))));
    budget.put_back(cost(0, 0.25));
    assert!(!wait(budget.take(cost(10, 0.3))) && wait(budget.take(cost(40, 0.25))));
}
