//! `lemon bench answers`: what `lemon run` answers, beside one plain call to the same model, question by question.

use super::questions::{self, CheckedQuestion};
use crate::args::{AnswersArgs, Cli};
use crate::commands::eval::fault;
use crate::commands::grade::sandbox;
use crate::fault::Fault;
use crate::{print, println, runtime, tell};
use futures::stream::{self, StreamExt};
use lemon::response;
use lemon_eval::{Ask, Method};
use lemon_exec::orchestrator::{Fixed, Orchestrator, plain_team};
use lemon_exec::store::{Store, Sync};
use lemon_exec::{Budget, Form, Settings};
use lemon_num::stats::sign_test;
use lemon_rollout::{Grader, Record, RolloutEnv, RolloutError, RunOptions, UnknownReason};
use lemon_sandbox::Sandbox;
use lemon_spec::Language;
use lemon_trace::{EventKind, StopReason, Trace};
use lemon_workers::evidence::{self, Entry};
use lemon_workers::{Config, OrchestratorKind, Resolved, RunLimits, WorkerFiles};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

/// The reference: one plain call.
const PLAIN: &str = "plain";

/// The name of the lines over all sets.
const ALL: &str = "all";

/// One method on one question.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    method: String,
    passes: bool,
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

/// A question with what each method came to.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    set: String,
    form: Form,
    outcomes: Vec<Outcome>,
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

/// Everything that the runs of a comparison share.
struct Bench {
    env: RolloutEnv,
    methods: Vec<(String, Writer)>,
    sandbox: Option<Sandbox>,
    seed: u64,
    budget: Option<u64>,
    spent: AtomicU64,
}

enum Writer {
    Orchestrator(Arc<dyn Orchestrator>),
    Rule(Method),
}

pub fn answers(cli: &Cli, args: &AnswersArgs) -> Result<u8, Fault> {
    let mut asked = Vec::new();
    for file in &args.questions {
        asked.extend(questions::of_file(file)?);
    }
    for set in &args.sets {
        asked.extend(questions::of_set(set, args.data.as_deref(), &args.split, args.limit)?);
    }
    if asked.is_empty() {
        return Err(Fault::new("there are no questions").hint("give --questions FILE, or --set gsm8k --data DIR"));
    }
    let config = cli.config(&args.endpoints)?;
    runtime()?.block_on(compare(&config, args, asked))
}

async fn compare(config: &Config, args: &AnswersArgs, asked: Vec<CheckedQuestion>) -> Result<u8, Fault> {
    let texts: Vec<&str> = asked.iter().map(|question| question.text.as_str()).collect();
    let resolved = Resolved::new(config, None, &texts, tell(false)).await?;
    // A fresh store of its own: what was asked before must not make a method look cheap.
    let folder = tempfile::tempdir().map_err(Fault::new)?;
    let bench = Arc::new(Bench::new(&resolved, args, &asked, folder.path())?);
    let cancel = CancellationToken::new();
    tokio::spawn(crate::commands::run::cancel_on_signal(cancel.clone(), "what was answered is compared"));
    let count = asked.len();
    eprintln!(
        "{count} questions, {} methods; at most {} tokens a reply{}",
        bench.methods.len(),
        bench.env.backend.levels.last().map_or(0, |level| level.max_tokens),
        bench.budget.map_or(String::new(), |budget| format!("; budget {budget} tokens"))
    );
    let mut rows = Vec::new();
    let runs = asked.into_iter().enumerate().map(|(at, question)| {
        let (bench, cancel) = (bench.clone(), cancel.clone());
        async move { (at, bench.question(question, &cancel).await) }
    });
    let mut runs = stream::iter(runs).buffer_unordered(args.width.max(1));
    while let Some((at, row)) = runs.next().await {
        // A question that not all methods were asked is left out: only pairs can be compared.
        let Some(row) = row? else { continue };
        let marks: Vec<String> = row
            .outcomes
            .iter()
            .map(|it| format!("{} {}", it.method, if it.passes { "passes" } else { "fails" }))
            .collect();
        eprintln!("{} of {count}  {} {}: {}", rows.len() + 1, row.set, row.id, marks.join(", "));
        rows.push((at, row));
    }
    drop(runs);
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    if rows.is_empty() {
        return Err(Fault::new("no question was answered by all methods")
            .hint("raise --budget-tokens; `lemon doctor` checks the endpoint"));
    }
    report(&resolved.config, args, &rows, count)
}

impl Bench {
    fn new(
        resolved: &Resolved,
        args: &AnswersArgs,
        asked: &[CheckedQuestion],
        folder: &std::path::Path,
    ) -> Result<Self, Fault> {
        let language = resolved.language.clone();
        let (backend, _) = resolved.backend(&WorkerFiles::default())?;
        // Methods that ask the same share the reply: the same request with the same seed is the same draw.
        let settings = Settings { reuse: true, ..resolved.settings(&RunLimits::default())? };
        let plain = plain_team(&language).ok_or_else(|| Fault::new("no capacity is configured"))?;
        let mut methods = vec![(
            PLAIN.to_owned(),
            Writer::Orchestrator(Arc::new(Fixed { text: plain, reviewer: None }) as Arc<dyn Orchestrator>),
        )];
        for name in args.methods.iter().filter(|name| *name != PLAIN) {
            methods.push((name.clone(), writer(resolved, name)?));
        }
        let needs_sandbox = asked.iter().any(CheckedQuestion::needs_sandbox);
        let make = || needs_sandbox.then(|| sandbox(args.unsafe_no_sandbox)).transpose();
        let mut env = RolloutEnv::new(backend, language, settings, Grader::new(make()?));
        env.store = Some(Arc::new(Store::open(&folder.join("bench.db"), Sync::Normal)?));
        Ok(Bench {
            env,
            methods,
            sandbox: make()?,
            seed: args.seed,
            budget: args.budget_tokens,
            spent: AtomicU64::new(0),
        })
    }

