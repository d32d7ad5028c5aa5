use super::*;
use crate::nn::check::check_gradient;
use crate::planted::{Planted, tasks, trials};
use lemon_spec::Spec;

fn taught(encoder: &Encoder, question: &str, graph: RoleGraph) -> TaughtGraph {
    TaughtGraph { query: encoder.encode(question).unwrap(), graph }
}

#[test]
fn the_gradient_is_the_difference_quotient() {
    let encoder = Encoder::hashed();
    let net = ArgNet::new(Domain::Math, NetWeights::new(3, DType::F64), &encoder).unwrap();
    let batch = [
        taught(&encoder, "How many are left?", RoleGraph::new(&[0, 3, 1], vec![vec![], vec![0], vec![0, 1]])),
        taught(&encoder, "What does it cost?", RoleGraph::new(&[2, 2], vec![vec![], vec![]])),
    ];
    check_gradient(net.weights(), || net.loss(&batch, None));
}

/// What the public sampler gets wrong: what was taught is what is drawn.
#[test]
fn it_draws_what_it_was_taught() {
    let encoder = Encoder::hashed();
    let net = ArgNet::new(Domain::Math, NetWeights::new(1, DType::F32), &encoder).unwrap();
    let graphs = [
        ("How many apples are left?", RoleGraph::new(&[0, 1, 3], vec![vec![], vec![0], vec![0, 1]])),
        ("What does the ticket cost?", RoleGraph::new(&[2, 3], vec![vec![], vec![]])),
        ("When did the train arrive?", RoleGraph::new(&[1, 0, 0, 3], vec![vec![], vec![], vec![1], vec![0, 2]])),
    ];
    let batch: Vec<TaughtGraph> =
        graphs.iter().map(|(question, graph)| taught(&encoder, question, graph.clone())).collect();
    let mut adam = Adam::new(2e-3).clipped(CLIP);
    for _ in 0..100 {
        adam.step(net.weights(), &net.loss(&batch, None).unwrap()).unwrap();
    }
    let mut random = Random::new(5);
    for taught in &batch {
        let same = (0..20).filter(|_| net.sample(&taught.query, (2, 4), &mut random).unwrap() == taught.graph).count();
        assert!(same >= 18, "{same} of 20 for {:?}", taught.graph);
    }
}

/// Right only where most agents are solvers.
fn planted(_: usize, spec: &Spec) -> f64 {
    let roster = &spec.agents[..spec.agents.len() - 1];
    let wanted = roster.iter().filter(|agent| agent.role.as_deref() == Some("Math solver")).count();
    if 2 * wanted > roster.len() { 0.95 } else { 0.02 }
}

#[tokio::test]
async fn planted_roles_are_found() {
    let (tasks, scorer, encoder) = (tasks(Domain::Math), Planted(planted), Encoder::hashed());
    let mut trials = trials(&scorer, &tasks, 1);
    let mut random = Random::new(7);
    let query = encoder.encode(&tasks[0].question).unwrap();
    let designer = learn_for(&mut trials, &encoder, 2, Some([100, 100])).await.unwrap();
    assert_eq!(trials.account.runs, 216);
    let score = |designer: &ArgDesigner, random: &mut Random| {
        let graphs = (0..100).map(|_| designer.design(&query, random).unwrap());
        graphs.filter(|graph| planted(0, &trials.frame.spec(graph, Domain::Math)) > 0.5).count()
    };
    let net = ArgNet::new(Domain::Math, NetWeights::new(2, DType::F32), &encoder).unwrap();
    let untrained = score(&ArgDesigner { net, sizes: (2, 4) }, &mut random);
    let trained = score(&designer, &mut random);
    assert!(trained >= untrained + 10 && trained >= 3 * untrained, "{trained} of 100, {untrained} untrained");
}

#[tokio::test]
async fn by_cost_the_cheapest_right_graph_of_a_task_is_kept() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(|_: usize, _: &Spec| 1.0));
    let mut trials = trials(&scorer, &tasks, 1);
    let plan = |agents: usize| RoleGraph::new(&vec![0; agents], GraphShape::Chain.after(agents, &mut Random::new(0)));
    let planned: Vec<(usize, RoleGraph)> = vec![(0, plan(3)), (1, plan(2)), (0, plan(2)), (1, plan(4))];
    let found = kept(&mut trials, planned.clone(), 0, RivalObjective::Cost).await.unwrap();
    assert_eq!(found, [(0, plan(2)), (1, plan(2))]);
    assert_eq!(kept(&mut trials, planned.clone(), 0, RivalObjective::Native).await.unwrap(), planned);
}
