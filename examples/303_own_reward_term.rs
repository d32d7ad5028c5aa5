//! Adds a reward term of your own: here a price for every message between agents.
//!
//!     cargo run -p lemon --example 303_own_reward_term
//!
//! The term is measured in every graded run: in `rollout`, `evaluate`, `profile` and `train`. A term that a run does not show
//! returns `None`, which is not the same as 0. The workers are simulated: no model is called.

use lemon::Lemon;
use lemon::rollout::reward::{Channel, Weight};
use lemon::task::{SetName, Source};
use lemon::world::Preset;

const NAME: &str = "messages";
const WEIGHT: f64 = -0.05;

const TEAMS: [(&str, &str); 2] = [
    (
        "apart",
        "agents: [{id: a, base: solver, capacity: large}, {id: b, base: solver, capacity: large}]\nanswer: {from: [a, b], by: vote}\n",
    ),
    ("chain", "agents: [{id: a, base: solver, capacity: large}, {id: b, base: critic, capacity: large, after: [a]}]\n"),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lemon = Lemon::builder()
        .simulated(Preset::Calibrated)
        .reward_term(NAME, Weight::fixed(WEIGHT), |run| Some(run.summary().messages as f64))
        .build()
        .await?;
    let cases = lemon::cases(&Source::Sample, SetName::Gsm8k, "test")?;
    let case = cases.first().ok_or("the sample has no case")?;

    let mut seen = Vec::new();
    for (name, team) in TEAMS {
        let rollout = lemon.rollout(&lemon.validate(team)?, case).await?;
        let score = rollout.outcome.score().ok_or("the outcome of a simulated run is known")?;
        println!("{name}:");
        for channel in [Channel::Success, Channel::Efficiency, Channel::Structure] {
            println!("  {:10} {:?}", channel.as_str(), score.channels.get(channel));
        }
        let messages = score.channels.named_value(NAME).ok_or("the new term was not measured")?;
        let without = lemon.env(&cases).await?.weights;
        let reward = score.reward.ok_or("the reward was not measured")?;
        let registered: f64 =
            without.iter().filter_map(|(it, weight)| Some(weight.at(0) * score.channels.get(it)?)).sum();
        println!("  {NAME:10} {messages}\n  reward     {reward:.3}, of which {:.3} for messages", reward - registered);
        if (reward - registered - WEIGHT * messages).abs() > 1e-9 {
            return Err(format!("{name}: expected {WEIGHT} for each of {messages} messages").into());
        }
        seen.push(messages);
    }
    if seen != [0.0, 1.0] {
        return Err(format!("expected 0 and 1 messages, found {seen:?}").into());
    }
    Ok(())
}
