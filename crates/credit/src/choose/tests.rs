use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// As many tasks for an edit as costs are given.
fn candidates(edits: &[(Family, &[u64])]) -> Vec<CounterfactualOption> {
    let of = |(edit, (family, costs)): (usize, &(Family, &[u64]))| -> Vec<CounterfactualOption> {
        costs
            .iter()
            .enumerate()
            .map(|(task, cost)| CounterfactualOption { edit, family: *family, task, cost: *cost })
            .collect()
    };
    edits.iter().enumerate().flat_map(of).collect()
}

/// Proposals until there are no more, each coming to the difference that `delta` says and costing what was expected.
fn run(chooser: &mut Chooser, delta: impl Fn(&CounterfactualOption) -> Option<f64>) -> Vec<CounterfactualOption> {
    std::iter::from_fn(|| {
        let candidate = chooser.propose()?;
        chooser.record(&candidate, delta(&candidate), candidate.cost);
        Some(candidate)
    })
    .collect()
}

const INFORMATION: ChoiceRule = ChoiceRule::Information { floor: 0.0 };

#[test]
fn what_is_nearly_free_comes_first() {
    let offered =
        candidates(&[(Family::Agent, &[900, 900]), (Family::Answer, &[0, 0, 0]), (Family::Duty, &[300, 400])]);
    let mut chooser = Chooser::new(INFORMATION, u64::MAX, offered, 1);
    let families: Vec<Family> = run(&mut chooser, |_| None).iter().map(|candidate| candidate.family).collect();
    let free = [Family::Answer; 3];
    let paid = [Family::Duty, Family::Agent, Family::Duty, Family::Agent];
    assert_eq!(families[..3], free);
    assert_eq!(families[3..].iter().collect::<BTreeSet<_>>(), paid.iter().collect());
    assert_eq!(families[3], Family::Duty);
}

#[test]
fn a_family_that_changes_nothing_is_asked_less() {
    let offered = candidates(&[(Family::Share, &[100; 200]), (Family::Capacity, &[100; 200])]);
    let mut chooser = Chooser::new(INFORMATION, 10_000, offered, 1);
    let wild = |candidate: &CounterfactualOption| match candidate.family {
        Family::Capacity => Some(if candidate.task.is_multiple_of(2) { 1.0 } else { -1.0 }),
        _ => Some(0.0),
    };
    run(&mut chooser, wild);
    let picks = chooser.picks();
    assert!(picks[&Family::Capacity] > 3 * picks[&Family::Share], "{picks:?}");
    assert!(picks[&Family::Share] > 3, "{picks:?}");
    assert_eq!(chooser.accounts()[&Family::Share].deltas.zeros(), Some(1.0));
    assert_eq!(chooser.spent(), 10_000);
}

#[test]
fn what_is_under_way_counts_as_back() {
    let offered = candidates(&[(Family::Agent, &[10; 4]), (Family::Duty, &[10; 4])]);
    let mut chooser = Chooser::new(INFORMATION, u64::MAX, offered, 3);
    let edits: Vec<usize> = (0..8).filter_map(|_| chooser.propose()).map(|candidate| candidate.edit).collect();
    assert!(edits.chunks(2).all(|pair| pair[0] != pair[1]), "{edits:?}");
}

#[test]
fn the_reserved_and_the_spent_keep_to_the_cap() {
    let mut chooser = Chooser::new(INFORMATION, 100, candidates(&[(Family::Agent, &[40; 9])]), 1);
    let (first, second) = (chooser.propose().unwrap(), chooser.propose().unwrap());
    assert_eq!((chooser.propose(), chooser.left()), (None, 20));
    // It was cheaper than expected.
    chooser.record(&first, Some(0.0), 10);
    assert_eq!(chooser.left(), 50);
    // And more expensive.
    chooser.record(&second, None, 95);
    assert_eq!((chooser.propose(), chooser.left(), chooser.spent()), (None, 0, 105));
}

#[test]
fn an_account_expects_what_its_family_did() {
    let account = |deltas: &[f64]| {
        let mut account = Account::default();
        deltas.iter().for_each(|delta| account.add(Some(*delta), 7));
        account
    };
    let fresh = Paired::default();
    let unknown = account(&[]).variance_of(&fresh);
    assert!((unknown - 0.3).abs() < 1e-12);
    assert!(account(&[0.0; 20]).variance_of(&fresh) < 0.2 * unknown);
    assert!(account(&[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]).variance_of(&fresh) > 2.0 * unknown);
    // An edit that always does the same has little left to tell.
    let mut sure = Paired::default();
    (0..50).for_each(|_| sure.push(1.0));
    assert!(account(&[1.0; 50]).variance_of(&sure) < 0.2);
    let mut spoilt = account(&[1.0]);
    spoilt.add(Some(f64::NAN), 3);
    spoilt.add(None, 3);
    assert_eq!((spoilt.tokens, spoilt.deltas.n(), spoilt.absolute), (13, 1, 1.0));
}

#[test]
fn draws_obey_weights_and_floor() {
    let check = |weights: &[f64], floor: f64, uniform: f64, expected: usize| {
        assert_eq!(draw_with_floor(weights, floor, uniform), expected, "{weights:?} {floor} {uniform}");
    };
    check(&[1.0, 3.0], 0.0, 0.24, 0);
    check(&[1.0, 3.0], 0.0, 0.26, 1);
    check(&[0.0, 1.0], 0.1, 0.09, 0);
    check(&[0.0, 1.0], 0.1, 0.11, 1);
    // A floor beyond an equal share is one.
    check(&[0.0, 1.0], 5.0, 0.49, 0);
    check(&[0.0, 1.0], 5.0, 0.51, 1);
    check(&[0.0, 0.0], 0.0, 0.6, 1);
    check(&[1.0], 0.0, 0.999_999_9, 0);
    check(&[], 0.1, 0.5, 0);
}

