//! Compares two methods on the same cases: one agent that works step by step, and a vote of five such agents.
//!
//!     cargo run -p lemon --example 201_evaluate_two_methods
//!
//! The cases are the bundled sample of GSM8K. The workers are simulated: no model is called.

use lemon::Lemon;
use lemon::eval::Report;
use lemon::task::{SetName, Source};
use lemon::world::Preset;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lemon = Lemon::builder().simulated(Preset::Calibrated).seed(0).repeats(5).build().await?;
    let cases = lemon::cases(&Source::Sample, SetName::Gsm8k, "test")?;
    let methods = [lemon.method("cot")?, lemon.method("sc-cot:5")?];

    let evaluation = lemon.evaluate(&methods, &cases).await?;
    let report = Report::new(&evaluation);

    println!("{} cases, {} runs each, {} workers\n", cases.len(), 5, report.set_up.workers);
    for method in &report.methods {
        let [low, high] = method.interval.map(|bound| 100.0 * bound);
        let right = 100.0 * method.accuracy;
        println!("{:9} {right:5.1} % right ({low:.1} to {high:.1}), {:6.0} tokens a run", method.method, method.tokens);
    }
    for pair in &report.pairs {
        let points = 100.0 * pair.difference;
        println!("{} less {}: {points:+.1} points, permutation test p = {:.3}", pair.a, pair.b, pair.permutation_p);
    }

    let [one, five] = &report.methods[..] else { return Err("expected two methods".into()) };
    let runs = cases.len() * 5;
    if (one.runs, five.runs) != (runs, runs) || five.accuracy < one.accuracy || five.tokens < 3.0 * one.tokens {
        return Err("expected the vote to be at least as often right, for several times the tokens".into());
    }
    Ok(())
}
