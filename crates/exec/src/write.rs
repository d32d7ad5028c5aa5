//! Having a round written: draft, check, one repair, a fallback, all on record.

use crate::call::CallEnd;
use crate::driver::{Run, stop_reason};
use crate::form::Form;
use crate::orchestrator::{Draft, OrchestratorError, Refused, RoundResult, WriteContext, percent, specification_in};
use crate::state::{Member, RunState, Standing};
use crate::store::StoreError;
use lemon_num::hashed_seed;
use lemon_spec::{Language, Plan, Rejection, mend, validate_round};
use lemon_trace::{EventKind, Failure, FailureKind, ORCHESTRATOR, Spend, StopReason};
use std::sync::Arc;

impl Run<'_> {
    /// Has the next round written, checked, repaired once, or replaced.
    pub(crate) async fn write_round(&self, state: &RunState) -> Result<Written, StoreError> {
        let context = self.write_context(state);
        let draft = match self.runner.orchestrator.draft(&context).await {
            Ok(Some(draft)) => draft,
            Ok(None) => return Ok(Written::Nothing),
            Err(error) => return self.orchestrator_failed(&error, context.round).await,
        };
        let name = match draft {
            Draft::Text(_) | Draft::Plan { model: None, .. } => "fixed",
            Draft::Guarded(_) => "guard",
            Draft::Learned { .. } | Draft::Plan { model: Some(_), .. } => "policy",
            Draft::Ask { .. } => "prompted",
        };
        let refused = match self.try_draft(draft, name, &context, state).await? {
            Tried::Plan(plan) => return Ok(Written::Plan(plan)),
            Tried::Halt(reason) => return Ok(Written::Halt(reason)),
            Tried::Refused(rejection) => Some(rejection),
            Tried::NoText => None,
        };
        let repair = match &refused {
            None => Ok(None),
            Some(rejection) => {
                let refused = Refused { text: &rejection.source, diagnostics: &rejection.diagnostics };
                self.runner.orchestrator.repair(&context, &refused).await
            }
        };
        let repair = match repair {
            Ok(repair) => repair,
            Err(error) => return self.orchestrator_failed(&error, context.round).await,
        };
        if let Some(draft) = repair {
            match self.try_draft(draft, "repair", &context, state).await? {
                Tried::Plan(plan) => return Ok(Written::Plan(plan)),
                Tried::Halt(reason) => return Ok(Written::Halt(reason)),
                Tried::Refused(_) | Tried::NoText => {}
            }
        }
        let Some(text) = self.runner.orchestrator.fallback(&context) else { return Ok(Written::Nothing) };
        match self.try_draft(Draft::Text(text), "fallback", &context, state).await? {
            Tried::Plan(plan) => Ok(Written::Plan(plan)),
            Tried::Halt(reason) => Ok(Written::Halt(reason)),
            Tried::Refused(_) | Tried::NoText => Ok(Written::Nothing),
        }
    }

    /// Puts on record why the orchestrator could not write; the run ends with that.
    async fn orchestrator_failed(&self, error: &OrchestratorError, round: u32) -> Result<Written, StoreError> {
        let failure = Failure { kind: FailureKind::Orchestrator, message: error.to_string() };
        let kind = EventKind::Rejection { round, diagnostics: Vec::new(), failure: Some(failure) };
        self.recorder.record(ORCHESTRATOR, kind, Spend::default()).wait().await?;
        Ok(Written::Halt(StopReason::OrchestratorFailed))
    }

    /// Gets a text, by asking if need be, and checks it. The decision is durable before an agent acts on it.
    async fn try_draft(
        &self,
        draft: Draft,
        by: &str,
        context: &WriteContext<'_>,
        state: &RunState,
    ) -> Result<Tried, StoreError> {
        let round = context.round;
        // A file is its author's word: a misspelt name in it is reported. What a model wrote is mended.
        let may_mend = matches!(draft, Draft::Ask { .. });
        let planned = match &draft {
            Draft::Plan { plan, .. } => Some(plan.clone()),
            _ => None,
        };
        let (text, model, spend) = match draft {
            Draft::Plan { plan, model } => (plan.source().to_owned(), model, Spend::default()),
            Draft::Text(text) | Draft::Guarded(text) => (text, None, Spend::default()),
            Draft::Learned { text, model } => (text, Some(model), Spend::default()),
            Draft::Ask { level, messages, schema } => {
                let mut request = self.request(ORCHESTRATOR, level, messages, &format!("{by} {round}"), schema);
                // The likeliest team, unless a temperature is configured: a drawn one is seldom better and often not valid.
                request.temperature = request.temperature.or(Some(0.0));
                match self.call(request, &format!("write round {round}")).await? {
                    CallEnd::Replied { reply, spend, .. } => {
                        (specification_in(&reply.text).to_owned(), reply.model, spend)
                    }
                    CallEnd::Failed { error, spend, .. } => {
                        let kind =
                            EventKind::Rejection { round, diagnostics: Vec::new(), failure: Some(error.failure) };
                        self.recorder.record(ORCHESTRATOR, kind, spend).wait().await?;
                        return Ok(Tried::NoText);
                    }
                    CallEnd::Refused { limit, needed, left, .. } => {
                        self.recorder.note(ORCHESTRATOR, EventKind::Budget { limit, needed, left }, Spend::default());
                        return Ok(Tried::Halt(stop_reason(limit)));
                    }
                }
            }
        };
        let checked = self.checked(&text, planned, may_mend, context, state);
        let run = checked.as_ref().map_or(&text, |plan| &plan.text);
        let amended = (*run != text).then(|| text.clone());
        let by = if checked.as_ref().is_ok_and(|plan| plan.by_guard) { "guard" } else { by };
        let kind = EventKind::Decision { round, by: by.to_owned(), model, text: run.clone(), written: amended };
        self.recorder.record(ORCHESTRATOR, kind, spend).wait().await?;
        match checked {
            Ok(checked) => Ok(Tried::Plan(Box::new(checked.plan))),
            Err(rejection) => {
                let diagnostics = rejection.diagnostics.clone();
                let kind = EventKind::Rejection { round, diagnostics, failure: None };
                self.recorder.note(ORCHESTRATOR, kind, Spend::default());
                Ok(Tried::Refused(rejection))
            }
        }
    }

    /// The plan of a text, or the team that the orchestrator puts in its place. A text is validated here and nowhere else,
    /// unless it comes as a plan. Misspelt names are mended where that is allowed.
    fn checked(
        &self,
        text: &str,
        planned: Option<Arc<Plan>>,
        may_mend: bool,
        context: &WriteContext<'_>,
        state: &RunState,
    ) -> Result<Checked, Rejection> {
        let (language, earlier) = (&self.runner.language, state.ids());
        let plan = match planned.filter(|plan| plan.is_for(language, &earlier)) {
            Some(plan) => Arc::unwrap_or_clone(plan),
            None => match validate_round(text, language, &earlier) {
                Err(rejection) if may_mend => mend(&rejection, language, &earlier).ok_or(rejection),
                checked => checked,
            }?,
        };
        let Some(other) = self.runner.orchestrator.amend(context, &plan) else {
            return Ok(Checked { text: plan.source().to_owned(), plan, by_guard: false });
        };
        match validate_round(&other, language, &earlier) {
            Ok(plan) => Ok(Checked { text: plan.source().to_owned(), plan, by_guard: true }),
            Err(rejection) => {
                // A defect of the orchestrator, put on record; the drafted team is valid and runs.
                let message = format!("the team in place of the drafted one is not valid: {rejection}");
                let failure = Failure { kind: FailureKind::Orchestrator, message };
                let diagnostics = rejection.diagnostics;
                let kind = EventKind::Rejection { round: context.round, diagnostics, failure: Some(failure) };
                self.recorder.note(ORCHESTRATOR, kind, Spend::default());
                Ok(Checked { text: plan.source().to_owned(), plan, by_guard: false })
            }
        }
    }

    /// Puts on record that a draft was abandoned: its end is never seen.
    pub(crate) fn abandon_writing(&self, reason: StopReason, round: u32) {
        let message = match reason {
            StopReason::TimeBudget => "the time was up while the team was being written",
            _ => "the run was cancelled while the team was being written",
        };
        let failure = Failure { kind: FailureKind::Cancelled, message: message.into() };
        let kind = EventKind::Rejection { round, diagnostics: Vec::new(), failure: Some(failure) };
        let spend = self.forfeit(ORCHESTRATOR);
        self.recorder.note(ORCHESTRATOR, kind, spend);
    }

    fn write_context<'s>(&'s self, state: &'s RunState) -> WriteContext<'s> {
        let result = |member: &'s Member| match &member.standing {
            Standing::Ended(outcome) => Some(RoundResult {
                agent: &member.agent.id,
                role: &member.agent.role,
                status: outcome.status,
                reply: outcome.reply.as_deref(),
                sure: outcome.confidence.map(percent),
            }),
            Standing::Waiting | Standing::Running => None,
        };
        WriteContext {
            question: state.question(),
            round: state.round() + 1,
            results: state.members().iter().filter_map(result).collect(),
            language: &self.runner.language,
            form: state.form(),
            tokens_left: self.ledger().tokens_left(),
            seed: writing_seed(self.recorder.header().seed, state.round() + 1),
        }
    }
}

/// The seed of whatever is drawn in writing a round of the run with this seed.
fn writing_seed(run_seed: u64, round: u32) -> u64 {
    hashed_seed(run_seed, &[ORCHESTRATOR, "write", &round.to_string()])
}

impl<'a> WriteContext<'a> {
    /// What an orchestrator is told of the first round of a run that has spent nothing yet.
    pub fn first(question: &'a str, language: &'a Language, tokens: Option<u64>, run_seed: u64) -> Self {
        WriteContext {
            question,
            round: 1,
            results: Vec::new(),
            language,
            form: Form::of(question),
            tokens_left: tokens,
            seed: writing_seed(run_seed, 1),
        }
    }
}

/// What came of having a round written.
pub(crate) enum Written {
    Plan(Box<Plan>),
    /// The orchestrator does not write such a round, or nothing valid came of it.
    Nothing,
    Halt(StopReason),
}

/// A valid team.
struct Checked {
    plan: Plan,
    text: String,
    by_guard: bool,
}

/// What came of one draft.
enum Tried {
    Plan(Box<Plan>),
    Refused(Rejection),
    NoText,
    Halt(StopReason),
}
