//! What an orchestrator or a rule answers, beside one plain call to the same model, question by question.

use super::Notices;
use crate::error::Error;
use crate::result::response;
use futures::stream::{self, StreamExt};
use lemon_eval::questions::CheckedQuestion;
use lemon_eval::{Ask, Method};
use lemon_exec::orchestrator::{Fixed, Orchestrator, plain_team};
use lemon_exec::store::{Store, Sync};
use lemon_exec::{Budget, Form, Settings};
use lemon_num::stats::sign_test;
use lemon_rollout::{Grader, Record, RolloutEnv, RolloutError, RunOptions, UnknownReason};
use lemon_sandbox::{Containment, Sandbox};
use lemon_spec::Language;
use lemon_trace::text::one_line;
use lemon_trace::{EventKind, StopReason, Trace};
use lemon_workers::evidence::{self, Entry};
use lemon_workers::{Config, OrchestratorKind, Resolved, RunLimits, WorkerFiles};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The reference: one plain call.
const PLAIN: &str = "plain";

/// The name of the lines over all sets.
const ALL: &str = "all";

/// One method on one question. The field names are an interface.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedAnswer {
    pub method: String,
    /// Whether what a person reads passes the check.
    pub passes: bool,
    /// Tokens of the orchestrator and of all agents; for a call that another method made before, what it cost then.
    tokens: u64,
    /// Tokens of attempts that failed and were made again, apart from `tokens`: a method that reuses the reply does not repeat
    /// them, so they would make the method that asked first look more expensive.
    retried_tokens: u64,
    agents: usize,
    stop_reason: Option<&'static str>,
    run_id: String,
    response: Option<String>,
}

/// A question with what each method came to. The field names are an interface.
#[derive(Debug, Serialize)]
pub struct AnsweredQuestion {
    /// The question.
    pub id: String,
    /// The set or file it is of.
    pub set: String,
    form: Form,
    /// By method; the first is the plain call.
    pub outcomes: Vec<CheckedAnswer>,
}

/// One method on the questions of one set, against the plain calls.
struct Line {
    set: String,
    method: String,
    items: u64,
    passed: u64,
    tokens: u64,
    retried_tokens: u64,
    wins: u64,
    losses: u64,
}

/// What is compared, and how.
pub struct AnswersRequest {
    /// What is compared with the plain call: `lemon`, `prompted`, `policy`, or a rule.
    pub methods: Vec<String>,
    /// Tokens that the whole comparison may spend.
    pub budget: Option<u64>,
    /// Questions at a time.
    pub width: usize,
    pub seed: u64,
    /// How programs are contained.
    pub containment: Containment,
}

/// A comparison that can begin: everything that its runs share.
pub struct AnswersJob {
    env: RolloutEnv,
    methods: Vec<(String, Writer)>,
    sandbox: Option<Sandbox>,
    request: AnswersRequest,
    spent: AtomicU64,
    config: Config,
    warn: lemon_workers::Tell,
    /// The store is new: what was asked before must not make a method look cheap.
    _folder: TempDir,
}

enum Writer {
    Orchestrator(Arc<dyn Orchestrator>),
    Rule(Method),
}