    /// All methods on one question, one after the other. `None`: not all could be asked.
    async fn question(&self, question: CheckedQuestion, cancel: &CancellationToken) -> Result<Option<Row>, Fault> {
        let mut outcomes = Vec::new();
        for (name, writer) in &self.methods {
            let Some(outcome) = self.run(&question, name, writer, cancel).await? else { return Ok(None) };
            outcomes.push(outcome);
        }
        Ok(Some(Row { id: question.id, set: question.set, form: question.form, outcomes }))
    }

    async fn run(
        &self,
        question: &CheckedQuestion,
        name: &str,
        writer: &Writer,
        cancel: &CancellationToken,
    ) -> Result<Option<Outcome>, Fault> {
        let left = self.budget.map(|budget| budget.saturating_sub(self.spent.load(Ordering::SeqCst)));
        if cancel.is_cancelled() || left == Some(0) {
            return Ok(None);
        }
        let orchestrator: Arc<dyn Orchestrator> = match writer {
            Writer::Orchestrator(orchestrator) => orchestrator.clone(),
            Writer::Rule(method) => {
                let Language { capacities, efforts, .. } = &*self.env.language;
                let capacity = capacities.last().map(String::as_str);
                let ask = Ask { capacities, efforts, capacity, code: question.form == Form::Code, seed: self.seed };
                method.orchestrator(&ask).ok_or_else(|| fault(RolloutError::NoTeam(name.to_owned())))?
            }
        };
        let limits = self.env.settings.budget;
        let budget = Some(Budget { tokens: left.or(limits.tokens), ..limits });
        let options = RunOptions { record: Record::Store("r"), budget, cancel: Some(cancel), ..RunOptions::default() };
        let run = self.env.execute_question(&question.id, &question.text, orchestrator, self.seed, &options);
        let trace = run.await.map_err(fault)?;
        let summary = trace.summary();
        self.spent.fetch_add(summary.tokens.total, Ordering::SeqCst);
        if let Some(reason) = UnknownReason::of(&summary) {
            if reason != UnknownReason::Cancelled {
                eprintln!("{} {} is left out: {name}: {reason}", question.set, question.id);
            }
            return Ok(None);
        }
        if summary.stop_reason == Some(StopReason::TokenBudget) {
            return Ok(None);
        }
        for event in &trace.events {
            if let EventKind::Retry { failure, .. } = &event.kind {
                let cause = crate::one_line(&failure.message);
                eprintln!("{} {}: {name}: a call failed and is made again: {cause}", question.set, question.id);
            }
        }
        let retried_tokens = retried(&trace);
        let response = response(&trace, &summary);
        let passes = match &response {
            Some(text) => question.passes(text, &self.env.grader, self.sandbox.as_ref())?,
            None => false,
        };
        Ok(Some(Outcome {
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

fn writer(resolved: &Resolved, name: &str) -> Result<Writer, Fault> {
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
            let method: Method = name.parse().map_err(|error| Fault::new(error).hint(hint))?;
            match method.source() {
                None => {
                    method.check(&resolved.language.efforts).map_err(Fault::new)?;
                    Ok(Writer::Rule(method))
                }
                Some(_) => Err(Fault::new(format!("`{name}` cannot be compared here")).hint(hint)),
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

fn report(config: &Config, args: &AnswersArgs, rows: &[Row], count: usize) -> Result<u8, Fault> {
    let lines = lines(rows);
    let model = evidence::model(&config.capacity).unwrap_or_default();
    let table = table(&lines, &model, rows.len(), count);
    if args.json {
        for row in rows {
            print(&(serde_json::to_string(row).map_err(Fault::new)? + "\n"))?;
        }
    } else {
        println(table.trim_end())?;
    }
    if let Some(out) = &args.out {
        std::fs::write(out, &table).map_err(|error| Fault::new(format!("{}: {error}", out.display())))?;
    }
    let identity = evidence::identity(&config.capacity)?.unwrap_or_default();
    let path = evidence::add(&config.store_path(None), &entries(rows, &model, &identity))?;
    eprintln!("the guard of `lemon run` goes by this: {}", path.display());
    Ok(u8::from(rows.len() < count))
}

/// One line for each set and method, and one for all sets where there are several.
fn lines(rows: &[Row]) -> Vec<Line> {
    let mut sets: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !sets.contains(&row.set.as_str()) {
            sets.push(&row.set)
        }
    });
    let of = |name: &str, rows: Vec<&Row>| -> Vec<Line> {
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

fn line(set: &str, rows: &[&Row], at: usize) -> Line {
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
    let mut text = format!("Model: `{}`.{partial}\n\n", crate::one_line(model));
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
fn entries(rows: &[Row], model: &str, identity: &str) -> Vec<Entry> {
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
