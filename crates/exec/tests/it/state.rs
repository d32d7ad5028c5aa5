//! The pure state: forks, what agents are told, and how one answer is made of several.

use crate::common::QUESTION;
use lemon_exec::worker::Speaker;
use lemon_exec::{AgentOutcome, Aggregation, OnParentFailure, RunState, Standing, Step};
use lemon_spec::{AnswerRule, Language, validate_round};
use lemon_trace::{AgentStatus, Failure, FailureKind};

const DIAMOND: &str = "
agents:
  - {id: top, base: solver, capacity: small, share: answer}
  - {id: left, base: solver, capacity: medium, after: [top]}
  - {id: right, base: solver, capacity: large, after: [top]}
  - {id: bottom, base: critic, capacity: small, after: [left, right]}
";

fn state(policy: OnParentFailure, rounds: &[&str]) -> RunState {
    let language = Language::default();
    let mut state = RunState::new(QUESTION, policy, language.roles.get("judge").unwrap().clone());
    rounds.iter().for_each(|text| state.add_round(validate_round(text, &language, &state.ids()).unwrap()));
    state
}

fn failed() -> AgentOutcome {
    let failure = Failure { kind: FailureKind::Timeout, message: "too slow".into() };
    AgentOutcome::without_reply(AgentStatus::Failed, failure)
}

/// Ends agents as given, by id: a reply, or `None` for a failure.
fn end(state: &mut RunState, ends: &[(&str, Option<&str>)]) {
    for (id, reply) in ends {
        let index = state.find(id).unwrap_or_else(|| panic!("no {id}"));
        state.end(index, reply.map_or_else(failed, AgentOutcome::done));
    }
}

fn asked(step: &Step) -> Vec<usize> {
    if let Step::Go { ask, .. } = step { ask.clone() } else { Vec::new() }
}

#[test]
fn agents_come_in_the_order_of_their_parents() {
    let mut state = state(OnParentFailure::Run, &[DIAMOND]);
    assert_eq!(state.next_step(0), Step::Wait, "no room");
    assert_eq!(asked(&state.next_step(9)), [0]);
    assert_eq!(state.next_step(9), Step::Wait);
    end(&mut state, &[("top", Some("Answer: 1"))]);
    assert_eq!(asked(&state.next_step(1)), [1], "room for one");
    assert_eq!(asked(&state.next_step(1)), [2]);
    end(&mut state, &[("right", Some("Answer: 3"))]);
    assert_eq!(state.next_step(9), Step::Wait, "left is still at it");
    end(&mut state, &[("left", None)]);
    assert_eq!(asked(&state.next_step(9)), [3]);
    end(&mut state, &[("bottom", Some("Answer: 4"))]);
    assert_eq!(state.next_step(9), Step::RoundOver);
    assert_eq!(state.aggregate().answer.as_deref(), Some("4"));
}

#[test]
fn a_clone_is_a_fork() {
    let mut original = state(OnParentFailure::Run, &[DIAMOND]);
    original.next_step(9);
    end(&mut original, &[("top", Some("Answer: 1"))]);
    let before = format!("{original:?}");

    let (mut one, mut other) = (original.clone(), original.clone());
    end(&mut one, &[("left", Some("Answer: a")), ("right", Some("Answer: a")), ("bottom", Some("Answer: one"))]);
    other.withhold("left", "bottom");
    other.halt();
    assert_eq!(one.aggregate().answer.as_deref(), Some("one"));
    assert_eq!(other.aggregate().answer.as_deref(), Some("1"));
    assert_eq!(format!("{original:?}"), before, "the original knows of neither");
    assert_eq!(asked(&original.next_step(9)), [1, 2]);
}

#[test]
fn a_finished_agent_stays_finished() {
    let mut state = state(OnParentFailure::Run, &[DIAMOND]);
    end(&mut state, &[("top", Some("Answer: 1")), ("top", Some("Answer: 2")), ("top", None)]);
    state.reopen();
    state.release();
    assert_eq!(state.members()[0].standing, Standing::Ended(AgentOutcome::done("Answer: 1")));
    // One that failed is given another chance.
    end(&mut state, &[("left", None)]);
    state.reopen();
    assert_eq!(state.members()[1].standing, Standing::Waiting);
}

