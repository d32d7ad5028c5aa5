//! Heads that are fitted to functions that were planted.

use super::*;
use crate::small::small_model;
use lemon_model::ModelConfig;
use std::sync::LazyLock;

/// One agent or three, as an orchestrator writes them.
fn teams() -> Vec<String> {
    let agent = |number: usize| format!("  - id: a{number}\n    base: solver\n    capacity: large\n");
    [1, 3].map(|count| format!("agents:\n{}", (1..=count).map(agent).collect::<String>())).to_vec()
}

fn question(hard: bool, random: &mut Random) -> String {
    let kind = if hard { "A hard puzzle about trains" } else { "An easy sum of apples" };
    format!("{kind}: there are {} and {}. How many?", random.below(90), random.below(90))
}

fn untrained() -> TeamHead {
    let (config, tokenizer) = small_model(teams(), 384, 32, 2).unwrap();
    let config = ModelConfig { positions: 256, ..config };
    TeamHead::new(ValueModel::fresh(config, tokenizer, 1, Learning::Everything).unwrap(), Arc::default())
}

/// Easy questions need one agent, which costs 100 tokens; hard ones need three.
fn tasks(head: &TeamHead, count: usize, seed: u64) -> Vec<HeadTask> {
    let mut random = Random::new(seed);
    let task = |at: usize| {
        let hard = random.chance(0.5);
        let success = |agents: usize| if !hard { 0.95 } else { [0.2, 0.8][usize::from(agents == 3)] };
        let outcome = |agents: usize| TeamOutcome { success: success(agents), tokens: 100.0 * agents as f64 };
        let row = |(team, agents)| HeadRow { pieces: vec![team], outcomes: vec![outcome(agents)] };
        let rows = teams().into_iter().zip([1, 3]).map(row).collect();
        let prompt = head.prompt_of(&question(hard, &mut random)).unwrap();
        HeadTask { name: format!("t{seed}-{at}"), prompt, rows }
    };
    (0..count).map(task).collect()
}

/// Fitted once for all tests.
static FITTED: LazyLock<Arc<TeamHead>> = LazyLock::new(|| Arc::new(fitted()));

fn fitted() -> TeamHead {
    let mut head = untrained();
    let taught = tasks(&head, 160, 1);
    let settings = HeadSettings { epochs: 14, batch: 8, learning_rate: 5e-3, ..HeadSettings::default() };
    head.fit(&taught, &settings, &mut |_| {}).unwrap();
    head
}

#[test]
fn a_planted_function_is_fitted_and_the_price_changes_the_choice() {
    let head = FITTED.clone();
    let report = head.report();
    assert_eq!(report.tasks + report.held_out, 160);
    // The targets are no certainties: their own entropy is 0.34 in the mean, that of their mean 0.57.
    assert!(report.log_loss < 0.4 && report.log_loss_of_mean > 0.5, "{report:?}");
    assert!(report.cost_error < 0.05, "{report:?}");
    let mut random = Random::new(9);
    for _ in 0..5 {
        let choice = |question: &str, price: f64| {
            head.choose(&head.prompt_of(question).unwrap(), &teams(), price).unwrap().unwrap()
        };
        let (hard, easy) = (question(true, &mut random), question(false, &mut random));
        assert_eq!((choice(&hard, 0.5).0, choice(&easy, 0.5).0, choice(&hard, 20.0).0), (1, 0, 0));
        let (_, worth) = choice(&hard, 0.5);
        assert!((worth.success - 0.8).abs() < 0.15 && (worth.tokens / 300.0 - 1.0).abs() < 0.3, "{worth:?}");
        // It has seen 136 tasks of two kinds: it is surer than the prior, and not certain.
        assert!(worth.error > 0.002 && worth.error < 0.15, "{worth:?}");
    }
    assert!(head.choose(&head.prompt_of("How many?").unwrap(), &[], 0.1).unwrap().is_none());
}

#[test]
fn a_head_is_surer_of_what_it_was_taught() {
    let head = FITTED.clone();
    let context = |text: &str| head.prompt_of(text).unwrap();
    let error = |text: &str| {
        let worth = head.estimates(&context(text), &[vec![teams().remove(1)]]).unwrap()[0][0];
        // In log-odds, where nearness to 0 or 1 says nothing.
        worth.error / (worth.success * (1.0 - worth.success))
    };
    let known = error("A hard puzzle about trains: there are 4 and 7. How many?");
    let foreign = error("zzz !! ((( %% ]] ~~ {{ || \\ ^^ zzz qqq");
    assert!(foreign > 1.2 * known, "{foreign} {known}");
}

