use super::*;
use crate::nn::check::check_gradient;
use crate::planted::{Planted, tasks, trials};
use lemon_spec::Spec;

fn step(encoder: &Encoder, question: &str, graph: RoleGraph) -> OfaStep {
    OfaStep { query: encoder.encode(question).unwrap(), graph }
}

#[test]
fn the_gradient_is_the_difference_quotient() {
    let encoder = Encoder::hashed();
    let net = OfaNet::new(NetWeights::new(3, DType::F64), &encoder).unwrap();
    let batch = [
        step(&encoder, "How many are left?", RoleGraph::new(&[0, 3, 1], vec![vec![], vec![0], vec![0, 1]])),
        step(&encoder, "Which king?", RoleGraph::new(&[12, 9], vec![vec![], vec![0]])),
    ];
    check_gradient(net.weights(), || net.loss(&batch));
}

/// END included, which the public code never trains.
#[test]
fn it_draws_what_it_was_taught() {
    let encoder = Encoder::hashed();
    let net = OfaNet::new(NetWeights::new(1, DType::F32), &encoder).unwrap();
    let batch = [
        step(&encoder, "How many apples are left?", RoleGraph::new(&[0, 1, 3], vec![vec![], vec![0], vec![0, 1]])),
        step(&encoder, "Which king signed the treaty?", RoleGraph::new(&[8, 12], vec![vec![], vec![0]])),
        step(&encoder, "Sort the list.", RoleGraph::new(&[14, 15, 16, 18], vec![vec![], vec![0], vec![1], vec![1, 2]])),
    ];
    let mut adam = Adam::new(2e-3);
    for _ in 0..100 {
        adam.step(net.weights(), &net.loss(&batch).unwrap()).unwrap();
    }
    let mut random = Random::new(5);
    for step in &batch {
        let same = (0..20).filter(|_| net.sample(&step.query, (2, 6), &mut random).unwrap() == step.graph).count();
        assert!(same >= 15, "{same} of 20 for {:?}", step.graph);
    }
}

/// Right only where more than half of the agents are of the roster for word problems.
fn planted(_: usize, spec: &Spec) -> f64 {
    let roster = &spec.agents[..spec.agents.len() - 1];
    let titles = ["Math solver", "Mathematical analyst", "Programming expert", "Inspector"];
    let wanted = roster.iter().filter(|agent| titles.contains(&agent.role.as_deref().unwrap_or_default())).count();
    if 3 * wanted >= roster.len() { 0.9 } else { 0.05 }
}

#[tokio::test]
async fn planted_roles_are_found_and_the_published_runs_made() {
    let (tasks, scorer, encoder) = (tasks(Domain::Math), Planted(planted), Encoder::hashed());
    let mut trials = trials(&scorer, &tasks, 1);
    // Without the stages that need no runs: what is learned is learned from rewards.
    let untrained = OfaNet::new(NetWeights::new(2, DType::F32), &encoder).unwrap();
    let pretrained = untrained.weights().copies().unwrap();
    let designer = learn_for(&mut trials, &pretrained, &encoder, 2, 6).await.unwrap();
    assert_eq!(trials.account.runs, 360);
    let query = encoder.encode(&tasks[0].question).unwrap();
    let mut random = Random::new(7);
    let mut score = |designer: &OfaDesigner| {
        let graphs = (0..60).map(|_| designer.design(&query, &mut random).unwrap());
        graphs.filter(|graph| planted(0, &trials.frame.spec(graph, Domain::Math)) > 0.5).count()
    };
    let (before, after) = (score(&OfaDesigner { net: untrained }), score(&designer));
    assert!(after > before + 10, "{after} of 60, {before} untrained");
}

#[test]
fn configurations_have_the_published_counts() {
    assert_eq!(Domain::ALL.map(|domain| configurations(domain).len()), [9, 9, 19, 14]);
}
