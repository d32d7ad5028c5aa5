//! The same question to the same agent gives the same reply; whatever an agent is told or reads makes another draw.

use crate::common::*;
use lemon_exec::orchestrator::Fixed;
use lemon_exec::worker::{ChatMessage, Request};
use lemon_exec::{Backend, Job, Runner, Settings};
use lemon_spec::Language;
use lemon_task::{Item, SetName};
use lemon_trace::{EventKind, Trace};
use lemon_world::{Preset, World};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

#[test]
fn the_same_question_to_the_same_agent_gives_the_same_reply() {
    let (world, same) = (World::new(Preset::Teams, &*ITEMS), World::new(Preset::Teams, &*ITEMS));
    for (seed, item) in (0..).zip(&*ITEMS) {
        let asked = Asked { seed, level: seed as usize % 3, readings: vec![argued("7")], ..Asked::default() };
        let first = asked.of(&world, item);
        assert_eq!(first, asked.of(&world, item), "asked twice");
        assert_eq!(first, asked.of(&same, item), "in a world of its own");
        let alone = World::new(Preset::Teams, ITEMS.iter().filter(|other| is_code(other) || *other == item));
        if seed % 16 == 0 {
            assert_eq!(first, asked.of(&alone, item), "whatever other items there are");
        }
    }
}

#[test]
fn what_an_agent_is_not_told_does_not_matter() {
    let world = World::new(Preset::Calibrated, &*ITEMS);
    for item in &*ITEMS {
        let request = Asked::default().request(item);
        let other = Request {
            agent: "another name".into(),
            messages: vec![ChatMessage::system("Be brief."), ChatMessage::user("Whatever.")],
            max_tokens: request.max_tokens * 2,
            temperature: Some(0.7),
            ..request.clone()
        };
        assert_eq!(ask(&world, &request).unwrap().text, ask(&world, &other).unwrap().text);
    }
}

/// Two ways to ask that leave the odds at one half: as often both are right or both wrong as not.
#[track_caller]
fn check_independent(what: &str, other: Asked) {
    let world = flat(Preset::Calibrated, 0.0);
    let mut agree = Tally::default();
    let (mut same_text, mut right) = (0, Tally::default());
    for item in plain_items() {
        for seed in 0..20 {
            let first = Asked { seed, ..Asked::default() }.of(&world, item).text;
            let second = Asked { seed: seed ^ other.seed, ..other.clone() }.of(&world, item).text;
            agree.add(is_right(item, &first) == is_right(item, &second), 0.5);
            right.add(is_right(item, &second), 0.5);
            same_text += u32::from(first == second);
        }
    }
    agree.check(what);
    right.check(what);
    assert!(f64::from(same_text) < 0.75 * agree.cases, "{what}: {same_text} texts are the same");
}

#[test]
fn whatever_an_agent_is_told_or_reads_makes_another_draw() {
    let plain = Asked { seed: 0, ..Asked::default() };
    check_independent("another seed", Asked { seed: 1 << 20, ..plain.clone() });
    check_independent("another level", Asked { level: 2, ..plain.clone() });
    check_independent("another duty", Asked { duty: "Do this with great care.".into(), ..plain.clone() });
    check_independent("another role", Asked { role: "Another of the team".into(), ..plain.clone() });
    check_independent("another base role", Asked { base: "verifier", ..plain.clone() });
    let notes = "The notes say little but that one should begin at the beginning and end at the end.";
    check_independent("something to read", Asked { readings: vec![notes.into()], ..plain });
}

#[test]
fn where_one_text_ends_and_the_next_begins_matters() {
    let world = World::new(Preset::Calibrated, &*ITEMS);
    let split = |role: &str, duty: &str| Asked { role: role.into(), duty: duty.into(), ..Asked::default() };
    let texts = |asked: Asked| ITEMS.iter().map(|item| asked.of(&world, item).text).collect::<Vec<_>>();
    let (one, other) = (texts(split("ab", "c")), texts(split("a", "bc")));
    let same = one.iter().zip(&other).filter(|(one, other)| one == other).count();
    assert!(same < ITEMS.len() / 10, "{same} of {} replies are the same", ITEMS.len());
}

async fn run(backend: &Backend, spec: &str, item: &Item) -> Trace {
    let runner = Runner {
        backend: backend.clone(),
        orchestrator: Arc::new(Fixed { text: spec.to_owned(), reviewer: None }),
        language: Arc::new(Language::default()),
        store: None,
        reply_cache: None,
        reply_record: None,
        settings: Settings::default(),
        on_delta: None,
    };
    let job = Job { run_id: "run".into(), question: item.task.question.clone(), seed: 5, ..Job::default() };
    runner.run(&job, &CancellationToken::new(), None).await.unwrap()
}

fn said(trace: &Trace, id: &str) -> String {
    let reply = |kind: &EventKind| match kind {
        EventKind::Return { reply, .. } => reply.clone(),
        _ => None,
    };
    trace.events.iter().filter(|event| event.agent == id).find_map(|event| reply(&event.kind)).unwrap()
}

const PAIR: &str = "
agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: critic, capacity: medium, after: [a]}
";
/// The same two, and others beside them.
const MORE: &str = "
agents:
  - {id: x, base: solver, capacity: large}
  - {id: a, base: solver, capacity: small}
  - {id: y, base: critic, capacity: small, after: [x, a]}
  - {id: b, base: critic, capacity: medium, after: [a]}
answer: {from: [b], by: last}
";

#[tokio::test]
async fn unrelated_parts_of_a_team_do_not_matter() {
    let backend = World::new(Preset::Teams, &*ITEMS).backend();
    let mut namesakes = 0;
    let items = items_of(SetName::Gsm8k);
    for item in &items {
        let (pair, more) = (run(&backend, PAIR, item).await, run(&backend, MORE, item).await);
        for id in ["a", "b"] {
            assert_eq!(said(&pair, id), said(&more, id), "{id} on {}", item.task.id);
        }
        let renamed = run(&backend, &PAIR.replace("id: a", "id: c").replace("[a]", "[c]"), item).await;
        namesakes += usize::from(said(&renamed, "c") == said(&pair, "a"));
    }
    assert!(namesakes < items.len() / 4, "another name is another agent: {namesakes} said the same");
}

#[tokio::test]
async fn the_workers_have_their_own_clock_and_names() {
    let item = &items_of(SetName::Gsm8k)[0];
    let trace = run(&World::new(Preset::Teams, [item]).backend(), PAIR, item).await;
    assert_eq!(trace.header.workers, "sim (teams)");
    // Two calls, one after the other, each longer than it takes here to make them up.
    assert!(trace.summary().wall_s > 1.0, "{}", trace.summary().wall_s);
    let backend = World::new(Preset::Calibrated, &*ITEMS).backend();
    let names: Vec<_> = backend.levels.iter().map(|level| (level.name.as_str(), level.identity.as_str())).collect();
    assert_eq!(
        names,
        [("small", "sim/calibrated/small"), ("medium", "sim/calibrated/medium"), ("large", "sim/calibrated/large")]
    );
}
