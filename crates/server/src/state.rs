//! What every handler has at hand, and how a run is started.

use crate::cluster::ClusterWatch;
use crate::guard::Caller;
use crate::keys::Keys;
use crate::metrics::ServerCounters;
use crate::otlp::Exporter;
use crate::refusal::Refusal;
use crate::runs::{LiveEvent, LiveRun, LiveRuns};
use crate::workers::{DEFAULT, TeamChoice, Workers};
use axum::http::StatusCode;
use lemon_cluster::Access;
use lemon_exec::store::{RunMeta, ServedRequest, Store};
use lemon_exec::{Budget, Form, Job, Observer, OnDelta, Runner, fresh_id};
use lemon_trace::{Event, Header, Trace};
use lemon_workers::Config;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How a server is set up, beside the workers.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens.
    pub address: SocketAddr,
    /// Names it may be called by, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Sites whose pages may ask it, beside its own.
    pub origins: Vec<String>,
    /// Whether every caller needs a key. On other addresses than those of this machine it always does.
    pub require_key: bool,
    /// LiveRuns at a time.
    pub most_runs: usize,
    /// Connections at a time.
    pub most_connections: usize,
    /// Bytes of a request's body.
    pub most_body: usize,
    /// Seconds a run may take, where neither configuration nor request says less.
    pub run_seconds: f64,
    /// How long runs may go on once the server was told to end.
    pub grace: Duration,
    /// Where team files lie.
    pub teams: PathBuf,
    /// Where trained orchestrators lie.
    pub policies: PathBuf,
    /// Folders with evaluations and trainings.
    pub results: Vec<PathBuf>,
    /// The OpenTelemetry collector that finished runs are sent to.
    pub otlp: Option<String>,
    /// The cluster that is shown.
    pub cluster: Option<Access>,
    /// The configuration that the workers were resolved from.
    pub config: Config,
}

/// Who a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client of the API that waits for it: it is cancelled when the client goes.
    Api,
    /// The application: it goes on whether or not a page watches it.
    App,
}

/// What is asked of a run.
#[derive(Debug, Clone)]
pub struct RunOrder {
    /// The task, with what was said before: see [`crate::api::question`].
    pub question: String,
    /// The form of the answer; as the question reads, where absent.
    pub form: Option<Form>,
    /// What writes the team.
    pub team: TeamChoice,
    /// The model, as the request names it.
    pub model: String,
    /// The seed of every random choice; the configuration's, or 0, where absent.
    pub seed: Option<u64>,
    /// Limits; of two on the same thing the lower one counts.
    pub budget: Budget,
    /// Tokens a reply may have, in place of each capacity's own limit.
    pub max_tokens: Option<u64>,
    /// Sampling temperature, in place of each capacity's own.
    pub temperature: Option<f64>,
    /// Who it is for.
    pub origin: Origin,
    /// Who asks, and whose budget it is.
    pub caller: Caller,
    /// The end user and what else the request says of itself, for the record.
    pub user: Option<String>,
    /// Pairs that the request says of itself, for the record.
    pub metadata: Option<serde_json::Value>,
}

impl RunOrder {
    /// A question for the default model, with nothing special.
    pub fn new(question: impl Into<String>, origin: Origin, caller: Caller) -> Self {
        RunOrder {
            question: question.into(),
            form: None,
            team: TeamChoice::Configured,
            model: DEFAULT.to_owned(),
            seed: None,
            budget: Budget::default(),
            max_tokens: None,
            temperature: None,
            origin,
            caller,
            user: None,
            metadata: None,
        }
    }
}

/// What every handler has at hand.
pub struct AppState {
    /// How the server is set up.
    pub config: ServerConfig,
    /// Who answers.
    pub workers: Workers,
    /// Where everything is kept.
    pub store: Arc<Store>,
    /// The runs under way.
    pub runs: LiveRuns,
    /// Who may ask, and what they may spend.
    pub keys: Keys,
    /// What is counted.
    pub metrics: ServerCounters,
    /// The cluster that is shown.
    pub(crate) cluster: Option<ClusterWatch>,
    /// Sends finished runs to a collector.
    pub(crate) exporter: Option<Exporter>,
    /// Cancelled when the server was told to end: nothing new begins.
    pub closing: CancellationToken,
}

