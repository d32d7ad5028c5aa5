//! Trains a policy that writes teams: samples teams, runs them, credits single decisions, updates the policy.
//!
//!     cargo run -p lemon --example 301_train_a_table_policy
//!
//! The policy is a table of choices, not a language model, so this takes seconds. It starts with large teams of strong agents
//! and learns to earn more reward with fewer tokens, at the price of a few right answers. `lemon train --recipe language` trains
//! a language model in the same way.

use lemon::Lemon;
use lemon::train::recipe::{FieldStart, Per, Recipe, Start};
use lemon::world::Preset;

const STEPS: u64 = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lemon = Lemon::builder().simulated(Preset::Calibrated).build().await?;

    let mut recipe = Recipe { steps: STEPS, start: Start::Fields(FieldStart::default()), ..Recipe::default() };
    recipe.checkpoint_every = STEPS;
    (recipe.tasks.train, recipe.tasks.held_out) = (100, 40);
    recipe.rollouts.tasks = 8;
    (recipe.update.learning_rate, recipe.update.warm_up, recipe.update.clip_norm) = (0.15, 0, 0.0);
    recipe.update.per = Per::Rollout;

    // Checkpoints and metrics. Training that is interrupted resumes from its folder.
    let folder = tempfile::tempdir()?;
    let trained = lemon
        .train(&recipe, folder.path(), |metrics| {
            if metrics.step.is_multiple_of(40) {
                let rollouts = &metrics.rollouts;
                println!("step {:3}: reward {:.3}, {:.1} agents", metrics.step, rollouts.reward, rollouts.agents);
            }
            true
        })
        .await?;

    let (before, after) = (&trained.before, &trained.after);
    println!("\nheld-out tasks, before and after:");
    println!("  reward {:.3} and {:.3}", before.reward, after.reward);
    println!("  right  {:.1} % and {:.1} %", 100.0 * before.success, 100.0 * after.success);
    println!("  tokens {:.0} and {:.0} a run", before.tokens, after.tokens);
    if let Some(team) = trained.teams.first().and_then(|team| team.after.first()) {
        println!("\na team that the trained policy writes:\n{}", team.trim_end());
    }
    if trained.steps != STEPS || after.reward <= before.reward {
        return Err(
            format!("expected a higher reward after training, found {} and {}", before.reward, after.reward).into()
        );
    }
    Ok(())
}
