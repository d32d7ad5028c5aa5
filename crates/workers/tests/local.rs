//! Models of this process as workers.

#![allow(clippy::unwrap_used)]

use lemon_engine::{Engine, EngineSettings, ThreadPool};
use lemon_exec::OfferedTool;
use lemon_exec::tool::in_plain_text;
use lemon_exec::worker::{AgentPrompt, AskError, ChatMessage, FailedCost, Progress, Request, Usage, Worker};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, ModelConfig, Precision, Tokenizer};
use lemon_trace::FailureKind;
use lemon_workers::{Local, LocalModel, OUT_OF_REACH, PromptForm};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn tokenizer() -> Tokenizer {
    let template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>";
    let specials = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"];
    Tokenizer::train(std::iter::empty(), 260, &specials).unwrap().with_template(template).unwrap()
}

fn config() -> ModelConfig {
    ModelConfig { positions: 128, ..ModelConfig::small(260, 32, 2, 0) }
}

fn settings() -> EngineSettings {
    EngineSettings { threads: Arc::new(ThreadPool::new(1)), cache_tokens: 1_024, width: 2, ..EngineSettings::default() }
}

fn model(settings: EngineSettings) -> LocalModel {
    let engine = Engine::fresh(config(), tokenizer(), 1, settings).unwrap();
    LocalModel::new("tiny".to_owned(), engine, PromptForm::Chat)
}

fn request(text: &str, max_tokens: u64) -> Request {
    Request {
        agent: "solver".into(),
        level: 0,
        capacity: "small".into(),
        messages: vec![ChatMessage::system("be brief"), ChatMessage::user(text)],
        max_tokens,
        temperature: Some(1.0),
        seed: 1,
        schema: None,
        tools: None,
        agent_prompt: None,
        progress: None,
    }
}

/// A model whose template writes a call after an `@`, which weights at random write soon.
fn calling(template: &str) -> LocalModel {
    let tokenizer = tokenizer().with_template(template).unwrap();
    let config = ModelConfig { positions: 3_000, ..config() };
    let settings = EngineSettings { cache_tokens: 8_192, ..settings() };
    LocalModel::new("tiny".to_owned(), Engine::fresh(config, tokenizer, 1, settings).unwrap(), PromptForm::Chat)
}