impl AnswersJob {
    /// Makes workers, methods and a store of their own.
    ///
    /// # Errors
    /// There are no workers, a method is unknown, or programs cannot be contained.
    pub async fn prepare(
        config: &Config,
        request: AnswersRequest,
        asked: &[CheckedQuestion],
        notices: Notices,
    ) -> Result<Self, Error> {
        let texts: Vec<&str> = asked.iter().map(|question| question.text.as_str()).collect();
        let resolved = Resolved::new(config, None, &texts, notices.tell).await?;
        let folder = tempfile::tempdir().map_err(Error::input)?;
        let language = resolved.language.clone();
        let (backend, _) = resolved.backend(&WorkerFiles::default())?;
        // Methods that ask the same share the reply: the same request with the same seed is the same draw.
        let settings = Settings { reuse: true, ..resolved.settings(&RunLimits::default())? };
        let plain = plain_team(&language).ok_or_else(|| Error::input("no capacity is configured"))?;
        let mut methods = vec![(
            PLAIN.to_owned(),
            Writer::Orchestrator(Arc::new(Fixed { text: plain, reviewer: None }) as Arc<dyn Orchestrator>),
        )];
        for name in request.methods.iter().filter(|name| *name != PLAIN) {
            methods.push((name.clone(), writer(&resolved, name)?));
        }
        let needs_sandbox = asked.iter().any(CheckedQuestion::needs_sandbox);
        let make = || needs_sandbox.then(|| Sandbox::new(request.containment)).transpose();
        let (grader, sandbox) = (Grader::new(make()?), make()?);
        let mut env = RolloutEnv::new(backend, language, settings, grader);
        env.store = Some(Arc::new(Store::open(&folder.path().join("bench.db"), Sync::Normal)?));
        let (spent, config) = (AtomicU64::new(0), resolved.config);
        Ok(AnswersJob { env, methods, sandbox, request, spent, config, warn: notices.warn, _folder: folder })
    }

    /// The number of methods, the plain call among them.
    pub fn methods(&self) -> usize {
        self.methods.len()
    }

    /// Tokens that the reply of the strongest capacity may have.
    pub fn most_reply_tokens(&self) -> u64 {
        self.env.backend.levels.last().map_or(0, |level| level.max_tokens)
    }

