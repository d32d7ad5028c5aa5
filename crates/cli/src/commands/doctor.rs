//! `lemon doctor`: one small call to each endpoint, and what else is on this machine.

use crate::args::{Cli, DoctorArgs};
use crate::fault::Fault;
use crate::{print, println, runtime, tell, to_json};
use indicatif::HumanBytes;
use lemon_exec::Worker;
use lemon_exec::worker::{ChatMessage, Endpoint, FailedCost, OpenAi, Request, mask_url};
use lemon_model::DeviceChoice;
use lemon_trace::FailureKind;
use lemon_workers::discover::{Server, ports, running_servers};
use lemon_workers::models::{FoundModel, usable};
use lemon_workers::{Capacity, WorkersError, bundled, load_model, open_ai};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a capacity is served that has no endpoint.
const IN_THIS_PROCESS: &str = "in this process";
/// The longest a doctor waits for one reply.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize)]
struct Finding {
    capacity: String,
    base_url: String,
    model: String,
    reachable: Option<bool>,
    key_works: Option<bool>,
    replies: bool,
    returns_usage: Option<bool>,
    structured_output: Option<bool>,
    seconds: f64,
    fact: Option<String>,
    hint: Option<String>,
}

pub fn doctor(cli: &Cli, args: &DoctorArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    let ports = ports()?;
    let (findings, servers) = runtime()?.block_on(async {
        let probes = config.capacity.iter().map(|(name, capacity)| probe(name, capacity, config.run.device()));
        futures::future::join(futures::future::join_all(probes), running_servers(&ports, tell(false))).await
    });
    let servers = servers?;
    let pulled = usable();
    if findings.is_empty() && servers.is_empty() && pulled.is_empty() {
        eprintln!("no endpoint is configured, and no other model is here; {}", bundled::STRONGER);
    }
    let healthy = findings.iter().all(|finding| finding.replies);
    if args.json {
        let servers: Vec<_> = servers.iter().map(server_json).collect();
        let bundled: Vec<_> = bundled::listed().map(|model| model.name).collect();
        // `in_the_box` is the older name of `bundled`.
        println(&to_json(&json!({
            "healthy": healthy, "endpoints": findings, "servers": servers, "pulled": pulled,
            "bundled": bundled, "in_the_box": bundled
        })))?;
    } else {
        let found = servers.iter().map(describe_server).chain(pulled.iter().map(describe_pulled));
        print(&findings.iter().map(describe).chain(found).chain([describe_bundled()]).collect::<String>())?;
    }
    Ok(u8::from(!healthy))
}

async fn probe(name: &str, capacity: &Capacity, device: DeviceChoice) -> Finding {
    let mut finding = Finding {
        capacity: name.to_owned(),
        base_url: mask_url(&capacity.base_url),
        model: capacity.model.clone(),
        reachable: None,
        key_works: None,
        replies: false,
        returns_usage: None,
        structured_output: None,
        seconds: 0.0,
        fact: None,
        hint: None,
    };
    if let Some(local) = &capacity.local {
        let began = Instant::now();
        let (fact, hint) = load_model(name, local, device).err().map(|error| (error.fact, error.hint)).unzip();
        let (seconds, replies) = (began.elapsed().as_secs_f64(), fact.is_none());
        let (base_url, model) = (IN_THIS_PROCESS.to_owned(), local.clone());
        return Finding { base_url, model, replies, seconds, fact, hint: hint.flatten(), ..finding };
    }
    let worker = match worker(name, capacity) {
        Ok(worker) => worker,
        Err(error) => return Finding { fact: Some(error.fact), hint: error.hint, ..finding },
    };
    let began = Instant::now();
    let plain = worker.ask(&request(name, "Reply with one word: ready.", None)).await;
    finding.seconds = began.elapsed().as_secs_f64();
    let (usage, failure) = match plain {
        Ok(reply) => (Some(reply.usage), None),
        // A reply cut off at its limit is a reply, even where it had no text yet.
        Err(error) if error.failure.kind == FailureKind::Truncated => match error.cost {
            FailedCost::Known(usage) => (Some(usage), None),
            _ => (None, Some(error.failure)),
        },
        Err(error) => (None, Some(error.failure)),
    };
    finding.replies = failure.is_none();
    finding.returns_usage = usage.map(|usage| !usage.counted);
    if let Some(failure) = failure {
        let has_key = capacity.api_key_env.is_some();
        finding.reachable = Some(failure.kind != FailureKind::Unreachable);
        finding.key_works = (failure.kind == FailureKind::Unauthorized).then_some(false);
        finding.hint = advice(failure.kind, capacity, has_key);
        finding.fact = Some(failure.message);
        return finding;
    }
    finding.reachable = Some(true);
    finding.key_works = capacity.api_key_env.as_ref().map(|_| true);
    let schema = json!({
        "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false
    });
    // The words do not ask for JSON: a reply that is JSON all the same was made so by the endpoint.
    let structured = worker.ask(&request(name, "Say hello.", Some(Arc::new(schema)))).await;
    let obeys =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value["ok"].is_boolean());
    finding.structured_output = match structured {
        Ok(reply) => Some(obeys(&reply.text)),
        Err(error) => (error.failure.kind == FailureKind::SchemaRefused).then_some(false),
    };
    if finding.returns_usage == Some(false) {
        finding.hint = Some("token counts are made here with another vocabulary; they are close, not exact".into());
    }
    finding
}

