//! What a world cannot answer is a failure that says so.

use crate::common::*;
use lemon_exec::worker::{AgentPrompt, FailedCost, Request};
use lemon_trace::FailureKind;
use lemon_world::{Fitted, Preset, World};
use std::sync::Arc;

#[track_caller]
fn check_miss(world: &World, request: &Request, expected: &str) {
    let error = ask(world, request).unwrap_err();
    assert_eq!((error.failure.kind, error.failure.message.as_str()), (FailureKind::NotRecorded, expected));
    assert_eq!((error.cost, error.partial.as_ref()), (FailedCost::Nothing, None));
    assert!(!error.worth_retrying());
}

#[test]
fn an_unknown_question_is_a_miss() {
    let world = World::new(Preset::Calibrated, &*ITEMS);
    let request = Asked::default().request(&ITEMS[0]);
    let other = |question: &str| {
        let agent_prompt =
            AgentPrompt { question: question.into(), ..request.agent_prompt.as_deref().unwrap().clone() };
        Request { agent_prompt: Some(Arc::new(agent_prompt)), ..request.clone() }
    };
    check_miss(&world, &other("Unheard of?"), "the simulated world does not know this task");
    check_miss(&world, &other(""), "the simulated world does not know this task");
    check_miss(&World::new(Preset::Teams, []), &request, "the simulated world does not know this task");
    let unbriefed = Request { agent_prompt: None, ..request.clone() };
    check_miss(&world, &unbriefed, "a simulated worker cannot write specifications");
    assert!(ask(&world, &request).is_ok());
}

#[test]
fn figures_without_levels_are_a_miss_too() {
    let mut fitted = Fitted::shipped().clone();
    for family in [&mut fitted.reckoning, &mut fitted.knowing, &mut fitted.coding] {
        family.levels.clear();
    }
    let world = World::with_figures(fitted, Preset::Calibrated, &*ITEMS);
    for item in &*ITEMS {
        check_miss(&world, &Asked::default().request(item), "the world has no figures for this kind of task");
        assert_eq!(world.solo(&item.task.question, 0), None);
    }
}
