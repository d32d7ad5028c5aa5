use super::*;
use crate::cards::Domain;
use crate::planted::{Planted, reads, tasks, trials};
use lemon_num::Random;
use lemon_spec::Spec;

/// Every logit against a difference quotient of the expected utility over all graphs of three agents.
#[test]
fn the_gradient_is_that_of_the_expected_utility() {
    let designer = EdgeDesigner::new(Domain::Math, 3, 1, false);
    let mut moved = designer.clone();
    moved.spatial[0].climb(&[0.0, 1.0, -1.0, 1.0, 0.0, 1.0, -1.0, -1.0, 0.0]);
    // Many draws: the mean of utility · score is the slope of the mean utility.
    let utility = |edges: &[(usize, usize)]| f64::from(u8::from(edges.contains(&(0, 2)) && !edges.contains(&(0, 1))));
    let mean = |designer: &EdgeDesigner| {
        let mut random = Random::new(3);
        let mut gradients = vec![vec![0.0; 9]];
        let (mut sum, draws) = (0.0, 60_000);
        for _ in 0..draws {
            let (_, rounds) = designer.draw(&mut random);
            let utility = utility(&rounds[0].0.edges);
            sum += utility;
            designer.add_scores(&mut gradients, &rounds, utility / f64::from(draws));
        }
        (sum / f64::from(draws), gradients.remove(0))
    };
    let (_, gradient) = mean(&moved);
    for edge in [1, 2, 5] {
        let at = |by: f64| {
            let mut text = serde_json::to_value(&moved).unwrap();
            let logit = &mut text["spatial"][0]["edges"][edge]["logit"];
            *logit = (logit.as_f64().unwrap() + by).into();
            mean(&serde_json::from_value(text).unwrap()).0
        };
        let quotient = (at(0.2) - at(-0.2)) / 0.4;
        assert!((gradient[edge] - quotient).abs() < 0.012, "{edge}: {} {quotient}", gradient[edge]);
    }
}

#[test]
fn masks_follow_the_published_numbers() {
    let mut designer = EdgeDesigner::new(Domain::Math, 5, 1, false);
    let mut left = vec![designer.spatial[0].left()];
    for _ in 0..2 {
        designer.spatial[0].prune(0.25);
        left.push(designer.spatial[0].left());
    }
    assert_eq!(left, [20, 15, 11]);
}

/// Right only where the inspector reads the solver and the solver does not read the inspector.
fn planted(_: usize, spec: &Spec) -> f64 {
    if reads(spec, "Inspector", "Math solver") { 0.9 } else { 0.1 }
}

#[tokio::test]
async fn a_planted_edge_is_found() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    for method in [EdgeMethod::GptSwarm, EdgeMethod::AgentPrune, EdgeMethod::AgentDropout] {
        let mut trials = trials(&scorer, &tasks, 1);
        let designer = learn(method, 4, true, &mut trials, 1).await.unwrap();
        let mut random = Random::new(5);
        let found = (0..1_000).filter(|_| {
            let spec = trials.frame.spec(&designer.draw(&mut random).0, Domain::Math);
            reads(&spec, "Inspector", "Math solver")
        });
        let share = found.count();
        let untrained = EdgeDesigner::new(Domain::Math, 4, designer.spatial.len(), false);
        let before = (0..1_000).filter(|_| {
            reads(&trials.frame.spec(&untrained.draw(&mut random).0, Domain::Math), "Inspector", "Math solver")
        });
        let before = before.count();
        // The penalty on the rank, and agents that are removed, leave AgentDropout less to learn.
        let gain = if method == EdgeMethod::AgentDropout { 70 } else { 200 };
        assert!(share > before + gain, "{method:?}: {share} of 1,000, {before} untrained");
    }
}

#[tokio::test]
async fn the_published_runs_are_made() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    for (method, runs) in [(EdgeMethod::GptSwarm, 40), (EdgeMethod::AgentPrune, 40), (EdgeMethod::AgentDropout, 80)] {
        let mut trials = trials(&scorer, &tasks, 1);
        let designer = learn(method, 5, false, &mut trials, 1).await.unwrap();
        assert_eq!(trials.account.runs, runs, "{method:?}");
        let again = learn(method, 5, false, &mut self::trials(&scorer, &tasks, 1), 1).await.unwrap();
        assert_eq!(designer, again);
        if method == EdgeMethod::AgentDropout {
            assert!(designer.present.iter().all(|round| round.iter().filter(|there| **there).count() == 4));
        }
    }
}

#[tokio::test]
async fn a_budget_is_spent_and_no_more_than_a_batch_beyond() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    let mut trials = trials(&scorer, &tasks, 1);
    trials.limit = Some(50_000);
    learn(EdgeMethod::AgentPrune, 4, false, &mut trials, 1).await.unwrap();
    // Five agents at 100 tokens.
    assert!((50_000..50_000 + 32 * 500).contains(&trials.account.worker_tokens), "{}", trials.account.worker_tokens);
}
