//! The team as it stands, drawn as lines of text. Pure: events in, lines out.

use super::growing::Growing;
use crate::one_line;
use console::{Style, measure_text_width, truncate_str};
use lemon_exec::Budget;
use lemon_spec::Language;
use lemon_trace::{AgentStatus, Event, EventKind, Header, ORCHESTRATOR, Spend, StopReason};
use std::sync::Arc;

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// What is known of a run while it goes.
pub struct TeamView {
    budget: Budget,
    run_id: String,
    question: String,
    agents: Vec<AgentView>,
    spent: Spend,
    writing: bool,
    t: f64,
    stop: Option<StopReason>,
    /// The reply that will be the answer, where it is shown.
    growing: Option<Growing>,
}

struct AgentView {
    id: String,
    role: String,
    capacity: String,
    level: usize,
    standing: Standing,
    began: f64,
    seconds: f64,
    tokens: u64,
    note: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waits,
    Runs,
    Ended(AgentStatus),
}

impl TeamView {
    /// A run that has not begun.
    pub fn new(budget: Budget) -> Self {
        TeamView {
            budget,
            run_id: String::new(),
            question: String::new(),
            agents: Vec::new(),
            spent: Spend::default(),
            writing: false,
            t: 0.0,
            stop: None,
            growing: None,
        }
    }

    /// Shows the reply that will be the answer while it is written.
    pub fn show_growing(&mut self, language: Arc<Language>) {
        self.growing = Some(Growing::new(language));
    }

    /// A team is being written for this question, before there is an event that says so.
    pub fn write(&mut self, question: &str) {
        self.question = one_line(question);
        self.writing = true;
    }

    /// Whether a team is being written.
    pub fn is_writing(&self) -> bool {
        self.writing
    }

    /// Takes in a piece of an agent's reply.
    pub fn hear(&mut self, agent: &str, piece: &str) {
        if let Some(growing) = &mut self.growing {
            growing.hear(agent, piece);
        }
    }

    /// Takes in an event.
    pub fn note(&mut self, header: &Header, event: &Event) {
        if self.run_id.is_empty() {
            self.run_id = one_line(&header.run_id);
            self.question = one_line(&header.question);
        }
        self.spent += event.spend;
        self.t = event.t;
        if let Some(growing) = &mut self.growing {
            growing.note(event);
        }
        match &event.kind {
            EventKind::Decision { .. } | EventKind::Rejection { .. } => self.writing = false,
            EventKind::Delegate { to, .. } if to == ORCHESTRATOR => self.writing = true,
            EventKind::Spawn { to, role, capacity, level, .. } => self.agents.push(AgentView {
                id: one_line(to),
                role: one_line(role),
                capacity: one_line(capacity),
                level: *level,
                standing: Standing::Waits,
                began: 0.0,
                seconds: 0.0,
                tokens: 0,
                note: String::new(),
            }),
            EventKind::Delegate { to, .. } => self.update(to, |agent| {
                agent.standing = Standing::Runs;
                agent.began = event.t;
                agent.note.clear();
            }),
            EventKind::Retry { attempt, failure, wait_s } => self.update(&event.agent, |agent| {
                agent.tokens += event.spend.tokens();
                agent.note = format!("attempt {attempt} failed ({}), again in {wait_s:.1} s", failure.kind.as_str());
            }),
            EventKind::Return { status, reply, answer, failure, reused, .. } => self.update(&event.agent, |agent| {
                agent.standing = Standing::Ended(*status);
                agent.seconds = event.spend.seconds;
                agent.tokens += event.spend.tokens();
                let said = answer.as_ref().or(reply.as_ref());
                let said = said.map(|text| one_line(text));
                let why = failure.as_ref().map(|failure| one_line(&failure.message));
                let reused = if *reused { "(reused) " } else { "" };
                agent.note = format!("{reused}{}", why.or(said).unwrap_or_default());
            }),
            EventKind::Stop { reason, .. } => {
                self.stop = Some(*reason);
                self.writing = false;
            }
            EventKind::Resume { lost_tokens, .. } => {
                self.spent.tokens_in += lost_tokens;
                self.stop = None;
            }
            _ => {}
        }
    }

    fn update(&mut self, id: &str, change: impl FnOnce(&mut AgentView)) {
        let id = one_line(id);
        if let Some(agent) = self.agents.iter_mut().find(|agent| agent.id == id) {
            change(agent);
        }
    }

    /// The lines to draw `now` seconds after the first, in a window of this size. The last frame shows every agent.
    pub fn frame(&self, now: f64, rows: usize, columns: usize, last: bool) -> Vec<String> {
        let room = if last { usize::MAX } else { rows.saturating_sub(4).max(3) };
        let mut lines = vec![self.head()];
        let shown = self.shown(room);
        let width =
            |of: fn(&AgentView) -> &str| self.agents.iter().map(|a| measure_text_width(of(a))).max().unwrap_or(0);
        let (ids, capacities) = (width(|agent| &agent.id).min(24), width(|agent| &agent.capacity).min(12));
        let tick = (now / 0.08) as usize;
        lines.extend(shown.iter().map(|agent| self.agent_line(agent, ids, capacities, now, tick)));
        if shown.len() < self.agents.len() {
            lines.push(self.rest_line(shown.len()));
        }
        if self.writing {
            let spinner = SPINNER.get(tick % SPINNER.len()).copied().unwrap_or_default();
            lines.push(format!("  {} writing the team…", Style::new().for_stderr().yellow().apply_to(spinner)));
        }
        if let Some(growing) = self.growing.as_ref().filter(|_| !last) {
            let room = rows.saturating_sub(lines.len() + 3);
            lines.extend(growing.lines(room, columns).into_iter().map(|line| format!("  {line}")));
        }
        lines.push(self.totals_at(if self.stop.is_some() { self.t } else { self.t.max(now) }));
        lines.into_iter().map(|line| truncate_str(&line, columns.saturating_sub(1).max(20), "…").into_owned()).collect()
    }