fn told(state: &RunState, id: &str) -> String {
    let index = state.find(id).unwrap();
    let messages = state.conversation(index, &state.deliveries(index));
    messages.into_iter().find(|message| message.role == Speaker::User).unwrap().content
}

#[test]
fn children_are_told_what_their_parents_share() {
    let mut state = state(OnParentFailure::Run, &[DIAMOND]);
    end(&mut state, &[("top", Some("Long thoughts.\nAnswer: 1")), ("left", Some("All\nof it")), ("right", None)]);
    assert!(!told(&state, "left").contains("Long thoughts"), "top shares its answer only");
    assert!(told(&state, "left").contains("message from top, Problem solver]\n1\n["), "{}", told(&state, "left"));
    let bottom = told(&state, "bottom");
    assert!(bottom.contains("All\nof it") && bottom.contains("no message from right"), "{bottom}");
    assert!(!bottom.contains("from top"), "{bottom}");
    assert!(bottom.contains(QUESTION));
}

#[test]
fn a_withheld_message_leaves_no_mark() {
    let ends = [("top", Some("Answer: 1")), ("left", Some("Answer: l")), ("right", Some("Answer: r"))];
    let mut state = state(OnParentFailure::Run, &[DIAMOND]);
    end(&mut state, &ends);
    state.withhold("left", "bottom");
    let bottom = told(&state, "bottom");
    assert!(!bottom.contains("left") && bottom.contains("message from right"), "{bottom}");
    assert!(told(&state, "right").contains("message from top"), "other messages are delivered");
    let deliveries: Vec<(usize, bool)> = state.deliveries(3).iter().map(|d| (d.from, d.delivered)).collect();
    assert_eq!(deliveries, [(1, false), (2, true)], "it is known what was withheld");
    state.withhold("right", "bottom");
    assert!(!told(&state, "bottom").contains("message from"));
}

#[test]
fn skipping_reaches_all_descendants_at_once() {
    let mut state = state(OnParentFailure::Skip, &[DIAMOND]);
    state.next_step(9);
    end(&mut state, &[("top", None)]);
    assert_eq!(state.next_step(9), Step::Go { ask: vec![], skipped: vec![1, 2, 3] });
    assert_eq!(state.next_step(9), Step::RoundOver);
    let statuses: Vec<_> = state.members().iter().map(|member| member.standing.clone()).collect();
    let skipped =
        |standing: &Standing| matches!(standing, Standing::Ended(outcome) if outcome.status == AgentStatus::Skipped);
    assert_eq!(statuses.iter().filter(|standing| skipped(standing)).count(), 3);
    assert_eq!(state.aggregate().answer, None);
}

/// Three agents of different capacities, and how their answers are put together.
fn voters(by: &str) -> String {
    format!(
        "agents:\n  - {{id: s, base: solver, capacity: small}}\n  - {{id: m, base: solver, capacity: medium}}\n  \
         - {{id: l, base: solver, capacity: large}}\nanswer: {{from: [s, m, l], by: {by}}}\n"
    )
}

#[track_caller]
fn check(
    by: &str,
    ends: &[(&str, Option<&str>)],
    rule: AnswerRule,
    chosen: Option<&str>,
    answer: Option<&str>,
) -> RunState {
    let mut state = state(OnParentFailure::Run, &[&voters(by)]);
    state.next_step(9);
    end(&mut state, ends);
    check_aggregation(&state, rule, chosen, answer);
    state
}

#[track_caller]
fn check_aggregation(state: &RunState, rule: AnswerRule, chosen: Option<&str>, answer: Option<&str>) {
    let Aggregation { rule: applied, chosen: index, answer: found, .. } = state.aggregate();
    let by = index.map(|index| state.members()[index].agent.id.as_str());
    assert_eq!((applied, by, found.as_deref()), (rule, chosen, answer));
}

#[test]
fn the_last_that_succeeded_answers() {
    let all = [("s", Some("Answer: 1")), ("m", Some("Answer: 2")), ("l", Some("Answer: 3"))];
    check("last", &all, AnswerRule::Last, Some("l"), Some("3"));
    let two = [("s", Some("Answer: 1")), ("m", Some("Answer: 2")), ("l", None)];
    let state = check("last", &two, AnswerRule::Last, Some("m"), Some("2"));
    assert!(state.aggregate().as_written);
    check(
        "last",
        &[("s", Some("no marker at all")), ("m", None), ("l", None)],
        AnswerRule::Last,
        Some("s"),
        Some("no marker at all"),
    );
    let state = check("last", &[("s", None), ("m", None), ("l", None)], AnswerRule::Last, None, None);
    assert!(!state.aggregate().as_written);
}

