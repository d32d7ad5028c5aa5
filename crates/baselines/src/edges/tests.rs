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

/// The logarithm of the probability of what was drawn, worked out from the probabilities.
fn log_probability(designer: &EdgeDesigner, rounds: &policy::DrawnRounds) -> f64 {
    let agents = designer.agents();
    let log = |policy: &EdgePolicy, decisions: &[(usize, usize, bool)]| -> f64 {
        let of = |(from, to, there): &(usize, usize, bool)| {
            let probability = policy.probability(from * agents + to).unwrap();
            if *there { probability.ln() } else { (1.0 - probability).ln() }
        };
        decisions.iter().map(of).sum()
    };
    let within = rounds.iter().zip(&designer.spatial).map(|((within, _), policy)| log(policy, &within.decisions));
    let across = rounds.iter().skip(1).zip(&designer.temporal).map(|((_, across), policy)| log(policy, across));
    within.chain(across).sum()
}

#[test]
fn the_gradient_is_the_difference_quotient_of_log_p() {
    let mut designer = EdgeDesigner::new(Domain::Math, 4, 2, false);
    let slopes: Vec<f64> = (0..16).map(|edge| (f64::from(edge) * 1.3).sin()).collect();
    designer.policies_mut().for_each(|policy| policy.climb(&slopes));
    designer.remove(1, 2);
    let (_, rounds) = designer.draw(&mut Random::new(8));
    let mut gradients = vec![vec![0.0; 16]; 3];
    designer.add_scores(&mut gradients, &rounds, 1.0);
    let mut nonzero = 0;
    for (place, (kind, at)) in [("spatial", 0), ("spatial", 1), ("temporal", 0)].into_iter().enumerate() {
        for edge in 0..16 {
            let moved = |by: f64| {
                let mut text = serde_json::to_value(&designer).unwrap();
                let logit = &mut text[kind][at]["edges"][edge]["logit"];
                *logit = (logit.as_f64().unwrap() + by).into();
                log_probability(&serde_json::from_value(text).unwrap(), &rounds)
            };
            let quotient = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            let slope = gradients[place][edge];
            assert!((slope - quotient).abs() < 1e-6, "{kind} {at} {edge}: {slope} is not {quotient}");
            nonzero += usize::from(quotient.abs() > 1e-3);
        }
    }
    assert!(nonzero > 15, "{nonzero}");
}

#[test]
fn who_decides_reads_the_last_round() {
    let mut designer = EdgeDesigner::new(Domain::Math, 4, 2, false);
    designer.remove(0, 1);
    let (graph, _) = designer.draw(&mut Random::new(2));
    assert_eq!((graph.members.len(), graph.decider.reads_from), (7, 3));
    let whole = designer.whole(&[3, 0]);
    assert_eq!((whole.members.len(), whole.decider.reads_from), (6, 3));
    // Agents 1, 2 and 3 of the second round read those before them in the roster, of both rounds.
    let reads: Vec<&[usize]> = whole.members.iter().map(|member| &*member.after).collect();
    assert_eq!(reads, [&[][..], &[0], &[0, 1], &[0], &[0, 1, 3], &[0, 1, 2, 3, 4]]);
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
    // AgentDropout: an agent leaves each round, then twice a tenth of the edges.
    let mut designer = EdgeDesigner::new(Domain::Math, 5, 2, false);
    designer.remove(0, 1);
    designer.remove(1, 3);
    designer.forget();
    let mut left: Vec<Vec<usize>> = Vec::new();
    for _ in 0..3 {
        left.push(designer.policies_mut().map(|policy| policy.left()).collect());
        designer.policies_mut().for_each(|policy| policy.prune(0.10));
    }
    assert_eq!(left, [[12, 12, 16], [11, 11, 14], [10, 10, 13]]);
}

/// Right only where the inspector reads the solver and the solver does not read the inspector.
fn planted(_: usize, spec: &Spec) -> f64 {
    if reads(spec, "Inspector", "Math solver") { 0.9 } else { 0.1 }
}

#[tokio::test]
async fn a_planted_edge_is_found() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    for method in [EdgeMethod::GptSwarm, EdgeMethod::AgentPrune] {
        let mut trials = trials(&scorer, &tasks, 1);
        let designer = learn(method, 4, true, &mut trials, 1).await.unwrap();
        let untrained = EdgeDesigner::new(Domain::Math, 4, 1, false);
        let mut random = Random::new(5);
        let mut share = |designer: &EdgeDesigner| {
            let specs = (0..1_000).map(|_| trials.frame.spec(&designer.draw(&mut random).0, Domain::Math));
            specs.filter(|spec| reads(spec, "Inspector", "Math solver")).count()
        };
        let (before, after) = (share(&untrained), share(&designer));
        assert!(after > before + 200, "{method:?}: {after} of 1,000, {before} untrained");
    }
}

/// AgentDropout's first stage: right only where no inspector speaks in the second round.
#[tokio::test]
async fn a_planted_agent_that_harms_is_removed() {
    let harms = |_: usize, spec: &Spec| {
        let decider = spec.agents.iter().find(|agent| agent.id == "decide").unwrap();
        let is_read = |agent: &lemon_spec::Agent| decider.after.contains(&agent.id);
        let spoke = spec.agents.iter().any(|agent| is_read(agent) && agent.role.as_deref() == Some("Inspector"));
        if spoke { 0.05 } else { 0.95 }
    };
    let (tasks, scorer) = (tasks(Domain::Math), Planted(harms));
    let mut removed = 0;
    for seed in 0..6 {
        let mut trials = trials(&scorer, &tasks, seed);
        let designer = learn(EdgeMethod::AgentDropout, 4, false, &mut trials, seed).await.unwrap();
        removed += usize::from(!designer.present[1][3]);
    }
    // By chance in one of four.
    assert!(removed >= 5, "{removed} of 6");
}

/// Its second stage climbs the same estimate, but with penalties that weigh more than rewards: the planted edge gets a higher logit
/// than the others, and is hardly drawn more often.
#[tokio::test]
async fn the_second_stage_prefers_a_planted_edge() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    let (mut of_planted, mut of_others) = (0.0, 0.0);
    for seed in 0..3 {
        let mut trials = trials(&scorer, &tasks, seed);
        let designer = learn(EdgeMethod::AgentDropout, 4, true, &mut trials, seed).await.unwrap();
        let logits = designer.spatial[0].logits();
        of_planted += logits[3] / 3.0;
        let others = (0..4).flat_map(|from| (from + 1..4).map(move |to| from * 4 + to)).filter(|edge| *edge != 3);
        of_others += others.map(|edge| logits[edge] / 15.0).sum::<f64>();
    }
    assert!(of_planted > of_others + 0.05, "{of_planted} planted, {of_others} others");
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
