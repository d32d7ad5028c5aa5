//! The pure state under random teams and any order of ends: it always comes to an end, and in order.

use crate::common::QUESTION;
use lemon_exec::{AgentOutcome, OnParentFailure, RunState, Standing, Step};
use lemon_num::Random;
use lemon_spec::generate::spec_after;
use lemon_spec::{AnswerRule, Language, render, validate_round};
use lemon_trace::{AgentStatus, Failure, FailureKind};
use proptest::prelude::*;
use std::collections::HashSet;

fn outcome(random: &mut Random) -> AgentOutcome {
    if random.one_in(4) {
        let failure = Failure { kind: FailureKind::Timeout, message: String::new() };
        return AgentOutcome::without_reply(AgentStatus::Failed, failure);
    }
    AgentOutcome::done(format!("Answer: {}", random.below(3)))
}

/// Asks and ends agents in random order until the round is over; the parents of an agent must have ended before it.
fn drive(state: &mut RunState, random: &mut Random, asked: &mut HashSet<usize>) {
    let mut running = Vec::new();
    // Far more steps than any round takes.
    for _ in 0..10_000 {
        let room = random.below(4);
        match state.next_step(room) {
            Step::RoundOver => {
                assert!(running.is_empty(), "the round is over while an agent runs");
                return;
            }
            Step::Wait if running.is_empty() => assert_eq!(room, 0, "all agents wait, and none runs"),
            Step::Wait => {
                let index = running.swap_remove(random.below(running.len()));
                state.end(index, outcome(random));
            }
            Step::Go { ask, skipped } => {
                let judge = |index: &usize| state.members()[*index].is_judge;
                assert!(ask.len() <= room || ask.iter().all(judge), "{} asked, room for {room}", ask.len());
                for index in ask.iter().chain(&skipped) {
                    assert!(asked.insert(*index), "{index} is asked twice");
                    check_parents(state, *index);
                }
                running.extend(ask);
            }
        }
    }
    panic!("the round does not end");
}

fn check_parents(state: &RunState, index: usize) {
    let ended = |parent: &usize| matches!(state.members()[*parent].standing, Standing::Ended(_));
    assert!(state.members()[index].agent.parents.iter().all(ended), "{index} before its parents");
}

fn check(seed: u64, policy: OnParentFailure) {
    let language = Language::default();
    let mut random = Random::new(seed);
    let mut state = RunState::new(QUESTION, policy, language.roles.get("judge").unwrap().clone());
    let mut asked = HashSet::new();
    for round in 1..=3 {
        let text = render(&spec_after(random.next_u64(), &language, &state.ids())).text;
        state.add_round(validate_round(&text, &language, &state.ids()).unwrap());
        drive(&mut state, &mut random, &mut asked);
        assert_eq!(asked.len(), state.members().len(), "every agent had a turn");
        assert!(state.members().iter().all(|member| matches!(member.standing, Standing::Ended(_))));
        assert_eq!(state.round(), round);
        check_answer(&state);
    }
}

/// There is an answer if an agent is done, and it is the answer of the agent that the run names.
fn check_answer(state: &RunState) {
    let aggregation = state.aggregate();
    let any_done = state.members().iter().any(|member| member.is_done());
    assert_eq!(aggregation.answer.is_some(), any_done);
    let Some(chosen) = aggregation.chosen else { return };
    assert!(state.members()[chosen].is_done());
    let among = aggregation
        .candidates
        .iter()
        .any(|(index, answer)| *index == chosen && Some(answer) == aggregation.answer.as_ref());
    assert!(among || aggregation.rule == AnswerRule::Judge, "{aggregation:?}");
}

proptest! {
    #[test]
    fn any_team_in_any_order_comes_to_an_end(seed: u64, skip: bool) {
        check(seed, if skip { OnParentFailure::Skip } else { OnParentFailure::Run });
    }
}
