//! Two processes that take up the same run, or the same batch, at the same moment: one goes on, no agent is asked twice.

use crate::common::{Folder, Ran, finish, reply_of, wait_until};
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply, fault_rounds};

const TASK: &str = "What is the seventh prime?";
const PAIRS: u64 = 12;

/// Answers at once, but for the second agent of some tasks: that one is not answered when it is asked for the first time.
fn endpoint() -> FakeEndpoint {
    let hangs = |request: &lemon_fakes::ChatRequest| {
        let text = request.text();
        let first_time = text.contains("You are: Second.") && request.asked_before == 0;
        first_time && [TASK, "What about 1?", "What about 2?"].iter().any(|task| text.contains(task))
    };
    let behaviour = Behaviour::function(move |request| match hangs(request) {
        true => FakeReply::Hang,
        false => FakeReply::Text(reply_of(request)),
    });
    FakeEndpoint::start(behaviour.latency_ms(20)).unwrap()
}

/// Starts the same command twice at once, and waits for both.
fn both(folder: &Folder, args: &[&str]) -> [Ran; 2] {
    let processes = [folder.start(args), folder.start(args)];
    processes.map(|process| finish(args, process))
}

/// That exactly one went on, and the other said who has it.
#[track_caller]
fn check_one_goes_on(pair: &[Ran; 2], name: &str) {
    let codes = pair.each_ref().map(|ran| ran.code);
    let talk = || pair.iter().map(Ran::exchange).collect::<String>();
    let mut sorted = codes;
    sorted.sort();
    // Slower than the other by a whole run, a process finds the run answered: it says the answer and asks no worker.
    if sorted == [Some(0), Some(0)] {
        return;
    }
    assert_eq!(sorted, [Some(0), Some(2)], "{}", talk());
    let refused = pair.iter().find(|ran| ran.code == Some(2)).unwrap();
    let told = refused.stderr.contains("by another process (process ") || refused.stderr.contains("went on in another");
    assert!(told && refused.stderr.contains(name) && refused.stderr.contains("hint: "), "{}", talk());
}

#[test]
fn a_dead_run_is_taken_up_once() {
    let mut refused = 0;
    for pair in 0..fault_rounds(PAIRS) {
        let endpoint = endpoint();
        let folder = Folder::with_endpoint(&endpoint, "[run]\nreuse = false\n");
        let mut process = folder.start(&["run", TASK, "--spec", "pair.yaml", "--quiet"]);
        wait_until("the second agent is asked", || endpoint.calls() == 2);
        process.kill().unwrap();
        process.wait().unwrap();
        let run = folder.runs()[0]["run_id"].as_str().unwrap().to_owned();
        let ends = both(&folder, &["run", "--resume", &run, "--quiet"]);
        check_one_goes_on(&ends, &run);
        refused += ends.iter().filter(|ran| ran.code == Some(2)).count();
        assert_eq!(endpoint.calls(), 3, "pair {pair}: one call more than before the kill");
        let trace = folder.trace(&run);
        let ids: Vec<u32> = trace.events.iter().map(|event| event.id).collect();
        assert_eq!(ids, (1..=ids.len() as u32).collect::<Vec<_>>(), "no event is lost or told twice");
    }
    assert!(refused > 0, "the processes never met");
}

/// Ended in good order and not for good: its owner is gone, and its row says that it has ended.
#[test]
fn a_cancelled_run_is_taken_up_once() {
    for pair in 0..fault_rounds(PAIRS / 2) {
        let endpoint = endpoint();
        let folder = Folder::with_endpoint(&endpoint, "[run]\nreuse = false\n");
        let process = folder.start(&["run", TASK, "--spec", "pair.yaml", "--quiet"]);
        wait_until("the second agent is asked", || endpoint.calls() == 2);
        crate::common::signal(&process, "INT");
        finish(&[], process).code(1);
        check_one_goes_on(&both(&folder, &["run", "--resume", "last", "--quiet"]), "r-");
        assert_eq!(endpoint.calls(), 3, "pair {pair}: one call more than before the signal");
    }
}

#[test]
fn a_dead_batch_is_taken_up_once() {
    let mut refused = 0;
    for pair in 0..fault_rounds(PAIRS / 2) {
        let endpoint = endpoint();
        let tasks: String =
            (1..=4).map(|n| format!("{{\"id\": \"t{n}\", \"question\": \"What about {n}?\"}}\n")).collect();
        let folder = Folder::with_endpoint(&endpoint, "[run]\nreuse = false\n").file("tasks.jsonl", tasks);
        let begin = ["run", "--tasks", "tasks.jsonl", "--spec", "pair.yaml", "--width", "2", "--quiet"];
        let mut process = folder.start(&begin);
        wait_until("two tasks wait for their second agents", || endpoint.calls() == 4);
        process.kill().unwrap();
        process.wait().unwrap();
        let batch = folder.runs()[0]["batch"].as_str().unwrap().to_owned();
        let ends = both(&folder, &["run", "--resume", &batch, "--quiet"]);
        check_one_goes_on(&ends, &batch);
        refused += ends.iter().filter(|ran| ran.code == Some(2)).count();
        assert_eq!(endpoint.calls(), 10, "pair {pair}: {}", ends.iter().map(Ran::exchange).collect::<String>());
        assert_eq!(folder.runs().len(), 4, "one run a task");
    }
    assert!(refused > 0, "the processes never met");
}
