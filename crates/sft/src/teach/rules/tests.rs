//! The rules decide by the question alone, and what they write is a team.

use super::*;
use crate::teach::fixture::{Fixture, check_pairs};
use lemon_rollout::{RolloutRequest, Team};
use lemon_spec::validate_round;
use lemon_task::{SetName, compose};
use proptest::prelude::*;

fn language() -> Language {
    Language::default()
}

/// Levels, sharing and brevity in short: `large>large` for a chain.
fn summary(spec: &Spec) -> String {
    let brief =
        |duty: &str| ["only the answer", "answer alone", "explanation"].iter().any(|p| duty.to_lowercase().contains(p));
    let agent = |agent: &Agent| {
        let brief = if brief(agent.duty.as_deref().unwrap_or_default()) { " brief" } else { "" };
        format!("{} {}{brief}", agent.capacity, agent.base)
    };
    spec.agents.iter().map(agent).collect::<Vec<_>>().join(" > ")
}

#[track_caller]
fn check(question: &str, aim: Aim, expected: &str) {
    assert_eq!(
        summary(&team(question, None, aim, &language(), 1)),
        expected,
        "{}",
        featurize(question, None).difficulty
    );
}

const EASY: &str = "Vera has 3 pens and buys 4 more. How many pens has Vera?";
const HARD: &str = concat!(
    "Nobody", // alias: a task text may hold any word
    " had told Vera that the three shelves, which do not hold more than twelve boxes each, were to be \
     filled again every two hours during the whole of the week, although half of the boxes, as she said \
     herself (\"They are not mine\"), had been left in the yard since the year before, and were not even \
     counted. One day each of nine workers carried four boxes in an hour, and in the rest of the day seven. \
     How many boxes were left after ten days if 2400 were there at first and 15 per cent were broken?"
);

#[test]
fn shapes_follow_what_is_seen() {
    check(EASY, Aim::Thrift, "large solver");
    check(HARD, Aim::Thrift, "large solver > large critic > large critic");
    check(&format!("{EASY}\n\nA) 5\nB) 6\nC) 7\nD) 8\nE) 9"), Aim::Reward, "large solver");
    check(&format!("{HARD}\n\nA) 5\nB) 6\nC) 7\nD) 8\nE) 9"), Aim::Thrift, "large solver > large critic");
    check(
        &format!("{HARD}\n\nA) 5\nB) 6\nC) 7\nD) 8\nE) 9"),
        Aim::Reward,
        "large solver > large critic > large critic",
    );
    check("Which acid is it?\n\nA) one\nB) two\nC) three\nD) four", Aim::Reward, "large expert brief");
    check(
        "```python\ndef f(n: int) -> int:\n    \"\"\"Double the number.\"\"\"\n```",
        Aim::Thrift,
        "small programmer brief",
    );
}

#[test]
fn what_is_neither_a_word_problem_nor_a_choice_gets_a_neutral_agent() {
    for (question, base) in [
        ("hi", "solver"),
        ("Plan a 3-day trip to Lisbon for 2 people.", "solver"),
        ("Who wrote Faust?", "solver"),
        ("Write a Python function that reverses a string.", "programmer"),
    ] {
        let team = team(question, Some("philosophy"), Aim::Reward, &language(), 1);
        assert_eq!(summary(&team), format!("large {base}"), "{question}");
        assert_eq!((&team.agents[0].role, &team.agents[0].duty), (&None, &None));
    }
    for set in SetName::PUBLIC {
        let items = compose(set, 300, 5);
        let neutral = items.iter().filter(|item| neutral_base(&item.task.question).is_some()).count();
        assert!(neutral <= 3, "{neutral} of {set}");
    }
}

#[test]
fn everyday_tasks_make_valid_pairs() {
    let pairs = everyday(400, &language(), 3);
    check_pairs(&pairs);
    let programmers = pairs.iter().filter(|pair| pair.spec.contains("programmer")).count();
    assert!(programmers > 60 && programmers < 140, "{programmers}");
    assert_eq!(everyday(400, &language(), 3), pairs);
}

#[test]
fn levels_are_taken_by_their_place() {
    let few = Language { capacities: vec!["only".to_owned()], ..language() };
    let many = Language { capacities: ["xs", "s", "m", "l", "xl"].map(String::from).to_vec(), ..language() };
    assert_eq!(summary(&team(EASY, None, Aim::Thrift, &few, 1)), "only solver");
    assert_eq!(summary(&team(EASY, None, Aim::Thrift, &many, 1)), "xl solver");
    assert_eq!(Level::Middle.name(&many), "m");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decisions_hang_on_the_question_alone(seed: u64, set in 0_usize..7, at in 0_usize..40, words: u64) {
        let item = compose(SetName::PUBLIC[set], at + 1, seed).pop().unwrap();
        let question = &item.task.question;
        for aim in [Aim::Thrift, Aim::Reward] {
            let one = team(question, None, aim, &language(), words);
            let other = team(question, Some("professional_law"), aim, &language(), words.wrapping_add(1));
            prop_assert!(validate(&render(&one).text, &language()).unwrap().warnings().is_empty());
            let bare = |spec: &Spec| {
                let mut spec = spec.clone();
                spec.agents.iter_mut().for_each(|agent| (agent.role, agent.duty) = (None, None));
                spec
            };
            prop_assert_eq!(bare(&one), bare(&other));
            prop_assert_eq!(lemon_policy::pair::canonical_ids(&one), one);
        }
    }

    #[test]
    fn any_text_gets_a_team(question in ".{0,300}") {
        let spec = team(&question, None, Aim::Reward, &language(), 0);
        prop_assert!(validate(&render(&spec).text, &language()).is_ok());
    }
}

