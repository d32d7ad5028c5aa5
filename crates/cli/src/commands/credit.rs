//! `lemon credit`: what each decision of a team is worth, and what it costs.

mod tell;

use super::eval::request::Request;
use super::grade::sandbox;
use crate::args::{ChoosePolicy, Cli, CreditArgs, EvalWorkers};
use crate::config::Config;
use crate::fault::{Fault, read_file};
use crate::{println, setup, to_json};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon_credit::choose::Policy;
use lemon_credit::unit::{CreditEntry, credit_table, units_of_plan};
use lemon_eval::{Case, Evaluator, Grader};
use lemon_exec::orchestrator::{Brief, Draft, Orchestrator, Refused};
use lemon_exec::store::Store;
use lemon_profile::{Contrasts, Profile, ProfileWork, improve, picture, profile};
use lemon_spec::{Plan, diagnostic, validate};
use lemon_trace::{EventKind, Trace};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Repeats of a single task: enough for an error to mean something.
const REPEATS: u64 = 30;

pub fn credit(cli: &Cli, args: &CreditArgs) -> Result<u8, Fault> {
    let config = Config::load(cli.config.as_deref())?;
    // Counterfactuals are many, short and simulated, or few and waiting: one thread keeps up with either.
    let runtime = crate::runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone()));
    let mut job = Job::new(cli, &config, args)?;
    if !args.quiet {
        job.announce(args);
    }
    runtime.block_on(job.run(args, &cancel))
}

/// What is profiled.
struct Job {
    plan: Plan,
    cases: Vec<Case>,
    seeds: Vec<u64>,
    evaluator: Evaluator,
    reviewer: Arc<dyn Orchestrator>,
    /// The run whose trace gets the credit.
    run: Option<(Arc<Store>, Trace)>,
    width: usize,
}

impl Job {
    fn new(cli: &Cli, config: &Config, args: &CreditArgs) -> Result<Self, Fault> {
        if args.workers == EvalWorkers::Endpoints && args.budget_tokens.is_none() {
            return Err(Fault::new("a profile makes many calls, and there is no limit")
                .hint("say what it may spend at most with --budget-tokens N"));
        }
        let run = match &args.run {
            None => None,
            Some(name) => {
                let store = Arc::new(Store::open_existing(&setup::store_path(config, cli.store.as_deref()))?);
                let trace = store.trace(&store.find_run(name)?)?;
                Some((store, trace))
            }
        };
        let (request, cases) = cases(args, run.as_ref().map(|(_, trace)| trace))?;
        let (backend, language, priced, settings) = request.workers(config, &args.endpoints, &cases)?;
        let (name, text) = match (&run, &args.spec) {
            (Some((_, trace)), _) => ("the team of the run".to_owned(), written(trace)?),
            (None, Some(path)) => (path.display().to_string(), super::read_input(path)?),
            (None, None) => return Err(Fault::new("there is no team").hint("give --spec FILE, or a run")),
        };
        let plan = validate(&text, &language).map_err(|rejection| {
            let faults = diagnostic::explain(&rejection.diagnostics, &text, &name, false);
            Fault::new(format!("the team is not valid\n{}", faults.trim_end()))
        })?;
        let code = Grader::needs_sandbox(cases.iter().map(|case| &case.item));
        let sandbox = if code { Some(sandbox(args.unsafe_no_sandbox)?) } else { None };
        let review = args.review.as_deref().map(read_file).transpose()?;
        let first = run.as_ref().map_or(args.seed, |(_, trace)| trace.header.seed);
        let repeats = args.repeats.unwrap_or(if cases.len() == 1 { REPEATS } else { 1 }).max(1);
        let simulated = args.workers != EvalWorkers::Endpoints;
        Ok(Job {
            plan,
            seeds: (first..first.saturating_add(repeats)).collect(),
            reviewer: Arc::new(Reviewer { text: review }),
            evaluator: Evaluator {
                backend,
                language: Arc::new(language),
                store: None,
                settings,
                grader: Grader::new(sandbox),
                priced,
                names: Default::default(),
            },
            cases,
            run,
            width: args.width.unwrap_or(if simulated { 64 } else { 8 }),
        })
    }

