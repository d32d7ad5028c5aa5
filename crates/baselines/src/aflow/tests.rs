use super::*;
use crate::planted::{Planted, tasks, trials};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Better with each of two agents that read another.
fn planted(_: usize, spec: &Spec) -> f64 {
    let readers = spec.agents.iter().filter(|agent| !agent.after.is_empty()).count();
    0.2 + 0.35 * readers.min(2) as f64
}

#[tokio::test]
async fn a_planted_workflow_is_found_by_random_changes() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    let language = Language::default();
    let mut found = 0;
    for seed in 0..4 {
        let mut trials = trials(&scorer, &tasks, seed);
        let best = search(&mut trials, &language, &Expansion::Random, seed).await.unwrap();
        found += usize::from(planted(0, &best.spec) > 0.5);
        assert!(trials.account.runs <= 840 && trials.account.runs.is_multiple_of(40), "{}", trials.account.runs);
    }
    assert!(found >= 3, "{found} of 4");
}

struct Scripted(AtomicUsize);

#[async_trait]
impl Expander for Scripted {
    async fn expand(&self, prompt: &str, _: u64) -> Result<Option<Proposal>, BaselineError> {
        let call = self.0.fetch_add(1, Ordering::SeqCst);
        assert!(prompt.contains("Operators:") && prompt.contains("agents:"), "{prompt}");
        let text = match call {
            0 => "I do not know.".to_owned(),
            1 => "<modification>verify</modification>\n<graph>\n```yaml\nagents:\n  - {id: a1, base: solver, capacity: small}\n  - \
                  {id: a2, base: verifier, capacity: large, after: [a1]}\nanswer: {from: [a2], by: last}\n```\n</graph>"
                .to_owned(),
            _ => "<modification>verify</modification><graph>agents: nothing</graph>".to_owned(),
        };
        Ok(Some(Proposal { text, tokens: 100 }))
    }
}

#[tokio::test]
async fn a_model_is_asked_and_its_tokens_counted() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    let (language, model) = (Language::default(), Scripted(AtomicUsize::new(0)));
    let mut trials = trials(&scorer, &tasks, 1);
    let found = search(&mut trials, &language, &Expansion::Model(&model), 1).await.unwrap();
    assert_eq!((found.spec.agents.len(), found.rounds), (2, 1));
    assert_eq!(found.spec.agents[1].capacity, "small", "the search chooses no capacity");
    assert!(found.refused > 1);
    assert_eq!(trials.account.optimiser_tokens, 100 * trials.account.optimiser_calls);
}

/// Ended from outside while the second proposal is made.
struct EndedEarly(AtomicUsize);

#[async_trait]
impl Expander for EndedEarly {
    async fn expand(&self, _: &str, _: u64) -> Result<Option<Proposal>, BaselineError> {
        let call = self.0.fetch_add(1, Ordering::SeqCst);
        Ok((call == 0).then(|| Proposal { text: "I do not know.".to_owned(), tokens: 100 }))
    }
}

#[tokio::test]
async fn a_search_that_is_ended_asks_no_more() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    let (language, model) = (Language::default(), EndedEarly(AtomicUsize::new(0)));
    let mut trials = trials(&scorer, &tasks, 1);
    let found = search(&mut trials, &language, &Expansion::Model(&model), 1).await.unwrap();
    assert_eq!((model.0.load(Ordering::SeqCst), found.rounds, trials.account.runs), (2, 0, 40));
    assert!(trials.is_over());
}

/// Proposes one of four workflows in turn; the third is the planted one.
struct InTurn(AtomicUsize);

#[async_trait]
impl Expander for InTurn {
    async fn expand(&self, _: &str, _: u64) -> Result<Option<Proposal>, BaselineError> {
        let call = self.0.fetch_add(1, Ordering::SeqCst);
        let agents = match call % 4 {
            0 => "  - {id: a1, base: expert, capacity: small}\n",
            1 => {
                "  - {id: a0, base: planner, capacity: small}\n  - {id: a1, base: solver, capacity: small, after: [a0]}\n"
            }
            2 => {
                "  - {id: a0, base: solver, capacity: small}\n  - {id: b0, base: critic, capacity: small, after: [a0]}\n  - {id: a1, \
                 base: solver, capacity: small, after: [a0, b0]}\n"
            }
            _ => "  - {id: a1, base: verifier, capacity: small}\n",
        };
        let change = call % 4;
        let graph = format!("agents:\n{agents}answer: {{from: [a1], by: last}}\n");
        let text = format!("<modification>change {change}</modification>\n<graph>\n{graph}</graph>");
        Ok(Some(Proposal { text, tokens: 10 }))
    }
}

