//! A run as plain text for a terminal.

use crate::credit::{Credit, CreditPart};
use crate::{AgentSummary, EventKind, Metrics, StopReason, Summary, Trace, text};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};

/// The widest the question and an answer may be.
const WIDTH: usize = 100;

impl Trace {
    /// The run as plain text: what was asked, the team with what each agent gave and cost, totals and metrics,
    /// and what was measured of it afterwards.
    pub fn show(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_to(&mut out);
        text::visible(&out).into_owned()
    }

    /// All that each agent said, in the order of the team, or why it said nothing.
    pub fn replies(&self) -> String {
        let mut out = String::new();
        for agent in self.summary().agents {
            let model = agent.model.as_deref().map(|model| format!(" · {}", text::line(model, 60))).unwrap_or_default();
            let (role, status) = (text::line(&agent.role, 60), text::status(&agent));
            out.push_str(&format!("── {} · {role} · {}{model} · {status}\n", agent.id, agent.capacity));
            if let Some(failure) = &agent.failure {
                out.push_str(&format!("{}: {}\n", failure.kind, failure.message.trim_end()));
            }
            let reply = agent.reply.as_deref().map(str::trim_end).unwrap_or_default();
            out.push_str(&if reply.is_empty() { "\n".to_owned() } else { format!("{reply}\n\n") });
        }
        text::visible(&out).into_owned()
    }

    fn write_to(&self, out: &mut String) -> fmt::Result {
        let summary = self.summary();
        let header = &self.header;
        writeln!(out, "{}", text::heading(header))?;
        writeln!(out, "question  {}", text::line(&header.question, WIDTH))?;
        let answer = summary.answer.as_deref().map_or_else(|| "–".to_owned(), |answer| text::line(answer, WIDTH));
        writeln!(out, "answer    {answer}  ({})", summary.stop_reason.map_or("no end on record", StopReason::as_str))?;
        for round in 1..=summary.rounds {
            writeln!(out, "\nround {round}  {}", self.round_notes(round))?;
            write_team(out, &summary, round)?;
        }
        self.write_calls(out)?;
        writeln!(out)?;
        write_totals(out, &summary)?;
        write_metrics(out, &self.metrics(None))?;
        write_credit(out, &self.credit())
    }

    /// The calls of tools that agents made, and those that wait for a person.
    fn write_calls(&self, out: &mut String) -> fmt::Result {
        let mut calls: Vec<(String, String, String)> = Vec::new();
        for event in &self.events {
            let (id, asked, result) = match &event.kind {
                EventKind::ToolCall { tool, input, call: Some(call) } => {
                    (&call.id, format!("{tool} {input}"), "no end on record".to_owned())
                }
                EventKind::Approval { tool, input, call, granted } => {
                    let said = match granted {
                        None => "waits for a person",
                        Some(true) => "approved",
                        Some(false) => "denied",
                    };
                    (&call.id, format!("{tool} {input}"), said.to_owned())
                }
                EventKind::ToolResult { output, ok, call: Some(id), .. } => {
                    let text = output.get(if *ok { "text" } else { "error" }).and_then(|text| text.as_str());
                    let text = text::line(text.unwrap_or_default(), WIDTH / 2);
                    (id, String::new(), if *ok { text } else { format!("failed: {text}") })
                }
                _ => continue,
            };
            let name = format!("{}/{id}", event.agent);
            match calls.iter_mut().find(|(known, _, _)| *known == name) {
                Some((_, _, before)) => *before = result,
                None => calls.push((name, asked, result)),
            }
        }
        if !calls.is_empty() {
            writeln!(out, "\ntools")?;
        }
        for (name, asked, result) in calls {
            writeln!(out, "  {name}  {} → {result}", text::line(&asked, WIDTH))?;
        }
        Ok(())
    }

    /// Who wrote the round's specification, and how its answer was made.
    fn round_notes(&self, wanted: u32) -> String {
        let notes = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Decision { round, by, .. } if *round == wanted => Some(by.clone()),
            EventKind::Rejection { round, diagnostics, .. } if *round == wanted => {
                Some(format!("rejected ({})", text::plural(diagnostics.len() as u64, "fault")))
            }
            EventKind::Aggregate { round, rule, answer, .. } if *round == wanted => {
                let answer = answer.as_deref().map_or_else(|| "no answer".to_owned(), |answer| text::line(answer, 40));
                Some(format!("{}: {answer}", text::rule(*rule)))
            }
            _ => None,
        });
        notes.collect::<Vec<_>>().join(" → ")
    }
}