    fn announce(&self, args: &CreditArgs) {
        let edits = lemon_spec::edit::edits(&self.plan, &self.evaluator.language).len();
        let (agents, tasks, repeats) = (self.plan.agents().len(), self.cases.len(), self.seeds.len());
        let limit = match args.budget_tokens {
            Some(tokens) => {
                format!("at most {tokens} tokens will be spent, and what tells most per token is run first")
            }
            None => "no model is called".to_owned(),
        };
        eprintln!("{agents} agents, {edits} edits, {tasks} tasks, {repeats} runs of each; {limit}");
    }

    async fn run(&mut self, args: &CreditArgs, cancel: &CancellationToken) -> Result<u8, Fault> {
        let contrasts = Contrasts {
            evaluator: &self.evaluator,
            reviewer: Some(self.reviewer.clone()),
            rewards: Default::default(),
            weights: Default::default(),
        };
        if let Some(path) = &args.apply {
            return self.apply(args, &contrasts, path, cancel).await;
        }
        let policy = match args.choose {
            ChoosePolicy::Information => Policy::Information { floor: 0.02 },
            ChoosePolicy::Contrast => Policy::Contrast { floor: 0.05 },
        };
        let work = ProfileWork {
            plan: &self.plan,
            cases: &self.cases,
            seeds: &self.seeds,
            width: self.width,
            budget: args.budget_tokens,
            policy,
        };
        let bar = bar(args.quiet);
        let found = profile(&contrasts, &work, cancel, |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        });
        let found = found.await.map_err(super::eval::fault)?;
        bar.finish_and_clear();
        if found.baseline.runs == 0 {
            return Err(Fault::new("the budget does not allow a single run").hint("give more with --budget-tokens N"));
        }
        if let Some(path) = &args.picture {
            write(path, &picture(&self.plan, &found))?;
        }
        if let Some((store, trace)) = &mut self.run {
            store.annotate(trace, entries(&self.plan, &found)).wait().await?;
        }
        match args.json {
            true => println(&to_json(&found))?,
            false => crate::print(&tell::profile(&found))?,
        };
        if !found.complete && !args.quiet {
            eprintln!("the budget ended before everything was run; what was not measured says so");
        }
        Ok(0)
    }

    async fn apply(
        &self,
        args: &CreditArgs,
        contrasts: &Contrasts<'_>,
        path: &Path,
        cancel: &CancellationToken,
    ) -> Result<u8, Fault> {
        if args.budget_tokens.is_some() || args.workers == EvalWorkers::Endpoints {
            return Err(Fault::new("--apply profiles a team again after every change, in the simulated world only")
                .hint("profile with endpoints, apply what it advises by hand, and profile again"));
        }
        // Every second task: a set may be sorted.
        let half = |odd: usize| self.cases.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
        let (chosen_by, held_out) = (half(0), half(1));
        if held_out.len() < 20 {
            return Err(Fault::new(format!("{} tasks are too few to hold some out", self.cases.len()))
                .hint("give at least 40: --set gsm8k --data DIR, or --tasks FILE"));
        }
        let cases = (&chosen_by[..], &held_out[..]);
        let found = improve(contrasts, &self.plan, cases, &self.seeds, self.width, cancel, |step| {
            if !args.quiet {
                eprintln!("{}: success {:+.1} points, {:+.0} tokens", step.change, 100.0 * step.success, step.tokens);
            }
        });
        let found = found.await.map_err(super::eval::fault)?;
        if cancel.is_cancelled() {
            return Err(Fault::new("cancelled before the changes were confirmed; nothing is written").code(1));
        }
        write(path, &found.spec)?;
        match args.json {
            true => println(&to_json(&found)),
            false => crate::print(&tell::improvement(&found, path)),
        }
    }
}

