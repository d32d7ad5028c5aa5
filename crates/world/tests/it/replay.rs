//! Recorded models as workers: what is on record is served, whatever else is asked is a miss or simulated.

use crate::common::*;
use lemon_exec::Worker;
use lemon_exec::worker::{AgentPrompt, FailedCost, Request, TeamMember};
use lemon_task::{Item, SetName};
use lemon_trace::FailureKind;
use lemon_world::{LEVELS, Preset, Recorded, RecordedCall, Recordings, SamplePool, World};
use std::collections::BTreeSet;
use std::sync::Arc;

fn items() -> Vec<Item> {
    items_of(SetName::Gsm8k)
}

fn call(level: usize, sample: u32, text: &str) -> RecordedCall {
    RecordedCall {
        level,
        bases: ["solver", "expert"].map(String::from).to_vec().into(),
        reads: Arc::default(),
        sees_answers: false,
        sample,
        temperature: if sample == 0 { 0.0 } else { 0.7 },
        model: format!("model {level}").into(),
        text: text.into(),
        tokens: None,
        truncated: false,
        silent: false,
        correct: None,
        log_probability: None,
    }
}

fn reader(base: &str, reads: &[(usize, u32)], sees_answers: bool, text: &str) -> RecordedCall {
    RecordedCall { bases: vec![base.to_owned()].into(), reads: reads.to_vec().into(), sees_answers, ..call(2, 0, text) }
}

/// A record of the first item: one reply of the small level, five of the large one, a critic, a judge and a reader.
fn recordings() -> Arc<Recordings> {
    let mut calls = vec![
        RecordedCall { tokens: Some((90, 6)), ..call(0, 0, "Small work.\nAnswer: 1") },
        reader("critic", &[(2, 1)], true, "I agree.\nAnswer: 101"),
        reader("judge", &[(2, 1), (2, 2), (2, 3)], true, "The first.\nAnswer: 123"),
        reader("solver", &[(2, 1), (2, 2)], false, "Having read both.\nAnswer: 12"),
    ];
    calls.extend((0..5).map(|sample| call(2, sample, &format!("Work {sample}.\nAnswer: {}", 10 + sample))));
    let question = items()[0].task.question.clone();
    let calls = calls.into_iter().map(|call| (question.clone(), call));
    Arc::new(Recordings::new(LEVELS.map(String::from).to_vec(), calls))
}

fn recorded(on_miss: Option<World>) -> Recorded {
    Recorded::new(recordings(), on_miss)
}

