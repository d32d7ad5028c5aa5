//! Recorded models as workers: what is on record is served, whatever else is asked is a miss or simulated.

use crate::common::*;
use lemon_exec::worker::{FailedCost, Request};
use lemon_task::{Item, SetName};
use lemon_trace::FailureKind;
use lemon_world::outcomes::RecordedReply;
use lemon_world::{Preset, Recorded, World};
use std::collections::HashMap;

fn items() -> Vec<Item> {
    items_of(SetName::Gsm8k)
}

/// A record of the first item: one reply of the small level, three of the large one.
fn recorded(on_miss: Option<World>) -> Recorded {
    let reply = |level: usize, text: &str| RecordedReply { level, model: format!("model {level}"), text: text.into() };
    let replies =
        vec![reply(0, "Small work.\nAnswer: 1"), reply(2, "Answer: 1"), reply(2, "Answer: 2"), reply(2, "Answer: 3")];
    Recorded::new(HashMap::from([(items()[0].task.question.trim().to_owned(), replies)]), on_miss)
}

#[test]
fn an_agent_that_reads_no_other_gets_what_is_on_record() {
    let worker = recorded(None);
    for base in ["solver", "expert"] {
        let request = Asked { base, duty: "Whatever.".into(), ..Asked::default() }.request(&items()[0]);
        let reply = ask(&worker, &request).unwrap();
        assert_eq!((reply.text.as_str(), reply.model.as_deref()), ("Small work.\nAnswer: 1", Some("model 0")));
        assert_eq!((reply.usage.tokens_out, reply.usage.counted), (6, true));
        assert!(reply.simulated_s.unwrap() > 0.0);
    }
}

#[test]
fn of_several_samples_the_seed_chooses() {
    let worker = recorded(None);
    let said = |seed| ask(&worker, &Asked { level: 2, seed, ..Asked::default() }.request(&items()[0])).unwrap().text;
    let all: Vec<String> = (0..6).map(said).collect();
    assert_eq!(all[..3], all[3..]);
    assert_eq!(all[..3], ["Answer: 1", "Answer: 2", "Answer: 3"]);
    assert_eq!(said(u64::MAX), said(u64::MAX % 3));
}

#[test]
fn a_recorded_reply_that_does_not_fit_is_cut() {
    let request = Asked { max_tokens: 3, ..Asked::default() }.request(&items()[0]);
    let error = ask(&recorded(None), &request).unwrap_err();
    assert_eq!(error.failure.kind, FailureKind::Truncated);
    assert!(matches!(error.cost, FailedCost::Known(usage) if usage.tokens_out == 3), "{:?}", error.cost);
    assert_eq!(error.partial.as_deref(), Some("Small work.\n"));
}

/// Requests that no record answers, and what is said about each.
fn misses() -> Vec<(Request, &'static str)> {
    let asked = Asked::default();
    let reader = Asked { readings: vec![argued("1")], ..asked.clone() };
    let medium = Asked { level: 1, ..asked.clone() };
    let first = &items()[0];
    vec![
        (reader.request(first), "`agent` reads others, and the record holds single models only"),
        (medium.request(first), "the record holds no reply of `medium` to this task"),
        (asked.request(&items()[1]), "this task is not on record"),
        (Request { agent_prompt: None, ..asked.request(first) }, "no recorded model wrote a specification"),
    ]
}

#[test]
fn what_is_not_on_record_is_a_clear_miss() {
    let worker = recorded(None);
    for (request, expected) in misses() {
        let error = ask(&worker, &request).unwrap_err();
        assert_eq!((error.failure.kind, error.failure.message.as_str()), (FailureKind::NotRecorded, expected));
        assert_eq!(error.cost, FailedCost::Nothing);
    }
    assert!(worker.knows(&items()[0].task.question) && !worker.knows(&items()[1].task.question));
    assert_eq!(worker.backend().name, "replay (recorded models)");
}

#[test]
fn on_request_the_simulation_answers_what_is_not_on_record() {
    let world = || World::new(Preset::Calibrated, &*ITEMS);
    let worker = recorded(Some(world()));
    for (request, _) in misses() {
        assert_eq!(ask(&worker, &request), ask(&world(), &request));
    }
    let request = Asked::default().request(&items()[0]);
    assert_eq!(ask(&worker, &request).unwrap().model.as_deref(), Some("model 0"), "what is on record stays so");
    assert_eq!(worker.backend().name, "replay (misses simulated)");
}