#[test]
fn effect_prefers_the_family_with_the_larger_differences() {
    let offered = candidates(&[(Family::Share, &[1; 2000]), (Family::Agent, &[1; 2000])]);
    let mut chooser = Chooser::new(ChoiceRule::Effect { floor: 0.1 }, 1_000, offered, 5);
    run(&mut chooser, |candidate| Some(if candidate.family == Family::Agent { 0.9 } else { 0.0 }));
    // By chance around 90 and 10 in a hundred: 0.1 for the floor, and nearly all of the rest.
    let share = chooser.picks()[&Family::Share];
    assert!((70..150).contains(&share), "{share}");
}

#[test]
fn what_earlier_steps_taught_is_taken_over() {
    let mut account = Account::default();
    (0..40).for_each(|_| account.add(Some(0.0), 10));
    let told = BTreeMap::from([(Family::Share, account)]);
    let offered = || candidates(&[(Family::Share, &[100; 9]), (Family::Agent, &[100; 9])]);
    let mut chooser = Chooser::new(INFORMATION, 900, offered(), 2).with_accounts(&told);
    run(&mut chooser, |_| None);
    assert!(chooser.picks()[&Family::Agent] >= 6, "{:?}", chooser.picks());
    assert_eq!(chooser.accounts()[&Family::Share].deltas.n(), 40);
}

fn offers() -> impl Strategy<Value = Vec<CounterfactualOption>> {
    let edit = (0..Family::ALL.len(), prop::collection::vec(prop_oneof![Just(0_u64), 1_u64..3_000], 1..12));
    prop::collection::vec(edit, 0..14).prop_map(|edits| {
        let edits: Vec<(Family, Vec<u64>)> =
            edits.into_iter().map(|(family, costs)| (Family::ALL[family], costs)).collect();
        candidates(&edits.iter().map(|(family, costs)| (*family, costs.as_slice())).collect::<Vec<_>>())
    })
}

fn policies() -> impl Strategy<Value = ChoiceRule> {
    prop_oneof![
        (0.0..0.3).prop_map(|floor| ChoiceRule::Information { floor }),
        (0.0..0.3).prop_map(|floor| ChoiceRule::Effect { floor }),
    ]
}

/// A difference that depends on nothing but the candidate and a seed.
fn drawn(candidate: &CounterfactualOption, seed: u64) -> Option<f64> {
    let mut random = Random::new(seed ^ (candidate.edit as u64) << 32 ^ candidate.task as u64);
    [None, Some(0.0), Some(1.0), Some(-1.0), Some(0.3)][random.below(5)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn proposals_never_exceed_the_cap(offered in offers(), policy in policies(), cap in 0_u64..20_000, seed: u64) {
        let cheapest_left = |proposed: &[CounterfactualOption]| {
            offered.iter().filter(|candidate| !proposed.contains(candidate)).map(|candidate| candidate.cost).min()
        };
        // All at once, and one after another.
        let mut at_once = Chooser::new(policy, cap, offered.clone(), seed);
        let proposed: Vec<CounterfactualOption> = std::iter::from_fn(|| at_once.propose()).collect();
        let cost: u64 = proposed.iter().map(|candidate| candidate.cost).sum();
        prop_assert!(cost <= cap);
        // It ends only where nothing is left that the cap allows.
        prop_assert!(cheapest_left(&proposed).is_none_or(|cheapest| cost + cheapest > cap));

        let mut chooser = Chooser::new(policy, cap, offered.clone(), seed);
        let proposed = run(&mut chooser, |candidate| drawn(candidate, seed));
        prop_assert!(chooser.spent() <= cap);
        prop_assert!(cheapest_left(&proposed).is_none_or(|cheapest| chooser.spent() + cheapest > cap));
    }

    #[test]
    fn everything_is_proposed_once_if_the_cap_allows(offered in offers(), policy in policies(), seed: u64) {
        let mut chooser = Chooser::new(policy, u64::MAX, offered.clone(), seed);
        let mut proposed = run(&mut chooser, |candidate| drawn(candidate, seed));
        proposed.sort_unstable();
        let mut all = offered;
        all.sort_unstable();
        prop_assert_eq!(proposed, all);
    }

    #[test]
    fn every_family_with_candidates_gets_its_floor(offered in offers(), floor in 0.0..0.3, seed: u64) {
        let families: BTreeSet<Family> = offered.iter().map(|candidate| candidate.family).collect();
        let floor: f64 = f64::min(floor, 1.0 / families.len() as f64);
        let mut chooser = Chooser::new(ChoiceRule::Information { floor }, u64::MAX, offered.clone(), seed);
        let proposed = run(&mut chooser, |candidate| drawn(candidate, seed));
        let count = |family: Family, of: &[CounterfactualOption]| of.iter().filter(|candidate| candidate.family == family).count();
        for family in families {
            for end in 1..=proposed.len() {
                let (so_far, picks) = (&proposed[..end], count(family, &proposed[..end]));
                let exhausted = picks == count(family, &offered);
                // Never a whole pick behind.
                prop_assert!(exhausted || picks as f64 > floor * so_far.len() as f64 - 1.0, "{family} after {end}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_proposals(offered in offers(), policy in policies(), seed: u64) {
        let go = || run(&mut Chooser::new(policy, 9_000, offered.clone(), seed), |candidate| drawn(candidate, seed));
        prop_assert_eq!(go(), go());
    }
}
