//! What an agent reads: right answers help, wrong ones mislead, more of them more.

use crate::common::*;
use lemon_exec::Worker;
use lemon_task::Item;
use lemon_world::{Fitted, Preset, TaskFamily, World};

const SEEDS: u64 = 20;

/// Items with a short answer: what others propose can be written down in a word.
fn short_items() -> impl Iterator<Item = &'static Item> {
    plain_items().filter(|item| !is_code(item))
}

/// How often an agent is right that reads this.
fn after_reading(world: &World, base: &'static str, readings: impl Fn(&Item) -> Vec<String>) -> Tally {
    let how = |item: &Item| Some((Asked { base, readings: readings(item), ..Asked::default() }, 0.5));
    tally(world, short_items(), SEEDS, how)
}

fn right(item: &Item) -> String {
    argued(&right_and_wrong(item).0)
}

fn wrong(item: &Item) -> String {
    argued(&right_and_wrong(item).1)
}

#[test]
fn right_peers_help_and_wrong_ones_mislead_more_of_them_more() {
    for preset in Preset::ALL {
        let world = flat(preset, 0.0);
        let peers = |text: fn(&Item) -> String, count: usize| after_reading(&world, "", |item| vec![text(item); count]);
        let rising = [peers(wrong, 4), peers(wrong, 1), peers(right, 1), peers(right, 4)];
        for pair in rising.windows(2) {
            pair[1].check_above(&pair[0], preset.as_str());
        }
        let alone = after_reading(&world, "", |_| Vec::new());
        alone.check("alone");
        alone.check_above(&rising[1], "alone rather than misled");
        rising[2].check_above(&alone, "helped rather than alone");
    }
}

#[test]
fn an_agent_revises_as_the_debaters_on_record_did() {
    let world = flat(Preset::Calibrated, 0.0);
    let cases: [(usize, usize); 5] = [(1, 0), (0, 1), (2, 1), (1, 2), (0, 3)];
    for (rights, wrongs) in cases {
        let how = |item: &Item| {
            let fit = Fitted::shipped().family(TaskFamily::of(item));
            let read = (rights + wrongs) as f64;
            let support = (rights as f64 - wrongs as f64) / (read + 1.0);
            let heard = |own| logistic(fit.revision.log_odds(own, support, logit(fit.levels[0].accuracy)));
            // No reply is right: a second look at even odds.
            let revised = |own| if own == 0.0 && rights == 0 { fit.revision.second_look / 2.0 } else { heard(own) };
            let readings = [vec![right(item); rights], vec![wrong(item); wrongs]].concat();
            Some((Asked { readings, ..Asked::default() }, (revised(1.0) + revised(0.0)) / 2.0))
        };
        tally(&world, short_items(), SEEDS, how).check(&format!("{rights} right, {wrongs} wrong"));
    }
}

#[test]
fn bare_answers_weigh_less_than_argued_ones() {
    let share = |own: f64, text: fn(&Item) -> String| {
        let how = |item: &Item| Some((Asked { readings: vec![text(item)], ..Asked::default() }, 0.5));
        let items = short_items().filter(|item| TaskFamily::of(item) == TaskFamily::Reckoning);
        tally(&flat(Preset::Calibrated, own), items, 160, how)
    };
    // It shows most where the reader's own attempt says the contrary.
    share(-100.0, right).check_above(&share(-100.0, |item| right_and_wrong(item).0), "right");
    share(100.0, |item| right_and_wrong(item).1).check_above(&share(100.0, wrong), "wrong");
}

#[test]
fn programs_are_read_too() {
    let world = flat(Preset::Calibrated, 0.0);
    let always = [100.0, -100.0].map(|odds| flat(Preset::Calibrated, odds));
    let read = |by: &World| {
        let how =
            |item: &Item| Some((Asked { readings: vec![Asked::default().of(by, item).text], ..Asked::default() }, 0.5));
        tally(&world, ITEMS.iter().filter(|item| is_code(item)), 2 * SEEDS, how)
    };
    let [helped, misled] = [read(&always[0]), read(&always[1])];
    let alone = tally(&world, ITEMS.iter().filter(|item| is_code(item)), 2 * SEEDS, |_| Some((Asked::default(), 0.5)));
    helped.check_above(&alone, "a right program");
    alone.check_above(&misled, "a wrong one");
}

#[test]
fn a_critic_finds_errors_in_the_teams_preset() {
    let world = flat(Preset::Teams, 0.0);
    for base in ["critic", "verifier"] {
        let (critic, solver) =
            (after_reading(&world, base, |i| vec![wrong(i)]), after_reading(&world, "", |i| vec![wrong(i)]));
        assert!(critic.share() > 2.0 * solver.share(), "{base}: {} against {}", critic.share(), solver.share());
        let with_nothing = after_reading(&world, base, |_| Vec::new());
        with_nothing.check("nothing to check is an attempt like any other");
    }
}

#[test]
fn a_critic_is_a_reader_like_any_other_in_the_calibrated_world() {
    let world = flat(Preset::Calibrated, 0.0);
    for readings in [|item: &Item| vec![wrong(item)], |item: &Item| vec![right(item)]] {
        let (critic, solver) = (after_reading(&world, "critic", readings), after_reading(&world, "", readings));
        let share = (critic.share() + solver.share()) / 2.0;
        let error = (share * (1.0 - share) * 2.0 / critic.cases).sqrt();
        assert!((critic.share() - solver.share()).abs() < 4.0 * error, "{critic:?} {solver:?}");
    }
}

#[test]
fn a_critic_that_is_wrong_makes_errors_too() {
    // Its own attempt always fails, and it trusts it: what was right gets worse than under a solver.
    let world = flat(Preset::Teams, -100.0);
    let (critic, solver) =
        (after_reading(&world, "critic", |i| vec![right(i)]), after_reading(&world, "", |i| vec![right(i)]));
    solver.check_above(&critic, "a wrong critic");
}

#[test]
fn reading_costs_tokens_and_time() {
    fn cost(world: &impl Worker, readings: Vec<String>, item: &Item) -> (u64, f64) {
        let reply =
            ask(world, &Asked { readings, duty: "Give the answer alone.".into(), ..Asked::default() }.request(item));
        let reply = reply.unwrap();
        assert!(reply.usage.counted && reply.usage.tokens_out > 0);
        (reply.usage.tokens_in, reply.simulated_s.unwrap() - reply.usage.tokens_out as f64 / 150.0)
    }
    let world = shipped(Preset::Calibrated);
    for item in short_items() {
        let (alone, reader) = (cost(&world, vec![], item), cost(&world, vec!["A word. ".repeat(500)], item));
        assert!(reader.0 >= alone.0 + 1000, "{reader:?} {alone:?}");
        assert!(reader.1 > alone.1 + 0.2, "{reader:?} {alone:?}");
    }
}
