//! Agents that write programs: what is run, what counts, what is on record, and what is never done twice.

use crate::common::*;
use async_trait::async_trait;
use lemon_exec::worker::{Recording, Replay, Request};
use lemon_exec::{Budget, CodeError, CodeJob, CodeRun, CodeRunner, Job, Runner, Worker};
use lemon_num::Random;
use lemon_spec::Style;
use lemon_trace::{AgentStatus, EventKind, FailureKind, StopReason, Trace};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Small writes programs, medium reasons, large is as its role says.
const STYLES: [Option<Style>; 3] = [Some(Style::Program), Some(Style::Reasoned), None];
const TEAM: &str = "
agents:
  - {id: a, base: solver, capacity: small}
  - {id: b, base: plain, capacity: small}
  - {id: c, base: solver, capacity: medium}
  - {id: d, base: summariser, capacity: large, after: [a, b]}
answer: {from: [a, b, c], by: vote}
";

/// Prints what stands between `print(` and `)`, fails where the program says `fail`, waits where it says `sleep`.
#[derive(Default)]
struct FakePython {
    ran: Mutex<Vec<String>>,
}

impl FakePython {
    fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }
}

#[async_trait]
impl CodeRunner for FakePython {
    async fn run(&self, job: &CodeJob) -> Result<CodeRun, CodeError> {
        let (CodeJob::Script { code } | CodeJob::Check { code, .. }) = job;
        self.ran.lock().unwrap().push(code.clone());
        if code.contains("sleep") {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }
        if code.contains("broken machine") {
            return Err(CodeError { kind: FailureKind::Unreachable, message: "no sandbox".into() });
        }
        if let CodeJob::Check { .. } = job {
            // The program says itself what it is worth.
            let passed = code.split("worth ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("0");
            let printed = format!("AssertionError: passed {passed}\nin the test");
            return Ok(CodeRun { ok: false, printed, error: None });
        }
        if code.contains("fail") {
            return Ok(CodeRun { ok: false, printed: String::new(), error: Some("NameError: fail".into()) });
        }
        let printed = code.split("print(").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or_default();
        Ok(CodeRun { ok: true, printed: format!("{printed}\n"), error: None })
    }
}

fn with_styles(mut runner: Runner, code: Option<Arc<dyn CodeRunner>>) -> Runner {
    for (level, style) in runner.backend.levels.iter_mut().zip(STYLES) {
        level.style = style;
    }
    runner.backend.code = code;
    runner
}

fn by_agent(replies: &'static [(&'static str, &'static str)]) -> Arc<dyn Worker> {
    Function::new(move |request: &Request| {
        let said = replies.iter().find(|(id, _)| *id == request.agent);
        ten(said.map_or("I do not know.", |(_, reply)| *reply))
    })
}

const REPLIES: &[(&str, &str)] = &[
    ("a", "Here:\n```python\nprint(68.0)\n```"),
    ("b", "```python\nprint(fail)\n```"),
    ("c", "80 * 0.85 = 68\nAnswer: $68"),
    ("d", "Both say so.\nAnswer: 68"),
];

/// Names, replies and what became of them, without times.
fn essence(trace: &Trace) -> Vec<String> {
    let line = |a: &lemon_trace::AgentSummary| {
        format!("{} {:?} {:?} {} {}", a.id, a.status, a.reply, a.tokens_in, a.tokens_out)
    };
    trace.summary().agents.iter().map(line).collect()
}

#[tokio::test]
async fn what_a_program_prints_is_the_answer_of_its_agent() {
    let code = Arc::new(FakePython::default());
    let trace = run(&with_styles(runner(by_agent(REPLIES), TEAM), Some(code.clone()))).await;
    check_end(&trace, StopReason::Answered, Some("$68"));
    assert_eq!(code.ran().len(), 2, "only programs are run");
    let (a, b, d) = (agent(&trace, "a"), agent(&trace, "b"), agent(&trace, "d"));
    assert!(a.reply.as_deref().unwrap().ends_with("The program printed:\n68.0\n\nAnswer: 68.0"));
    // A program that fails casts no vote; its error and its reply are on record.
    assert_eq!(
        (b.status, b.failure.as_ref().map(|it| it.kind)),
        (Some(AgentStatus::Failed), Some(FailureKind::Program))
    );
    assert!(b.failure.unwrap().message.contains("NameError: fail"));
    assert_eq!(d.status, Some(AgentStatus::Done));
    let voters = trace.events.iter().find_map(|event| match &event.kind {
        EventKind::Aggregate { candidates, .. } => {
            Some(candidates.iter().map(|it| it.agent.as_str()).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(voters.unwrap(), ["a", "c"]);
    // An agent that reads them sees the programs and what they printed, or why they printed nothing.
    let read = |from: &str| {
        trace.events.iter().find_map(|event| match &event.kind {
            EventKind::Message { from: sender, content, .. } if sender == from => Some(content.clone()),
            _ => None,
        })
    };
    assert!(read("a").unwrap().contains("print(68.0)") && read("a").unwrap().contains("Answer: 68.0"));
    assert!(read("b").unwrap().contains("The program gave no answer: NameError: fail"));
    let tools = places(&trace, |event| matches!(event.kind, EventKind::ToolCall { .. } | EventKind::ToolResult { .. }));
    assert_eq!(tools.len(), 4);
}

#[tokio::test]
async fn each_style_asks_for_its_own_kind_of_reply() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let worker = Function::new(move |request: &Request| {
        let text = request.messages.iter().map(|message| message.content.clone()).collect::<Vec<_>>().join("\n");
        seen.lock().unwrap().push((request.agent.clone(), text));
        ten("```python\nprint(1)\n```\nAnswer: 1")
    });
    let team = "
agents:
  - {id: plan, base: planner, capacity: small}
  - {id: program, base: solver, capacity: small, after: [plan]}
  - {id: reasoned, base: plain, capacity: medium}
  - {id: brief, base: solver, capacity: large}
answer: {from: [program, reasoned, brief], by: vote}
";
    let code = Arc::new(FakePython::default());
    let mut runner = with_styles(runner(worker, team), Some(code.clone()));
    runner.backend.levels[2].style = Some(Style::Brief);
    run(&runner).await;
    let told = |id: &str| asked.lock().unwrap().iter().find(|(agent, _)| agent == id).unwrap().1.clone();
    assert!(told("plan").contains("numbered plan") && !told("plan").contains("Python"), "a planner plans");
    assert!(told("program").contains("Python program") && !told("program").contains("one step at a time"));
    assert!(told("program").contains("Your duty: Solve the task"), "it reads a plan, and has to know what for");
    assert!(told("reasoned").contains("one step at a time") && told("reasoned").contains("Answer: …"));
    assert!(told("brief").contains("holds the final number and nothing else") && !told("brief").contains("Your duty"));
    assert_eq!(code.ran().len(), 1, "the planner's reply is no program to run");
}

#[tokio::test]
async fn where_no_code_is_run_an_agent_fails_and_says_why() {
    let replies: &[(&str, &str)] = &[("a", "```python\nprint('broken machine')\n```"), ("c", "Answer: 5")];
    for code in [None, Some(Arc::new(FakePython::default()) as Arc<dyn CodeRunner>)] {
        let trace = run(&with_styles(runner(by_agent(replies), TEAM), code)).await;
        let a = agent(&trace, "a");
        // Not the program's fault: the outcome of such a run is unknown, and not wrong.
        assert_eq!(a.failure.map(|failure| failure.kind), Some(FailureKind::Unreachable));
        check_end(&trace, StopReason::Answered, Some("5"));
    }
}

#[tokio::test]
async fn a_replay_runs_no_code_and_is_the_run_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tape.jsonl");
    let code = Arc::new(FakePython::default());
    let recording = Recording::create(&path, "fakes", by_agent(REPLIES)).unwrap().with_code(Some(code.clone()));
    let recording = Arc::new(recording);
    let trace = run(&with_styles(runner(recording.clone(), TEAM), Some(recording))).await;
    let replay = Arc::new(Replay::open(&path).unwrap());
    let again = run(&with_styles(runner(replay.clone(), TEAM), Some(replay))).await;
    assert_eq!(essence(&again), essence(&trace));
    assert_eq!(again.summary().answer, trace.summary().answer);
    assert_eq!(code.ran().len(), 2, "the replay ran nothing");
}

#[tokio::test]
async fn a_resumed_run_runs_no_finished_program_again() {
    let whole = run(&with_styles(runner(by_agent(REPLIES), TEAM), Some(Arc::new(FakePython::default())))).await;
    for cut in 1..whole.events.len() {
        let mut trace = whole.clone();
        trace.events.truncate(cut);
        let done = |id: &str| {
            trace.events.iter().any(|event| {
                event.agent == id && matches!(event.kind, EventKind::Return { status: AgentStatus::Done, .. })
            })
        };
        let finished: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|id| done(id)).collect();
        let (worker, code) = (Function::new(by_id), Arc::new(FakePython::default()));
        let resumed = resume(&with_styles(runner(worker.clone(), TEAM), Some(code.clone())), trace.clone()).await;
        assert_eq!(resumed.summary().answer.as_deref(), Some("$68"), "after {cut} events");
        assert!(finished.iter().all(|id| !worker.asked().iter().any(|asked| asked == id)), "after {cut} events");
        let again = code.ran().iter().any(|program| program.contains("68.0"));
        assert!(!(finished.contains(&"a") && again), "after {cut} events");
    }
}

fn by_id(request: &Request) -> Result<lemon_exec::worker::Reply, lemon_exec::worker::AskError> {
    ten(REPLIES.iter().find(|(id, _)| *id == request.agent).map_or("", |(_, reply)| *reply))
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_while_a_program_runs_has_paid_for_its_call() {
    let replies: &[(&str, &str)] = &[("a", "```python\nsleep()\nprint(1)\n```"), ("c", "Answer: 5")];
    let mut runner = with_styles(runner(by_agent(replies), TEAM), Some(Arc::new(FakePython::default())));
    runner.settings = budget(Budget { seconds: Some(5.0), ..Budget::default() });
    let trace = run(&runner).await;
    let a = agent(&trace, "a");
    assert_eq!((a.status, a.tokens_in, a.tokens_out), (Some(AgentStatus::Cancelled), 10, 10));
    assert_eq!(trace.summary().stop_reason, Some(StopReason::TimeBudget));
}

#[tokio::test]
async fn no_budget_is_overrun_whatever_programs_do() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let limit = random.between(50, 6_000) as u64;
        let replies = ["```python\nprint(3)\n```", "```python\nfail\n```", "no program", "Answer: 7"];
        let draws = Mutex::new(Random::new(seed ^ 99));
        let worker = Function::new(move |request: &Request| {
            let mut draws = draws.lock().unwrap();
            let tokens_out = 1 + draws.next_u64() % request.max_tokens;
            let reply = ten(replies[draws.below(replies.len())]);
            reply.map(|reply| lemon_exec::worker::Reply {
                usage: lemon_exec::worker::Usage { tokens_in: 5, tokens_out, counted: false },
                ..reply
            })
        });
        let mut runner = with_styles(runner(worker, TEAM), Some(Arc::new(FakePython::default())));
        runner.backend.levels[2].style = Some(Style::Brief);
        runner.backend.levels[2].max_tokens = 16;
        runner.settings = budget(Budget { tokens: Some(limit), ..Budget::default() });
        let summary = run(&runner).await.summary();
        assert!(summary.tokens.total <= limit, "seed {seed}: {} of {limit}", summary.tokens.total);
        assert!(summary.stop_reason.is_some());
    }
}

const CODE_TEAM: &str = "
agents:
  - {id: a, base: programmer, capacity: large}
  - {id: b, base: programmer, capacity: large}
  - {id: c, base: programmer, capacity: large}
answer: {from: [a, b, c], by: test}
";
const CODE_QUESTION: &str =
    "def half(x):\n    \"\"\"Half of x.\n    >>> half(4)\n    2\n    >>> half(6)\n    3\n    \"\"\"\n";
const PROGRAMS: &[(&str, &str)] = &[
    ("a", "```python\ndef half(x): return 1  # worth 0 examples\n```"),
    ("b", "```python\ndef half(x): return x / 2  # worth 2 examples\n```"),
    ("c", "```python\ndef half(x): return x // 2  # worth 2 examples\n```"),
];

async fn run_on(question: &str, runner: &Runner) -> Trace {
    let job = Job { question: question.to_owned(), ..job() };
    runner.run(&job, &CancellationToken::new(), None).await.unwrap()
}

fn chosen(trace: &Trace) -> Option<String> {
    trace.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Aggregate { chosen, .. } => chosen.clone(),
        _ => None,
    })
}

