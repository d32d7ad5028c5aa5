//! Servers that are busy, connections that break, operations that fail: what is done again, and what never is.

use crate::common::*;
use lemon_fakes::TinkerFault;
use lemon_model::{Policy, PolicyError};
use lemon_policy::TrainablePolicy;
use lemon_tinker::{TinkerPolicy, TinkerStart};

/// An operation that can be repeated.
type Harmless = (&'static str, fn(&TinkerPolicy) -> Result<String, PolicyError>);

fn shown<T: std::fmt::Debug>(done: Result<T, PolicyError>) -> Result<String, PolicyError> {
    done.map(|done| format!("{done:?}"))
}

const HARMLESS: [Harmless; 3] = [
    ("forward", |policy| shown(policy.score(&[sequence("Say it.", "one")], 1.0))),
    ("asample", |policy| shown(policy.sample(&[request("Write.", 1)], &settings()))),
    ("retrieve_future", |policy| shown(policy.score(&[sequence("Say it.", "two")], 1.0))),
];

fn transient() -> Vec<TinkerFault> {
    let lost = [TinkerFault::LostBefore, TinkerFault::LostAfter];
    [429, 503, 502, 500].map(TinkerFault::Status).into_iter().chain(lost).collect()
}

#[test]
fn what_counts_once_however_often_it_is_sent_is_sent_again() {
    let fake = fake();
    let policy = open(&fake);
    for (call, ask) in HARMLESS {
        let expected = ask(&policy).unwrap();
        for trouble in transient() {
            fake.fault(call, trouble.clone());
            let before = fake.calls(call).len();
            assert_eq!(ask(&policy).unwrap(), expected, "{call} {trouble:?}");
            assert_eq!(fake.calls(call).len(), before + 2, "{call} {trouble:?}");
        }
    }
}

#[test]
fn a_result_is_waited_for() {
    let fake = fake();
    let mut policy = open(&fake);
    for trouble in [TinkerFault::Slow(5), TinkerFault::TryAgain(5)] {
        for call in ["forward_backward", "optim_step"] {
            fake.fault(call, trouble.clone());
        }
        let (steps, asked) = (fake.calls("optim_step").len(), fake.calls("retrieve_future").len());
        let report = policy.update(&[example("one", 1.0)], &step(0.0)).unwrap();
        assert!((report.gradient_norm - 2.0).abs() < 1e-6, "{report:?}");
        assert_eq!(fake.calls("optim_step").len(), steps + 1, "it is begun once");
        assert_eq!(fake.calls("retrieve_future").len(), asked + 12);
    }
    // Every question names the operation by a text, as servers want it.
    assert!(fake.calls("retrieve_future").iter().all(|body| body["request_id"].is_string()));
}

#[test]
fn a_step_is_sent_again_only_where_the_server_has_not_taken_it() {
    for call in ["forward_backward", "optim_step"] {
        for trouble in [429, 503].map(TinkerFault::Status) {
            let fake = fake();
            let mut policy = open(&fake);
            fake.fault(call, trouble);
            policy.update(&[example("one", 1.0)], &step(1.0)).unwrap();
            assert!((theta(&fake) - 0.2).abs() < 1e-6, "{call}: {}", theta(&fake));
        }
        for trouble in [TinkerFault::LostBefore, TinkerFault::LostAfter, TinkerFault::Status(500), TinkerFault::Crashes]
        {
            let fake = fake();
            let mut policy = open(&fake);
            let before = fake.calls(call).len();
            fake.fault(call, trouble.clone());
            let (fact, hint) = fault(policy.update(&[example("one", 1.0)], &step(1.0)));
            assert_eq!(fake.calls(call).len(), before + 1, "{call} {trouble:?}");
            match trouble {
                TinkerFault::LostBefore | TinkerFault::LostAfter => {
                    let expected = format!("the connection broke during `{call}`, and the server may have done it: ");
                    assert!(fact.starts_with(&expected), "{fact}");
                    assert!(hint.unwrap().contains("--resume"));
                }
                _ => assert!(fact.contains("with status 500"), "{fact}"),
            }
            // What the server holds is unknown: nothing more is asked of it.
            let after = fake.operations().len();
            let (fact, hint) = fault(policy.update(&[example("one", 1.0)], &step(1.0)));
            assert!(fact.contains("an earlier step failed") && hint.unwrap().contains("--resume"), "{fact}");
            assert!(policy.sample(&[request("Write.", 0)], &settings()).is_err());
            assert_eq!(fake.operations().len(), after);
        }
    }
}

#[test]
fn weights_are_saved_under_another_name_where_the_first_may_be_taken() {
    let fake = fake();
    let folder = tempfile::tempdir().unwrap();
    let policy = open(&fake);
    for trouble in [TinkerFault::LostBefore, TinkerFault::LostAfter] {
        fake.fault("save_weights", trouble.clone());
        policy.save_state(folder.path()).unwrap();
        let paths: Vec<String> = fake.calls("save_weights").iter().map(|call| call["path"].to_string()).collect();
        assert_ne!(paths[paths.len() - 2], paths[paths.len() - 1]);
        let kept = std::fs::read_to_string(folder.path().join("tinker.json")).unwrap();
        assert!(kept.contains(paths[paths.len() - 1].trim_matches('"')), "{kept}");
    }
    fake.fault("save_weights_for_sampler", TinkerFault::LostAfter);
    assert_eq!(policy.sample(&[request("Write.", 1)], &settings()).unwrap()[0].text, "two");
    (0..3).for_each(|_| fake.fault("save_weights", TinkerFault::LostBefore));
    let (fact, _) = fault(policy.save_state(folder.path()));
    assert!(fact.contains("during `save_weights`"), "{fact}");
}

#[test]
fn what_fails_on_the_server_is_told_with_its_reason() {
    let fake = fake();
    let policy = open(&fake);
    let score = || fault(policy.score(&[sequence("Say it.", "one")], 1.0));
    fake.fault("forward", TinkerFault::Fails("Model model_1 not loaded".to_owned()));
    let (fact, hint) = score();
    assert_eq!(fact, "`forward` failed on the Tinker server: Model model_1 not loaded");
    assert!(hint.unwrap().contains("--resume"));
    fake.fault("forward", TinkerFault::Says(r#"{"error": "out of memory", "category": "server"}"#.to_owned()));
    assert_eq!(score().0, "`forward` failed on the Tinker server: out of memory");
    fake.fault("forward", TinkerFault::Crashes);
    let before = fake.calls("retrieve_future").len();
    assert_eq!(score().0, "the Tinker server refused `retrieve_future` with status 500: Internal Server Error");
    assert_eq!(
        fake.calls("retrieve_future").len(),
        before + 3,
        "a result is asked for thrice, in case it was a hiccup"
    );
    fake.fault("forward", TinkerFault::Status(422));
    assert_eq!(score(), ("the Tinker server refused `forward` with status 422: a fault of the fake".to_owned(), None));
}

#[test]
fn a_reply_that_is_not_as_expected_is_refused() {
    let fake = fake();
    let policy = open(&fake);
    let logprobs = |list: &str| format!(r#"{{"loss_fn_outputs": [{{"logprobs": {{"data": {list}}}}}]}}"#);
    for (says, expected) in [
        ("{}".to_owned(), "missing field `loss_fn_outputs`"),
        ("[".to_owned(), "EOF while parsing"),
        (r#"{"loss_fn_outputs": []}"#.to_owned(), "expected the outputs of 1 texts, got 0"),
        (logprobs("[-1.0, -1.0]"), "expected 10 log-probabilities, got 2"),
        (logprobs(&format!("[{}]", ["-1"; 11].join(","))), "expected 10 log-probabilities, got 11"),
        (logprobs(&format!("[{}]", ["1e99"; 10].join(","))), "a log-probability is not a number"),
    ] {
        fake.fault("forward", TinkerFault::Says(says));
        let (fact, _) = fault(policy.score(&[sequence("Say it.", "one")], 1.0));
        assert!(fact.contains("is not as expected") && fact.contains(expected), "{fact}");
    }
    for (says, expected) in [
        (r#"{"sequences": []}"#, "expected one text, got 0"),
        (
            r#"{"sequences": [{"tokens": [1, 2], "logprobs": [-1.0]}]}"#,
            "expected the log-probabilities of 2 tokens, got 1",
        ),
        (r#"{"sequences": [{"tokens": [1], "logprobs": null}]}"#, "a text has no log-probabilities"),
        (r#"{"sequences": [{"tokens": [260], "logprobs": [-1.0]}]}"#, "a text has token 260"),
        (r#"{"sequences": [{"tokens": [-1], "logprobs": [-1.0]}]}"#, "invalid value"),
    ] {
        fake.fault("asample", TinkerFault::Says(says.to_owned()));
        let (fact, _) = fault(policy.sample(&[request("Write.", 0)], &settings()));
        assert!(fact.contains(expected), "{fact}");
    }
    // A step whose outcome cannot be read was taken all the same: the policy does not go on from there.
    let mut policy = policy;
    fake.fault("forward_backward", TinkerFault::Says(r#"{"loss_fn_outputs": []}"#.to_owned()));
    assert!(fault(policy.update(&[example("one", 1.0)], &step(0.1))).0.contains("expected the outputs of 1 texts"));
    assert!(fault(policy.update(&[example("one", 1.0)], &step(0.1))).0.contains("an earlier step failed"));
}

#[test]
fn an_operation_that_is_never_done_ends_in_an_error() {
    let (fake, folder) = (fake(), files());
    let hasty = TinkerStart { timeout_s: 1, ..start(&fake.url(), folder.path()) };
    let policy = open_at(&hasty).unwrap();
    fake.fault("forward", TinkerFault::Slow(u32::MAX));
    let (fact, hint) = fault(policy.score(&[sequence("Say it.", "one")], 1.0));
    assert_eq!(fact, "`forward` was not done within 1 s");
    assert!(hint.unwrap().contains("timeout_s"));
}

#[test]
fn a_busy_server_is_waited_for() {
    let fake = fake();
    let policy = open(&fake);
    (0..8).for_each(|_| fake.fault("forward", TinkerFault::Status(503)));
    assert_eq!(policy.score(&[sequence("Say it.", "one")], 1.0).unwrap(), [vec![-2.0; 4]]);
    assert_eq!(fake.calls("forward").len(), 9);
}