fn worker(name: &str, capacity: &Capacity) -> Result<OpenAi, WorkersError> {
    let endpoint = lemon_workers::endpoint(name, capacity)?;
    let (timeout, total_timeout) = (endpoint.timeout.min(PATIENCE), endpoint.total_timeout.min(PATIENCE));
    open_ai(vec![Endpoint { timeout, total_timeout, ..endpoint }])
}

fn request(name: &str, words: &str, schema: Option<Arc<serde_json::Value>>) -> Request {
    Request {
        agent: "doctor".into(),
        level: 0,
        capacity: name.to_owned(),
        messages: vec![ChatMessage::user(words)],
        max_tokens: 64,
        temperature: None,
        seed: 0,
        schema,
        tools: None,
        agent_prompt: None,
        progress: None,
    }
}

fn advice(kind: FailureKind, capacity: &Capacity, has_key: bool) -> Option<String> {
    match kind {
        FailureKind::Unreachable => Some("is the server running, and is base_url right, with its /v1?".into()),
        FailureKind::Unauthorized if !has_key => Some("set api_key_env to the variable that holds the key".into()),
        FailureKind::Unauthorized => {
            Some(format!("the key in {} is refused", capacity.api_key_env.as_deref().unwrap_or_default()))
        }
        FailureKind::Refused => Some(format!("does the endpoint serve a model called `{}`?", capacity.model)),
        FailureKind::Loading => Some("wait until the model is loaded; `lemon run` waits for it by itself".into()),
        FailureKind::Timeout => Some("is the model still being loaded? try again in a moment".into()),
        _ => None,
    }
}

fn describe(finding: &Finding) -> String {
    let mark = |fact: Option<bool>| match fact {
        Some(true) => console::style("yes").green(),
        Some(false) => console::style("no").red(),
        None => console::style("-").dim(),
    };
    let Finding { capacity, model, base_url, seconds, .. } = finding;
    let place = if base_url == IN_THIS_PROCESS { base_url.clone() } else { format!("at {base_url}") };
    let mut text = format!("{}  {model} {place}\n", console::style(capacity).bold());
    text += &format!("  reachable          {}\n", mark(finding.reachable));
    text += &format!("  key works          {}\n", mark(finding.key_works));
    // A model of this process is loaded and asked nothing: what it knows is no matter of its health.
    let replies = if base_url == IN_THIS_PROCESS { "loads  " } else { "replies" };
    text += &format!("  {replies}            {} ({seconds:.2} s)\n", mark(Some(finding.replies)));
    text += &format!("  returns usage      {}\n", mark(finding.returns_usage));
    text += &format!("  structured output  {}\n", mark(finding.structured_output));
    if let Some(fact) = &finding.fact {
        text += &format!("  {}: {fact}\n", console::style("error").red());
    }
    if let Some(hint) = &finding.hint {
        text += &format!("  {}: {hint}\n", console::style("hint").cyan());
    }
    text
}

fn server_json(found: &Server) -> serde_json::Value {
    let Server { kind, base_url, models } = found;
    json!({ "kind": kind, "base_url": base_url, "models": models, "levels": found.levels() })
}

fn describe_server(found: &Server) -> String {
    let mut text = format!("{}  {}\n", console::style(found.kind).bold(), found.base_url);
    text += &format!("  serves             {}\n", found.models.join(", "));
    if let Some(levels) = found.levels() {
        text +=
            &format!("  would serve        small {}, medium {}, large {}\n", levels.small, levels.medium, levels.large);
    }
    text
}

fn describe_bundled() -> String {
    let names = bundled::listed().map(|model| model.name).collect::<Vec<_>>().join(", ");
    format!("{}  {names}: arithmetic word problems only\n", console::style("bundled").bold())
}

fn describe_pulled(FoundModel { name, folder, bytes, .. }: &FoundModel) -> String {
    format!("{}  {}, {}\n", console::style(name).bold(), HumanBytes(*bytes), folder.display())
}
