//! What a model writes is checked, mended once, counted, and kept in our own writing.

use super::*;
use crate::teach::fixture::{Fixture, check_pairs};
use lemon_exec::worker::{Endpoint, OpenAi};
use lemon_exec::{Clock, Level};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use lemon_task::SetName;
use std::sync::Arc;
use std::time::Duration;

const TEAM: &str = "Here it is:\n```yaml\nagents:\n  - {id: solve, base: solver, duty: Add up the prices., capacity: small}\n  \
                    - {id: check, base: critic, capacity: large, after: [solve]}\n```\n";
const NO_TEAM: &str =
    "agents:\n  - {id: x, base: wizard, capacity: small}\n  - {id: x, base: solver, capacity: tiny}\n";

fn backend(endpoint: &FakeEndpoint) -> Backend {
    let level = Endpoint {
        base_url: endpoint.base_url(),
        model: "fake".into(),
        api_key: None,
        timeout: Duration::from_secs(20),
        total_timeout: Duration::from_secs(20),
        stream: false,
        send_seed: true,
    };
    Backend {
        worker: Arc::new(OpenAi::new(vec![level]).unwrap()),
        name: "endpoints".into(),
        levels: vec![Level::new("writer")],
        clock: Clock::Real,
        code: None,
        tools: None,
    }
}

fn settings() -> EndpointTeacherSettings {
    EndpointTeacherSettings {
        retry: Retry { attempts: 2, first_wait_s: 0.001, longest_wait_s: 0.01 },
        ..EndpointTeacherSettings::default()
    }
}

async fn ask(behaviour: Behaviour, tasks: usize, settings: &EndpointTeacherSettings) -> (EndpointLessons, u64) {
    let fixture = Fixture::new(&[SetName::Gsm8k], tasks);
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let asked = teach(&fixture.context(2), &backend(&endpoint), settings).await.unwrap();
    check_pairs(&asked.pairs);
    (asked, endpoint.calls())
}

#[tokio::test]
async fn teams_are_kept_with_our_ids_and_run() {
    let (asked, calls) = ask(Behaviour::text(TEAM), 6, &settings()).await;
    assert_eq!((asked.pairs.len(), asked.texts_refused, asked.silent, calls), (6, 0, 0, 6));
    for pair in &asked.pairs {
        assert!(pair.spec.contains("id: a1") && pair.spec.contains("after: [a1]") && pair.spec.contains("{from: [a2]"));
        assert_eq!((pair.teacher, pair.runs, pair.round), (Teacher::Endpoint, 2, 1));
        assert!(pair.reward.is_some() && pair.tokens > Some(0.0));
    }
}

#[tokio::test]
async fn a_text_that_is_no_team_is_mended_once_and_counted() {
    let mends = Behaviour::function(|request| {
        let again = request.messages.iter().any(|message| message.role == "assistant");
        FakeReply::Text(if again { TEAM } else { NO_TEAM }.to_owned())
    });
    let (asked, calls) = ask(mends, 3, &settings()).await;
    assert_eq!((asked.pairs.len(), asked.texts_refused, calls), (3, 3, 6));
    let expected = [(Code::DuplicateId, 3), (Code::UnknownBase, 3), (Code::UnknownCapacity, 3)];
    assert_eq!(asked.refused, BTreeMap::from(expected));

    let (asked, calls) = ask(Behaviour::text(NO_TEAM), 2, &settings()).await;
    assert_eq!((asked.pairs.len(), asked.texts_refused, calls), (0, 4, 4));
    let (asked, calls) =
        ask(Behaviour::text("Sorry, no."), 2, &EndpointTeacherSettings { repair: false, ..settings() }).await;
    assert_eq!((asked.pairs.len(), asked.texts_refused, calls), (0, 2, 2));
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_is_tried_again_and_then_left() {
    let busy = FakeReply::status(503);
    let (asked, calls) = ask(Behaviour::text(TEAM).fault_at(1, busy.clone()), 1, &settings()).await;
    assert_eq!((asked.pairs.len(), asked.silent, calls), (1, 0, 2));
    let (asked, calls) = ask(Behaviour::script([busy]), 2, &settings()).await;
    assert_eq!((asked.pairs.len(), asked.silent, calls), (0, 2, 4));
    assert_eq!(asked.failure.map(|failure| failure.kind), Some(FailureKind::ServerError));
    let (asked, calls) = ask(Behaviour::script([FakeReply::status(401)]), 1, &settings()).await;
    assert_eq!((asked.silent, calls), (1, 1));
}

#[tokio::test]
async fn the_same_team_for_the_same_task_is_kept_once_and_a_cancelled_lesson_asks_no_worker() {
    let (asked, calls) =
        ask(Behaviour::text(TEAM), 2, &EndpointTeacherSettings { asks: 3, runs: 0, ..settings() }).await;
    assert_eq!((asked.pairs.len(), calls), (2, 6));
    assert!(asked.pairs.iter().all(|pair| pair.reward.is_none()));

    let fixture = Fixture::new(&[SetName::Gsm8k], 2);
    let endpoint = FakeEndpoint::start(Behaviour::text(TEAM)).unwrap();
    fixture.cancel.cancel();
    let asked = teach(&fixture.context(1), &backend(&endpoint), &settings()).await.unwrap();
    assert_eq!((asked.pairs.len(), asked.silent, endpoint.calls()), (0, 2, 0));
    let missing = EndpointTeacherSettings { level: 7, ..settings() };
    let fixture = Fixture::new(&[SetName::Gsm8k], 1);
    let asked = teach(&fixture.context(1), &backend(&endpoint), &missing).await.unwrap();
    assert_eq!(asked.failure.map(|failure| failure.kind), Some(FailureKind::Refused));
}
