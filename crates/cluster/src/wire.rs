//! What coordinator and workers tell each other, as JSON. Unknown fields are refused: another version means something else.

use lemon_exec::orchestrator::{Draft, OrchestratorError, RoundResult, WriteContext};
use lemon_exec::worker::{ChatMessage, Reply};
use lemon_exec::{Budget, BudgetMet, Form, OnParentFailure, Retry, Settings};
use lemon_rollout::Graded;
use lemon_spec::Language;
use lemon_trace::{AgentStatus, Header, LimitKind};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The JSON of a message. Messages are structures and have no maps with keys other than texts, so each can be written. If one
/// could not, it would be empty, and its reader reports that it is not understood.
pub fn written(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

/// The version of this protocol and of the program. A worker makes jobs of its own version only.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/3");
/// The header that says the version of a message.
pub(crate) const VERSION_HEADER: &str = "Lemon-Version";
/// The header that names the object that holds the body of a message, where it is too large for one.
pub(crate) const OBJECT_HEADER: &str = "Lemon-Object";
/// The header that names the job of a result.
pub(crate) const JOB_HEADER: &str = "Lemon-Job";

/// One run to be made. It says everything that its result depends on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// Its name, unique in the project.
    pub id: String,
    /// The coordinator that wants it.
    pub session: String,
    /// The object that says how its environment is made.
    pub env: String,
    pub run_id: String,
    pub task_id: String,
    pub question: String,
    pub seed: u64,
    pub budget: Budget,
    pub withhold: Vec<(String, String)>,
    pub form: Option<Form>,
    /// How the run is carried out.
    pub settings: RunSettings,
    /// The first round.
    pub first: Drafted,
    /// Whether its calls are shared with other runs: then the coordinator is asked for each.
    pub cached: bool,
    /// Whether replies on record answer its calls: then the coordinator is asked for each.
    pub reuse: bool,
    /// Whether its calls count against a budget that the coordinator keeps.
    pub shared: bool,
}

/// The part of [`Settings`] that a job brings along.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunSettings {
    max_parallel: usize,
    max_rounds: u32,
    on_parent_failure: OnParentFailure,
    retry: Retry,
    least_reply_tokens: u64,
    tool_calls: u32,
}

impl From<&Settings> for RunSettings {
    fn from(settings: &Settings) -> Self {
        RunSettings {
            max_parallel: settings.max_parallel,
            max_rounds: settings.max_rounds,
            on_parent_failure: settings.on_parent_failure,
            retry: settings.retry,
            least_reply_tokens: settings.least_reply_tokens,
            tool_calls: settings.tool_calls,
        }
    }
}

impl RunSettings {
    /// Settings within this budget. Replies on record are the coordinator's: nothing is reused here.
    pub fn within(self, budget: Budget) -> Settings {
        let RunSettings { max_parallel, max_rounds, on_parent_failure, retry, least_reply_tokens, tool_calls } = self;
        Settings {
            budget,
            max_parallel,
            max_rounds,
            on_parent_failure,
            retry,
            least_reply_tokens,
            tool_calls,
            reuse: false,
            ..Settings::default()
        }
    }
}

/// A round as an orchestrator wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drafted {
    /// `None`: it writes no such round.
    pub draft: Option<WireDraft>,
    /// The team to run where the drafts give no valid one.
    pub fallback: Option<String>,
    /// Why it could not write.
    pub failure: Option<WireFailure>,
}

/// A draft, as [`Draft`]. A plan travels as the text it was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum WireDraft {
    Text(String),
    Guarded(String),
    Learned { text: String, model: String },
    Ask { level: usize, messages: Vec<ChatMessage>, schema: Option<serde_json::Value> },
}

/// As [`OrchestratorError`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireFailure {
    load: bool,
    model: String,
    reason: String,
}

impl Drafted {
    pub fn of(draft: Result<Option<Draft>, OrchestratorError>, fallback: Option<String>) -> Self {
        match draft {
            Ok(draft) => Drafted { draft: draft.map(WireDraft::of), fallback, failure: None },
            Err(error) => {
                let (load, (model, reason)) = match error {
                    OrchestratorError::Load { model, reason } => (true, (model, reason)),
                    OrchestratorError::Policy { model, reason } => (false, (model, reason)),
                };
                Drafted { draft: None, fallback, failure: Some(WireFailure { load, model, reason }) }
            }
        }
    }

    pub fn draft(self) -> Result<Option<Draft>, OrchestratorError> {
        match self.failure {
            None => Ok(self.draft.map(WireDraft::draft)),
            Some(WireFailure { load: true, model, reason }) => Err(OrchestratorError::Load { model, reason }),
            Some(WireFailure { load: false, model, reason }) => Err(OrchestratorError::Policy { model, reason }),
        }
    }
}

impl WireDraft {
    fn of(draft: Draft) -> Self {
        match draft {
            Draft::Text(text) => WireDraft::Text(text),
            Draft::Guarded(text) => WireDraft::Guarded(text),
            Draft::Learned { text, model } => WireDraft::Learned { text, model },
            Draft::Plan { plan, model: None } => WireDraft::Text(plan.source().to_owned()),
            Draft::Plan { plan, model: Some(model) } => WireDraft::Learned { text: plan.source().to_owned(), model },
            Draft::Ask { level, messages, schema } => {
                WireDraft::Ask { level, messages, schema: schema.map(|schema| (*schema).clone()) }
            }
        }
    }

