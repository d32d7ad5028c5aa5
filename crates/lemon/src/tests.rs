use crate::exec::store::{Store, Sync};
use crate::exec::worker::{AskError, Reply, Request, Usage};
use crate::exec::{Budget, Worker};
use crate::jobs::evaluation::EvalJob;
use crate::jobs::{EvalRequest, Notices};
use crate::rollout::UnknownReason;
use crate::task::{SetName, Source};
use crate::trace::StopReason;
use crate::workers::{Capacity, Config};
use crate::world::Preset;
use crate::{Builder, Error, Lemon, async_trait, cases, cases_of_file};
use futures::StreamExt;
use lemon_sandbox::Containment;
use std::future::pending;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const TEAM: &str =
    "agents: [{id: a, base: solver, capacity: small}, {id: b, base: critic, capacity: small, after: [a]}]";

/// Answers 7, or never.
struct Fake {
    hangs: bool,
}

#[async_trait]
impl Worker for Fake {
    async fn ask(&self, _: &Request) -> Result<Reply, AskError> {
        if self.hangs {
            pending::<()>().await;
        }
        let usage = Usage { tokens_in: 10, tokens_out: 5, counted: true };
        let text = "ANSWER: 7".to_owned();
        Ok(Reply {
            text,
            usage,
            model: None,
            simulated_s: None,
            confidence: None,
            truncated: false,
            tool_calls: Vec::new(),
        })
    }
}

fn fake(hangs: bool) -> Builder {
    Lemon::builder().worker(Arc::new(Fake { hangs }))
}

#[tokio::test]
async fn a_run_streams_its_events_and_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let lemon = fake(false).seed(3).store(folder.path().join("lemon.db")).build().await.unwrap();
    let plan = lemon.validate(TEAM).unwrap();
    let mut run = lemon.start(&plan, "What is 3 and 4?").unwrap();
    let id = run.id().to_owned();
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event);
    }
    let trace = run.finish().await.unwrap();
    assert_eq!(trace.events, events);
    assert_eq!((trace.summary().answer.as_deref(), trace.header.seed), (Some("7"), 3));
    assert_eq!((trace.header.workers.as_str(), &trace.header.run_id), ("own", &id));
    assert_eq!(lemon.store().unwrap().trace(&id).unwrap(), trace);
    // The same call again is asked again: the replies on record may be those of another worker.
    assert_eq!(lemon.run(&plan, "What is 3 and 4?").await.unwrap().summary().calls, 2);
}

#[tokio::test]
async fn a_run_can_be_cancelled() {
    let lemon = fake(true).build().await.unwrap();
    let plan = lemon.validate(TEAM).unwrap();
    let mut run = lemon.start(&plan, "What is 3 and 4?").unwrap();
    assert!(run.next_event().await.is_some());
    run.cancel();
    assert_eq!(run.finish().await.unwrap().summary().stop_reason, Some(StopReason::Cancelled));
}

#[tokio::test]
async fn a_budget_holds() {
    let check = |budget: Budget, expected: StopReason| async move {
        let lemon = fake(false).budget(budget).build().await.unwrap();
        let trace = lemon.run(&lemon.validate(TEAM).unwrap(), "What is 3 and 4?").await.unwrap();
        assert_eq!(trace.summary().stop_reason, Some(expected), "{budget:?}");
    };
    check(Budget { tokens: Some(20), ..Budget::default() }, StopReason::TokenBudget).await;
    check(Budget { calls: Some(1), ..Budget::default() }, StopReason::CallBudget).await;
    check(Budget::default(), StopReason::Answered).await;
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_with_a_hint() {
    let capacity = Capacity::new("http://127.0.0.1:9/v1", "m", Some("LEMON_TEST_KEY_THAT_IS_NOT_SET".to_owned()));
    // The capacity of the same name takes the place of the first.
    let builder = Lemon::builder().endpoint("small", "http://127.0.0.1:9/v1", "m").capacity("small", capacity);
    let error = builder.build().await.err().unwrap();
    assert!(error.to_string().contains("which is not set") && error.hint().unwrap().contains("export"), "{error}");

    let lemon = fake(false).build().await.unwrap();
    assert!(matches!(lemon.validate("agents: []"), Err(Error::Spec(_))));
    assert!(matches!(lemon.method("unheard-of").err(), Some(Error::Method(_))));
    // Its team has to be given.
    assert!(matches!(lemon.method("file").err(), Some(Error::Rollout(_))));
    assert_eq!(lemon.team_method(&lemon.validate(TEAM).unwrap()).unwrap().method.name(), "file");
}

#[test]
fn a_broken_record_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.jsonl");
    let good = r#"{"question": "What is 3 and 4?", "answer": 7}"#;
    std::fs::write(&path, format!("{good}\n{{}}\n")).unwrap();
    let error = cases_of_file(&path).unwrap_err();
    assert!(error.to_string().contains("1 records cannot be read; the first is tasks.jsonl, line 2"), "{error}");
    std::fs::write(&path, good).unwrap();
    assert_eq!(cases_of_file(&path).unwrap().len(), 1);
}