#[tokio::test]
async fn the_planted_one_of_proposed_workflows_is_found() {
    let (tasks, scorer) = (tasks(Domain::Math), Planted(planted));
    let (language, model) = (Language::default(), InTurn(AtomicUsize::new(0)));
    let mut trials = trials(&scorer, &tasks, 3);
    let found = search(&mut trials, &language, &Expansion::Model(&model), 3).await.unwrap();
    assert!((planted(0, &found.spec) - 0.9).abs() < 1e-9, "{:?}", found.spec);
    assert!(found.score > 0.7 && trials.account.optimiser_calls >= 3, "{found:?}");
}

/// What a model imitates is valid, and the workflow that it changes is the one it is shown.
#[tokio::test]
async fn shown_workflows_are_whole() {
    let (tasks, scorer, language) = (tasks(Domain::Math), Planted(planted), Language::default());
    let trials = trials(&scorer, &tasks, 1);
    let text = "agents:\n  - {id: a, base: solver, role: \"The \\\"first\\\": one\", duty: \"Say: {x}, # no more.\", capacity: small}\n  \
                - {id: b, base: critic, capacity: small, after: [a]}\nanswer: {from: [a, b], by: vote}\n";
    let spec = validate(text, &language).unwrap().spec().clone();
    let node = Node { spec: spec.clone(), score: 0.5, experience: Vec::new(), failures: Vec::new() };
    let prompt = prompt::prompt(&node, &[], Domain::Math, &language, &trials.frame);
    let shown: Vec<&str> = prompt.split("```").filter_map(|part| part.strip_prefix("yaml\n")).collect();
    let [workflow, example] = shown[..] else { panic!("{prompt}") };
    assert_eq!(validate(workflow, &language).unwrap().spec(), &spec);
    assert_eq!(validate(example, &language).unwrap().spec().agents.len(), 2);
}

#[test]
fn candidates_are_drawn_by_score_in_percent() {
    let found = mixture(&[0.5, 0.6]);
    let low = 0.15 + 0.7 * (-2.0_f64).exp() / (1.0 + (-2.0_f64).exp());
    assert!((f64::from(found[0]) - low).abs() < 1e-6, "{found:?}");
}

#[test]
fn replies_are_read_with_and_without_fences() {
    assert_eq!(specification("<graph>\n```yaml\nagents: x\n```</graph>").unwrap(), "agents: x\n");
    assert_eq!(specification("so: agents: x").unwrap(), "agents: x\n");
    assert_eq!(modification("<modification> add\n one </modification>").unwrap(), "add one");
    assert!(specification("nothing").is_none() && modification("nothing").is_none());
    let untagged = "modification: add a critic\ngraph:\n```yaml\nagents: x\n```\n";
    assert_eq!(
        (specification(untagged).unwrap().as_str(), modification(untagged).unwrap().as_str()),
        ("agents: x\n", "add a critic")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_changes_give_valid_workflows(seed: u64, domain in prop::sample::select(Domain::ALL.to_vec())) {
        let language = Language { tests: true, ..Language::default() };
        let frame = crate::graph::SpecFrame::new(&language, Some("small"));
        let mut random = Random::new(seed);
        let mut text = "agents:\n  - {id: a1, base: solver, capacity: small}\nanswer: {from: [a1], by: last}\n".to_owned();
        for _ in 0..30 {
            let plan = validate(&text, &language).unwrap();
            if let Some((_, changed)) = edit::random(plan.spec(), domain, &language, &frame, &mut random) {
                text = changed;
            }
        }
        prop_assert!(validate(&text, &language).is_ok());
    }
}