impl AppState {
    /// Starts a run, and enters it among those under way.
    ///
    /// # Errors
    /// The server is closing or full, the key's budget or rate is used up, or the workers cannot answer this.
    pub async fn start(self: &Arc<Self>, order: RunOrder) -> Result<Arc<LiveRun>, Refusal> {
        self.workers.resolved.check_question(&order.question)?;
        let orchestrator = self.workers.orchestrator(&order.team).await?;
        let spec = match &order.team {
            TeamChoice::Text(text) => Some(text.clone()),
            TeamChoice::Configured | TeamChoice::Policy(_) => None,
        };
        let served = ServedRequest {
            model: order.model.clone(),
            app: order.origin == Origin::App,
            key: order.caller.key_id().map(str::to_owned),
            user: order.user.clone(),
            metadata: order.metadata.clone(),
            max_tokens: order.max_tokens,
            temperature: order.temperature,
        };
        let meta = RunMeta { spec, form: order.form, served: Some(served), ..self.workers.meta.clone() };
        let run_id = format!("r-{}", fresh_id());
        let seed = order.seed.or(self.config.config.run.seed).unwrap_or(0);
        let budget = lower(lower(self.workers.settings.budget, order.budget), self.time_limit());
        let begin = Begin::new(&order, orchestrator, RunMeta { budget, ..meta });
        let job = Job {
            run_id: run_id.clone(),
            task_id: run_id,
            question: order.question.clone(),
            seed,
            meta: begin.meta.clone(),
        };
        self.launch(begin, job)
    }

    fn time_limit(&self) -> Budget {
        Budget { seconds: Some(self.config.run_seconds), ..Budget::default() }
    }

    fn launch(self: &Arc<Self>, begin: Begin<'_>, job: Job) -> Result<Arc<LiveRun>, Refusal> {
        let Begin { order, orchestrator, meta, trace, decisions, is_abandoned } = begin;
        if self.closing.is_cancelled() {
            let fact = "the server is closing";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", fact).retry_after(5));
        }
        let grant = self.keys.admit(&order.caller, self.workers.resolved.capacities())?;
        let cancel = grant.cancel().child_token();
        let live = Arc::new(LiveRun::new(&job, order.model.clone(), meta.budget, cancel.clone()));
        if !self.runs.enter(&live, self.config.most_runs) {
            let fact = format!("{} runs are under way, and no more are taken", self.config.most_runs);
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", fact);
            return Err(refusal.code("rate_limit_exceeded").retry_after(1));
        }
        if is_abandoned {
            cancel.cancel();
        }
        let mut settings = self.workers.settings.clone();
        settings.budget = meta.budget;
        settings.shared = grant.shared();
        settings.decisions = decisions;
        let mut backend = self.workers.backend.clone();
        for level in &mut backend.levels {
            if let Some(most) = order.max_tokens {
                level.limit_replies(most);
            }
            level.temperature = order.temperature.or(level.temperature);
        }
        let told = live.clone();
        let on_delta: OnDelta = Arc::new(move |_: &Header, agent: &str, piece: &str| {
            told.push(LiveEvent::Delta { agent: agent.into(), text: piece.into() });
        });
        let heard = live.clone();
        let observer: Observer =
            Arc::new(move |_: &Header, event: &Event| heard.push(LiveEvent::Event(Arc::new(event.clone()))));
        let runner = Runner {
            backend,
            orchestrator,
            language: self.workers.resolved.language.clone(),
            store: Some(self.store.clone()),
            reply_cache: None,
            reply_record: None,
            settings,
            on_delta: Some(on_delta),
        };
        let is_new = trace.is_none();
        let trace = match trace {
            Some(trace) => trace,
            None => match runner.enter(&job) {
                Ok((begun, entered)) => {
                    live.set_entered(entered);
                    begun
                }
                Err(error) => {
                    self.runs.leave(live.id());
                    return Err(Refusal::internal(error));
                }
            },
        };
        trace.events.iter().for_each(|event| live.push(LiveEvent::Event(Arc::new(event.clone()))));
        self.metrics.run_started();
        let (app, entered) = (self.clone(), live.clone());
        let work = async move {
            match is_new {
                true => runner.run_entered(trace, &meta, &cancel, Some(observer)).await,
                false => runner.resume(trace, &meta, &cancel, Some(observer)).await,
            }
        };
        let work = tokio::spawn(work);
        tokio::spawn(async move {
            let end = match work.await {
                Ok(Ok(trace)) => Ok(Arc::new(trace)),
                Ok(Err(error)) => Err(error.to_string().into()),
                Err(error) => Err(format!("the run broke off: {error}").into()),
            };
            if let Some(refusal) = grant.met() {
                entered.set_quota(refusal);
            }
            // Before the client hears of it: its next request finds the account as this run leaves it.
            drop(grant);
            app.ended(&entered, end);
        });
        Ok(live)
    }

    fn ended(&self, live: &LiveRun, end: Result<Arc<Trace>, Arc<str>>) {
        self.metrics.run_ended(&end);
        if let (Ok(trace), Some(exporter)) = (&end, &self.exporter) {
            exporter.send(trace.clone());
        }
        // First: who hears of the end may go on with the run.
        self.runs.leave(live.id());
        live.set_end(end);
    }