#[tokio::test]
async fn simulated_workers_know_the_cases_of_a_call() {
    let cases = cases(&Source::Sample, SetName::Gsm8k, "test").unwrap();
    let results = || async {
        let lemon = Lemon::builder().simulated(Preset::Calibrated).seed(1).repeats(2).build().await.unwrap();
        let plan = lemon.validate(TEAM).unwrap();
        let methods = [lemon.method("cot").unwrap(), lemon.team_method(&plan).unwrap()];
        let rows = lemon.evaluate(&methods, &cases[..3]).await.unwrap().rows;
        assert_eq!(rows.len(), 2 * 2 * 3);
        // By method, then seed, then item, however the runs end.
        assert!(rows.is_sorted_by_key(|row| (&*row.method != "cot", row.seed, row.item)));
        let unknown = lemon.run(&plan, "What is 3 and 4?").await.unwrap();
        assert!(matches!(UnknownReason::of(&unknown.summary()), Some(UnknownReason::WorkerFailed(_))));
        rows.into_iter().map(|row| (row.right, row.tokens, row.reward)).collect::<Vec<_>>()
    };
    // The same seed gives the same results.
    assert_eq!(results().await, results().await);
}

#[tokio::test]
async fn of_two_budgets_the_lower_one_counts() {
    let lemon = fake(false).budget_tokens(100).build().await.unwrap();
    let tight = lemon.with_budget(Budget { tokens: Some(50), calls: Some(3), ..Budget::default() }).unwrap();
    assert_eq!((tight.budget().tokens, tight.budget().calls), (Some(50), Some(3)));
    let wide = tight.with_budget(Budget { tokens: Some(500), ..Budget::default() }).unwrap();
    assert_eq!((wide.budget().tokens, wide.budget().calls), (Some(50), Some(3)));
    assert_eq!(lemon.budget().tokens, Some(100), "the first one stays as it is");
    assert!(lemon.with_budget(Budget { usd: Some(1.0), ..Budget::default() }).is_err(), "no capacity has a price");
}

fn eval_request() -> EvalRequest {
    EvalRequest {
        sets: vec!["gsm8k".to_owned()],
        split: "test".to_owned(),
        methods: vec!["cot".to_owned(), "sc-cot:3".to_owned()],
        workers: "sim".to_owned(),
        limit: Some(3),
        seeds: vec![2, 1],
        ..EvalRequest::default()
    }
}

#[test]
fn requests_name_nothing_twice() {
    let error = |request: EvalRequest| request.checked().unwrap_err().to_string();
    assert_eq!(eval_request().checked().unwrap().seeds, [1, 2]);
    assert_eq!(error(EvalRequest { seeds: vec![1, 1], ..eval_request() }), "a seed is given twice");
    let sets = vec!["gsm8k".to_owned(), "svamp".to_owned(), "gsm8k".to_owned()];
    assert_eq!(error(EvalRequest { sets, ..eval_request() }), "set `gsm8k` is given twice");
    assert_eq!(error(EvalRequest { sets: Vec::new(), ..eval_request() }), "there is no task set");
    let methods = vec!["cot".to_owned(), "cot".to_owned()];
    let twice = EvalRequest { methods, ..eval_request() }.methods().unwrap_err();
    assert_eq!((twice.to_string().as_str(), twice.hint()), ("method `cot` is given twice", Some("name it once")));
}

#[tokio::test]
async fn an_evaluation_on_record_comes_to_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lemon.db");
    let cancel = CancellationToken::new();
    let run = async |request: EvalRequest, begin: bool| {
        let store = || Ok(Arc::new(Store::open(&path, Sync::Normal)?));
        let (config, name) = (Config::default(), "e-1".to_owned());
        let job = EvalJob::prepare(&config, request, name, Containment::Isolated, Notices::NONE, &cancel, store).await;
        let job = job.unwrap();
        if begin {
            job.begin().await.unwrap();
        }
        let (work, training) = job.work(None, &cancel).await.unwrap().unwrap();
        let rows = job.run(&work, &cancel, |_| {}).await.unwrap();
        job.evaluation(training, rows)
    };
    let first = run(eval_request().checked().unwrap(), true).await;
    assert_eq!((first.rows.len(), first.set_up.items), (12, 3));
    let request = EvalRequest::on_record(&Store::open_existing(&path).unwrap(), "e-1").unwrap();
    assert_eq!(run(request, false).await, first);
    assert!(EvalRequest::on_record(&Store::open_existing(&path).unwrap(), "e-2").is_err());
}
