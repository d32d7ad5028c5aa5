//! The same seed gives the same bytes: everything but the name and the time of day.

use crate::common::*;
use lemon_exec::{Job, Runner};
use lemon_spec::{Language, generate, render};
use lemon_trace::Trace;
use tokio_util::sync::CancellationToken;

const SCRIPT: &str = "
    [[reply]]\nagent = 'a*'\nerror = 'server_error'\ndelay_ms = 5
    [[reply]]\nagent = 'solve*'\ntext = 'Answer: 7'\ndelay_ms = 30
    [[reply]]\nagent = 'check*'\nerror = 'truncated'\ndelay_ms = 10
    [[reply]]\ntext = 'Answer: 8'\ndelay_ms = 20\n";

fn team(seed: u64) -> Runner {
    let spec = generate::spec(seed, &Language::default());
    runner(scripted(SCRIPT), &render(&spec).text)
}

/// A run under some name, written out without it.
async fn bytes(runner: &Runner, run_id: &str, seed: u64) -> String {
    let job = Job { run_id: run_id.into(), seed, ..job() };
    let trace = runner.run(&job, &CancellationToken::new(), None).await.unwrap();
    let mut header = trace.header.clone();
    (header.run_id, header.started_at_ms) = (String::new(), 0);
    serde_json::to_string(&Trace { header, ..trace }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_a_seed_are_the_same_to_the_byte() {
    let mut differs_by_seed = 0;
    for seed in 0..100 {
        let first = bytes(&team(seed), "first", seed).await;
        // A runner of its own, so that nothing is handed down.
        let second = bytes(&team(seed), "second", seed).await;
        assert_eq!(first, second, "seed {seed}");
        let other = bytes(&team(seed), "other", seed + 1).await;
        differs_by_seed +=
            u32::from(other.replace(&format!("\"seed\":{}", seed + 1), &format!("\"seed\":{seed}")) != first);
    }
    // Waits before retries are drawn from the seed, so it is not without effect.
    assert!(differs_by_seed > 20, "{differs_by_seed}");
}
