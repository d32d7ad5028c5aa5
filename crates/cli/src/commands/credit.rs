//! `lemon credit`: what each decision of a team is worth, and what it costs.

mod tell;

use super::eval::request::EvalRequest;
use super::grade::sandbox;
use crate::args::{ChoosePolicy, Cli, CreditArgs};
use crate::fault::{Fault, read_file};
use crate::{println, to_json};
use async_trait::async_trait;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon_credit::choose::ChoiceRule;
use lemon_credit::unit::{CreditEntry, credit_table, units_of_plan};
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, WriteContext};
use lemon_exec::store::Store;
use lemon_profile::{Counterfactuals, Profile, ProfileWork, SpendingLimits, estimate, improve, picture, profile};
use lemon_rollout::{Case, Grader, RolloutEnv, Score};
use lemon_spec::{Plan, diagnostic, validate};
use lemon_task::SetName;
use lemon_trace::{EventKind, Trace};
use lemon_workers::{Capacity, Config, SharedLimits, WorkerSet, check_prices};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Repeats of a single task: enough for an error to mean something.
const REPEATS: u64 = 30;
/// Tasks that `--apply` needs: half of them are held out.
const LEAST_TO_APPLY: usize = 40;

pub fn credit(cli: &Cli, args: &CreditArgs) -> Result<u8, Fault> {
    let config = cli.config(&args.endpoints)?;
    // Counterfactuals are many, short and simulated, or few and waiting: one thread keeps up with either.
    let runtime = crate::runtime()?;
    let cancel = CancellationToken::new();
    runtime.spawn(super::run::cancel_on_signal(cancel.clone(), "what was measured is told"));
    let mut job = runtime.block_on(Job::new(cli, &config, args))?;
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
    env: RolloutEnv,
    reviewer: Arc<dyn Orchestrator>,
    /// The run whose trace gets the credit.
    run: Option<(Arc<Store>, Trace)>,
    /// What everything may cost.
    together: SharedLimits,
    /// What serves each capacity.
    levels: Vec<(String, Capacity)>,
    width: usize,
}

impl Job {
    async fn new(cli: &Cli, config: &Config, args: &CreditArgs) -> Result<Self, Fault> {
        let together = SharedLimits { tokens: args.budget_tokens, usd: args.budget_usd };
        if args.apply.is_some() && (together.is_limited() || args.workers.asks_models()) {
            return Err(Fault::new("--apply profiles a team again after every change, in the simulated world only")
                .hint("profile with endpoints, apply what it advises by hand, and profile again"));
        }
        if args.workers.costs_money() && !together.is_limited() {
            return Err(Fault::new("a profile makes many calls, and there is no limit")
                .hint("limit it with --budget-tokens N or --budget-usd X"));
        }
        let run = match &args.run {
            None => None,
            Some(name) => {
                let store = Arc::new(Store::open_existing(&config.store_path(cli.store.as_deref()))?);
                let run_id = store.find_run(name)?;
                // Refused while another process works on it.
                store.meta(&run_id)?;
                let trace = store.trace(&run_id)?;
                if trace.summary().stop_reason.is_none() {
                    return Err(Fault::new(format!("run {} has not ended", trace.header.run_id))
                        .hint(format!("go on with it: `lemon run --resume {run_id}`")));
                }
                Some((store, trace))
            }
        };
        let (request, cases) = cases(args, run.as_ref().map(|(_, trace)| trace))?;
        if args.apply.is_some() && cases.len() < LEAST_TO_APPLY {
            return Err(Fault::new(format!("{} tasks are too few to hold some out", cases.len()))
                .hint(format!("give at least {LEAST_TO_APPLY}: --set gsm8k --data DIR, or --tasks FILE")));
        }
        let set = request.workers(config, &cases, args.quiet).await?;
        let WorkerSet { backend, resolved, settings } = set;
        let language = resolved.language.clone();
        let levels = resolved.config.capacity;
        if together.usd.is_some() {
            check_prices(&levels)?;
        }
        if let Some((_, trace)) = run.as_ref().filter(|(_, trace)| trace.header.workers != backend.name && !args.quiet)
        {
            let (its, ours) = (&trace.header.workers, &backend.name);
            eprintln!("warning: the run used {its} workers; its team is profiled with {ours} workers");
        }
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
        let simulated = !args.workers.asks_models();
        Ok(Job {
            plan,
            seeds: (0..repeats).map(|number| first.wrapping_add(number)).collect(),
            reviewer: Arc::new(Reviewer { text: review }),
            env: RolloutEnv::new(backend, language, settings, Grader::new(sandbox)),
            cases,
            run,
            together,
            levels,
            width: args.width.unwrap_or(if simulated { 64 } else { 8 }),
        })
    }

