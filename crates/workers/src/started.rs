//! What a run was started with. A run that is resumed asks the same models, or is refused.

use crate::config::{Capacity, Config};
use crate::error::WorkersError;
use crate::kind::{Scope, WorkerKind};
use lemon_exec::store::{ServedBy, StartedWith};

/// What goes on record: nothing secret.
pub fn record(kind: WorkerKind, levels: &[(String, Capacity)]) -> StartedWith {
    // A script and a cassette answer for every model that is configured.
    let levels = if kind.asks_models() { levels } else { &[] };
    StartedWith { kind: kind.name().to_owned(), capacities: levels.iter().map(served_by).collect() }
}

fn served_by((name, capacity): &(String, Capacity)) -> ServedBy {
    let (base_url, had_secret) = without_secret(&capacity.base_url);
    ServedBy {
        name: name.clone(),
        base_url,
        had_secret,
        model: capacity.model.clone(),
        local: capacity.local.clone(),
        api_key_env: capacity.api_key_env.clone(),
        style: capacity.style,
    }
}

/// An address without name, password, query and fragment, and whether it had any of them.
pub(crate) fn without_secret(url: &str) -> (String, bool) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let plain = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = plain.split_at(plain.find('/').unwrap_or(plain.len()));
    let host_only = host.rsplit('@').next().unwrap_or_default();
    let separator = if scheme.is_empty() { "" } else { "://" };
    let had_secret = plain.len() < rest.len() || host_only.len() < host.len();
    (format!("{scheme}{separator}{host_only}{}", path.trim_end_matches('/')), had_secret)
}

/// The capacities a run was started with, where nothing else is configured now.
///
/// # Errors
/// An address held a secret, which is not on record.
pub fn again(config: &Config, before: &StartedWith) -> Result<Option<Vec<(String, Capacity)>>, WorkersError> {
    let is_flagged = config.flags.base_url.is_some() || config.flags.model.is_some();
    let is_bundled = WorkerKind::BUNDLED.is_called(&before.kind);
    if !config.capacity.is_empty() || is_flagged || is_bundled || before.capacities.is_empty() {
        return Ok(None);
    }
    if let Some(capacity) = before.capacities.iter().find(|capacity| capacity.had_secret) {
        return Err(WorkersError::new(format!(
            "the run was started with {}; that address held a secret, which is not on record",
            told(&before.capacities)
        ))
        .hint(format!("give the whole address again: --base-url URL --model {}", capacity.model)));
    }
    let level = |served: &ServedBy| {
        let capacity = match &served.local {
            Some(folder) => Capacity::local(folder),
            None => {
                let key = config.flags.api_key_env.clone().or_else(|| served.api_key_env.clone());
                Capacity::new(&served.base_url, &served.model, key)
            }
        };
        (served.name.clone(), Capacity { style: served.style, ..capacity })
    };
    Ok(Some(before.capacities.iter().map(level).collect()))
}

/// That a run goes on with the models it was started with.
///
/// # Errors
/// It would not.
pub fn check(before: &StartedWith, now: &StartedWith) -> Result<(), WorkersError> {
    let who = |started: &StartedWith| match started.capacities.as_slice() {
        [] => format!("{} workers", started.kind),
        capacities => told(capacities),
    };
    // A kind on record may have an older name.
    let kind = |started: &StartedWith| WorkerKind::named(Scope::Run, &started.kind).ok();
    let same_kind = before.kind == now.kind || kind(before).is_some_and(|before| kind(now) == Some(before));
    let same = |(a, b): (&ServedBy, &ServedBy)| {
        (&a.name, &a.base_url, local(a), a.style) == (&b.name, &b.base_url, local(b), b.style)
            && (a.local.is_some() || a.model == b.model)
    };
    let same_models =
        before.capacities.len() == now.capacities.len() && before.capacities.iter().zip(&now.capacities).all(same);
    // The bundled models are always the same.
    if same_kind && (same_models || WorkerKind::BUNDLED.is_called(&before.kind)) {
        return Ok(());
    }
    let fact = format!("the run was started with {}, and would be resumed with {}", who(before), who(now));
    let one =
        before.capacities.first().filter(|first| before.capacities.iter().all(|other| same_endpoint(first, other)));
    let as_before = match one {
        _ if !same_kind => format!("give --workers {}", before.kind),
        Some(ServedBy { base_url, model, local: None, .. }) => format!("give --base-url {base_url} --model {model}"),
        _ => "configure the capacities in lemon.toml as they were".to_owned(),
    };
    Err(WorkersError::new(fact).hint(format!("{as_before} to resume it as it was started, or --anyway to change")))
}

fn same_endpoint(a: &ServedBy, b: &ServedBy) -> bool {
    (&a.base_url, &a.model, &a.local) == (&b.base_url, &b.model, &b.local)
}

/// The local model; a bundled one by its name, which older records prefix otherwise.
fn local(served: &ServedBy) -> Option<&str> {
    served.local.as_deref().map(|local| crate::bundled::name(local).unwrap_or(local))
}

/// The models, each with its address: once, or by capacity where they differ.
pub fn told(capacities: &[ServedBy]) -> String {
    let place = |served: &ServedBy| match &served.local {
        Some(folder) => format!("{folder} in this process"),
        None => format!("{} at {}", served.model, served.base_url),
    };
    match capacities {
        [first, rest @ ..] if rest.iter().all(|other| same_endpoint(first, other)) => place(first),
        capacities => {
            let each = capacities.iter().map(|served| format!("{} = {}", served.name, place(served)));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_on_record_without_secrets() {
        let check = |url: &str, expected: &str, had_secret| {
            assert_eq!(without_secret(url), (expected.to_owned(), had_secret), "{url}");
        };
        check("http://localhost:8080/v1", "http://localhost:8080/v1", false);
        check("http://localhost:8080/v1/", "http://localhost:8080/v1", false);
        check("https://ann:pass@word@host/v1", "https://host/v1", true);
        check("https://host/v1?key=secret", "https://host/v1", true);
        check("https://host?key=a/b@c", "https://host", true);
        check("https://host/a@b", "https://host/a@b", false);
        check("host#x", "host", true);
        check("", "", false);
    }
}