    /// Asks all methods all questions, several questions at a time. `on_row` sees each question as it is done; the questions
    /// come back in their order. Those that not all methods were asked are left out: only pairs can be compared.
    ///
    /// # Errors
    /// The store or the sandbox failed.
    pub async fn run(
        &self,
        asked: Vec<CheckedQuestion>,
        cancel: &CancellationToken,
        mut on_row: impl FnMut(&AnsweredQuestion),
    ) -> Result<Vec<AnsweredQuestion>, Error> {
        let mut rows = Vec::new();
        let runs = asked.into_iter().enumerate();
        let runs = runs.map(|(at, question)| async move { (at, self.question(question, cancel).await) });
        let mut runs = stream::iter(runs).buffer_unordered(self.request.width.max(1));
        while let Some((at, row)) = runs.next().await {
            let Some(row) = row? else { continue };
            on_row(&row);
            rows.push((at, row));
        }
        drop(runs);
        rows.sort_by_key(|(at, _)| *at);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// The comparison as a Markdown table; `count` questions were asked.
    pub fn table(&self, rows: &[AnsweredQuestion], count: usize) -> String {
        table(&lines(rows), &self.model(), rows.len(), count)
    }

    /// Keeps for the guard of `lemon run` what was measured, beside the store. Returns where.
    ///
    /// # Errors
    /// It cannot be written, or the files of a model cannot be read.
    pub fn add_evidence(&self, rows: &[AnsweredQuestion]) -> Result<PathBuf, Error> {
        // Without an identity the entry counts by the name of the model alone.
        let identity = evidence::identity(&self.config.capacity)?.unwrap_or_default();
        Ok(evidence::add(&self.config.store_path(None), &entries(rows, &self.model(), &identity))?)
    }

    /// The model by its name; empty where no capacity has one.
    fn model(&self) -> String {
        evidence::model(&self.config.capacity).unwrap_or_default()
    }

    /// All methods on one question, one after the other. `None`: not all could be asked.
    async fn question(
        &self,
        question: CheckedQuestion,
        cancel: &CancellationToken,
    ) -> Result<Option<AnsweredQuestion>, Error> {
        let mut outcomes = Vec::new();
        for (name, writer) in &self.methods {
            let Some(outcome) = self.answer(&question, name, writer, cancel).await? else { return Ok(None) };
            outcomes.push(outcome);
        }
        Ok(Some(AnsweredQuestion { id: question.id, set: question.set, form: question.form, outcomes }))
    }

    async fn answer(
        &self,
        question: &CheckedQuestion,
        name: &str,
        writer: &Writer,
        cancel: &CancellationToken,
    ) -> Result<Option<CheckedAnswer>, Error> {
        let left = self.request.budget.map(|budget| budget.saturating_sub(self.spent.load(Ordering::SeqCst)));
        if cancel.is_cancelled() || left == Some(0) {
            return Ok(None);
        }
        let orchestrator: Arc<dyn Orchestrator> = match writer {
            Writer::Orchestrator(orchestrator) => orchestrator.clone(),
            Writer::Rule(method) => {
                let Language { capacities, efforts, .. } = &*self.env.language;
                let capacity = capacities.last().map(String::as_str);
                let ask =
                    Ask { capacities, efforts, capacity, code: question.form == Form::Code, seed: self.request.seed };
                method.orchestrator(&ask).ok_or_else(|| RolloutError::NoTeam(name.to_owned()))?
            }
        };
        let limits = self.env.settings.budget;
        let budget = Some(Budget { tokens: left.or(limits.tokens), ..limits });
        let options = RunOptions { record: Record::Store("r"), budget, cancel: Some(cancel), ..RunOptions::default() };
        let run = self.env.execute_question(&question.id, &question.text, orchestrator, self.request.seed, &options);
        let trace = run.await?;
        let summary = trace.summary();
        self.spent.fetch_add(summary.tokens.total, Ordering::SeqCst);
        if let Some(reason) = UnknownReason::of(&summary) {
            if reason != UnknownReason::Cancelled {
                (self.warn)(&format!("{} {} is left out: {name}: {reason}", question.set, question.id));
            }
            return Ok(None);
        }
        if summary.stop_reason == Some(StopReason::TokenBudget) {
            return Ok(None);
        }
        for event in &trace.events {
            if let EventKind::Retry { failure, .. } = &event.kind {
                let cause = one_line(&failure.message);
                let (set, id) = (&question.set, &question.id);
                (self.warn)(&format!("{set} {id}: {name}: a call failed and is made again: {cause}"));
            }
        }
        let retried_tokens = retried(&trace);
        let response = response(&trace, &summary);
        let passes = match &response {
            Some(text) => question.passes(text, &self.env.grader, self.sandbox.as_ref())?,
            None => false,
        };
        Ok(Some(CheckedAnswer {
            method: name.to_owned(),
            passes,
            tokens: tokens(&trace).saturating_sub(retried_tokens),
            retried_tokens,
            agents: summary.agents.len(),
            stop_reason: summary.stop_reason.map(|reason| reason.as_str()),
            run_id: trace.header.run_id,
            response,
        }))
    }
}

fn writer(resolved: &Resolved, name: &str) -> Result<Writer, Error> {
    let of_kind = |kind_of| {
        let mut resolved = resolved.clone();
        resolved.config.orchestrator.set_kind(kind_of);
        Ok(Writer::Orchestrator(resolved.orchestrator(None)?))
    };
    match name {
        "lemon" => Ok(Writer::Orchestrator(resolved.orchestrator(None)?)),
        "prompted" => of_kind(OrchestratorKind::Prompted),
        "policy" => of_kind(OrchestratorKind::Policy),
        _ => {
            let hint = "lemon, prompted, policy, or a rule that `lemon eval --methods help` lists";
            let method: Method = name.parse().map_err(|error| Error::input(error).with_hint(hint))?;
            match method.source() {
                None => {
                    method.check(&resolved.language.efforts).map_err(Error::input)?;
                    Ok(Writer::Rule(method))
                }
                Some(_) => Err(Error::input(format!("`{name}` cannot be compared here")).with_hint(hint)),
            }
        }
    }
}

/// Tokens of a run, with what its reused replies cost when they were made.
fn tokens(trace: &Trace) -> u64 {
    let summary = trace.summary();
    summary.tokens.total + summary.agents.iter().map(|agent| agent.saved).sum::<u64>()
}

/// Tokens of attempts that failed and were made again.
fn retried(trace: &Trace) -> u64 {
    let retries = trace.events.iter().filter(|event| matches!(event.kind, EventKind::Retry { .. }));
    retries.map(|event| event.spend.tokens()).sum()
}

/// One line for each set and method, and one for all sets where there are several.
fn lines(rows: &[AnsweredQuestion]) -> Vec<Line> {
    let mut sets: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !sets.contains(&row.set.as_str()) {
            sets.push(&row.set)
        }
    });
    let of = |name: &str, rows: Vec<&AnsweredQuestion>| -> Vec<Line> {
        let methods = rows.first().map_or(0, |row| row.outcomes.len());
        (0..methods).map(|at| line(name, &rows, at)).collect()
    };
    let mut lines: Vec<Line> = Vec::new();
    for set in &sets {
        lines.extend(of(set, rows.iter().filter(|row| row.set == *set).collect()));
    }
    if sets.len() > 1 {
        lines.extend(of(ALL, rows.iter().collect()));
    }
    lines
}