fn write_team(out: &mut String, summary: &Summary, round: u32) -> fmt::Result {
    let agents: Vec<&AgentSummary> = summary.agents.iter().filter(|agent| agent.round == round).collect();
    let depths = depths(&agents);
    let names: Vec<String> =
        agents.iter().zip(&depths).map(|(agent, depth)| format!("{}{}", "  ".repeat(*depth), agent.id)).collect();
    let widest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let name_width = widest(&mut names.iter().map(|name| name.chars().count()));
    let role_width = widest(&mut agents.iter().map(|agent| agent.role.chars().count())).min(28);
    let level_width = widest(&mut agents.iter().map(|agent| agent.capacity.chars().count()));
    for (agent, name) in agents.iter().zip(names) {
        let role = text::line(&agent.role, role_width);
        let (tokens, seconds) = match agent.started {
            Some(_) => (format!("{} tok", text::count(agent.tokens())), text::seconds(agent.seconds)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let (capacity, status) = (&agent.capacity, text::status(agent));
        write!(out, "  {name:name_width$}  {role:role_width$}  {capacity:level_width$}  {status:9}")?;
        write!(out, "  {tokens:>11}  {seconds:>8}  {}", outcome(agent))?;
        writeln!(out, "{}", notes(agent))?;
    }
    Ok(())
}

/// The first line of what an agent gave, or why it gave nothing.
fn outcome(agent: &AgentSummary) -> String {
    match (&agent.answer, &agent.reply, &agent.failure) {
        (Some(text), ..) | (None, Some(text), _) => text::line(text, 48),
        (None, None, Some(failure)) => text::line(&format!("{}: {}", failure.kind, failure.message), 48),
        (None, None, None) => String::new(),
    }
}

fn notes(agent: &AgentSummary) -> String {
    let mut notes = String::new();
    if agent.attempts > 1 {
        notes.push_str(&format!("  ({} attempts)", agent.attempts));
    }
    if agent.tool_calls > 0 {
        notes.push_str(&format!("  ({})", text::plural(u64::from(agent.tool_calls), "tool call")));
    }
    if agent.reused {
        notes.push_str("  (reused)");
    }
    if agent.truncated {
        notes.push_str("  (cut off at max_tokens)");
    }
    if !agent.after.is_empty() {
        notes.push_str(&format!("  ← {}", agent.after.join(", ")));
    }
    notes
}

/// How many agents of the same round stand above each on the longest path. Agents read only earlier ones.
fn depths(agents: &[&AgentSummary]) -> Vec<usize> {
    let mut known: HashMap<&str, usize> = HashMap::new();
    for agent in agents {
        let depth = agent.after.iter().filter_map(|parent| known.get(parent.as_str())).map(|depth| depth + 1).max();
        known.insert(&agent.id, depth.unwrap_or(0));
    }
    agents.iter().map(|agent| known.get(agent.id.as_str()).copied().unwrap_or(0)).collect()
}

fn write_totals(out: &mut String, summary: &Summary) -> fmt::Result {
    let tokens = summary.tokens;
    write!(out, "tokens    {}", text::count(tokens.total))?;
    write!(out, " (orchestrator {}, workers {}", text::count(tokens.orchestrator), text::count(tokens.workers))?;
    if tokens.failed > 0 {
        write!(out, "; {} of them in failed attempts", text::count(tokens.failed))?;
    }
    writeln!(out, ")\ncost      {}", text::usd(summary.usd))?;
    let (calls, messages) = (text::plural(summary.calls, "call"), text::plural(summary.messages, "message"));
    writeln!(out, "time      {}, {calls}, {messages}", text::seconds(summary.wall_s))
}

fn write_metrics(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let metrics: Vec<String> =
        text::metrics(metrics).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
    writeln!(out, "metrics   {}", metrics.join(" · "))
}

/// What was measured after the run: nothing is said where nothing was.
fn write_credit(out: &mut String, credit: &Credit) -> fmt::Result {
    let mut rewards: Vec<String> = Vec::new();
    rewards.extend(credit.right.map(|right| format!("the answer is {}", if right { "right" } else { "wrong" })));
    rewards.extend(
        credit.rewards.iter().map(|(name, value)| format!("{} {}", text::line(name, 40), text::reward(*value))),
    );
    if !rewards.is_empty() {
        writeln!(out, "rewards   {}", rewards.join(" · "))?;
    }
    if !credit.parts.is_empty() {
        writeln!(out, "\ncredit    worth in points of success, as it is less changed, ± standard error")?;
    }
    let parts: Vec<&CreditPart> = credit.measured().collect();
    let target = |part: &CreditPart| text::line(part.target, 32);
    let widest = |title: &str, cell: &dyn Fn(&CreditPart) -> String| {
        parts.iter().map(|part| cell(part).chars().count()).fold(title.len(), usize::max)
    };
    let (target_width, worth_width) = (widest("target", &target), widest("worth", &|part| part.worth.told()));
    let mut row = |[unit, family, target, worth, n, edit]: [&str; 6]| {
        let row = format!("  {unit:12}  {family:10}  {target:target_width$}  {worth:>worth_width$}  {n:>5}  {edit}");
        writeln!(out, "{}", row.trim_end())
    };
    if !parts.is_empty() {
        row(["unit", "family", "target", "worth", "n", "change"])?;
    }
    for part in &parts {
        let (unit, edit) = (text::line(part.unit, 12), text::line(part.edit.unwrap_or_default(), 60));
        let family = part.family.map_or("–", |family| family.as_str());
        row([&unit, family, &target(part), &part.worth.told(), &part.n.to_string(), &edit])?;
    }
    let mut unmeasured: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for part in credit.unmeasured() {
        unmeasured.entry(part.unit).or_default().push(part.edit.unwrap_or(part.target));
    }
    for (unit, targets) in unmeasured {
        writeln!(out, "  {:12}  not measured: {}", text::line(unit, 12), text::line(&targets.join(", "), WIDTH))?;
    }
    Ok(())
}
