//! What is counted, as Prometheus reads it.

use crate::refusal::Refusal;
use axum::response::{IntoResponse, Response};
use lemon_cluster::{NodeReport, Status};
use lemon_trace::{StopReason, Trace};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Upper bounds of the buckets of durations, in seconds.
const BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Counters of this process.
#[derive(Debug, Default)]
pub struct ServerCounters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    started: u64,
    ended: BTreeMap<&'static str, u64>,
    tokens: BTreeMap<&'static str, u64>,
    usd: f64,
    calls: u64,
    /// How many runs took at most each bound; the last is all of them.
    buckets: [u64; BUCKETS.len() + 1],
    seconds: f64,
    requests: BTreeMap<(&'static str, u16), u64>,
}

impl ServerCounters {
    /// The response to a request, counted.
    pub fn counted(&self, route: &'static str, answered: Result<Response, Refusal>) -> Response {
        let response = answered.unwrap_or_else(IntoResponse::into_response);
        *self.counts().requests.entry((route, response.status().as_u16())).or_default() += 1;
        response
    }

    pub(crate) fn run_started(&self) {
        self.counts().started += 1;
    }

    pub(crate) fn run_ended(&self, end: &Result<Arc<Trace>, Arc<str>>) {
        let summary = end.as_ref().ok().map(|trace| trace.summary());
        let mut counts = self.counts();
        let reason = summary.as_ref().and_then(|it| it.stop_reason).map_or("broke_off", StopReason::as_str);
        *counts.ended.entry(reason).or_default() += 1;
        let Some(summary) = summary else { return };
        *counts.tokens.entry("orchestrator").or_default() += summary.tokens.orchestrator;
        *counts.tokens.entry("workers").or_default() += summary.tokens.workers;
        counts.usd += summary.usd;
        counts.calls += summary.calls;
        counts.seconds += summary.wall_s;
        let first = BUCKETS.iter().position(|bound| summary.wall_s <= *bound).unwrap_or(BUCKETS.len());
        counts.buckets.iter_mut().skip(first).for_each(|count| *count += 1);
    }

    /// The counters as text.
    pub fn text(&self, runs_under_way: usize) -> String {
        let counts = self.counts();
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
            write_family(&mut text, name, kind, help, samples);
        };
        let by = |label: &str, values: &BTreeMap<&'static str, u64>| -> Vec<(String, String)> {
            values.iter().map(|(key, value)| (format!("{{{label}=\"{key}\"}}"), value.to_string())).collect()
        };
        family("lemon_runs_under_way", "gauge", "Runs under way.", &one(runs_under_way.to_string()));
        family("lemon_runs_started_total", "counter", "Runs started or taken up.", &one(counts.started.to_string()));
        family("lemon_runs_ended_total", "counter", "Runs ended, by why.", &by("reason", &counts.ended));
        family("lemon_tokens_total", "counter", "Tokens of ended runs, by who spent them.", &by("by", &counts.tokens));
        family("lemon_cost_usd_total", "counter", "US dollars of ended runs.", &one(counts.usd.to_string()));
        family("lemon_calls_total", "counter", "Calls to models by ended runs.", &one(counts.calls.to_string()));
        let requests: Vec<_> = counts
            .requests
            .iter()
            .map(|((route, status), value)| (format!("{{route=\"{route}\",status=\"{status}\"}}"), value.to_string()))
            .collect();
        family("lemon_requests_total", "counter", "Responses of the API.", &requests);
        let bounds = BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let buckets: Vec<_> =
            bounds.zip(counts.buckets).map(|(le, n)| (format!("_bucket{{le=\"{le}\"}}"), n.to_string())).collect();
        let all = counts.buckets[BUCKETS.len()]; // the last bucket
        let ends = [("_sum".to_owned(), counts.seconds.to_string()), ("_count".to_owned(), all.to_string())];
        family(
            "lemon_run_seconds",
            "histogram",
            "Seconds that ended runs took.",
            &[buckets.as_slice(), &ends].concat(),
        );
        text
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cluster, or that it cannot say how it is.
pub fn cluster_text(said: &Result<Status, String>) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
        write_family(&mut text, &format!("lemon_cluster_{name}"), kind, help, samples);
    };
    family("up", "gauge", "Whether the cluster says how it is.", &one(u8::from(said.is_ok()).to_string()));
    let Ok(Status { workers, coordinators, queued, running, dead, .. }) = said else { return text };
    let by_priority = |counts: &[u64; 2]| {
        ["training", "other"]
            .map(|name| format!("{{priority=\"{name}\"}}"))
            .into_iter()
            .zip(counts.map(|it| it.to_string()))
    };
    let of_workers = |number: fn(&NodeReport) -> String| -> Vec<(String, String)> {
        let labels =
            |worker: &NodeReport| format!("{{worker=\"{}\",id=\"{}\"}}", escaped(&worker.name), escaped(&worker.id));
        workers.iter().map(|worker| (labels(worker), number(worker))).collect()
    };
    family("workers", "gauge", "Worker processes that are alive.", &one(workers.len().to_string()));
    family("coordinators", "gauge", "Coordinators that are alive.", &one(coordinators.to_string()));
    family("queued", "gauge", "Runs that no worker has.", &by_priority(queued).collect::<Vec<_>>());
    family("running", "gauge", "Runs that a worker has.", &by_priority(running).collect::<Vec<_>>());
    family("dead_letters", "gauge", "Runs given up in the last days.", &one(dead.to_string()));
    family("slots", "gauge", "Runs at a time, by worker.", &of_workers(|worker| worker.slots.to_string()));
    family("busy", "gauge", "Runs under way, by worker.", &of_workers(|worker| worker.busy.to_string()));
    family("done_total", "counter", "Runs done, by worker.", &of_workers(|worker| worker.done.to_string()));
    family("failed_total", "counter", "Tries that failed, by worker.", &of_workers(|worker| worker.failed.to_string()));
    text
}

fn write_family(text: &mut String, name: &str, kind: &str, help: &str, samples: &[(String, String)]) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

/// The one sample of a family without labels.
fn one(value: String) -> Vec<(String, String)> {
    vec![(String::new(), value)]
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_told_as_prometheus_reads_it() {
        let worker = NodeReport {
            id: "a1".to_owned(),
            name: "odd \"name\"\\\n".to_owned(),
            slots: 4,
            busy: 3,
            done: 20,
            ..NodeReport::default()
        };
        let status = Status {
            workers: vec![worker],
            coordinators: 1,
            queued: [5, 6],
            running: [7, 8],
            dead: 2,
            ..Status::default()
        };
        let text = cluster_text(&Ok(status));
        for line in [
            "lemon_cluster_up 1",
            "lemon_cluster_queued{priority=\"training\"} 5",
            "lemon_cluster_running{priority=\"other\"} 8",
            "lemon_cluster_dead_letters 2",
            r#"lemon_cluster_busy{worker="odd \"name\"\\\n",id="a1"} 3"#,
            "# TYPE lemon_cluster_done_total counter",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(text.lines().all(|line| line.starts_with("# ") || line.starts_with("lemon_cluster_")));
    }

    #[test]
    fn a_cluster_that_is_away_is_down_and_says_nothing_else() {
        let text = cluster_text(&Err("away".to_owned()));
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(), ["lemon_cluster_up 0"]);
    }
}