    fn draft(self) -> Draft {
        match self {
            WireDraft::Text(text) => Draft::Text(text),
            WireDraft::Guarded(text) => Draft::Guarded(text),
            WireDraft::Learned { text, model } => Draft::Learned { text, model },
            WireDraft::Ask { level, messages, schema } => Draft::Ask { level, messages, schema: schema.map(Arc::new) },
        }
    }
}

/// What an orchestrator is told, without the question and the language: the coordinator has those.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireContext {
    round: u32,
    results: Vec<WireResult>,
    form: Form,
    tokens_left: Option<u64>,
    seed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireResult {
    agent: String,
    role: String,
    status: AgentStatus,
    reply: Option<String>,
    sure: Option<u8>,
}

impl WireContext {
    pub fn of(context: &WriteContext<'_>) -> Self {
        let result = |result: &RoundResult<'_>| WireResult {
            agent: result.agent.to_owned(),
            role: result.role.to_owned(),
            status: result.status,
            reply: result.reply.map(str::to_owned),
            sure: result.sure,
        };
        WireContext {
            round: context.round,
            results: context.results.iter().map(result).collect(),
            form: context.form,
            tokens_left: context.tokens_left,
            seed: context.seed,
        }
    }

    pub fn context<'a>(&'a self, question: &'a str, language: &'a Language) -> WriteContext<'a> {
        let result = |result: &'a WireResult| RoundResult {
            agent: &result.agent,
            role: &result.role,
            status: result.status,
            reply: result.reply.as_deref(),
            sure: result.sure,
        };
        WriteContext {
            question,
            round: self.round,
            results: self.results.iter().map(result).collect(),
            language,
            form: self.form,
            tokens_left: self.tokens_left,
            seed: self.seed,
        }
    }

    /// The agents of the rounds before.
    pub fn earlier(&self) -> Vec<String> {
        self.results.iter().map(|result| result.agent.clone()).collect()
    }
}

/// What a worker asks the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Ask {
    /// The next round of a job.
    Draft { job: String, context: WireContext },
    /// A second try at a round, after this text was refused.
    Repair { job: String, context: WireContext, text: String },
    /// The reply to a call that other runs may have made.
    Recall { job: String, key: String },
    /// The reply to a call that was left to this job, or none.
    Remember { job: String, key: String, reply: Option<ExactReply> },
    /// The reply on record to a call.
    OnRecord { job: String, key: String },
    /// A reply to be put on record.
    Record { job: String, key: String, reply: ExactReply },
    /// An object of the coordinator that the server does not have.
    Lost { object: String },
    /// Part of the budget.
    Lease(LeaseAsk),
}

/// A reply whose numbers arrive bit by bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExactReply {
    reply: Reply,
    simulated_s: Option<u64>,
    confidence: Option<u64>,
}

impl From<Reply> for ExactReply {
    fn from(reply: Reply) -> Self {
        let bits = |number: Option<f64>| number.map(f64::to_bits);
        ExactReply { simulated_s: bits(reply.simulated_s), confidence: bits(reply.confidence), reply }
    }
}

impl From<ExactReply> for Reply {
    fn from(ExactReply { reply, simulated_s, confidence }: ExactReply) -> Self {
        let number = |bits: Option<u64>| bits.map(f64::from_bits);
        Reply { simulated_s: number(simulated_s), confidence: number(confidence), ..reply }
    }
}

/// The account of one worker with a shared budget. All counts only grow, so that a message may be lost or come twice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseAccount {
    pub granted: Amount,
    pub spent: Amount,
    pub returned: Amount,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Amount {
    pub tokens: u64,
    pub usd: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseAsk {
    /// The process that holds the lease.
    pub node: String,
    /// Counts the wishes of this process. The same number means the same wish.
    pub wish: u64,
    /// What it wants, if it wants anything.
    pub wanted: Option<Amount>,
    pub account: LeaseAccount,
}

/// What the coordinator replies.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Answer {
    Drafted(Drafted),
    Reply(ExactReply),
    /// The asker makes the call.
    Yours,
    /// Another makes the call: ask again.
    Wait,
    Done,
    /// The wish of this number is granted.
    Granted {
        wish: u64,
    },
    /// The budget is met.
    Met(Option<WireMet>),
    /// It has no such job: it ended, or belongs to another process.
    Unknown,
    /// The message cannot be understood.
    Refused(String),
}

/// As [`BudgetMet`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireMet {
    limit: LimitKind,
    needed: f64,
    left: f64,
}

impl From<BudgetMet> for WireMet {
    fn from(BudgetMet { limit, needed, left }: BudgetMet) -> Self {
        WireMet { limit, needed, left }
    }
}

impl From<WireMet> for BudgetMet {
    fn from(WireMet { limit, needed, left }: WireMet) -> Self {
        BudgetMet { limit, needed, left }
    }
}

/// The first line of a result; each further line is an event.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DoneHead {
    pub job: String,
    pub header: Header,
    pub events: usize,
    /// How the answer was graded, if it is a program.
    pub graded: Option<Graded>,
    /// The numbers of the events, where text does not carry them.
    pub bits: Option<Vec<u64>>,
}

/// A job that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Letter {
    pub job: String,
    pub session: String,
    pub task_id: String,
    pub run_id: String,
    /// How often it was delivered.
    pub tries: i64,
    /// Why the last try failed.
    pub error: String,
    /// The worker that gave it up.
    pub node: String,
    pub at_ms: u64,
}