    /// Those worth a line when there is not room for all: who runs, then who failed, then who ended last, then who waits.
    fn shown(&self, room: usize) -> Vec<&AgentView> {
        if self.agents.len() <= room {
            return self.agents.iter().collect();
        }
        let mut ranked: Vec<(usize, &AgentView)> = self.agents.iter().enumerate().collect();
        ranked.sort_by_key(|(at, agent)| {
            let rank = match agent.standing {
                Standing::Runs => 0,
                Standing::Ended(AgentStatus::Failed) => 1,
                Standing::Ended(_) => 2,
                Standing::Waits => 3,
            };
            (rank, if rank == 2 { usize::MAX - at } else { *at })
        });
        ranked.truncate(room.saturating_sub(1));
        ranked.sort_by_key(|(at, _)| *at);
        ranked.into_iter().map(|(_, agent)| agent).collect()
    }

    fn rest_line(&self, shown: usize) -> String {
        let count =
            |standing: fn(Standing) -> bool| self.agents.iter().filter(|agent| standing(agent.standing)).count();
        let text = format!(
            "  … {} more; of all {}: {} done, {} running, {} waiting",
            self.agents.len() - shown,
            self.agents.len(),
            count(|standing| standing == Standing::Ended(AgentStatus::Done)),
            count(|standing| standing == Standing::Runs),
            count(|standing| standing == Standing::Waits),
        );
        Style::new().for_stderr().dim().apply_to(text).to_string()
    }

    fn head(&self) -> String {
        let style = Style::new().for_stderr();
        format!("{}  {}", style.clone().yellow().bold().apply_to(&self.run_id), style.bold().apply_to(&self.question))
    }

    fn agent_line(&self, agent: &AgentView, ids: usize, capacities: usize, now: f64, tick: usize) -> String {
        let style = Style::new().for_stderr();
        let spinner = SPINNER.get(tick % SPINNER.len()).copied().unwrap_or_default();
        let mark = match agent.standing {
            Standing::Waits => style.clone().dim().apply_to("·"),
            Standing::Runs => style.clone().yellow().apply_to(spinner),
            Standing::Ended(AgentStatus::Done) => style.clone().green().apply_to("✓"),
            Standing::Ended(AgentStatus::Failed) => style.clone().red().apply_to("✗"),
            Standing::Ended(AgentStatus::Skipped | AgentStatus::Cancelled) => style.clone().dim().apply_to("–"),
        };
        let level = match agent.level {
            0 => style.clone().cyan(),
            1 => style.clone().blue(),
            _ => style.clone().magenta(),
        };
        let seconds = match agent.standing {
            Standing::Waits => String::new(),
            // The clock of the frames and that of the run begin together, but for a resumed run.
            Standing::Runs => format!("{:.1} s", (self.t.max(now) - agent.began).max(0.0)),
            Standing::Ended(_) => format!("{:.1} s", agent.seconds),
        };
        let tokens = if agent.tokens > 0 { format!("{} tok", agent.tokens) } else { String::new() };
        let note = if agent.note.is_empty() { &agent.role } else { &agent.note };
        let note = match agent.standing {
            Standing::Ended(AgentStatus::Done) => style.clone().apply_to(note),
            Standing::Ended(AgentStatus::Failed) => style.clone().red().apply_to(note),
            _ => style.clone().dim().apply_to(note),
        };
        format!(
            "  {mark} {} {} {tokens:>9} {seconds:>7}  {note}",
            pad(&agent.id, ids),
            level.apply_to(pad(&agent.capacity, capacities)),
        )
    }

    /// What was spent, of how much.
    pub fn totals(&self) -> String {
        self.totals_at(self.t)
    }

    fn totals_at(&self, t: f64) -> String {
        let of =
            |spent: String, limit: Option<String>| limit.map_or(spent.clone(), |limit| format!("{spent} of {limit}"));
        let tokens = of(self.spent.tokens().to_string(), self.budget.tokens.map(|limit| limit.to_string()));
        let seconds = of(format!("{t:.1}"), self.budget.seconds.map(|limit| limit.to_string()));
        let mut text = format!("{tokens} tokens · {seconds} s");
        if self.spent.usd > 0.0 || self.budget.usd.is_some() {
            let usd = of(format!("{:.6}", self.spent.usd), self.budget.usd.map(|limit| limit.to_string()));
            text.push_str(&format!(" · {usd} USD"));
        }
        if let Some(reason) = self.stop {
            text = format!("{} · {text} · {}", reason.as_str(), self.run_id);
        }
        Style::new().for_stderr().dim().apply_to(text).to_string()
    }
}

fn pad(text: &str, width: usize) -> String {
    let text = truncate_str(text, width, "…");
    let missing = width.saturating_sub(measure_text_width(&text));
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests;