#[test]
fn a_vote_goes_to_the_most_then_to_the_strongest_then_to_the_first() {
    let vote = |s, m, l, chosen, answer| {
        check("vote", &[("s", s), ("m", m), ("l", l)], AnswerRule::Vote, Some(chosen), Some(answer));
    };
    let (a, b, c) = (Some("Answer: a"), Some("Answer: b"), Some("Answer: c"));
    vote(a, b, a, "l", "a");
    vote(a, a, b, "m", "a");
    vote(a, b, c, "l", "c");
    vote(a, b, None, "m", "b");
    // How it is written does not divide a vote.
    vote(Some("Answer: $70,000.00"), Some("Answer: 70000"), b, "m", "70000");

    let equals = "agents:\n  - {id: first, base: solver, capacity: small}\n  - {id: second, base: solver, capacity: small}\n\
                  answer: {from: [first, second], by: vote}\n";
    let mut tied = state(OnParentFailure::Run, &[equals]);
    end(&mut tied, &[("first", a), ("second", b)]);
    check_aggregation(&tied, AnswerRule::Vote, Some("first"), Some("a"));
}

#[test]
fn a_vote_goes_to_the_surest_together_where_all_say_how_sure_they_are() {
    let four = "agents:\n  - {id: a, base: solver, capacity: small}\n  - {id: b, base: solver, capacity: small}\n  \
                - {id: c, base: solver, capacity: small}\n  - {id: d, base: solver, capacity: small}\nanswer: {from: [a, b, c, d], by: vote}\n";
    let mut tied = state(OnParentFailure::Run, &[four]);
    for (index, (reply, sure)) in [("1", 0.9), ("2", 0.7), ("1", 0.2), ("2", 0.8)].into_iter().enumerate() {
        tied.end(index, AgentOutcome { confidence: Some(sure), ..AgentOutcome::done(format!("Answer: {reply}")) });
    }
    // Two and two: the two that are surer together, though the surest is another.
    check_aggregation(&tied, AnswerRule::Vote, Some("d"), Some("2"));

    let team = "agents:\n  - {id: s, base: solver, capacity: small}\n  - {id: m, base: solver, capacity: medium}\n  \
                - {id: l, base: solver, capacity: large}\nanswer: {from: [s, m, l], by: vote}\n";
    let check = |ends: [(&str, Option<f64>); 3], chosen: &str, answer: &str| {
        let mut state = state(OnParentFailure::Run, &[team]);
        for (index, (reply, confidence)) in ends.into_iter().enumerate() {
            state.end(index, AgentOutcome { confidence, ..AgentOutcome::done(reply) });
        }
        check_aggregation(&state, AnswerRule::Vote, Some(chosen), Some(answer));
    };
    check([("Answer: a", Some(0.9)), ("Answer: b", Some(0.5)), ("Answer: c", Some(0.6))], "s", "a");
    check([("Answer: a", Some(0.9)), ("Answer: b", None), ("Answer: c", Some(0.6))], "l", "c");
    check([("Answer: a", Some(0.9)), ("Answer: b", Some(0.2)), ("Answer: b", Some(0.1))], "s", "a");
    check([("Answer: a", Some(0.9)), ("Answer: b", Some(0.5)), ("Answer: b", Some(0.6))], "l", "b");
    check([("Answer: a", Some(0.9)), ("Answer: b", None), ("Answer: b", Some(0.1))], "l", "b");
    check([("Answer: a", Some(0.5)), ("Answer: b", Some(0.5)), ("Answer: c", Some(0.5))], "l", "c");
    check([("Answer: a", Some(0.0)), ("Answer: b", Some(0.0)), ("Answer: b", Some(0.0))], "l", "b");
}