#[tokio::test]
async fn programs_are_compared_by_the_examples_of_the_question() {
    let code = Arc::new(FakePython::default());
    let trace = run_on(CODE_QUESTION, &with_styles(runner(by_agent(PROGRAMS), CODE_TEAM), Some(code.clone()))).await;
    assert_eq!(chosen(&trace).as_deref(), Some("b"), "of those that pass most the first");
    assert_eq!(code.ran().len(), 3);
    // Tests that ended are not run again.
    for cut in 1..trace.events.len() {
        let mut part = trace.clone();
        part.events.truncate(cut);
        let tested = places(&part, |event| matches!(event.kind, EventKind::ToolResult { .. })).len();
        let code = Arc::new(FakePython::default());
        let resumed = resume(&with_styles(runner(by_agent(PROGRAMS), CODE_TEAM), Some(code.clone())), part).await;
        assert_eq!((chosen(&resumed).as_deref(), code.ran().len()), (Some("b"), 3 - tested), "after {cut} events");
    }
}

#[tokio::test]
async fn without_examples_or_a_sandbox_the_first_program_is_taken_and_the_trace_says_so() {
    let code = || Some(Arc::new(FakePython::default()) as Arc<dyn CodeRunner>);
    let no_examples = "Write a Python function half(x) that halves x.";
    for (question, code, told) in
        [(no_examples, code(), "the question has no examples"), (CODE_QUESTION, None, "no code is run here")]
    {
        let trace = run_on(question, &with_styles(runner(by_agent(PROGRAMS), CODE_TEAM), code)).await;
        assert_eq!(chosen(&trace).as_deref(), Some("a"), "{question}");
        let said = trace.events.iter().any(|event| match &event.kind {
            EventKind::ToolResult { output, ok: false, .. } => output.to_string().contains(told),
            _ => false,
        });
        assert!(said, "{question}");
    }
    // Elsewhere than on code it is a vote.
    let numbers: &[(&str, &str)] = &[("a", "Answer: 1"), ("b", "Answer: 2"), ("c", "Answer: 2.0")];
    let trace = run_on(QUESTION, &with_styles(runner(by_agent(numbers), CODE_TEAM), code())).await;
    assert_eq!(chosen(&trace).as_deref(), Some("b"));
}

