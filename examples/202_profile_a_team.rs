//! Measures what each decision of a team is worth, and what it costs.
//!
//!     cargo run -p lemon --example 202_profile_a_team
//!
//! The profile runs the team, and then the team with one decision edited: an agent removed, a weaker capacity, a message less.
//! Both run with the same seed, so a difference comes from the decision. The workers are simulated: no model is called.

use lemon::Lemon;
use lemon::profile::SpendingLimits;
use lemon::task::{SetName, Source};
use lemon::world::Preset;

const TEAM: &str = include_str!("seven.yaml");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lemon = Lemon::builder().simulated(Preset::Calibrated).seed(0).build().await?;
    let cases = lemon::cases(&Source::Sample, SetName::Gsm8k, "test")?;
    let plan = lemon.validate(TEAM)?;

    let profile = lemon.profile(&plan, &cases, SpendingLimits::default()).await?;
    let (baseline, reuse) = (&profile.baseline, &profile.reuse);
    println!(
        "the team as it is: {:.1} % right, {:.0} tokens a run ({} runs)",
        100.0 * baseline.success,
        baseline.tokens,
        baseline.runs
    );
    println!("edited teams took {} calls; {} more were answered by the base run\n", reuse.calls, reuse.calls_reused);

    // Decisions that are worth least for their tokens come first.
    println!("{:>8} {:>8}  decision", "points", "tokens");
    for effect in profile.effects.iter().filter(|effect| effect.effect.is_some()).take(8) {
        let points = 100.0 * effect.effect.unwrap_or_default();
        println!("{points:+8.1} {:8.0}  {}: {}", effect.tokens.unwrap_or_default(), effect.change, effect.advice);
    }

    let measured = profile.effects.iter().filter(|effect| effect.effect.is_some()).count();
    if !profile.complete || baseline.runs != cases.len() || measured < 7 {
        return Err(format!("expected a complete profile, found {} runs, {measured} effects", baseline.runs).into());
    }
    Ok(())
}