#[test]
fn a_saved_head_says_the_same_and_a_damaged_one_is_refused() {
    let mut head = untrained();
    let taught = tasks(&head, 20, 2);
    head.fit(&taught, &HeadSettings { epochs: 1, held_out: 0.0, ..HeadSettings::default() }, &mut |_| {}).unwrap();
    let folder = tempfile::tempdir().unwrap();
    head.save(folder.path()).unwrap();
    let load = || TeamHead::load(folder.path(), Arc::default());
    let texts: Vec<Vec<String>> = teams().into_iter().map(|team| vec![team]).collect();
    let said = |head: &TeamHead| head.estimates(&taught[0].prompt, &texts).unwrap();
    assert_eq!(said(&head), said(&load().unwrap()));
    assert!(taught.iter().all(|task| head.was_fitted_to(&task.prompt)) && !head.was_fitted_to(&[1, 2, 3]));
    let refused = || load().err().unwrap().to_string();
    let path = folder.path().join(FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"smear\":", "\"smear\":1")).unwrap();
    assert!(refused().contains("head.json is not what was written"), "{}", refused());
    let forge = |from: &str, to: &str| {
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        sums::write(folder.path()).unwrap();
        refused()
    };
    assert!(
        forge("\"version\":1", "\"version\":7")
            .contains("expected `lemon-head` version 1, found `lemon-head` version 7")
    );
    assert!(forge("\"covariance\":[", "\"covariance\":[0.5,").contains("covariance: expected 561 numbers, found 562"));
    assert!(forge("{", "[").contains("expected a head"));
    std::fs::remove_file(&path).unwrap();
    assert!(refused().contains("head.json"));
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let mut head = untrained();
    let taught = tasks(&head, 3, 3);
    let mut refused = |settings: HeadSettings| head.fit(&taught, &settings, &mut |_| {}).unwrap_err().to_string();
    assert!(refused(HeadSettings { batch: 0, ..HeadSettings::default() }).contains("expected a batch above 0"));
    assert!(refused(HeadSettings { held_out: 1.0, ..HeadSettings::default() }).contains("got 16 and 1"));
    assert!(refused(HeadSettings { held_out: 1e-9, ..HeadSettings::default() }).contains("found 3 and 0"));
}

/// A policy that writes the likeliest team of one agent, and draws one of three every second time.
struct TwoTeams;

impl lemon_model::Policy for TwoTeams {
    fn sample(
        &self,
        requests: &[lemon_model::SampleRequest],
        settings: &lemon_model::SampleSettings,
    ) -> Result<Vec<lemon_model::Sample>, PolicyError> {
        let text = |at: usize| teams().remove(if settings.temperature > 0.0 { at % 2 } else { 0 });
        let sample = |at: usize| lemon_model::Sample {
            text: text(at),
            tokens: Vec::new(),
            ends: Vec::new(),
            logprobs: Vec::new(),
            forced: Vec::new(),
            finish: lemon_model::Finish::Stop,
        };
        Ok((0..requests.len()).map(sample).collect())
    }

    fn score(&self, _: &[lemon_model::Sequence], _: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
        unreachable!("a writer without a threshold scores nothing")
    }

    fn update(&mut self, _: &[lemon_model::Example], _: &StepSettings) -> Result<lemon_model::StepReport, PolicyError> {
        unreachable!("a writer does not learn")
    }
}

#[test]
fn a_writer_takes_the_team_that_its_head_expects_most_of() {
    use lemon_exec::orchestrator::{Draft, Orchestrator};
    let head = FITTED.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let written = |question: &str, price: f64| {
        let settings = lemon_model::SampleSettings { temperature: 0.0, ..Default::default() };
        let writer = crate::Writer::new(Box::new(TwoTeams), head.encoder.clone(), settings, "two teams");
        let writer = writer.choosing(head.clone(), price, 4);
        match runtime.block_on(writer.draft(&head.encoder.first(question, 0))).unwrap() {
            Some(Draft::Learned { text, .. }) => teams().iter().position(|team| *team == text).unwrap(),
            _ => panic!("expected a team that was learned"),
        }
    };
    let mut random = Random::new(11);
    let (hard, easy) = (question(true, &mut random), question(false, &mut random));
    assert_eq!((written(&hard, 0.5), written(&easy, 0.5), written(&hard, 20.0)), (1, 0, 0));
}