/// Otherwise three programs of one model would be the same program three times.
#[tokio::test]
async fn only_the_first_plain_agent_of_a_capacity_is_asked_for_its_likeliest_reply() {
    const PLAIN_TEAM: &str = "
agents:
  - {id: a, base: plain, capacity: small}
  - {id: b, base: plain, capacity: small}
  - {id: c, base: plain, capacity: medium}
  - {id: d, base: solver, capacity: small}
answer: {from: [a, b, c, d], by: vote}
";
    let asked = Arc::new(Mutex::new(Vec::<(String, Option<f64>)>::new()));
    let seen = asked.clone();
    let worker = Function::new(move |request: &Request| {
        seen.lock().unwrap().push((request.agent.clone(), request.temperature));
        ten("Answer: 68")
    });
    run(&runner(worker, PLAIN_TEAM)).await;
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_by(|a, b| a.0.cmp(&b.0));
    let temperatures: Vec<Option<f64>> = asked.into_iter().map(|(_, temperature)| temperature).collect();
    assert_eq!(temperatures, [Some(0.0), None, Some(0.0), None]);
}

#[tokio::test]
async fn a_style_shortens_answers_alone_and_the_first_of_those_asked_alike_is_not_drawn() {
    type Seen = (String, u64, Option<f64>, String);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let record = seen.clone();
    let worker = Function::new(move |request: &Request| {
        let last = request.messages.last().map(|message| message.content.clone()).unwrap_or_default();
        record.lock().unwrap().push((request.agent.clone(), request.max_tokens, request.temperature, last));
        ten("```python\nprint(1)\n```\nAnswer: 1")
    });
    let team = "
agents:
  - {id: p, base: solver, capacity: small}
  - {id: q, base: solver, capacity: small}
  - {id: r, base: solver, capacity: small, duty: Look twice.}
  - {id: b, base: plain, capacity: medium}
  - {id: o, base: solver, capacity: large}
answer: {from: [p, q, r, b, o], by: vote}
";
    let mut runner = with_styles(runner(worker, team), Some(Arc::new(FakePython::default())));
    let [small, medium, ..] = &mut runner.backend.levels[..] else { panic!("three levels") };
    (small.max_tokens, small.long_tokens) = (70, 900);
    (medium.style, medium.max_tokens, medium.long_tokens) = (Some(Style::Brief), 20, 800);
    let told = |id: &str| seen.lock().unwrap().iter().rev().find(|seen| seen.0 == id).unwrap().clone();

    run_on("What is 3 plus 4? Give the number.", &runner).await;
    assert_eq!((told("p").1, told("p").2), (70, Some(0.0)));
    assert_eq!(told("q").2, None, "the second one asked alike is drawn");
    assert_eq!(told("r").2, Some(0.0), "another duty is another question");
    assert_eq!((told("b").1, told("b").2), (20, Some(0.0)));
    assert_eq!(told("o").2, None, "without a style, as the capacity says");
    assert!(told("p").3.starts_with("Solve this problem with a short Python program"), "{}", told("p").3);
    assert!(told("b").3.starts_with("What is 3 plus 4?") && told("b").3.ends_with("No working."), "{}", told("b").3);

    run_on(CODE_QUESTION, &runner).await;
    assert_eq!(told("p").1, 900, "code is not cut at the length of a program that computes an answer");
    assert_eq!(told("b").1, 800, "code is not cut at the length of a brief answer");

    runner.backend.levels.iter_mut().for_each(|level| level.limit_replies(50));
    for question in ["What is 3 plus 5? Give the number.", CODE_QUESTION] {
        run_on(question, &runner).await;
        assert_eq!((told("p").1, told("b").1, told("o").1), (50, 50, 50), "{question}");
    }
}
