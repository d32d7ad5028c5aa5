//! A session lives as long as the server hears of it.

use crate::common::*;
use lemon_fakes::{FakeTinker, TinkerFault};
use lemon_model::Policy;
use std::time::{Duration, Instant};

#[track_caller]
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn heartbeats(fake: &FakeTinker) -> usize {
    fake.calls("session_heartbeat").len()
}

#[test]
fn signs_of_life_go_out_while_nothing_is_asked() {
    let fake = fake();
    let policy = open(&fake);
    let before = heartbeats(&fake);
    wait_until("signs of life", || heartbeats(&fake) >= before + 3);
    // One that is lost, or that a busy server refuses, is nothing.
    for trouble in [TinkerFault::LostBefore, TinkerFault::LostAfter, TinkerFault::Status(500), TinkerFault::Status(503)]
    {
        fake.fault("session_heartbeat", trouble);
    }
    let before = heartbeats(&fake);
    wait_until("signs of life after faults", || heartbeats(&fake) >= before + 8);
    assert!(fake.calls("session_heartbeat").iter().all(|body| body["session_id"] == "session_1"));
    assert_eq!(policy.score(&[sequence("Say it.", "one")], 1.0).unwrap(), [vec![-2.0; 4]]);
    drop(policy);
    let after = heartbeats(&fake);
    std::thread::sleep(Duration::from_millis(100));
    assert!(heartbeats(&fake) <= after + 1, "they end with the policy");
}

#[test]
fn a_server_that_forgot_the_session_is_not_asked_on() {
    let fake = fake();
    let mut policy = open(&fake);
    fake.restart();
    let before = heartbeats(&fake);
    wait_until("a sign of life is refused", || heartbeats(&fake) > before);
    let mut last = String::new();
    wait_until("the policy knows", || {
        let (fact, hint) = fault(policy.score(&[sequence("Say it.", "one")], 1.0));
        assert!(hint.unwrap().contains("--resume"), "{fact}");
        last = fact;
        last.starts_with("the session on the Tinker server has ended")
    });
    assert_eq!(last, "the session on the Tinker server has ended: Session not found");
    let asked = fake.operations().len();
    assert!(policy.update(&[example("one", 1.0)], &step(0.1)).is_err());
    assert_eq!(fake.operations().len(), asked);
}
