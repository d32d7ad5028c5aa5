use super::*;
use proptest::prelude::*;

/// After groups whose rewards differ by `spread`, whose rollouts cost 1,000 tokens and have 10 fields.
fn after_groups(spread: f64) -> Economy {
    let mut economy = Economy::default();
    for _ in 0..50 {
        economy.add_group(&[0.5 - spread, 0.5 + spread], &[1_000, 1_000], &[10, 10]);
    }
    economy
}

fn offer(family: Family, cost: u64) -> Offer {
    Offer { family, cost, unsure: 0.0 }
}

#[test]
fn worth_is_what_the_formula_says() {
    assert_eq!(Economy::default().worth(&offer(Family::Duty, 100)), None);
    let mut economy = after_groups(0.4);
    // Two rewards 0.8 apart: a variance of 0.32. Differences of 0.6 and −0.4: a mean square of 0.26, and a mean of 0.1.
    for step in 0..4_000 {
        economy.add_paid(Family::Duty, Some(if step % 2 == 0 { 0.6 } else { -0.4 }), 500, 500);
    }
    let check = |cost: u64, expected: f64| {
        let worth = economy.worth(&offer(Family::Duty, cost)).unwrap();
        assert!((worth / expected - 1.0).abs() < 0.05, "{worth} is not {expected}");
    };
    check(500, 4.0 * 0.32 / 0.26 * 2.0 / 10.0);
    check(1_000, 4.0 * 0.32 / 0.26 / 10.0);
    // At twice the cost an offer is worth half; a free one would be worth any amount.
    assert!(economy.worth(&offer(Family::Duty, 0)).unwrap() > 100.0);
}

#[test]
fn to_know_what_does_not_matter_is_worth_little() {
    let mut economy = after_groups(0.4);
    for step in 0..200 {
        let noise = if step % 2 == 0 { 0.3 } else { -0.3 };
        economy.add_paid(Family::Capacity, Some(0.1 + noise), 100, 100);
        economy.add_paid(Family::Share, Some(noise), 100, 100);
    }
    let worth = |family| economy.worth(&offer(family, 100)).unwrap();
    assert!(worth(Family::Capacity) > 10.0 * worth(Family::Share));
    assert!(economy.inverse_variance_weight(Family::Capacity, false) > 1.0);
    assert_eq!(
        economy.inverse_variance_weight(Family::Capacity, true),
        economy.inverse_variance_weight(Family::Share, true),
        "nothing was free"
    );
}

#[test]
fn a_quiet_difference_may_speak_louder_but_not_without_bound() {
    let mut economy = after_groups(0.4);
    (0..500).for_each(|_| economy.add_free(Family::Answer, Some(0.0)));
    for step in 0..500 {
        economy.add_free(Family::Agent, Some(if step % 2 == 0 { 3.0 } else { -3.0 }));
    }
    assert_eq!(economy.inverse_variance_weight(Family::Answer, true), MOST_WEIGHT);
    assert!((1.0 / MOST_WEIGHT..0.1).contains(&economy.inverse_variance_weight(Family::Agent, true)));
    assert_eq!(Economy::default().inverse_variance_weight(Family::Agent, true), 1.0);
}

#[test]
fn every_policy_decides_as_it_says() {
    let mut economy = after_groups(0.4);
    for step in 0..100 {
        let noise = if step % 2 == 0 { 0.3 } else { -0.3 };
        economy.add_paid(Family::Capacity, Some(0.2 + noise), 100, 100);
        economy.add_paid(Family::Share, Some(0.0), 100, 100);
    }
    let offers = [offer(Family::Capacity, 100), offer(Family::Share, 100), offer(Family::Capacity, 0)];
    let decide = |paid: Paid, allowance: u64| {
        let settings = EconomySettings { paid, floor: 0.0, ..EconomySettings::default() };
        economy.decide(&offers, allowance, &settings, 1)
    };
    assert!(matches!(
        decide(Paid::Never, 1_000)[..],
        [OfferVerdict::Declined(_), OfferVerdict::Declined(_), OfferVerdict::Free]
    ));
    assert!(matches!(
        decide(Paid::Worth, 1_000)[..],
        [OfferVerdict::Worth(_), OfferVerdict::Declined(_), OfferVerdict::Free]
    ));
    assert!(matches!(
        decide(Paid::Worth, 99)[..],
        [OfferVerdict::Capped(_), OfferVerdict::Declined(_), OfferVerdict::Free]
    ));
    assert!(matches!(
        decide(Paid::Uniform, 1_000)[..],
        [OfferVerdict::Drawn(_), OfferVerdict::Drawn(_), OfferVerdict::Free]
    ));
    // By |Δ|, the family that never showed any is rarely first.
    let settings = EconomySettings { paid: Paid::Effect, ..EconomySettings::default() };
    let first = |seed| economy.decide(&offers, 100, &settings, seed)[0].is_taken();
    assert!((0..200).filter(|seed| first(*seed)).count() > 150);
}

#[test]
fn what_cost_more_than_expected_is_expected_to() {
    let mut economy = Economy::default();
    assert_eq!(economy.cost_ratio(), 1.0);
    (0..100).for_each(|_| economy.add_paid(Family::Duty, None, 300, 200));
    assert!((1.4..1.5).contains(&economy.cost_ratio()));
    (0..1_000).for_each(|_| economy.add_paid(Family::Duty, None, 10, 200));
    assert_eq!(economy.cost_ratio(), 1.0);
}