const CALLS: &str = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\
    {% for c in m.tool_calls or [] %}@{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\
    {% endfor %}<|end|>{% endfor %}<|assistant|>";

fn weigh() -> OfferedTool {
    let schema = json!({"type": "object", "required": ["unit", "grams"], "additionalProperties": false,
        "properties": {"unit": {"enum": ["kg", "g"]}, "grams": {"type": "integer", "minimum": 0, "maximum": 99}}});
    let (name, description) = ("weigh".to_owned(), "weighs".to_owned());
    OfferedTool { name, description, schema, price: 0.0, idempotent: true, read_only: true, approve: false }
}

#[tokio::test]
async fn a_model_calls_tools_in_the_form_of_its_template_and_only_validly() {
    let local = Local::new(vec![calling(CALLS)]);
    assert!(local.calls_tools(0) && !local.calls_tools(1));
    let tools: Arc<[OfferedTool]> = vec![weigh()].into();
    let mut calls = 0;
    for seed in 0..40 {
        let asked = Request { seed, tools: Some(tools.clone()), ..request("?", 300) };
        let Ok(reply) = local.ask(&asked).await else { continue };
        // The tool is told of: its name alone has five tokens here.
        assert!(reply.usage.tokens_in > 150, "{reply:?}");
        assert!(reply.tool_calls.len() <= 1 && (reply.tool_calls.is_empty() || !reply.text.contains('@')), "{reply:?}");
        let [call] = &reply.tool_calls[..] else { continue };
        let arguments = call.object().unwrap();
        assert!(["kg", "g"].contains(&arguments["unit"].as_str().unwrap()), "{call:?}");
        assert!(arguments["grams"].as_u64().is_some_and(|grams| grams < 100), "{call:?}");
        assert_eq!(call.tool, "weigh");
        calls += 1;
        // The result goes back by the template too.
        let mut messages = asked.messages.clone();
        messages.push(ChatMessage::calling(reply.text.clone(), reply.tool_calls.clone()));
        messages.push(ChatMessage::result("", "[ab result of weigh]\n3\n[ab end]"));
        let more = Request { messages, ..asked.clone() };
        match local.ask(&more).await {
            Ok(next) => assert!(next.usage.tokens_in > reply.usage.tokens_in + 40),
            Err(error) => assert!(matches!(error.failure.kind, FailureKind::Empty | FailureKind::Truncated)),
        }
    }
    assert!(calls > 10, "{calls}");
}

#[tokio::test]
async fn a_model_whose_template_has_no_tools_is_told_of_them_in_plain_text() {
    let template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>";
    let local = Local::new(vec![calling(template)]);
    let tools: Arc<[OfferedTool]> = vec![weigh()].into();
    let asked = Request { tools: Some(tools), ..request("?", 20) };
    let plain = local.ask(&in_plain_text(&asked)).await;
    let (Ok(told), Ok(plain)) = (local.ask(&asked).await, plain) else { panic!("this seed has text") };
    // The same prompt, so the same reply.
    assert_eq!(told, plain);
    assert!(told.usage.tokens_in > 400, "{told:?}");
}

/// Weights at random end a reply at a stop string sooner than by themselves.
fn stopping(settings: EngineSettings) -> LocalModel {
    LocalModel { stop: ('a'..='z').map(String::from).collect(), ..model(settings) }
}

#[tokio::test]
async fn a_reply_has_text_usage_and_confidence() {
    let tiny = stopping(settings());
    let local = Local::new(vec![tiny.clone(), tiny]);
    let mut usable = 0;
    for seed in 0..30 {
        let asked = Request { seed, level: seed as usize % 2, ..request("2 + 2?", 100) };
        match local.ask(&asked).await {
            Ok(reply) => {
                // Three special tokens, and a token for each byte.
                assert_eq!(reply.usage.tokens_in, 3 + 8 + 6);
                assert_eq!(reply.model.as_deref(), Some("tiny"));
                assert!(!reply.usage.counted && reply.usage.tokens_out > 0);
                assert!(reply.confidence.is_some_and(|it| it > 0.0 && it < 1.0));
                assert!(!reply.text.contains(|letter: char| letter.is_ascii_lowercase()));
                assert_eq!(local.ask(&asked).await.unwrap(), reply, "the same seed, the same reply");
                usable += 1;
            }
            Err(error) => assert!(matches!(error.failure.kind, FailureKind::Empty | FailureKind::Truncated)),
        }
    }
    assert!(usable > 15, "{usable}");
}

#[tokio::test]
async fn what_chance_has_no_part_in_is_said_again() {
    let local = Local::new(vec![model(settings())]);
    // What was said, and what was read and written for it.
    let ask = async |temperature: f64, seed: u64, words: &str| {
        let asked = Request { temperature: Some(temperature), seed, ..request(words, 40) };
        match local.ask(&asked).await {
            Ok(reply) => (Some(reply.text), FailedCost::Known(reply.usage)),
            Err(error) => (error.partial, error.cost),
        }
    };
    assert_eq!(ask(0.0, 1, "?").await, ask(0.0, 2, "?").await);
    assert_ne!(ask(0.0, 1, "?").await, ask(0.0, 1, "!?").await);
    assert_ne!(ask(1.0, 1, "?").await, ask(1.0, 2, "?").await);
}

async fn check(local: &Local, request: &Request, kind: FailureKind, message: &str) -> AskError {
    let error = local.ask(request).await.unwrap_err();
    assert_eq!((error.failure.kind, error.failure.message.as_str()), (kind, message));
    error
}

#[tokio::test]
async fn what_goes_wrong_is_said() {
    let local = Local::new(vec![model(settings())]);
    let unserved = Request { level: 7, ..request("?", 5) };
    check(&local, &unserved, FailureKind::Refused, "no model serves `small`").await;

    let long = "tiny: the prompt has 141 tokens, and at most 128 can be read and written together; shorten it";
    let error = check(&local, &request(&"x".repeat(130), 5), FailureKind::Refused, long).await;
    assert_eq!((error.cost, error.worth_retrying()), (FailedCost::Nothing, false));
}

#[tokio::test]
async fn a_reply_at_its_limit_is_kept_and_says_so() {
    let local = Local::new(vec![model(settings())]);
    let cut = local.ask(&Request { seed: 3, ..request("?", 5) }).await.unwrap();
    assert_eq!(cut.usage, Usage { tokens_in: 12, tokens_out: 5, counted: false });
    assert!(cut.truncated && !cut.text.is_empty());

    // Prompt and reply reached the 128 tokens that the model reads.
    let full = local.ask(&request("?", 1_000)).await.unwrap();
    assert!(full.truncated && full.usage.tokens_in + full.usage.tokens_out == 128, "{full:?}");
}

#[tokio::test]
async fn the_pieces_of_a_reply_are_its_text() {
    let local = Local::new(vec![model(settings())]);
    for seed in 0..10 {
        let told = Arc::new(Mutex::new(Vec::new()));
        let pieces = told.clone();
        let progress = Some(Progress::new(move |piece| pieces.lock().unwrap().push(piece.to_owned())));
        let asked = Request { seed, progress, ..request("2 + 2?", 40) };
        let Ok(reply) = local.ask(&asked).await else { continue };
        let told = told.lock().unwrap();
        assert_eq!(told.concat(), reply.text);
        assert!(told.len() > 1 || reply.text.len() < 5, "{told:?}");
    }
}

#[tokio::test]
async fn a_full_queue_is_worth_another_try() {
    let local = Local::new(vec![model(EngineSettings { width: 1, queue: 0, ..settings() })]);
    let error = local.ask(&request("?", 5)).await.unwrap_err();
    assert_eq!(error.failure.message, "tiny: the queue is full: 0 requests wait; try again later");
    assert!(error.worth_retrying() && error.cost == FailedCost::Nothing);
    assert_eq!(error.retry_after, Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn a_dropped_call_frees_its_place() {
    let tiny = model(EngineSettings { width: 1, ..settings() });
    let engine = tiny.engine.clone();
    let local = Arc::new(Local::new(vec![tiny]));
    let calls: Vec<_> = (0..20)
        .map(|seed| {
            let local = Arc::clone(&local);
            tokio::spawn(async move { local.ask(&Request { seed, ..request("?", 10_000) }).await.map(|_| ()) })
        })
        .collect();
    tokio::task::yield_now().await;
    calls.iter().for_each(|call| call.abort());
    for call in calls {
        let _ = call.await;
    }
    for _ in 0..20_000 {
        let status = engine.status();
        if (status.running, status.waiting, status.read_tokens) == (0, 0, 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never free: {:?}", engine.status());
}

#[tokio::test]
async fn a_model_may_be_taught_a_form_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let learner = LanguagePolicy::fresh(config(), tokenizer(), 1, DeviceChoice::Cpu, Learning::Nothing).unwrap();
    learner.save(folder.path(), Precision::F32).unwrap();
    let load = || LocalModel::load(folder.path(), settings());
    assert_eq!(load().unwrap().form, PromptForm::Chat);
    let card = folder.path().join("lemon.json");
    std::fs::write(&card, r#"{"prompt":"short"}"#).unwrap();
    let tiny = load().unwrap();
    assert_eq!(tiny.form, PromptForm::Short);
    assert!(tiny.identity().starts_with(&format!("local {} ", tiny.name)));
    let local = Local::new(vec![tiny]);
    let agent_prompt = AgentPrompt { question: "1 + 1?".into(), duty: "solve".into(), ..AgentPrompt::default() };
    let told = Request { agent_prompt: Some(Arc::new(agent_prompt)), ..request("never read", 1) };
    let cost = |result: Result<_, AskError>| match result {
        Ok(reply) => Some(lemon_exec::worker::Reply::clone(&reply).usage.tokens_in),
        Err(AskError { cost: FailedCost::Known(usage), .. }) => Some(usage.tokens_in),
        Err(_) => None,
    };
    let prompt = "task: 1 + 1?\nsolve:\n";
    assert_eq!(cost(local.ask(&told).await), Some(prompt.len() as u64));
    // Without an agent prompt, what was asked last is the question.
    assert_eq!(cost(local.ask(&request("1 + 1?", 1)).await), Some(prompt.len() as u64));
    // Who asks is nothing to it; how the task is worded is, and chance would be.
    let key = |duty: &str, agent: &str, seed: u64, temperature: f64| {
        let (question, duty) = ("The florist had 12 tulips and 3 lilies. How many?".into(), duty.to_owned());
        let agent_prompt =
            Some(Arc::new(AgentPrompt { question, duty, role: agent.to_owned(), ..AgentPrompt::default() }));
        local.cache_key(&Request {
            agent_prompt,
            agent: agent.into(),
            seed,
            temperature: Some(temperature),
            ..told.clone()
        })
    };
    assert!(local.has_cache_keys() && key("solve", "a", 1, 0.0).is_some());
    assert_eq!(key("solve", "a", 1, 0.0), key("work it out", "b", 2, 0.0));
    assert_ne!(key("solve", "a", 1, 0.0), key("give only the answer", "a", 1, 0.0));
    assert_ne!(key("reword it", "a", 1, 0.0), key("reword it", "a", 2, 0.0));
    assert_eq!(key("reword it", "a", 1, 0.0), key("rephrase it", "b", 1, 0.0));
    assert_eq!(key("solve", "a", 1, 1.0), None);
    let name = folder.path().file_name().unwrap().to_string_lossy();
    check(&local, &request("Who?", 5), FailureKind::Refused, &format!("{name}: it solves {OUT_OF_REACH}")).await;

    // The same files as part of the program make the same model.
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap());
    let packed: Vec<(&'static str, &'static [u8])> = files
        .map(|file| (file.file_name().into_string().unwrap().leak(), std::fs::read(file.path()).unwrap().leak()))
        .map(|(name, bytes)| (&*name, &*bytes))
        .collect();
    let packed = LocalModel::load_packed(&name, packed.leak(), settings()).unwrap();
    assert_eq!((packed.form, packed.identity()), (PromptForm::Short, load().unwrap().identity()));

    std::fs::write(&card, r#"{"prompt":"long"}"#).unwrap();
    let message = load().err().unwrap().to_string();
    assert!(message.contains("lemon.json: unknown variant `long`") && message.contains("or \"short\""), "{message}");
}
