//! Everything one run needs, from configuration, flags, and what it was begun with.

use crate::backend::WorkerFiles;
use crate::bundled;
use crate::code::SandboxRunner;
use crate::config::Config;
use crate::error::WorkersError;
use crate::files::need_plain_file;
use crate::kind::{Scope, WorkerKind};
use crate::resolve::{Resolved, RunLimits};
use crate::{Tell, started};
use lemon_exec::store::{RunMeta, StartedWith};
use lemon_exec::worker::recorded_workers;
use lemon_exec::{Budget, Form, Runner, Settings};
use lemon_spec::{AnswerRule, validate};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a command asks of a run.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// The kind of workers; the configuration's, or the first that are found, where absent.
    pub kind: Option<WorkerKind>,
    /// The files that workers are made of, or write.
    pub files: WorkerFiles,
    /// What the run may spend, over what the configuration says.
    pub budget: Budget,
    /// Tokens a reply may have, in place of each capacity's own limit.
    pub max_tokens: Option<u64>,
    /// Whether every call is made again, although its reply is on record.
    pub no_reuse: bool,
    /// The specification; an orchestrator writes one where absent.
    pub spec: Option<String>,
    /// The form of the answer; as the question reads, where absent.
    pub form: Option<Form>,
    /// What a person decided about calls of tools that wait, by `AGENT/CALL`.
    pub decisions: BTreeMap<String, bool>,
    /// Whether a run may be resumed with other models than it was started with.
    pub anyway: bool,
}

/// What a run that is resumed was begun with.
#[derive(Debug, Clone, Default)]
pub struct Before {
    /// The specification.
    pub spec: Option<String>,
    pub budget: Budget,
    /// The kind of workers.
    pub workers: Option<String>,
    /// The script or cassette.
    pub worker_file: Option<PathBuf>,
    /// The form of the answer.
    pub form: Option<Form>,
    /// The models.
    pub started_with: Option<StartedWith>,
}

impl Before {
    /// What a run was begun with, by its record. `workers` stands in its trace, for runs of older programs.
    pub fn of_run(meta: RunMeta, workers: &str) -> Self {
        let RunMeta { spec, budget, worker_file, form, started_with, .. } = meta;
        let kind = started_with.as_ref().map_or(workers, |with| &with.kind).to_owned();
        Before { spec, budget, workers: Some(kind), worker_file, form, started_with }
    }
}

/// A run that can begin. Nothing was written yet: the runner has no store.
pub struct ReadyRun {
    /// What carries it out.
    pub runner: Runner,
    /// The configuration it was made of.
    pub resolved: Resolved,
    /// What goes on record.
    pub meta: RunMeta,
}

impl ReadyRun {
    /// Prepares a run, or several of the same settings.
    ///
    /// # Errors
    /// There are no workers, or something they need cannot be used.
    pub async fn new(
        config: &Config,
        request: RunRequest,
        before: Before,
        questions: &[&str],
        tell: Tell,
    ) -> Result<Self, WorkersError> {
        let kind = match (request.kind, before.workers.as_ref().or(config.run.workers.as_ref())) {
            (Some(kind), _) => Some(kind),
            (None, Some(name)) => Some(WorkerKind::named(Scope::Run, name)?),
            (None, None) => None,
        };
        let started_before = before.started_with.as_ref().filter(|_| !request.anyway);
        let recorded = started_before.map(|before| started::again(config, before)).transpose()?.flatten();
        let is_recorded = recorded.is_some();
        let config = match recorded {
            Some(capacities) => &config.with_capacities(capacities),
            None => config,
        };
        let mut files = request.files;
        if kind == Some(WorkerKind::SCRIPTED) {
            files.script = files.script.or(before.worker_file);
        } else {
            files.cassette = files.cassette.or(before.worker_file);
        }
        if let Some(path) = files.cassette.as_ref().filter(|path| path.exists()) {
            need_plain_file(path)?;
        }
        let of_bundled = |path: &PathBuf| WorkerKind::BUNDLED.is_called(&recorded_workers(path));
        let replays_bundled = kind == Some(WorkerKind::CASSETTE) && files.cassette.as_ref().is_some_and(of_bundled);
        let config = match replays_bundled && config.capacity.is_empty() {
            // So that the same orchestrator writes as when the cassette was recorded.
            true => &config.with_capacities(bundled::capacities()),
            false => config,
        };
        let resolved = Resolved::new(config, kind, questions, tell).await?;
        let started_with = started::record(resolved.kind, resolved.capacities());
        started_before.map_or(Ok(()), |before| started::check(before, &started_with))?;
        let spec = request.spec.or(before.spec);
        let (mut backend, worker_file) = resolved.backend(&files)?;
        let tests =
            |spec: &String| validate(spec, &resolved.language).is_ok_and(|plan| plan.answer_rule() == AnswerRule::Test);
        if let Some(code) = backend.code.as_ref().filter(|_| spec.as_ref().is_some_and(tests)) {
            code.ready().map_err(|error| SandboxRunner::unavailable(&error))?;
        }
        if let Some(most) = request.max_tokens {
            backend.levels.iter_mut().for_each(|level| level.limit_replies(most));
        }
        let Budget { tokens, usd, calls, seconds } = before.budget;
        let budget = Budget {
            tokens: request.budget.tokens.or(tokens),
            usd: request.budget.usd.or(usd),
            calls: request.budget.calls.or(calls),
            seconds: request.budget.seconds.or(seconds),
        };
        // A recording must see every call.
        let limits = RunLimits { budget, no_reuse: request.no_reuse || files.record.is_some() };
        let settings = Settings { decisions: request.decisions, ..resolved.settings(&limits)? };
        let orchestrator = resolved.orchestrator(spec.as_deref())?;
        if is_recorded {
            let models = started::told(&started_with.capacities);
            tell(&format!("resuming with the models the run was started with: {models}"));
        } else if resolved.is_configured {
            tell(&format!("configured models answer: {}", resolved.model_names()));
        }
        let form = request.form.or(before.form);
        let budget = settings.budget;
        let started_with = Some(started_with);
        let meta = RunMeta { spec, budget, worker_file, started_with, form, ..RunMeta::default() };
        let language = resolved.language.clone();
        let runner = Runner {
            backend,
            orchestrator,
            language,
            store: None,
            reply_cache: None,
            reply_record: None,
            settings,
            on_delta: None,
        };
        Ok(ReadyRun { runner, resolved, meta })
    }
}
