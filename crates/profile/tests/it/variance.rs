//! Common random numbers: what it is worth that a counterfactual keeps the noise of its original.

use crate::common::{WORD_PROBLEMS, counterfactuals, plan, simulated, wait};
use crate::truth::{MEASURED, Measured};
use lemon_credit::estimate::Paired;
use lemon_num::Random;
use lemon_spec::edit::{apply, edits};
use lemon_world::{AgentNoise, Preset};
use tokio_util::sync::CancellationToken;

/// How the variance of a difference between two runs of a task changes if they do not share their noise.
#[derive(Default)]
struct Variances {
    shared: f64,
    apart: f64,
}

impl Variances {
    fn add(&mut self, shared: &Paired, apart: &Paired) {
        self.shared += shared.variance().unwrap();
        self.apart += apart.variance().unwrap();
    }

    fn ratio(&self) -> f64 {
        self.apart / self.shared
    }
}

#[test]
fn shared_noise_cuts_the_variance_to_a_third_where_noise_is_enumerated() {
    let mut all = Variances::default();
    for measured in MEASURED.iter() {
        let (shared, apart) = both(measured);
        println!("{:45} {:.1}", measured.name, apart.variance().unwrap() / shared.variance().unwrap());
        all.add(&shared, &apart);
    }
    println!("variance without shared noise: {:.2} times as large", all.ratio());
    assert!(all.ratio() >= 3.0, "{}", all.ratio());
}

/// Differences on a task with the same noise, and with noise drawn anew for each side.
fn both(measured: &Measured) -> (Paired, Paired) {
    let mut random = Random::new(3);
    let (mut shared, mut apart) = (Paired::default(), Paired::default());
    for _ in 0..20_000 {
        let runs = random.pick(&measured.runs).unwrap();
        let (original, difference) = *random.pick(runs).unwrap();
        let (other, _) = *random.pick(runs).unwrap();
        shared.push(difference);
        apart.push(other - (original - difference));
    }
    (shared, apart)
}

const TEAM: &str = "
agents:
  - {id: one, base: solver, capacity: small}
  - {id: two, base: solver, capacity: small}
  - {id: three, base: solver, capacity: medium}
  - {id: check, base: critic, capacity: medium, after: [one, two]}
  - {id: report, base: solver, capacity: medium, after: [three, check]}
answer: {from: [report], by: last}
";

/// In the simulated world the noise of an agent whose inputs changed is kept, or not, as a language model's would not be.
#[test]
fn in_the_simulated_world_kept_noise_is_worth_more_than_fresh() {
    let [kept, fresh] = [AgentNoise::Kept, AgentNoise::Fresh].map(simulated_ratio);
    println!("simulated world: {kept:.2} times with kept noise, {fresh:.2} times with fresh");
    assert!(kept >= 3.0 && kept > fresh && fresh > 1.0, "{kept} and {fresh}");
}

fn simulated_ratio(noise: AgentNoise) -> f64 {
    let env = simulated(Preset::Teams, noise);
    let counterfactuals = counterfactuals(&env);
    let plan = plan(TEAM);
    let cancel = CancellationToken::new();
    let mut all = Variances::default();
    let edits: Vec<_> = edits(&plan, &env.language)
        .into_iter()
        .map(|edit| (apply(&plan, &edit, &env.language).unwrap(), edit))
        .collect();
    let mut found = vec![(Paired::default(), Paired::default()); edits.len()];
    for case in WORD_PROBLEMS.iter() {
        wait(async {
            let original = counterfactuals.base(case, &plan, 1, &cancel).await.unwrap();
            let other = counterfactuals.base(case, &plan, 2, &cancel).await.unwrap();
            let success = |run: &lemon_rollout::Rollout| run.outcome.score().unwrap().success();
            for ((edited, edit), (shared, apart)) in edits.iter().zip(&mut found) {
                let measured = counterfactuals.counterfactual(&original, edit, edited, &cancel).await.unwrap();
                let difference = measured.known().unwrap().success;
                shared.push(difference);
                apart.push(success(&other) - (success(&original) - difference));
            }
        });
    }
    found.iter().for_each(|(shared, apart)| all.add(shared, apart));
    all.ratio()
}
