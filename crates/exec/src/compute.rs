//! Running what agents wrote: programs that print an answer, and programs that are compared by examples.

use crate::code::{CodeError, CodeJob, CodeRun, printed_answer, program_in, with_output};
use crate::driver::Run;
use crate::form::Form;
use crate::state::RunState;
use crate::worker::Reply;
use lemon_spec::{AnswerRule, Style};
use lemon_trace::{EventKind, Failure, FailureKind, ORCHESTRATOR, Spend, StopReason};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What the trace calls the run of a program that prints an answer.
pub(crate) const PROGRAM: &str = "program";
/// What the trace calls the run of a program on the examples of the question.
pub(crate) const TEST: &str = "test";

/// What is needed to make an answer of what a program prints.
pub(crate) struct Computation {
    form: Form,
    options: Vec<(char, String)>,
}

impl Computation {
    /// What agent `index` needs; `None`: its reply is no program to be run.
    pub fn of(state: &RunState, index: usize) -> Option<Computation> {
        let computes = state.style(index) == Some(Style::Program);
        computes.then(|| Computation { form: state.form(), options: state.options().to_vec() })
    }
}

impl Run<'_> {
    /// Runs the program in a reply and adds what it printed to the reply. `spend` is what the call cost, in case the run ends
    /// before the program does.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn compute(
        &self,
        agent: &str,
        reply: &mut Reply,
        spend: Spend,
        computation: &Computation,
    ) -> Result<(), Failure> {
        let no_answer =
            |fact: &str| Failure { kind: FailureKind::Program, message: format!("its program gave no answer: {fact}") };
        let Some(code) = program_in(&reply.text) else {
            let fact = "there is no program in the reply";
            reply.text = with_output(&reply.text, None, &Err(fact.to_owned()));
            return Err(no_answer(fact));
        };
        self.unrecorded().insert(agent.to_owned(), spend);
        let call = EventKind::ToolCall { tool: PROGRAM.to_owned(), input: json!({ "code": code }), call: None };
        self.recorder.note(agent, call, Spend::default());
        let ran = self.run_code(&CodeJob::Script { code }).await;
        self.unrecorded().remove(agent);
        let (ok, output) = match &ran {
            Ok(run) => (run.ok, json!({ "printed": run.printed, "error": run.error })),
            Err(error) => (false, json!({ "error": error.message })),
        };
        let result = EventKind::ToolResult { tool: PROGRAM.to_owned(), output, ok, call: None };
        self.recorder.note(agent, result, Spend::default());
        let run = match ran {
            Ok(run) => run,
            Err(CodeError { kind, message }) => return Err(Failure { kind, message }),
        };
        let answer = printed_answer(&run, computation.form, &computation.options);
        reply.text = with_output(&reply.text, Some(&run), &answer);
        answer.map(drop).map_err(|fact| no_answer(&fact))
    }

    /// Runs the programs that the last round compares by the examples of the question. What was run before is not run again.
    pub(crate) async fn test_programs(
        &self,
        state: &mut RunState,
        cancel: &CancellationToken,
        halt: Option<StopReason>,
    ) -> Option<StopReason> {
        if matches!(halt, Some(StopReason::Cancelled | StopReason::TimeBudget)) {
            return halt;
        }
        let Some(jobs) = state.untested() else {
            if state.compares_programs() {
                let output =
                    json!({ "error": "the question has no examples: the plain or the first program is taken" });
                let result = EventKind::ToolResult { tool: TEST.to_owned(), output, ok: false, call: None };
                self.recorder.note(ORCHESTRATOR, result, Spend::default());
            }
            return halt;
        };
        for (index, job) in jobs {
            let (Some(examples), Some(agent)) = (state.examples(), state.members().get(index)) else { continue };
            let (agent, of) = (agent.agent.id.clone(), examples.count());
            let call = EventKind::ToolCall { tool: TEST.to_owned(), input: json!({ "examples": of }), call: None };
            self.recorder.note(&agent, call, Spend::default());
            let ran = match self.interruptible(cancel, self.run_code(&job)).await {
                Ok(ran) => ran,
                Err(reason) => return Some(reason),
            };
            let (ok, output) = match &ran {
                Ok(run) => {
                    let passed = examples.passed(run);
                    state.enter_test(index, passed);
                    (run.ok, json!({ "passed": passed, "of": of, "error": run.error }))
                }
                Err(error) => (false, json!({ "error": error.message })),
            };
            let result = EventKind::ToolResult { tool: TEST.to_owned(), output, ok, call: None };
            self.recorder.note(&agent, result, Spend::default());
        }
        halt
    }

    async fn run_code(&self, job: &CodeJob) -> Result<CodeRun, CodeError> {
        match &self.runner.backend.code {
            Some(code) => code.run(job).await,
            None => Err(CodeError { kind: FailureKind::Unreachable, message: "no code is run here".to_owned() }),
        }
    }
}

/// How many examples a program passed, by the trace.
pub(crate) fn tested(output: &Value) -> Option<usize> {
    usize::try_from(output.get("passed")?.as_u64()?).ok()
}

impl RunState {
    /// Whether the last round names the rule that compares programs.
    fn compares_programs(&self) -> bool {
        self.answer_rule() == Some(AnswerRule::Test) && self.form() == Form::Code
    }
}
