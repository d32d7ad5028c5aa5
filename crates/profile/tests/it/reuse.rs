//! What a change cannot reach is not asked again.

use crate::common::{WORD_PROBLEMS, counterfactuals, plan, profile_of, simulated, work};
use lemon_world::{AgentNoise, Preset};

const EIGHT: &str = "
agents:
  - {id: one, base: solver, capacity: small}
  - {id: two, base: solver, capacity: small}
  - {id: three, base: solver, capacity: medium}
  - {id: four, base: solver, capacity: medium}
  - {id: left, base: critic, capacity: medium, after: [one, two]}
  - {id: right, base: critic, capacity: medium, after: [three, four]}
  - {id: decide, base: judge, capacity: large, after: [left, right]}
  - {id: report, base: summariser, capacity: small, after: [decide]}
answer: {from: [report], by: last}
";

#[test]
fn on_a_team_of_eight_at_least_half_of_the_calls_are_reused() {
    for (preset, noise) in [(Preset::Calibrated, AgentNoise::Fresh), (Preset::Teams, AgentNoise::Kept)] {
        let env = simulated(preset, noise);
        let plan = plan(EIGHT);
        let found = profile_of(&counterfactuals(&env), &work(&plan, &WORD_PROBLEMS[..20], &[1]));
        let share = found.reuse.share().unwrap();
        let saved = found.reuse.tokens_saved as f64 / (found.reuse.tokens_saved + found.reuse.tokens) as f64;
        println!(
            "{} edits: {:.1} % of calls reused, {:.1} % of tokens",
            found.effects.len(),
            100.0 * share,
            100.0 * saved
        );
        assert!(found.complete && share >= 0.5, "{share}");
        assert!(saved >= 0.5, "{saved}");
        for effect in &found.effects {
            assert!(effect.reused.is_some_and(|reused| (0.0..=1.0).contains(&reused)), "{}", effect.change);
        }
    }
}
