//! What each tool of the server does, through the library `lemon`.

use super::budget::TotalBudget;
use super::tools::{self, GetRun, ListRuns, MOST_CASES, MOST_RUNS, ProfileTeam, RunTeam, ValidateTeam};
use lemon::Lemon;
use lemon::RunResult;
use lemon_exec::Budget;
use lemon_exec::store::Store;
use lemon_profile::SpendingLimits;
use lemon_trace::{Event, EventKind, Trace};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use rmcp::{ErrorData as McpError, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The server. Clones share the workers, the store and the budget.
#[derive(Clone)]
pub struct LemonServer {
    lemon: Arc<Lemon>,
    total: Arc<TotalBudget>,
}

/// What a tool returns: JSON, or a message for the model that called it.
type Told = Result<Value, String>;

impl LemonServer {
    pub fn new(lemon: Lemon, total: TotalBudget) -> Self {
        LemonServer { lemon: Arc::new(lemon), total: Arc::new(total) }
    }

    async fn run(&self, arguments: RunTeam, progress: Progress, cancel: &CancellationToken) -> Told {
        let RunTeam { question, spec, budget_tokens, budget_usd, budget_calls, timeout_s } = arguments;
        if question.trim().is_empty() {
            return Err("`question` is empty".to_owned());
        }
        let plan = spec.map(|spec| self.lemon.validate(&spec)).transpose().map_err(told)?;
        let asked = Budget { tokens: budget_tokens, usd: budget_usd, calls: budget_calls, seconds: timeout_s };
        let tighter = self.lemon.with_budget(asked).map_err(told)?;
        let granted = self.total.take(tighter.budget().tokens)?;
        let lemon = tighter.with_budget(Budget { tokens: granted, ..Budget::default() }).map_err(told)?;
        let run = match &plan {
            Some(plan) => lemon.start(plan, &question),
            None => lemon.start_without_team(&question),
        };
        let mut run = run.map_err(told)?;
        let mut seen = 0;
        let mut cancelled = false;
        loop {
            tokio::select! {
                event = run.next_event() => match event {
                    Some(event) => {
                        seen += 1;
                        progress.send(seen, None, describe(&event)).await;
                    }
                    None => break,
                },
                () = cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    run.cancel();
                }
            }
        }
        let trace = run.finish().await.map_err(told)?;
        if !cancelled {
            // Of a cancelled run it is not known what its last calls spent.
            self.total.give_back(granted, trace.summary().tokens.total);
        }
        self.result(&trace, false)
    }

    fn validate(&self, arguments: &ValidateTeam) -> Told {
        let checked = lemon_spec::validate(&arguments.spec, self.lemon.language());
        let diagnostics = match &checked {
            Ok(plan) => plan.warnings(),
            Err(rejection) => rejection.diagnostics.as_slice(),
        };
        let explained = lemon_spec::diagnostic::explain(diagnostics, &arguments.spec, "specification", false);
        Ok(json!({ "valid": checked.is_ok(), "diagnostics": diagnostics, "explained": explained }))
    }

    async fn profile(&self, arguments: ProfileTeam, progress: Progress, cancel: &CancellationToken) -> Told {
        let ProfileTeam { spec, cases, budget_tokens } = arguments;
        if !(1..=MOST_CASES).contains(&cases.len()) {
            return Err(format!("`cases` must have 1 to {MOST_CASES} entries, got {}", cases.len()));
        }
        let plan = self.lemon.validate(&spec).map_err(told)?;
        let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().map_err(told)?;
        for (number, case) in cases.iter().enumerate() {
            let line =
                json!({ "id": format!("case-{}", number + 1), "question": case.question, "answer": case.answer });
            writeln!(file, "{line}").map_err(told)?;
        }
        file.flush().map_err(told)?;
        let cases = lemon::cases_of_file(file.path()).map_err(told)?;
        // All of it is taken: a profile does not say what it spent.
        let granted = self.total.take(Some(budget_tokens))?;
        let limits = SpendingLimits { tokens: granted, usd: None };
        let (sender, mut steps) = mpsc::unbounded_channel();
        let watch = move |done: usize, all: usize| {
            // The receiver lives until the profile ends.
            let _ = sender.send((done, all));
        };
        let profile = self.lemon.profile_with(&plan, &cases, limits, cancel, watch);
        tokio::pin!(profile);
        let profile = loop {
            tokio::select! {
                profile = &mut profile => break profile.map_err(told)?,
                Some((done, all)) = steps.recv() => progress.send(done, Some(all), "runs".to_owned()).await,
            }
        };
        serde_json::to_value(&profile).map_err(told)
    }

    fn list(&self, arguments: &ListRuns) -> Told {
        let limit = arguments.limit.unwrap_or(20).clamp(1, MOST_RUNS);
        let runs = self.store()?.single_runs(limit).map_err(told)?;
        Ok(json!({ "runs": runs }))
    }

    fn get(&self, arguments: &GetRun) -> Told {
        let store = self.store()?;
        let id = store.find_run(&arguments.run).map_err(told)?;
        self.result(&store.trace(&id).map_err(told)?, arguments.replies)
    }

    fn store(&self) -> Result<&Arc<Store>, String> {
        self.lemon.store().ok_or_else(|| "runs are not kept".to_owned())
    }

    fn result(&self, trace: &Trace, replies: bool) -> Told {
        let result = RunResult::new(trace, self.lemon.language(), self.lemon.capacities());
        let result = if replies { result.with_replies(trace) } else { result };
        serde_json::to_value(&result).map_err(told)
    }
}