    /// Takes up the runs that a server before this one left unfinished. Gives how many, and why others are left as they are.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn take_up(self: &Arc<Self>) -> Result<(usize, Vec<String>), Refusal> {
        let (mut taken, mut left) = (0, Vec::new());
        for run_id in self.store.interrupted()? {
            let meta = self.store.meta(&run_id)?;
            let Some(served) = meta.served.clone() else { continue };
            let trace = self.store.trace(&run_id)?;
            match self.take_up_one(trace, meta, &served, BTreeMap::new()).await {
                Ok(_) => taken += 1,
                Err(refusal) => left.push(format!("the interrupted run {run_id} is left: {}", refusal.fact)),
            }
        }
        Ok((taken, left))
    }

    /// Goes on with a run in which calls of tools wait for a person, as the person decided, by `AGENT/CALL`.
    ///
    /// # Errors
    /// A decision is about no call that waits, or the run is not one that this server goes on with.
    pub async fn decide(
        self: &Arc<Self>,
        trace: Trace,
        meta: RunMeta,
        decisions: BTreeMap<String, bool>,
    ) -> Result<Arc<LiveRun>, Refusal> {
        let conflict = |fact: String| Refusal::new(StatusCode::CONFLICT, "invalid_request_error", fact);
        let (waiting, run_id) = (trace.waiting_calls(), &trace.header.run_id);
        if self.runs.get(run_id).is_some() {
            return Err(conflict(format!("the run {run_id} is under way")));
        }
        if let Some(call) = decisions.keys().find(|call| !waiting.contains(call)) {
            return Err(conflict(format!("no call `{call}` of the run {run_id} waits for a person")));
        }
        if decisions.is_empty() {
            return Err(Refusal::field("decisions", "expected a decision, found none"));
        }
        if meta.started_with != self.workers.meta.started_with {
            let fact = format!("the run {run_id} was started with other models than this server has");
            return Err(
                conflict(fact).hint(format!("`lemon run --resume {run_id} --approve AGENT/CALL` goes on with it"))
            );
        }
        // A page asks, and does not wait for the run.
        let served = ServedRequest { app: true, ..meta.served.clone().unwrap_or_else(by_command) };
        self.take_up_one(trace, meta, &served, decisions).await
    }

    async fn take_up_one(
        self: &Arc<Self>,
        trace: Trace,
        meta: RunMeta,
        served: &ServedRequest,
        decisions: BTreeMap<String, bool>,
    ) -> Result<Arc<LiveRun>, Refusal> {
        let team = match &meta.spec {
            Some(text) => TeamChoice::Text(text.clone()),
            None => self.workers.choice(&served.model)?,
        };
        // A person who decides about a call watches the run in the application.
        let origin = if served.app { Origin::App } else { Origin::Api };
        // The client of a run of the API went with the server before: the run ends as if the client had gone, spends nothing
        // more, and can be resumed by hand.
        let is_abandoned = origin == Origin::Api;
        let caller = match is_abandoned {
            true => Caller::anonymous(),
            false => self.keys.caller_of(served.key.as_deref())?,
        };
        let order = RunOrder {
            team,
            model: served.model.clone(),
            max_tokens: served.max_tokens,
            temperature: served.temperature,
            ..RunOrder::new(trace.header.question.clone(), origin, caller)
        };
        let orchestrator = self.workers.orchestrator(&order.team).await?;
        let Header { run_id, task_id, question, seed, .. } = trace.header.clone();
        let job = Job { run_id, task_id, question, seed, meta: meta.clone() };
        let begin = Begin::new(&order, orchestrator, meta);
        self.launch(Begin { trace: Some(trace), decisions, is_abandoned, ..begin }, job)
    }
}

/// What a run begins with, or goes on with.
struct Begin<'a> {
    order: &'a RunOrder,
    orchestrator: Arc<dyn lemon_exec::Orchestrator>,
    meta: RunMeta,
    trace: Option<Trace>,
    /// What a person said about calls that wait.
    decisions: BTreeMap<String, bool>,
    /// Whether no client is left that would read the answer.
    is_abandoned: bool,
}

/// What a run of a command would have asked of this server.
fn by_command() -> ServedRequest {
    ServedRequest { model: DEFAULT.to_owned(), ..ServedRequest::default() }
}

impl<'o> Begin<'o> {
    fn new(order: &'o RunOrder, orchestrator: Arc<dyn lemon_exec::Orchestrator>, meta: RunMeta) -> Self {
        Begin { order, orchestrator, meta, trace: None, decisions: BTreeMap::new(), is_abandoned: false }
    }
}

/// Of two limits on the same thing the lower one.
fn lower(a: Budget, b: Budget) -> Budget {
    fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b < a { b } else { a }),
            (a, b) => a.or(b),
        }
    }
    Budget {
        tokens: least(a.tokens, b.tokens),
        usd: least(a.usd, b.usd),
        calls: least(a.calls, b.calls),
        seconds: least(a.seconds, b.seconds),
    }
}
