//! Teams of which it is known what is wrong with them: the profile names it.

use crate::common::{counterfactuals, effect, env, own_cases, plan, profile_of, work};
use lemon_credit::advice::Recommendation;
use lemon_profile::Profile;
use lemon_rollout::Case;
use lemon_spec::edit::Change;
use lemon_world::{AgentNoise, Preset, World};

/// Two hundred word problems: enough that nothing seen means little left.
fn word_problems() -> Vec<Case> {
    let problem = |at: u64| {
        let (many, each, gone) = (7 + at % 41, 2 + at % 17, 1 + at % 5);
        let (told, asked, answer) = match at % 3 {
            0 => {
                (format!("{many} boxes hold {each} cups each, {gone} cups break"), "cups are left", many * each - gone)
            }
            1 => (format!("{many} times Nia saves {each} dollars, {gone} she finds"), "has she", many * each + gone),
            _ => (
                format!("{many} trays hold {each} rolls each, {gone} trays fall"),
                "rolls are left",
                (many - gone) * each,
            ),
        };
        (format!("No. {at}: {told}. How many {asked}?"), answer.to_string())
    };
    own_cases((0..200).map(problem))
}

fn profiled(team: &str, preset: Preset) -> Profile {
    let cases = word_problems();
    let world = World::new(preset, cases.iter().map(|case| &case.item)).with_noise(AgentNoise::Kept);
    let env = env(world.backend());
    profile_of(&counterfactuals(&env), &work(&plan(team), &cases, &[1]))
}

#[track_caller]
fn check(profile: &Profile, change: Change, expected: Recommendation) {
    let found = effect(profile, &change);
    println!("{}", found.advice);
    assert_eq!(found.verdict, expected, "{}", found.advice);
}

/// No agent reads `idle`. `report` takes the answer that most of those it reads give, the first of equals: of two
/// always that of `strong`, whatever its own level.
const CARRIED: &str = "
agents:
  - {id: idle, base: solver, capacity: medium}
  - {id: strong, base: solver, capacity: large}
  - {id: weak, base: solver, capacity: small}
  - {id: report, base: summariser, capacity: large, after: [strong, weak]}
answer: {from: [report], by: last}
";

/// `report` repeats what `solve` says, who could be better.
const TOO_WEAK: &str = "
agents:
  - {id: solve, base: solver, capacity: small}
  - {id: report, base: summariser, capacity: small, after: [solve]}
answer: {from: [report], by: last}
";

#[test]
fn the_profile_names_what_is_useless_what_carries_and_what_is_too_strong_or_weak() {
    let id = str::to_owned;
    // Of `real-1.5b` the weakest level cannot repeat what it reads.
    for preset in [Preset::Calibrated, Preset::Teams] {
        let carried = profiled(CARRIED, preset);
        check(&carried, Change::RemoveAgent { agent: id("idle") }, Recommendation::Remove);
        check(&carried, Change::RemoveAgent { agent: id("weak") }, Recommendation::Remove);
        check(&carried, Change::DeleteReference { agent: id("report"), parent: id("weak") }, Recommendation::Remove);
        check(&carried, Change::WithholdMessage { from: id("weak"), to: id("report") }, Recommendation::Remove);
        check(&carried, Change::LowerCapacity { agent: id("report") }, Recommendation::Lower);
        check(&carried, Change::RemoveAgent { agent: id("strong") }, Recommendation::Keep);
        check(&carried, Change::DeleteReference { agent: id("report"), parent: id("strong") }, Recommendation::Keep);
        check(&carried, Change::LowerCapacity { agent: id("strong") }, Recommendation::Keep);
        let too_weak = profiled(TOO_WEAK, preset);
        check(&too_weak, Change::RaiseCapacity { agent: id("solve") }, Recommendation::Raise);
        check(&too_weak, Change::RaiseCapacity { agent: id("report") }, Recommendation::Keep);
    }
}