fn line(set: &str, rows: &[&AnsweredQuestion], at: usize) -> Line {
    let mut line = Line {
        set: set.to_owned(),
        method: String::new(),
        items: 0,
        passed: 0,
        tokens: 0,
        retried_tokens: 0,
        wins: 0,
        losses: 0,
    };
    for row in rows {
        let (Some(plain), Some(other)) = (row.outcomes.first(), row.outcomes.get(at)) else { continue };
        line.method.clone_from(&other.method);
        line.items += 1;
        line.passed += u64::from(other.passes);
        line.tokens += other.tokens;
        line.retried_tokens += other.retried_tokens;
        line.wins += u64::from(other.passes && !plain.passes);
        line.losses += u64::from(!other.passes && plain.passes);
    }
    line
}

fn table(lines: &[Line], model: &str, done: usize, count: usize) -> String {
    let partial = if done < count { format!(" Partial: {done} of {count} questions.") } else { String::new() };
    let mut text = format!("Model: `{}`.{partial}\n\n", one_line(model));
    text.push_str("| questions | method | pass | of | tokens | times plain | better : worse than plain | p |\n");
    text.push_str("|---|---|---:|---:|---:|---:|---:|---:|\n");
    let mut plain_tokens = 1;
    for line in lines {
        if line.method == PLAIN {
            plain_tokens = line.tokens.max(1);
        }
        let Line { set, method, items, passed, tokens, wins, losses, .. } = line;
        let paired = match method == PLAIN {
            true => "–".to_owned(),
            false => format!("{wins} : {losses}"),
        };
        // The smaller tail: how likely so uneven a split is if neither is better.
        let odds = match method == PLAIN {
            true => "–".to_owned(),
            false => format!("{:.2}", sign_test(*wins.max(losses), *wins.min(losses))),
        };
        let times = *tokens as f64 / plain_tokens as f64;
        text.push_str(&format!(
            "| {set} | {method} | {passed} | {items} | {tokens} | {times:.2} | {paired} | {odds} |\n"
        ));
    }
    for line in lines.iter().filter(|line| line.retried_tokens > 0 && line.set != ALL) {
        let Line { set, method, retried_tokens, .. } = line;
        text.push_str(&format!(
            "\n{set}, {method}: failed calls that were made again cost {retried_tokens} tokens more.\n"
        ));
    }
    text
}

/// What the guard may learn from these rows: each rule by the form of the questions. What an orchestrator writes was measured
/// behind the guard, which says nothing of its teams without it.
fn entries(rows: &[AnsweredQuestion], model: &str, identity: &str) -> Vec<Entry> {
    let mut entries: BTreeMap<(Form, &str), Entry> = BTreeMap::new();
    for row in rows {
        let Some(plain) = row.outcomes.first() else { continue };
        for other in
            row.outcomes.iter().filter(|it| it.method.parse::<Method>().is_ok_and(|method| method.source().is_none()))
        {
            let entry = entries.entry((row.form, other.method.as_str())).or_insert_with(|| Entry {
                model: model.to_owned(),
                identity: identity.to_owned(),
                form: row.form,
                method: other.method.clone(),
                items: 0,
                wins: 0,
                losses: 0,
                tokens: 0,
                plain_tokens: 0,
            });
            entry.items += 1;
            entry.wins += u64::from(other.passes && !plain.passes);
            entry.losses += u64::from(!other.passes && plain.passes);
            entry.tokens += other.tokens;
            entry.plain_tokens += plain.tokens;
        }
    }
    entries.into_values().collect()
}
