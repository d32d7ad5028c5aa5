use super::net::ln_gamma_after;
use super::*;
use crate::cards::Domain;
use crate::nn::check::check_gradient;
use crate::nn::tensor;
use crate::planted::{Planted, tasks};
use lemon_spec::{Language, Spec};

fn router(seed: u64, dtype: DType) -> RouterNet {
    RouterNet::new(Language::default().capacities.len(), NetWeights::new(seed, dtype), &Encoder::hashed()).unwrap()
}

fn asked(question: &str, domain: Domain) -> RouterQuery {
    RouterQuery { query: Encoder::hashed().encode(question).unwrap(), domain }
}

#[test]
fn the_gradient_is_the_difference_quotient() {
    let router = router(3, DType::F64);
    let batch = [asked("How many are left?", Domain::Math), asked("Which king?", Domain::Knowledge)];
    // The same seed draws the same teams.
    assert!(router.walk(&batch, &mut Random::new(4)).unwrap().routed.iter().all(|routed| routed.agents.len() > 1));
    check_gradient(router.weights(), || router.walk(&batch, &mut Random::new(4))?.loss(&[1.0, -0.5]));
}

#[test]
fn the_logarithm_of_a_factorial() {
    let x = tensor(&[0.0, 1.0, 2.0, 5.0], (1, 4), DType::F64).unwrap();
    let found = ln_gamma_after(&x).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
    for (found, factorial) in found.iter().zip([1.0_f64, 1.0, 2.0, 120.0]) {
        assert!((found - factorial.ln()).abs() < 1e-9, "{found} is not ln {factorial}");
    }
}

#[track_caller]
fn check(mode: Mode, expected: &[&[usize]], decides_on: usize) {
    let graph = Routed { mode, agents: vec![(0, 2), (1, 1), (3, 1)] }.graph();
    let reads: Vec<&[usize]> = graph.members.iter().map(|member| &*member.after).collect();
    assert_eq!(reads, expected, "{mode:?}");
    assert_eq!(graph.members.len() - graph.decider.reads_from, decides_on, "{mode:?}");
    assert_eq!(graph.decider.capacity, Some(1), "the most frequent capacity decides");
}

#[test]
fn modes_are_the_teams_they_are_named_after() {
    check(Mode::Io, &[&[], &[], &[]], 3);
    check(Mode::Cot, &[&[], &[], &[]], 3);
    check(Mode::Chain, &[&[], &[0], &[1]], 3);
    check(Mode::Full, &[&[], &[0], &[0, 1]], 3);
    check(Mode::Debate, &[&[], &[], &[], &[1, 2], &[0, 2], &[0, 1]], 3);
    check(Mode::Reflection, &[&[], &[], &[], &[0], &[1], &[2]], 3);
    let two = Routed { mode: Mode::Io, agents: vec![(0, 2), (0, 0)] }.graph();
    assert_eq!(two.decider.capacity, Some(2), "of equals the first");
}

/// The strongest capacity alone is right; the others cost less and are not.
fn planted(_: usize, spec: &Spec) -> f64 {
    let strong = spec.agents.iter().filter(|agent| agent.capacity == "large").count();
    if 2 * strong > spec.agents.len() { 0.95 } else { 0.05 }
}

#[tokio::test]
async fn a_planted_capacity_is_found() {
    let (tasks, scorer, encoder) = (tasks(Domain::Math), Planted(planted), Encoder::hashed());
    let frame = crate::graph::SpecFrame::new(&Language::default(), None);
    let mut trials = Trials::new(&scorer, &tasks, frame, 1);
    let trained = learn(true, &mut trials, &encoder, 1).await.unwrap();
    let query = encoder.encode(&tasks[0].question).unwrap();
    let mut random = Random::new(4);
    let mut score = |router: &RouterNet| {
        let graphs = (0..100).map(|_| router.design(&query, Domain::Math, &mut random).unwrap());
        graphs.filter(|graph| planted(0, &trials.frame.spec(graph, Domain::Math)) > 0.5).count()
    };
    let (before, after) = (score(&router(1, DType::F32)), score(&trained));
    assert!(after > before + 25, "{after} of 100, {before} untrained");
}