/// The replies of a team of these members; a reader reads the replies, or the answers, of its parents.
fn team(worker: &Recorded, members: &[(&'static str, usize, &[usize])], seed: u64) -> Vec<Result<String, String>> {
    let member = |(at, (base, level, parents)): (usize, &(&'static str, usize, &[usize]))| TeamMember {
        id: format!("a{at}"),
        base: (*base).to_owned(),
        level: *level,
        parents: parents.to_vec(),
        round: 1,
        seed: seed * 1000 + at as u64,
    };
    let all: Arc<Vec<TeamMember>> = Arc::new(members.iter().enumerate().map(member).collect());
    let mut replies: Vec<Result<String, String>> = Vec::new();
    for member in all.iter() {
        let base = members.iter().map(|(base, ..)| *base).find(|base| *base == member.base).unwrap();
        let reads = |at: &usize| {
            let text = replies[*at].clone().unwrap();
            if matches!(base, "critic" | "judge") { text.rsplit(' ').next().unwrap().to_owned() } else { text }
        };
        let readings = member.parents.iter().map(reads).collect();
        let asked = Asked { base, level: member.level, seed: member.seed, readings, ..Asked::default() };
        let request = asked.request(&items()[0]);
        let prompt = AgentPrompt { team: Some(all.clone()), ..request.agent_prompt.as_deref().unwrap().clone() };
        let request = Request { agent: member.id.clone(), agent_prompt: Some(Arc::new(prompt)), ..request };
        assert!(worker.wants_team() && worker.has_cache_keys());
        replies.push(ask(worker, &request).map(|reply| reply.text).map_err(|error| error.failure.message));
    }
    replies
}

fn answers(replies: &[Result<String, String>]) -> Vec<&str> {
    replies.iter().map(|reply| reply.as_ref().unwrap().rsplit(' ').next().unwrap()).collect()
}

#[test]
fn an_agent_that_reads_no_other_gets_what_is_on_record() {
    let worker = recorded(None);
    for base in ["solver", "expert"] {
        let request = Asked { base, duty: "Whatever.".into(), ..Asked::default() }.request(&items()[0]);
        let reply = ask(&worker, &request).unwrap();
        assert_eq!((reply.text.as_str(), reply.model.as_deref()), ("Small work.\nAnswer: 1", Some("model 0")));
        assert_eq!((reply.usage.tokens_in, reply.usage.tokens_out, reply.usage.counted), (90, 6, false));
        assert!(reply.simulated_s.unwrap() > 0.0);
    }
}

#[test]
fn of_several_samples_the_seed_chooses() {
    let worker = recorded(None);
    let said = |seed| ask(&worker, &Asked { level: 2, seed, ..Asked::default() }.request(&items()[0])).unwrap().text;
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for seed in 0..1000 {
        assert_eq!(said(seed), said(seed));
        *counts.entry(said(seed)).or_default() += 1;
    }
    // Five standard errors around 200.
    assert!(counts.len() == 5 && counts.values().all(|count| count.abs_diff(200) < 65), "{counts:?}");
}

#[test]
fn the_agents_of_a_team_get_different_samples_while_there_are_enough() {
    let worker = recorded(None);
    let solvers = |count: usize| vec![("solver", 2, &[][..]); count];
    for seed in 0..50 {
        for count in 1..=7 {
            let replies = team(&worker, &solvers(count), seed);
            let distinct: BTreeSet<&str> = answers(&replies).into_iter().collect();
            assert_eq!(distinct.len(), count.min(5), "{replies:?}");
            assert_eq!(team(&worker, &solvers(count), seed), replies);
            // More agents change nothing for those before them.
            assert_eq!(team(&worker, &solvers(count + 1), seed)[..count], replies);
        }
    }
}

#[test]
fn temperatures_are_chosen_as_told() {
    let solvers = |count: usize| vec![("solver", 2, &[][..]); count];
    let (auto, sampled) = (recorded(None).with_pool(SamplePool::Auto), recorded(None).with_pool(SamplePool::Sampled));
    for seed in 0..40 {
        assert_eq!(answers(&team(&auto, &solvers(1), seed)), ["10"]);
        assert_ne!(answers(&team(&sampled, &solvers(1), seed)), ["10"]);
        for worker in [&auto, &sampled] {
            assert!(!answers(&team(worker, &solvers(4), seed)).contains(&"10"));
            assert!(answers(&team(worker, &solvers(5), seed)).contains(&"10"), "the greedy one comes last");
        }
        let mixed = [("solver", 0, &[][..]), ("solver", 2, &[][..])];
        assert_eq!(answers(&team(&auto, &mixed, seed)), ["1", "10"], "each is the only one of its level");
    }
}

#[test]
fn readers_get_what_was_replied_to_these_very_readings() {
    let worker = recorded(None);
    for seed in 0..30 {
        let critic = team(&worker, &[("solver", 2, &[]), ("critic", 2, &[0])], seed);
        assert_eq!(answers(&critic), ["11", "101"]);
        let solver: (&'static str, usize, &[usize]) = ("solver", 2, &[]);
        let judge = team(&worker, &[solver, solver, solver, ("judge", 2, &[0, 1, 2])], seed);
        assert_eq!(answers(&judge), ["11", "12", "13", "123"]);
        let reader = team(&worker, &[solver, solver, ("solver", 2, &[0, 1])], seed);
        assert_eq!(answers(&reader), ["11", "12", "12"]);
        // An agent beside them gets another sample than those that were read.
        let beside = team(&worker, &[solver, solver, solver, ("solver", 2, &[1, 2])], seed);
        assert_eq!(&answers(&beside)[1..], ["11", "12", "12"]);
        assert!(["10", "13", "14"].contains(&answers(&beside)[0]));
    }
    for wrong in [
        &[("solver", 0, &[][..]), ("critic", 2, &[0])][..],
        &[("solver", 2, &[]), ("solver", 2, &[]), ("critic", 2, &[0, 1])],
        &[("solver", 2, &[]), ("judge", 2, &[0])],
    ] {
        let replies = team(&worker, wrong, 1);
        assert!(replies.last().unwrap().as_ref().is_err_and(|fact| fact.contains("that reads what")), "{replies:?}");
    }
}

#[test]
fn the_same_sample_is_the_same_call() {
    let worker = recorded(None);
    let key = |level, seed| worker.cache_key(&Asked { level, seed, ..Asked::default() }.request(&items()[0]));
    let said = |seed| ask(&worker, &Asked { level: 2, seed, ..Asked::default() }.request(&items()[0])).unwrap().text;
    for (a, b) in (0..20).flat_map(|a| (0..20).map(move |b| (a, b))) {
        assert_eq!(key(2, a) == key(2, b), said(a) == said(b));
    }
    assert!(key(0, 1).is_some() && key(1, 1).is_none());
}

#[test]
fn a_recorded_reply_that_does_not_fit_is_cut() {
    let request = Asked { max_tokens: 3, ..Asked::default() }.request(&items()[0]);
    let error = ask(&recorded(None), &request).unwrap_err();
    assert_eq!(error.failure.kind, FailureKind::Truncated);
    assert!(matches!(error.cost, FailedCost::Known(usage) if usage.tokens_out == 3), "{:?}", error.cost);
    assert_eq!(error.partial.as_deref(), Some("Small work"));
}

/// Requests that no record answers, and what is said about each.
fn misses() -> Vec<(Request, &'static str)> {
    let asked = Asked::default();
    let reader = Asked { readings: vec![argued("1")], ..asked.clone() };
    let medium = Asked { level: 1, ..asked.clone() };
    let planner = Asked { base: "planner", ..asked.clone() };
    let first = &items()[0];
    vec![
        (reader.request(first), "the record holds no `solver` of `small` that reads what `agent` reads"),
        (medium.request(first), "the record holds no reply of `medium` to this task"),
        (planner.request(first), "the record holds no reply of a `planner` of `small` to this task"),
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
        assert_eq!(worker.cache_key(&request), None);
    }
    assert!(recordings().knows(&items()[0].task.question) && !recordings().knows(&items()[1].task.question));
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
