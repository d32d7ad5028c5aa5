//! What the server works with. Nothing can be changed here.

use super::{NoPage, Page, look};
use crate::keys::KeyUse;
use crate::refusal::Refusal;
use crate::state::AppState;
use axum::extract::State;
use lemon_cluster::{DeadLetter, NodeReport, Status};
use lemon_exec::store::RunSearch;
use lemon_exec::worker::{http_client, http_error, mask_url};
use lemon_trace::text::{count, date, plural, seconds, usd};
use lemon_view::app::{ClusterState, ClusterWorker, GivenUp, KeyRow, ModelRow, Section, SystemPage, system};
use lemon_workers::models::usable;
use lemon_workers::{Capacity, Tell, bundled, discover};
use std::sync::Arc;
use std::time::Duration;

/// How long an endpoint has to say which models it has.
const PATIENCE: Duration = Duration::from_millis(1_500);

pub async fn page(State(app): State<Arc<AppState>>) -> Result<Page, NoPage> {
    let capacities = app.workers.resolved.capacities();
    let models = futures::future::join_all(capacities.iter().map(|(name, capacity)| model(name, capacity)));
    let quiet: Tell = |_| {};
    let servers = async {
        match discover::ports() {
            Ok(ports) => discover::running_servers(&ports, quiet).await,
            Err(error) => Err(error),
        }
    };
    let cluster = async {
        match &app.cluster {
            Some(watch) => Some(watch.status().await.map(|status| cluster(status, watch.address()))),
            None => None,
        }
    };
    let (models, servers, cluster) = futures::future::join3(models, servers, cluster).await;
    let at = NoPage::at(Section::System);
    let servers = servers.map_err(|error| at(Refusal::from(error)))?;
    let mut found: Vec<(String, String)> = servers
        .into_iter()
        .map(|server| (format!("{} at {}", server.kind, server.base_url), server.models.join(", ")))
        .collect();
    let rest = app.clone();
    let (facts, keys, pulled) = look(move || {
        let keys = rest.keys.list()?.iter().map(key).collect();
        let pulled: Vec<(String, String)> = usable()
            .into_iter()
            .map(|model| (model.name, format!("{}, on this machine", bytes(model.bytes))))
            .collect();
        Ok((facts(&rest)?, keys, pulled))
    })
    .await
    .map_err(at)?;
    found.extend(pulled);
    let names: Vec<String> = bundled::listed().map(|model| model.name).collect();
    found.push(("bundled".to_owned(), format!("{}: arithmetic word problems only", names.join(", "))));
    let budget = app.workers.settings.budget;
    let limits = [
        ("Tokens", budget.tokens.map(count)),
        ("US dollars", budget.usd.map(usd)),
        ("Calls", budget.calls.map(count)),
        ("Time", Some(seconds(budget.seconds.unwrap_or(f64::INFINITY).min(app.config.run_seconds)))),
    ];
    let budget = limits.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Ok(Page(system(&SystemPage { facts, models, cluster, found, keys, budget })))
}

fn facts(app: &AppState) -> Result<Vec<(String, String)>, Refusal> {
    let (_, runs) = app.store.search(&RunSearch::default(), 0, 1)?;
    let path = app.store.path();
    let sizes = ["", "-wal"].map(|suffix| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        // There is no log where everything is in the store itself.
        std::fs::metadata(name).map_or(0, |about| about.len())
    });
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let needed = if app.config.require_key { "needed" } else { "not needed on this machine" };
    Ok(vec![
        fact("Version", env!("CARGO_PKG_VERSION").to_owned()),
        fact("Address", format!("http://{}/", app.config.address)),
        fact("Base URL of the API", format!("http://{}/v1", app.config.address)),
        fact("Key", needed.to_owned()),
        fact("Runs under way", count(app.runs.count() as u64)),
        fact("Runs on record", count(runs)),
        fact("Store", format!("{}, {}", path.display(), bytes(sizes.iter().sum()))),
        fact("Teams", app.workers.teams_folder().display().to_string()),
    ])
}