fn told(agent: &str, reply: Option<&str>) -> Told {
    let status = if reply.is_some() { AgentStatus::Done } else { AgentStatus::Failed };
    Told { agent: agent.into(), role: "Solver".into(), status, reply: reply.map(str::to_owned), sure: None }
}

#[track_caller]
fn check_review(replies: [Option<&str>; 2], expected: &str) {
    let results = [told("a1", replies[0]), told("a2", replies[1])];
    let spec = review(EASY, None, &results, &language(), 3);
    let earlier = ["a1".to_owned(), "a2".to_owned()];
    let plan = validate_round(&render(&spec).text, &language(), &earlier).unwrap();
    assert_eq!(canonical_round(plan.spec(), &earlier), spec);
    assert_eq!(summary(&spec), expected);
    match spec.agents.first() {
        None => assert_eq!((spec.answer.from, spec.answer.by), (earlier.to_vec(), AnswerRule::Vote)),
        Some(agent) => assert_eq!((&agent.after[..], &spec.answer.from[..]), (&earlier[..], &["a3".to_owned()][..])),
    }
}

#[test]
fn a_second_round_is_written_only_where_answers_differ() {
    check_review([Some("Answer: 7"), Some("It is so.\nAnswer: 7.0")], "");
    check_review([Some("Answer: 7"), Some("Answer: 8")], "large critic");
    check_review([Some("Answer: 7"), None], "large critic");
    check_review([None, None], "large critic");
}

#[tokio::test]
async fn pairs_are_valid_measured_and_the_same_each_time() {
    let fixture = Fixture::new(&[SetName::Gsm8k, SetName::Aqua, SetName::Mmlu], 40);
    let settings = RulesSettings { wordings: 2, second_round_every: 2, ..RulesSettings::default() };
    let pairs = teach(&fixture.context(5), &settings).await.unwrap();
    check_pairs(&pairs);
    let (first, second): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| pair.round == 1);
    assert!(first.len() > 200 && second.len() == 60, "{} and {}", first.len(), second.len());
    assert!(pairs.iter().all(|pair| pair.reward.is_some() && pair.world.as_deref() == Some("calibrated")));
    // Both endings of a second round occur.
    let closing = second.iter().filter(|pair| pair.spec.starts_with("agents: []")).count();
    assert!(closing > 10 && closing < 55, "{closing}");
    assert!(second.iter().all(|pair| pair.results.len() == 2 && pair.results.iter().all(|told| told.reply.is_some())));
    assert_eq!(teach(&fixture.context(5), &settings).await.unwrap(), pairs);
    assert_ne!(teach(&fixture.context(6), &settings).await.unwrap(), pairs);
}

#[tokio::test]
async fn nothing_is_measured_where_nothing_is_run_and_a_cancelled_lesson_ends() {
    let fixture = Fixture::new(&[SetName::HumanEval], 12);
    let settings = RulesSettings { runs: 0, second_round_every: 0, ..RulesSettings::default() };
    let pairs = teach(&fixture.context(1), &settings).await.unwrap();
    check_pairs(&pairs);
    assert_eq!(pairs.len(), 12);
    assert!(pairs.iter().all(|pair| pair.reward.is_none() && pair.runs == 0));
    fixture.cancel.cancel();
    assert_eq!(teach(&fixture.context(1), &RulesSettings::default()).await.unwrap(), []);
}

#[tokio::test]
async fn as_an_orchestrator_it_writes_the_same_teams() {
    let fixture = Fixture::new(&[SetName::Svamp], 3);
    let case = &fixture.cases[0];
    let rules = Rules { seed: 4, ..Rules::default() };
    let request = RolloutRequest::new(case, Team::Orchestrator(Arc::new(rules)), 1);
    let run = fixture.env.rollout(request).await.unwrap();
    let written = run.trace.events.iter().find_map(|event| match &event.kind {
        EventKind::Decision { text, .. } => Some(text.clone()),
        _ => None,
    });
    let expected = render(&team(&case.item.task.question, None, Aim::Thrift, &language(), 4)).text;
    assert_eq!(written, Some(expected));
    assert!(run.earned().unwrap().reward > 0.0);
}
