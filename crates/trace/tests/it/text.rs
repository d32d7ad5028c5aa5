//! What people read on a terminal: runs and differences as text.

use lemon_trace::{AgentStatus, EventKind, Trace, diff, sample};
use proptest::prelude::*;

#[test]
fn three_agents() {
    insta::assert_snapshot!(sample::three().show());
}

#[test]
fn two_rounds_with_everything() {
    insta::assert_snapshot!(sample::eight().show());
}

#[test]
fn a_run_that_was_cut_off() {
    let mut trace = sample::three();
    trace.events.truncate(9);
    insta::assert_snapshot!(trace.show());
}

#[test]
fn credit_stands_below_the_run() {
    let (plain, credited) = (sample::three().show(), sample::credited(sample::three()).show());
    let credit = credited.strip_prefix(&plain).expect("the run itself is shown as before");
    insta::assert_snapshot!(credit);
}

/// Ids of any length: the columns stay where they are.
#[test]
fn credit_is_aligned() {
    let mut trace = sample::credited(sample::eight());
    for event in &mut trace.events {
        if let EventKind::Credit { target, edit, .. } = &mut event.kind {
            (*target, *edit) = (target.replace("solve_a", &"é".repeat(70)), None);
        }
    }
    let shown = trace.show();
    let ends: Vec<usize> = shown
        .lines()
        .filter_map(|line| line.rfind("30").filter(|_| line.contains('±')).map(|end| line[..end].chars().count()))
        .collect();
    assert!(ends.len() > 10 && ends.iter().all(|end| *end == ends[0]), "{shown}");
}

#[test]
fn equal_runs_did_the_same() {
    let check = |trace: Trace| {
        let mut later = trace.clone();
        later.header.started_at_ms += 1;
        for event in &mut later.events {
            event.t *= 2.0;
            event.spend.seconds *= 2.0;
        }
        let diff = diff(&trace, &later);
        assert!(diff.is_empty(), "{diff}");
        let id = &trace.header.run_id;
        assert_eq!(diff.to_string(), format!("{id} and {id} did the same.\n"));
    };
    check(sample::three());
    check(sample::eight());
    check(sample::forty());
    // What was measured afterwards is not what happened.
    let (plain, credited) = (sample::eight(), sample::credited(sample::eight()));
    assert!(diff(&plain, &credited).is_empty() && diff(&credited, &plain).is_empty());
    assert_eq!((plain.summary(), plain.metrics(None)), (credited.summary(), credited.metrics(None)));
}

#[test]
fn every_kind_of_difference() {
    let (a, mut b) = (sample::three(), sample::three());
    b.header.run_id = "run-3b".into();
    b.header.seed = 4;
    b.events.retain(|event| event.agent != "check" || !matches!(event.kind, EventKind::Return { .. }));
    for event in &mut b.events {
        match &mut event.kind {
            EventKind::Decision { text, .. } => *text = text.replace("capacity: small", "capacity: large"),
            EventKind::Spawn { to, capacity, .. } if to == "solve" => *capacity = "large".into(),
            EventKind::Spawn { to, .. } if to == "report" => *to = "conclude".into(),
            EventKind::Delegate { to, duty, .. } if to == "solve" => duty.push_str(" Twice."),
            EventKind::Return { status, answer, reply, .. } if event.agent == "report" => {
                (*status, *answer, *reply) = (AgentStatus::Failed, None, None);
                event.spend.tokens_in = 5000;
            }
            EventKind::Return { answer, reply: Some(reply), .. } if event.agent == "solve" => {
                *answer = Some("34".into());
                *reply = reply.replace("is 33", "is 34");
            }
            EventKind::Message { from, delivered, .. } if from == "solve" => *delivered = false,
            EventKind::Stop { answer, .. } => *answer = Some("34".into()),
            _ => {}
        }
    }
    insta::assert_snapshot!(diff(&a, &b));
}

proptest! {
    #[test]
    fn a_run_never_differs_from_itself(seed: u64) {
        let trace = sample::random(seed);
        prop_assert!(diff(&trace, &trace).is_empty());
    }

    /// What was added one way was removed the other way.
    #[test]
    fn differences_are_symmetric(a: u64, b: u64) {
        let (a, b) = (sample::random(a), sample::random(b));
        let (there, back) = (diff(&a, &b), diff(&b, &a));
        prop_assert_eq!(there.is_empty(), back.is_empty());
        prop_assert_eq!(there.agents.len(), back.agents.len());
        let swapped: Vec<_> = back.outcome.iter().cloned().map(|mut change| {
            std::mem::swap(&mut change.a, &mut change.b);
            change
        }).collect();
        prop_assert_eq!(there.outcome, swapped);
    }

    #[test]
    fn showing_says_every_agent(seed: u64) {
        let trace = sample::random(seed);
        let shown = trace.show();
        for agent in trace.summary().agents {
            prop_assert!(shown.contains(&agent.id));
        }
    }
}