    fn announce(&self, args: &CreditArgs) {
        let edits = lemon_spec::edit::edits(&self.plan, &self.env.language).len();
        let (agents, tasks, repeats) = (self.plan.agents().len(), self.cases.len(), self.seeds.len());
        let limit = match self.together.is_limited() {
            true => {
                let limit = self.together.in_words();
                format!("at most {limit} will be spent, and what tells most per token is run first")
            }
            false if args.workers.asks_models() => "models in this process answer".to_owned(),
            false => "no model is called".to_owned(),
        };
        let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        eprintln!(
            "{}, {}, {}, {} of each; {limit}",
            counted(agents, "agent"),
            counted(edits, "edit"),
            counted(tasks, "task"),
            counted(repeats, "run")
        );
    }

    async fn run(&mut self, args: &CreditArgs, cancel: &CancellationToken) -> Result<u8, Fault> {
        let runs = Counterfactuals { env: &self.env, reviewer: Some(self.reviewer.clone()) };
        if let Some(path) = &args.apply {
            return self.apply(args, &runs, path, cancel).await;
        }
        let policy = match args.choose {
            ChoosePolicy::Information => ChoiceRule::Information { floor: 0.02 },
            ChoosePolicy::Effect => ChoiceRule::Contrast { floor: 0.05 },
        };
        let work = ProfileWork {
            plan: &self.plan,
            cases: &self.cases,
            seeds: &self.seeds,
            width: self.width,
            budget: SpendingLimits { tokens: self.together.tokens, usd: self.together.usd },
            policy,
        };
        if args.workers.costs_money() && !args.quiet {
            eprintln!("{}", self.together.estimate(&estimate(&runs, &work), &self.levels));
        }
        let bar = bar(args.quiet);
        let found = profile(&runs, &work, cancel, |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        });
        let found = found.await.map_err(super::eval::fault)?;
        bar.finish_and_clear();
        let cancelled = cancel.is_cancelled() && !found.complete;
        match (found.baseline.runs, cancelled) {
            (0, true) => return Err(Fault::new("cancelled before the first run ended").code(1)),
            (0, false) => {
                if let Some(reason) = found.unknown.first() {
                    return Err(Fault::new(format!("no run has a known outcome: {reason}")).code(1));
                }
                return Err(Fault::new("the budget is too small for one run").hint(self.more()).code(1));
            }
            _ => {}
        }
        if let (Some((store, trace)), Some(case), false) = (&mut self.run, self.cases.first(), cancelled) {
            let score = self.env.score(case, trace, &trace.summary()).map_err(super::eval::fault)?;
            store.annotate(trace, entries(&self.plan, &score, &found)).wait().await?;
        }
        match args.json {
            true => println(&to_json(&found))?,
            false => crate::print(&tell::profile(&found))?,
        };
        if let Some(path) = &args.picture {
            write(path, &picture(&self.plan, &found))?;
        }
        if cancelled {
            let fault = Fault::new("cancelled: not everything was measured").code(1);
            return Err(if self.run.is_some() { fault.hint("nothing was added to the run's trace") } else { fault });
        }
        if !found.complete {
            let missing = found.effects.iter().filter(|effect| effect.effect.is_none()).count();
            let fact = format!(
                "the budget is used up: {} tokens are spent, and the profile is partial; {missing} of {} edits are not measured",
                found.reuse.tokens,
                found.effects.len()
            );
            return Err(Fault::new(fact).hint(self.more()).code(1));
        }
        Ok(0)
    }

    /// How to give it more.
    fn more(&self) -> &'static str {
        match self.together.usd {
            None => "give more with --budget-tokens N",
            Some(_) => "give more with --budget-tokens N and --budget-usd X, as far as they are given",
        }
    }

    async fn apply(
        &self,
        args: &CreditArgs,
        runs: &Counterfactuals<'_>,
        path: &Path,
        cancel: &CancellationToken,
    ) -> Result<u8, Fault> {
        // Every second task: a set may be sorted.
        let half = |odd: usize| self.cases.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
        let (chosen_by, held_out) = (half(0), half(1));
        let cases = (&chosen_by[..], &held_out[..]);
        let found = improve(runs, &self.plan, cases, &self.seeds, self.width, cancel, |step| {
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
fn cases(args: &CreditArgs, trace: Option<&Trace>) -> Result<(EvalRequest, Vec<Case>), Fault> {
    // An evaluation names its tasks `set/split/id`, or `file/id`.
    let named = trace.and_then(|trace| {
        let mut parts = trace.header.task_id.splitn(3, '/');
        let (set, split) = (parts.next()?, parts.next()?);
        set.parse::<SetName>().is_ok().then(|| (set.to_owned(), split.to_owned()))
    });
    if let Some(file) = &args.tasks {
        std::fs::metadata(file).map_err(|error| Fault::new(format!("{}: {error}", file.display())))?;
    }
    let (set, split) = match (&args.tasks, &args.set, named) {
        (Some(file), ..) => (file.display().to_string(), args.split.clone()),
        (None, Some(set), _) => (set.clone(), args.split.clone()),
        (None, None, Some((set, split))) => (set, split),
        (None, None, None) => {
            return Err(Fault::new("there are no tasks with known answers")
                .hint("give --set NAME or --tasks FILE; a run is looked up there by its question"));
        }
    };
    let request = EvalRequest::for_team(args, &set, &split, args.limit);
    let mut cases = request.cases()?;
    if let Some(trace) = trace {
        cases.retain(|case| case.item.task.question.trim() == trace.header.question.trim());
        cases.truncate(1);
        if cases.is_empty() {
            return Err(Fault::new(format!("the question of run {} is not in {set}", trace.header.run_id))
                .hint("name the task's source with --set NAME --data DIR, or --tasks FILE"));
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

/// What a trace is told: its own rewards, and credit for every unit, measured or not.
fn entries(plan: &Plan, score: &Score, profile: &Profile) -> Vec<EventKind> {
    let measured: Vec<CreditEntry> = profile
        .effects
        .iter()
        .map(|e| CreditEntry::measured(&e.edit, e.effect, e.standard_error, u32::try_from(e.n).unwrap_or(u32::MAX)))
        .collect();
    let score = EventKind::Score { right: Some(score.right), rewards: score.channels.named() };
    let entry = |entry: CreditEntry| EventKind::Credit {
        unit: entry.unit.as_str().to_owned(),
        target: entry.target,
        family: entry.family,
        edit: entry.edit,
        effect: entry.effect,
        standard_error: entry.standard_error,
        n: entry.n,
    };
    std::iter::once(score).chain(credit_table(&units_of_plan(plan), &measured).into_iter().map(entry)).collect()
}

/// Writes the second round: what the user gave, or one verifier that reads the answers.
struct Reviewer {
    text: Option<String>,
}

#[async_trait]
impl Orchestrator for Reviewer {
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        if context.round != 2 {
            return Ok(None);
        }
        let text = self.text.clone().or_else(|| {
            let capacity = context.language.capacities.last()?;
            let read: Vec<&str> = context.results.iter().rev().take(4).map(|result| result.agent).collect();
            Some(format!(
                "agents:\n  - id: review\n    base: verifier\n    capacity: {capacity}\n    after: [{}]\n",
                read.join(", ")
            ))
        });
        Ok(text.map(Draft::Text))
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