#[test]
fn a_judge_decides_and_where_there_is_none_the_vote_does() {
    let ends = [("s", Some("Work.\nAnswer: a")), ("m", Some("Answer: a")), ("l", Some("Answer: b"))];
    let mut judged = check("judge", &ends, AnswerRule::Vote, Some("m"), Some("a"));
    assert_eq!(asked(&judged.next_step(9)), [3], "the judge is asked");
    let judge = &judged.members()[3];
    assert_eq!((judge.agent.id.as_str(), judge.agent.capacity.as_str(), judge.is_judge), ("judge", "large", true));
    assert!(!told(&judged, "judge").contains("Work."), "it compares answers; working would mislead it");
    assert_eq!(judged.next_step(9), Step::Wait);

    let mut failed = judged.clone();
    end(&mut failed, &[("judge", None)]);
    assert_eq!(failed.next_step(9), Step::RoundOver, "there is no second judge");
    check_aggregation(&failed, AnswerRule::Vote, Some("m"), Some("a"));

    end(&mut judged, &[("judge", Some("Answer: b"))]);
    assert_eq!(judged.next_step(9), Step::RoundOver);
    check_aggregation(&judged, AnswerRule::Judge, Some("judge"), Some("b"));

    // One answer needs no judge.
    let mut alone =
        check("judge", &[("s", None), ("m", Some("Answer: a")), ("l", None)], AnswerRule::Vote, Some("m"), Some("a"));
    assert_eq!(alone.next_step(9), Step::RoundOver);
}

#[test]
fn a_judge_has_a_name_of_its_own() {
    let text = "agents:\n  - {id: judge, base: solver, capacity: small}\n  - {id: judge2, base: solver, capacity: small}\n\
                answer: {from: [judge, judge2], by: judge}\n";
    let mut state = state(OnParentFailure::Run, &[text]);
    state.next_step(9);
    end(&mut state, &[("judge", Some("Answer: a")), ("judge2", Some("Answer: b"))]);
    assert_eq!(asked(&state.next_step(9)), [2]);
    assert_eq!(state.members()[2].agent.id, "judge3");
}

#[test]
fn where_those_who_were_to_answer_failed_others_do() {
    // The last done agent that no other done agent reads.
    let mut left_over = state(OnParentFailure::Run, &[DIAMOND]);
    end(&mut left_over, &[("top", Some("Answer: 1")), ("left", Some("Answer: 2")), ("right", None), ("bottom", None)]);
    check_aggregation(&left_over, AnswerRule::Last, Some("left"), Some("2"));
    assert!(!left_over.aggregate().as_written);

    // An earlier round's answer is better than leftovers.
    let more = "agents:\n  - {id: more, base: critic, capacity: small, after: [bottom]}\n";
    let mut rounds = state(OnParentFailure::Run, &[DIAMOND, more]);
    end(&mut rounds, &[("top", Some("Answer: 1")), ("left", Some("Answer: 2")), ("right", Some("Answer: 3"))]);
    end(&mut rounds, &[("bottom", Some("Answer: 4")), ("more", None)]);
    check_aggregation(&rounds, AnswerRule::Last, Some("bottom"), Some("4"));
    assert!(!rounds.aggregate().as_written);
}

#[test]
fn a_reader_that_gives_no_code_leaves_the_code_as_it_is() {
    #[track_caller]
    fn check(question: &str, replies: [&str; 2], expected: &str) {
        const PAIR: &str = "
agents:
  - {id: write, base: programmer, capacity: small}
  - {id: check, base: critic, capacity: small, after: [write]}
answer: {from: [check], by: last}
";
        let language = Language::default();
        let mut state = RunState::new(question, OnParentFailure::Run, language.roles.get("judge").unwrap().clone());
        state.add_round(validate_round(PAIR, &language, &state.ids()).unwrap());
        end(&mut state, &[("write", Some(replies[0])), ("check", Some(replies[1]))]);
        assert_eq!(state.aggregate().answer.as_deref(), Some(expected));
    }
    let (code, mended) =
        ("```python\ndef add(a, b):\n    return a - b\n```", "```python\ndef add(a, b):\n    return a + b\n```");
    let task = "Write a Python function that adds two numbers.";
    check(task, [code, "The function is right."], code);
    check(task, [code, mended], mended);
    check(task, [code, "def add(a, b): return a + b"], "def add(a, b): return a + b");
    check(task, ["I cannot.", "Nor can I."], "Nor can I.");
    check("How much is 2 + 3?", ["```python\nprint(5)\n```\nAnswer: 5", "It is right."], "It is right.");
}
