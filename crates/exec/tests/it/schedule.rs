//! Who starts when: the moment their own parents are done, and never too many at once.

use crate::common::*;
use lemon_exec::{Runner, Settings};
use lemon_fakes::{Behaviour, FakeEndpoint};
use lemon_trace::{AgentStatus, StopReason};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Two chains that meet in the end; `slow` takes longer than the whole other chain.
const TWO_CHAINS: &str = "
agents:
  - {id: slow, base: solver, capacity: small}
  - {id: quick, base: solver, capacity: small}
  - {id: after_quick, base: critic, capacity: small, after: [quick]}
  - {id: after_after, base: critic, capacity: small, after: [after_quick]}
  - {id: both, base: judge, capacity: large, after: [slow, after_after]}
";

fn delays(delays: &[(&str, u64)]) -> String {
    let rule = |(agent, ms): &(&str, u64)| {
        format!("[[reply]]\nagent = '{agent}'\ntext = 'Answer: {agent}'\ndelay_ms = {ms}\n")
    };
    delays.iter().map(rule).collect()
}

#[tokio::test(start_paused = true)]
async fn a_slow_sibling_holds_no_agent_back() {
    let script = delays(&[("slow", 10_000), ("quick", 100), ("after_quick", 100), ("after_after", 100), ("both", 1)]);
    let trace = run(&runner(scripted(&script), TWO_CHAINS)).await;
    check_end(&trace, StopReason::Answered, Some("both"));

    let started = |id| agent(&trace, id).started.unwrap();
    assert_eq!(["slow", "quick"].map(started), [0.0, 0.0]);
    let near = |id, expected: f64| assert!((started(id) - expected).abs() < 0.01, "{id} started at {}", started(id));
    near("after_quick", 0.1);
    near("after_after", 0.2);
    near("both", 10.0);
    assert!(returned(&trace, "after_after") < returned(&trace, "slow"), "the chain was done before its slow sibling");
    for (parent, child) in
        [("quick", "after_quick"), ("after_quick", "after_after"), ("slow", "both"), ("after_after", "both")]
    {
        assert!(returned(&trace, parent) < delegated(&trace, child), "{child} waits for {parent}");
    }
    assert!((trace.summary().wall_s - 10.0).abs() < 0.02, "{}", trace.summary().wall_s);
}

fn wide(count: usize) -> String {
    let agent = |n| format!("  - {{id: a{n}, base: solver, capacity: {}}}\n", ["small", "large"][n % 2]);
    format!("agents:\n{}answer: {{from: [a0], by: last}}\n", (0..count).map(agent).collect::<String>())
}

async fn check_peak(limit: impl FnOnce(&mut Runner), expected: usize) {
    // So many do come together, and then there is time for one too many.
    let fake = FakeEndpoint::start(Behaviour::text("Answer: 68").latency_ms(10).together(expected)).unwrap();
    let mut runner = runner(http(&fake, true), &wide(24));
    limit(&mut runner);
    let trace = run(&runner).await;
    assert_eq!((fake.peak_in_flight(), fake.calls()), (expected, 24));
    let summary = trace.summary();
    assert!(summary.agents.iter().all(|agent| agent.status == Some(AgentStatus::Done)));
    for agent in &summary.agents {
        assert!(delegated(&trace, &agent.id) < returned(&trace, &agent.id));
    }
}

#[tokio::test]
async fn no_more_calls_at_a_time_than_allowed() {
    check_peak(|_| {}, 24).await;
    check_peak(|runner| runner.settings = Settings { max_parallel: 5, ..settings() }, 5).await;
    check_peak(|runner| runner.settings = Settings { max_parallel: 1, ..settings() }, 1).await;
    let gate = |runner: &mut Runner| runner.backend.levels[0].gate = Arc::new(Semaphore::new(2));
    // Twelve of the strong level at once, two of the weak one.
    check_peak(gate, 14).await;
}

#[tokio::test]
async fn a_level_s_gate_holds_for_all_runs_together() {
    let fake = FakeEndpoint::start(Behaviour::text("Answer: 68").latency_ms(10).together(6)).unwrap();
    let mut runner = runner(http(&fake, true), &wide(12));
    runner.backend.levels.iter_mut().for_each(|level| level.gate = Arc::new(Semaphore::new(3)));
    let runs = (0..4).map(|_| run(&runner));
    let traces = futures::future::join_all(runs).await;
    traces.iter().for_each(|trace| check_end(trace, StopReason::Answered, Some("68")));
    assert_eq!((fake.calls(), fake.peak_in_flight()), (48, 6), "three calls of each of two levels");
}

#[tokio::test(start_paused = true)]
async fn waiting_to_try_again_leaves_room_for_others() {
    // Both want the one place at the gate; while the first waits after its failure, the second gets through.
    let script = "
        [[reply]]\nagent = 'a0'\nerror = 'server_error'
        [[reply]]\ntext = 'Answer: 68'\ndelay_ms = 10\n";
    let mut runner = runner(scripted(script), &wide(3));
    runner.backend.levels[0].gate = Arc::new(Semaphore::new(1));
    let retry = lemon_exec::Retry { attempts: 2, first_wait_s: 100.0, longest_wait_s: 100.0 };
    runner.settings = Settings { retry, ..settings() };
    let trace = run(&runner).await;
    assert!(returned(&trace, "a2") < returned(&trace, "a0"));
    let started = agent(&trace, "a2").started.unwrap();
    assert!(started < 1.0, "it got through the gate after {started} s only");
    check_end(&trace, StopReason::AnswerAgentsFailed, Some("68"));
}
