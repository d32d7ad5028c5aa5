//! What each decision of a team is worth, for the editor: profiled in the simulated world, so that no model is asked.

use super::look;
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lemon::credit::advice::Recommendation;
use lemon::jobs::credit::{CreditJob, CreditRequest, CreditTasks};
use lemon::jobs::{EvalRequest, Notices};
use lemon::profile::{Profile, hosted_picture};
use lemon_exec::unix_ms;
use lemon_workers::SharedLimits;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The sets of the bundled sample that one can choose from; the first is the default.
pub(super) const SETS: [&str; 5] = ["gsm8k", "svamp", "multiarith", "aqua", "mmlu"];
/// Tasks of a set.
const TASKS: usize = 24;
/// How often each is run.
const REPEATS: u64 = 3;
/// How long it may take. What was measured by then is shown.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sentences of advice that are shown.
const MOST_ADVICE: usize = 8;
/// One at a time: it computes.
static ROOM: Semaphore = Semaphore::const_new(1);

/// The team that is measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    text: String,
    /// The tasks.
    set: String,
}

/// The picture of a team by worth and cost, and what follows from it.
pub async fn measure(State(app): State<Arc<AppState>>, Json(asked): Json<Measured>) -> Result<Json<Value>, Refusal> {
    if !SETS.contains(&asked.set.as_str()) {
        let fact = format!("expected one of {}, found `{}`", SETS.join(", "), asked.set);
        return Err(Refusal::field("set", fact));
    }
    let Ok(_room) = ROOM.try_acquire() else {
        let fact = "another team is being measured";
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", fact);
        return Err(refusal.code("rate_limit_exceeded").retry_after(5));
    };
    let cancel = CancellationToken::new();
    // Where the page goes, the measurement ends.
    let _gone = cancel.clone().drop_guard();
    let runtime = tokio::runtime::Handle::current();
    // It computes: the threads that serve have other things to do.
    look(move || runtime.block_on(profile(&app, asked, cancel))).await.map(Json)
}

async fn profile(
    app: &AppState,
    Measured { text, set }: Measured,
    cancel: CancellationToken,
) -> Result<Value, Refusal> {
    let workers = EvalRequest {
        split: "test".to_owned(),
        workers: "sim".to_owned(),
        limit: Some(TASKS),
        started_at_ms: unix_ms(),
        shared_noise: true,
        ..EvalRequest::default()
    };
    let request = CreditRequest {
        workers,
        tasks: Some(CreditTasks::Set(set.clone())),
        run: None,
        team: Some(("team".to_owned(), text)),
        review: None,
        improve: false,
        seed: 0,
        repeats: Some(REPEATS),
        width: None,
        families: Vec::new(),
        together: SharedLimits::default(),
        containment: Default::default(),
    };
    let job = CreditJob::prepare(&app.config.config, app.store.path(), request, Notices::NONE).await?;
    let late = tokio::spawn({
        let cancel = cancel.clone();
        async move {
            tokio::time::sleep(PATIENCE).await;
            cancel.cancel();
        }
    });
    let found = job.profile(Default::default(), &cancel, |_, _| {}).await;
    late.abort();
    let found = found?;
    if found.baseline.runs == 0 {
        return Err(Refusal::internal("no run of the team ended in time"));
    }
    let told = format!(
        "Measured on {} tasks of {set} in the simulated world of calibrated workers; no model was asked.",
        job.cases.len()
    );
    Ok(json!({ "picture": hosted_picture(&job.plan, &found), "advice": advice(&found), "told": told }))
}

/// What to do, the surest first; nothing where the data decide nothing.
fn advice(found: &Profile) -> Vec<&str> {
    let decided =
        found.effects.iter().filter(|it| !matches!(it.verdict, Recommendation::Unclear | Recommendation::Keep));
    let mut sure: Vec<(f64, &str)> = decided
        .filter_map(|effect| Some((effect.effect?.abs() / effect.standard_error?.max(1e-9), effect.advice.as_str())))
        .collect();
    sure.sort_by(|a, b| b.0.total_cmp(&a.0));
    sure.into_iter().take(MOST_ADVICE).map(|(_, advice)| advice).collect()
}