/// The tasks, with the workers' request that fits them.
fn cases(args: &CreditArgs, trace: Option<&Trace>) -> Result<(Request, Vec<Case>), Fault> {
    // An evaluation names its tasks `set/split/id`.
    let named = trace.and_then(|trace| {
        let mut parts = trace.header.task_id.splitn(3, '/');
        Some((parts.next()?.to_owned(), parts.next()?.to_owned(), parts.next()?.to_owned()))
    });
    let (set, split) = match (&args.tasks, &args.set, named) {
        (Some(file), ..) => (file.display().to_string(), args.split.clone()),
        (None, Some(set), _) => (set.clone(), args.split.clone()),
        (None, None, Some((set, split, _))) => (set, split),
        (None, None, None) => {
            return Err(Fault::new("there are no tasks with known answers")
                .hint("give --set NAME or --tasks FILE; a run is looked up there by its question"));
        }
    };
    let request = Request::for_team(args, &set, &split, args.limit);
    let mut cases = request.cases()?;
    if let Some(trace) = trace {
        cases.retain(|case| case.item.task.question.trim() == trace.header.question.trim());
        cases.truncate(1);
        if cases.is_empty() {
            return Err(Fault::new(format!("the question of run {} is not in {set}", trace.header.run_id))
                .hint("say where its right answer is with --set NAME --data DIR, or --tasks FILE"));
        }
    }
    Ok((request, cases))
}

/// The specification of a run's first round.
fn written(trace: &Trace) -> Result<String, Fault> {
    let text = trace.events.iter().find_map(|event| match &event.kind {
        EventKind::Decision { round: 1, text, .. } => Some(text.clone()),
        _ => None,
    });
    text.ok_or_else(|| Fault::new(format!("run {} has no team", trace.header.run_id)))
}

/// What a trace is told: rewards, and credit for every unit, measured or not.
fn entries(plan: &Plan, profile: &Profile) -> Vec<EventKind> {
    let measured: Vec<CreditEntry> = profile
        .effects
        .iter()
        .map(|e| CreditEntry::measured(&e.edit, e.effect, e.standard_error, u32::try_from(e.n).unwrap_or(u32::MAX)))
        .collect();
    let rewards: BTreeMap<String, f64> = profile.baseline.rewards.clone();
    let score = EventKind::Score { right: None, rewards };
    let entry = |entry: CreditEntry| EventKind::Credit {
        unit: entry.unit.as_str().to_owned(),
        target: entry.target,
        family: entry.family,
        effect: entry.effect,
        standard_error: entry.standard_error,
        n: entry.n,
    };
    std::iter::once(score).chain(credit_table(&units_of_plan(plan), &measured).into_iter().map(entry)).collect()
}

/// Writes the second round: what the user gave, or one verifier that reads whoever answered.
struct Reviewer {
    text: Option<String>,
}

impl Orchestrator for Reviewer {
    fn draft(&self, brief: &Brief<'_>) -> Option<Draft> {
        if brief.round != 2 {
            return None;
        }
        let text = self.text.clone().or_else(|| {
            let capacity = brief.language.capacities.last()?;
            let read: Vec<&str> = brief.results.iter().rev().take(4).map(|result| result.agent).collect();
            Some(format!(
                "agents:\n  - id: review\n    base: verifier\n    capacity: {capacity}\n    after: [{}]\n",
                read.join(", ")
            ))
        })?;
        Some(Draft::Text(text))
    }

    fn repair(&self, _: &Brief<'_>, _: &Refused<'_>) -> Option<Draft> {
        None
    }

    fn fallback(&self, _: &Brief<'_>) -> Option<String> {
        None
    }
}

fn write(path: &Path, content: &str) -> Result<(), Fault> {
    std::fs::write(path, content).map_err(|error| Fault::new(format!("{} cannot be written: {error}", path.display())))
}

fn bar(quiet: bool) -> ProgressBar {
    if quiet || !console::Term::stderr().features().is_attended() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{bar:32.yellow/dim} {pos}/{len} counterfactuals · {elapsed} · {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
