//! The bundled orchestrator on questions that it was not taught with: everyday ones of all kinds, written by hand, none of
//! which is made from the templates of its lessons.

use lemon_exec::orchestrator::{Draft, Orchestrator};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, SampleSettings};
use lemon_policy::{LEAST_CONFIDENCE, LanguagePromptEncoder, MOST_TOKENS, Writer};
use lemon_spec::{Language, PLAIN, Shape, validate};
use lemon_task::{SetName, compose};
use std::path::Path;
use std::sync::Arc;

#[derive(serde::Deserialize)]
struct Everyday {
    question: String,
    kind: String,
}

/// As `lemon run` has teams written, but for the guard.
fn writer() -> Writer {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/orchestrator");
    let policy = LanguagePolicy::load(&folder, DeviceChoice::Cpu, Learning::Nothing).unwrap();
    let shape = Shape { agents: 12, ..Shape::default() };
    let encoder = LanguagePromptEncoder::new(
        policy.tokenizer().clone(),
        Arc::new(Language::default()),
        shape,
        policy.config().positions,
    );
    let settings = SampleSettings { temperature: 0.0, top_p: 1.0, most_tokens: MOST_TOKENS };
    Writer::new(Box::new(policy), encoder, settings, "bundled").or_plain_below(LEAST_CONFIDENCE)
}

/// How a file of questions was served.
#[derive(Debug, Default)]
struct Seen {
    questions: usize,
    /// One strong agent without a role or duty of its own.
    neutral: usize,
    /// Of these, plain calls for want of confidence.
    plain: usize,
    /// Of the neutral ones, with the base role of their kind, or plain.
    right: usize,
}

fn draft(writer: &Writer, question: &str) -> Draft {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(writer.draft(&writer.encoder().first(question, 0))).unwrap().unwrap()
}

fn see(questions: &str) -> Seen {
    let questions: Vec<Everyday> = questions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (writer, language) = (writer(), Language::default());
    let texts: Vec<&str> = questions.iter().map(|it| it.question.as_str()).collect();
    writer.write_ahead(&texts).unwrap();
    let mut seen = Seen { questions: questions.len(), ..Seen::default() };
    for Everyday { question, kind } in &questions {
        let text = match draft(&writer, question) {
            Draft::Learned { text, .. } | Draft::Guarded(text) => text,
            Draft::Text(_) | Draft::Ask { .. } => panic!("the policy wrote nothing"),
        };
        let plan = validate(&text, &language).unwrap();
        let agent = &plan.spec().agents[0];
        let is_neutral = plan.agents().len() == 1 && agent.role.is_none() && agent.duty.is_none();
        if !is_neutral || agent.capacity != "large" {
            println!("{kind}: {question}\n{text}");
            continue;
        }
        seen.neutral += 1;
        seen.plain += usize::from(agent.base == PLAIN);
        let wanted = if kind == "code" { "programmer" } else { "solver" };
        seen.right += usize::from(agent.base == wanted || agent.base == PLAIN);
    }
    println!("{seen:?}");
    seen
}

/// The confidence below which it gives up was chosen on these.
#[test]
fn everyday_questions_get_one_neutral_agent() {
    let seen = see(include_str!("everyday.jsonl"));
    assert!(seen.questions == 150 && seen.neutral >= 148 && seen.plain <= 30 && seen.right >= 100, "{seen:?}");
}

/// Nothing was chosen on these.
#[test]
fn held_out_questions_get_one_neutral_agent() {
    let seen = see(include_str!("held_out.jsonl"));
    assert!(seen.questions == 120 && seen.neutral >= 114 && seen.plain <= 30 && seen.right >= 80, "{seen:?}");
}

/// What it was taught teams for, it is sure of.
#[test]
fn tasks_of_the_taught_kinds_keep_their_teams() {
    let (writer, mut plain, mut all) = (writer(), 0, 0);
    for set in SetName::PUBLIC {
        let items = compose(set, 40, 99);
        let texts: Vec<&str> = items.iter().map(|item| item.task.question.as_str()).collect();
        writer.write_ahead(&texts).unwrap();
        let doubts = |text: &&&str| matches!(draft(&writer, text), Draft::Guarded(_));
        let doubted = texts.iter().filter(doubts).count();
        println!("{set}: {doubted} of {}", texts.len());
        (plain, all) = (plain + doubted, all + texts.len());
    }
    assert!(all == 280 && plain <= 14, "{plain} of {all}");
}
