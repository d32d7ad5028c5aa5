//! `lemon doctor`: one small call to each endpoint, and what else is on this machine.

use crate::args::{Cli, DoctorArgs};
use crate::fault::Fault;
use crate::{print, print_json, runtime, tell};
use indicatif::HumanBytes;
use lemon::jobs::doctor::{EndpointCheck, IN_THIS_PROCESS, check_endpoint};
use lemon_workers::bundled;
use lemon_workers::discover::{Server, ports, running_servers};
use lemon_workers::models::{FoundModel, usable};
use serde_json::json;

pub fn doctor(cli: &Cli, args: &DoctorArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    let ports = ports()?;
    let (findings, servers) = runtime()?.block_on(async {
        let probes = config.capacity.iter().map(|(name, capacity)| check_endpoint(name, capacity, config.run.device()));
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
        print_json(&json!({
            "healthy": healthy, "endpoints": findings, "servers": servers, "pulled": pulled,
            "bundled": bundled, "in_the_box": bundled
        }))?;
    } else {
        let found = servers.iter().map(describe_server).chain(pulled.iter().map(describe_pulled));
        print(&findings.iter().map(describe).chain(found).chain([describe_bundled()]).collect::<String>())?;
    }
    Ok(u8::from(!healthy))
}

fn describe(finding: &EndpointCheck) -> String {
    let mark = |fact: Option<bool>| match fact {
        Some(true) => console::style("yes").green(),
        Some(false) => console::style("no").red(),
        None => console::style("-").dim(),
    };
    let EndpointCheck { capacity, model, base_url, seconds, .. } = finding;
    let place = if base_url == IN_THIS_PROCESS { base_url.clone() } else { format!("at {base_url}") };
    let mut text = format!("{}  {model} {place}\n", console::style(capacity).bold());
    text += &format!("  reachable          {}\n", mark(finding.reachable));
    text += &format!("  key works          {}\n", mark(finding.key_works));
    // A model of this process is loaded and asked nothing: what it knows is no matter of its health.
    let replies = if base_url == IN_THIS_PROCESS { "loads  " } else { "replies" };
    text += &format!("  {replies}            {} ({seconds:.2} s)\n", mark(Some(finding.replies)));
    text += &format!("  returns usage      {}\n", mark(finding.returns_usage));
    text += &format!("  structured output  {}\n", mark(finding.structured_output));
    if let Some(device) = &finding.device {
        text += &format!("  runs on            {device}\n");
    }
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
