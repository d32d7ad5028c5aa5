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
    let shared = SharedBudget::new(tokens, usd, CancellationToken::new()).journaled(Box::new(move |tokens, usd| {
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
    let shared =
        SharedBudget::new(Some(1_000), None, cancel.clone()).journaled(Box::new(|_, _| Err("the disk is full".into())));
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