#[test]
fn the_ledger_adds_up() {
    let mut ledger = FamilyLedger::default();
    ledger.add(Family::Stop, OfferVerdict::Free, Some(0.0), 0);
    ledger.add(Family::Stop, OfferVerdict::Free, Some(-0.5), 0);
    ledger.add(Family::Stop, OfferVerdict::Worth(2.0), Some(1.5), 70);
    ledger.add(Family::Stop, OfferVerdict::Declined(0.5), None, 0);
    ledger.add(Family::Stop, OfferVerdict::Capped(0.5), None, 0);
    let report = ledger.reports()[&Family::Stop];
    assert_eq!((report.free, report.purchased, report.declined, report.capped, report.tokens), (2, 1, 1, 1, 70));
    assert_eq!((report.worth, report.zeros), (Some(1.0), Some(1.0 / 3.0)));
    assert!((report.mean.unwrap() - 1.0 / 3.0).abs() < 1e-12 && (report.absolute.unwrap() - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn older_names_are_read() {
    let report = FamilyReport { purchased: 3, absolute: Some(0.5), ..FamilyReport::default() };
    let new = serde_json::to_string(&report).unwrap();
    assert!(new.contains("\"purchased\":3") && new.contains("\"absolute\":0.5"), "{new}");
    let old = new.replace("purchased", "bought").replace("absolute", "contrast");
    assert_eq!(serde_json::from_str::<FamilyReport>(&old).unwrap(), report);
    assert_eq!(serde_json::from_str::<Paid>("\"contrast\"").unwrap(), Paid::Effect);
}

proptest! {
    #[test]
    fn what_is_taken_never_costs_more_than_the_allowance(
        costs in prop::collection::vec((0usize..8, 0u64..500), 0..40),
        allowance in 0u64..3_000,
        paid in prop::sample::select(vec![Paid::Never, Paid::Worth, Paid::Uniform, Paid::Unsure, Paid::Effect]),
        floor in 0.0f64..1.0,
        seed: u64,
    ) {
        let offers: Vec<Offer> = costs.iter().map(|(family, cost)| offer(Family::ALL[*family], *cost)).collect();
        let settings = EconomySettings { paid, floor, ..EconomySettings::default() };
        for economy in [Economy::default(), after_groups(0.3)] {
            let verdicts = economy.decide(&offers, allowance, &settings, seed);
            prop_assert_eq!(verdicts.len(), offers.len());
            let taken = offers.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_taken());
            prop_assert!(taken.map(|(offer, _)| offer.cost).sum::<u64>() <= allowance);
            // What costs nothing is always taken.
            prop_assert!(offers.iter().zip(&verdicts).all(|(offer, verdict)| offer.cost > 0 || *verdict == OfferVerdict::Free));
            prop_assert_eq!(&verdicts, &economy.decide(&offers, allowance, &settings, seed));
        }
    }
}

/// Families are drawn by what they showed, with a floor, and not by how many edits they offer.
#[test]
fn a_family_with_many_offers_is_not_drawn_more_often_and_none_is_left_out() {
    let mut economy = after_groups(0.4);
    for step in 0..100 {
        let sign = if step % 2 == 0 { 1.0 } else { -1.0 };
        economy.add_paid(Family::Capacity, Some(0.2 * sign), 100, 100);
        economy.add_paid(Family::Duty, Some(0.2 * sign), 100, 100);
        economy.add_paid(Family::Share, Some(0.0), 100, 100);
    }
    // Forty duties, four capacities, four shares; one can be purchased.
    let offers: Vec<Offer> = [(Family::Duty, 40), (Family::Capacity, 4), (Family::Share, 4)]
        .into_iter()
        .flat_map(|(family, count)| std::iter::repeat_n(offer(family, 100), count))
        .collect();
    let drawn = |settings: &EconomySettings, family: Family| {
        let taken = |seed: u64| {
            let verdicts = economy.decide(&offers, 100, settings, seed);
            let at = verdicts.iter().position(|verdict| verdict.is_taken()).unwrap();
            offers[at].family
        };
        (0..2_000).filter(|seed| taken(*seed) == family).count() as f64 / 2_000.0
    };
    let effect = EconomySettings { paid: Paid::Effect, family_floor: 0.1, ..EconomySettings::default() };
    let [duty, capacity, share] = [Family::Duty, Family::Capacity, Family::Share].map(|it| drawn(&effect, it));
    assert!((duty - capacity).abs() < 0.05 && (share - 0.1).abs() < 0.03, "{duty} {capacity} {share}");
    // Exploratory draws of what is not worth it go round the families too.
    let worth = EconomySettings { paid: Paid::Worth, least_worth: 1e9, floor: 1.0, ..EconomySettings::default() };
    let shares = [Family::Duty, Family::Capacity, Family::Share].map(|it| drawn(&worth, it));
    assert!(shares.iter().all(|share| *share > 0.25), "{shares:?}");
}

#[test]
fn what_a_critic_is_least_sure_of_for_its_tokens_comes_first() {
    let settings = EconomySettings { paid: Paid::Unsure, ..EconomySettings::default() };
    let offer = |unsure: f64, cost: u64| Offer { unsure, ..offer(Family::Capacity, cost) };
    let offers = [offer(0.1, 100), offer(0.4, 100), offer(0.5, 400), offer(0.2, 100)];
    let verdicts = after_groups(0.4).decide(&offers, 200, &settings, 1);
    let taken: Vec<bool> = verdicts.iter().map(|verdict| verdict.is_taken()).collect();
    // A hundred tokens each: 0.01, 0.16, 0.06 and 0.04 of variance. The third costs more than is left after the second.
    assert_eq!(taken, [false, true, false, true], "{verdicts:?}");
}