fn cluster(status: Status, address: String) -> ClusterState {
    let (slots, busy) = (status.slots(), status.workers.iter().map(|worker| worker.busy).sum::<usize>());
    let rate = status.workers.iter().map(|worker| worker.per_s).sum::<f64>();
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let waiting = |at: usize| match (status.queued.get(at), status.running.get(at)) {
        (Some(queued), Some(running)) => format!("{} queued, {} running", count(*queued), count(*running)),
        _ => "not known".to_owned(),
    };
    let facts = vec![
        fact("NATS", address),
        fact("Workers", count(status.workers.len() as u64)),
        fact("Slots", format!("{} of {} busy", count(busy as u64), count(slots as u64))),
        fact("Runs a second", format!("{rate:.1}")),
        fact("Coordinators", count(status.coordinators as u64)),
        fact("Training", waiting(0)),
        fact("Other runs", waiting(1)),
        fact("Given up, last 7 days", count(status.dead)),
    ];
    let worker = |worker: NodeReport| ClusterWorker {
        busy: format!("{} of {}", worker.busy, worker.slots),
        done: count(worker.done),
        failed: count(worker.failed),
        rate: format!("{:.1}", worker.per_s),
        name: worker.name,
        version: worker.version,
    };
    let letter = |letter: DeadLetter| GivenUp {
        tried: format!("{}, last by {}", plural(letter.tries.unsigned_abs(), "time"), letter.worker),
        when: date(letter.at_ms),
        task: letter.task_id,
        error: letter.error,
    };
    ClusterState {
        facts,
        workers: status.workers.into_iter().map(worker).collect(),
        letters: status.letters.into_iter().rev().map(letter).collect(),
    }
}

fn key(KeyUse { key, spent_tokens, spent_usd }: &KeyUse) -> KeyRow {
    let limits = [
        key.limits.budget_tokens.map(|tokens| plural(tokens, "token")),
        key.limits.budget_usd.map(usd),
        key.limits.rpm.map(|rpm| format!("{} a minute", plural(rpm, "request"))),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let limits =
        if limits.is_empty() { "none".to_owned() } else { format!("{} ({})", limits.join(", "), key.limits.per) };
    KeyRow { name: key.name.clone(), limits, spent: format!("{}, {}", plural(*spent_tokens, "token"), usd(*spent_usd)) }
}

async fn model(name: &str, capacity: &Capacity) -> ModelRow {
    let price = capacity.price.map_or_else(
        || if capacity.local.is_some() { "free".to_owned() } else { "not known".to_owned() },
        |price| format!("{} in, {} out per million", usd(price.input), usd(price.output)),
    );
    let row =
        ModelRow { capacity: name.to_owned(), model: capacity.model_name().to_owned(), price, ..ModelRow::default() };
    if capacity.local.is_some() {
        return ModelRow { place: "in this process".to_owned(), status: Some(Ok("ready".to_owned())), ..row };
    }
    ModelRow { place: mask_url(&capacity.base_url), status: Some(listed(capacity).await), ..row }
}

/// Whether an endpoint lists its models, and this one among them. Nothing is generated, and nothing is paid.
async fn listed(capacity: &Capacity) -> Result<String, String> {
    let client = http_client().map_err(|error| error.to_string())?;
    let mut request = client.get(format!("{}/models", capacity.base_url.trim_end_matches('/'))).timeout(PATIENCE);
    if let Some(name) = &capacity.api_key_env {
        let key = std::env::var(name).map_err(|_| format!("the variable {name}, which holds the key, is not set"))?;
        request = request.bearer_auth(key);
    }
    let response = request.send().await.map_err(|error| http_error(&error))?;
    let status = response.status();
    match status.as_u16() {
        200..300 => Ok("reachable".to_owned()),
        401 | 403 => Err("the key is refused".to_owned()),
        // Not every endpoint has a list.
        404 | 405 => Ok("reachable, lists no models".to_owned()),
        _ => Err(format!("answers {status}")),
    }
}

fn bytes(bytes: u64) -> String {
    let size = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.0} kB", size / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", size / 1e6),
        _ => format!("{:.1} GB", size / 1e9),
    }
}