impl ServerHandler for LemonServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("lemon", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "LEMON runs teams of language-model agents inside a hard budget. Use validate_team before run_team where you \
                 write the specification yourself; leave `spec` out to let the orchestrator write it.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, McpError> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, McpError> {
        let token = context.meta.get_progress_token();
        let progress = Progress { peer: context.peer.clone(), token };
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let told = match &*request.name {
            tools::RUN => match read(arguments) {
                Ok(arguments) => self.run(arguments, progress, &context.ct).await,
                Err(fact) => Err(fact),
            },
            tools::PROFILE => match read(arguments) {
                Ok(arguments) => self.profile(arguments, progress, &context.ct).await,
                Err(fact) => Err(fact),
            },
            tools::VALIDATE => read(arguments).and_then(|arguments| self.validate(&arguments)),
            tools::LIST => read(arguments).and_then(|arguments| self.list(&arguments)),
            tools::GET => read(arguments).and_then(|arguments| self.get(&arguments)),
            other => {
                let fact = format!("unknown tool `{}`", crate::one_line(other));
                return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, fact, None));
            }
        };
        Ok(CallToolResponse::Complete(match told {
            Ok(value) => CallToolResult::structured(value),
            Err(fact) => CallToolResult::error(vec![ContentBlock::text(fact)]),
        }))
    }
}

/// Where the progress of one call goes, if the client wants it.
struct Progress {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
}

impl Progress {
    async fn send(&self, done: usize, all: Option<usize>, message: String) {
        let Some(token) = &self.token else { return };
        let mut note = ProgressNotificationParam::new(token.clone(), done as f64).with_message(message);
        if let Some(all) = all {
            note = note.with_total(all as f64);
        }
        // A client that has gone gets no result either: the call itself finds out.
        let _ = self.peer.notify_progress(note).await;
    }
}

fn describe(event: &Event) -> String {
    let agent = crate::one_line(&event.agent);
    match &event.kind {
        EventKind::Return { .. } => format!("{agent} has replied"),
        EventKind::Spawn { .. } => format!("{agent} is in the team"),
        kind => format!("{agent}: {}", kind.name()),
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, String> {
    serde_json::from_value(arguments).map_err(|error| format!("the arguments cannot be used: {error}"))
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
