//! Replies piece by piece, while they are being written.

use crate::common::*;
use lemon_exec::OnDelta;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use lemon_trace::{EventKind, Header};
use std::sync::{Arc, Mutex};

const TEAM: &str = "
agents:
  - {id: first, base: solver, capacity: small}
  - {id: second, base: critic, capacity: small, after: [first]}
";

/// What is told, by agent.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

fn listen() -> (OnDelta, Heard) {
    let told: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let pieces = told.clone();
    let on_delta: OnDelta = Arc::new(move |header: &Header, agent: &str, piece: &str| {
        assert_eq!(header.run_id, "run1");
        pieces.lock().unwrap().push((agent.to_owned(), piece.to_owned()));
    });
    (on_delta, told)
}

#[tokio::test]
async fn the_pieces_of_a_reply_are_the_reply_and_say_whose_they_are() {
    let text = "Fünfundachtzig Prozent von 80 — also 68.\nAnswer: 68";
    for (stream, least) in [(true, 5), (false, 1)] {
        let fake = FakeEndpoint::start(Behaviour::text(text).split_bytes(7)).unwrap();
        let (on_delta, told) = listen();
        let mut runner = runner(http(&fake, stream), TEAM);
        runner.on_delta = Some(on_delta);
        run(&runner).await;
        for id in ["first", "second"] {
            let told = told.lock().unwrap();
            let pieces: Vec<&str> = told.iter().filter(|(agent, _)| agent == id).map(|(_, it)| it.as_str()).collect();
            assert_eq!(pieces.concat(), text, "stream: {stream}");
            assert!(pieces.len() >= least, "{pieces:?}");
        }
    }
}

#[tokio::test]
async fn an_attempt_that_breaks_off_is_followed_by_a_retry_and_the_whole_reply() {
    let fake = FakeEndpoint::start(Behaviour::text("Answer: 68").fault_first_time(FakeReply::DropMidStream)).unwrap();
    let (on_delta, told) = listen();
    let mut runner = runner(http(&fake, true), "agents: [{id: first, base: solver, capacity: small}]");
    runner.on_delta = Some(on_delta);
    let trace = run(&runner).await;
    let told: String = told.lock().unwrap().iter().map(|(_, piece)| piece.as_str()).collect();
    assert!(told.len() > "Answer: 68".len() && told.ends_with("Answer: 68"), "{told}");
    assert_eq!(places(&trace, |event| matches!(event.kind, EventKind::Retry { .. })).len(), 1);
}
