//! Evaluations in the simulated world, on the sample: what a row says is what the trace of its run says.

use lemon_eval::{Evaluator, Method, MethodRun, Row, Work};
use lemon_exec::orchestrator::Fixed;
use lemon_exec::store::{Store, Sync};
use lemon_exec::{Budget, Settings};
use lemon_rollout::{Case, Grader, RolloutEnv};
use lemon_spec::Language;
use lemon_task::{SetName, Source, load};
use lemon_trace::{AgentStatus, EventKind, StopReason, Trace};
use lemon_world::{Preset, World};
use std::collections::BTreeSet;
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// An evaluation with a store of its own.
struct Study {
    work: Arc<Work>,
    evaluator: Arc<Evaluator>,
    store: Arc<Store>,
    _folder: TempDir,
}

fn cases(sets: &[SetName], limit: usize) -> Vec<Case> {
    let items = |set: &SetName| load(&Source::Sample, *set, "test").unwrap().items.into_iter().take(limit);
    sets.iter().flat_map(|set| items(set).map(|item| Case { set: set.as_str().into(), item })).collect()
}

fn rules(names: &[&str]) -> Vec<MethodRun> {
    names.iter().map(|name| MethodRun::by_rule(name.parse::<Method>().unwrap())).collect()
}

impl Study {
    fn new(cases: Vec<Case>, methods: Vec<MethodRun>, seeds: &[u64], budget: Budget, width: usize) -> Study {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(&folder.path().join("lemon.db"), Sync::default()).unwrap());
        let backend = World::new(Preset::Teams, cases.iter().map(|case| &case.item)).backend();
        let settings = Settings { budget, reuse: false, ..Settings::default() };
        let mut env = RolloutEnv::new(backend, Arc::new(Language::default()), settings, Grader::new(None));
        env.store = Some(store.clone());
        let evaluator = Evaluator::new(env, vec![false; 3]);
        let work = Work {
            eval_id: "e-study".to_owned(),
            cases: Arc::new(cases),
            methods,
            seeds: seeds.to_vec(),
            capacity: None,
            width,
        };
        Study { work: Arc::new(work), evaluator: Arc::new(evaluator), store, _folder: folder }
    }

    /// Its rows, by method, seed and item; after this many it is cancelled.
    async fn rows(&self, at_most: usize) -> Vec<Row> {
        let (mut rows, cancel) = (Vec::new(), CancellationToken::new());
        if at_most == 0 {
            cancel.cancel();
        }
        let keep = |row: Row| {
            rows.push(row);
            if rows.len() == at_most {
                cancel.cancel();
            }
        };
        self.evaluator.evaluate(&self.work, &cancel, keep).await.unwrap();
        rows.sort_by_key(|row| (row.method.clone(), row.seed, row.set.clone(), row.item));
        rows
    }

    /// Holds a row against the trace it was made from.
    fn check(&self, row: &Row) {
        let trace = self.store.trace(&row.run_id).unwrap();
        let summary = trace.summary();
        let case = self.work.cases.iter().find(|case| *case.set == *row.set && case.item.position == row.item).unwrap();
        assert_eq!(trace.header.question, case.item.task.question);
        assert_eq!(trace.header.seed, row.seed);
        let graded =
            summary.answer.as_deref().map(|answer| self.evaluator.env.grader.grade(&case.item, answer).unwrap());
        assert_eq!(row.right, graded.as_ref().is_some_and(|graded| graded.right), "{row:?}");
        assert_eq!(row.legacy_right, graded.as_ref().is_some_and(|graded| graded.legacy), "{row:?}");
        assert_eq!(row.answer.as_deref(), graded.as_ref().and_then(|graded| graded.extracted.as_deref()), "{row:?}");
        assert_eq!(row.stop_reason, summary.stop_reason);

        assert_eq!(row.agents.len(), summary.agents.len());
        for (agent, known) in row.agents.iter().zip(&summary.agents) {
            let done = known.status == Some(AgentStatus::Done);
            let answer = known.answer.as_deref().filter(|_| done);
            assert_eq!(agent.right, answer.and_then(|answer| Grader::quick(&case.item, answer)), "{agent:?}");
            assert_eq!((&*agent.id, agent.status, agent.tokens), (&*known.id, known.status, known.tokens()));
        }
        let spent: u64 = trace.events.iter().map(|event| event.spend.tokens()).sum();
        let by_agents: u64 = row.agents.iter().map(|agent| agent.tokens).sum();
        assert_eq!((row.tokens.total, row.tokens.orchestrator, row.tokens.workers), (spent, 0, by_agents), "{row:?}");
        assert!(row.tokens.retried + row.tokens.failed <= spent);
        assert_eq!((row.calls, row.wall_s), (summary.calls, summary.wall_s));
    }
}

fn without_ids(rows: Vec<Row>) -> Vec<Row> {
    rows.into_iter().map(|row| Row { run_id: Default::default(), ..row }).collect()
}

const ALL: usize = usize::MAX;
const SETS: [SetName; 5] = [SetName::Mmlu, SetName::Gsm8k, SetName::Aqua, SetName::MultiArith, SetName::Svamp];

#[tokio::test]
async fn rows_say_what_the_traces_say() {
    let methods = ["vanilla", "sc-cot:3", "chain:3", "star:3", "tree:3", "complete:3", "random:3", "debate"];
    let study = Study::new(cases(&SETS, 8), rules(&methods), &[3, 5], Budget::default(), 16);
    let rows = study.rows(ALL).await;
    rows.iter().for_each(|row| study.check(row));
    let places: BTreeSet<_> = rows.iter().map(|row| (&row.method, row.seed, &row.set, row.item)).collect();
    assert_eq!((rows.len(), places.len()), (8 * 2 * 40, 8 * 2 * 40), "every item once for each method and seed");
    assert!(rows.iter().any(|row| row.right) && rows.iter().any(|row| !row.right));
    assert!(rows.iter().any(|row| row.right != row.legacy_right), "the two rules differ");
    let teams = |method: &str| -> BTreeSet<Vec<usize>> {
        let rows = rows.iter().filter(|row| &*row.method == method);
        rows.map(|row| row.agents.iter().map(|agent| agent.after.len()).collect()).collect()
    };
    assert_eq!(teams("chain:3").len(), 1);
    assert!(teams("random:3").len() > 3, "drawn for each task and seed anew");
}

#[tokio::test]
async fn runs_that_end_early_are_rows_too() {
    let budget = Budget { tokens: Some(700), ..Budget::default() };
    let study = Study::new(cases(&[SetName::Gsm8k], 12), rules(&["chain", "debate"]), &[1], budget, 8);
    let rows = study.rows(ALL).await;
    rows.iter().for_each(|row| study.check(row));
    assert!(rows.iter().all(|row| row.tokens.total <= 700));
    assert!(rows.iter().any(|row| row.stop_reason == Some(StopReason::TokenBudget)));

    // A team that is none: nothing is spent, and the answer is wrong.
    let writer = Fixed { text: "agents: [{id: x, base: genius}]".to_owned(), reviewer: None };
    let file = MethodRun::written_by("file".parse().unwrap(), Arc::new(writer));
    let study = Study::new(cases(&[SetName::Gsm8k], 3), vec![file], &[1], Budget::default(), 8);
    let rows = study.rows(ALL).await;
    assert_eq!(rows.len(), 3);
    for row in rows {
        study.check(&row);
        assert_eq!((row.stop_reason, row.right, row.tokens.total), (Some(StopReason::Rejected), false, 0));
    }
}

/// A method that nothing writes a team for is an error, not an empty team.
#[tokio::test]
async fn a_method_without_a_team_is_named() {
    let study = Study::new(cases(&[SetName::Gsm8k], 1), rules(&["file"]), &[1], Budget::default(), 1);
    let error = study.evaluator.evaluate(&study.work, &CancellationToken::new(), |_| {}).await.unwrap_err();
    assert_eq!(error.to_string(), "`file` writes no team: it has no rule, and no orchestrator was given for it");
}

#[tokio::test]
async fn the_width_changes_nothing() {
    let study = |width| {
        let methods = rules(&["debate", "random:3"]);
        Study::new(cases(&[SetName::Aqua, SetName::Mmlu], 6), methods, &[1, 2], Budget::default(), width)
    };
    let narrow = without_ids(study(1).rows(ALL).await);
    assert_eq!(narrow, without_ids(study(64).rows(ALL).await));
    assert_eq!(narrow, without_ids(study(0).rows(ALL).await), "none at a time is one at a time");
}

/// The trace of a run with its score, which a run does not wait for when it ends.
async fn scored(store: &Store, run: &str) -> Trace {
    for _ in 0..10_000 {
        let trace = store.trace(run).unwrap();
        if trace.events.iter().any(|event| matches!(event.kind, EventKind::Score { .. })) {
            return trace;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{run} was never scored");
}

/// Whatever has ended is handed over again as it was; the rest is run.
#[tokio::test]
async fn what_is_on_record_is_not_run_again() {
    let study = || Study::new(cases(&[SetName::Svamp], 12), rules(&["chain:3", "tree"]), &[1, 2], Budget::default(), 6);
    let expected = study().rows(ALL).await;
    for cancelled_after in [0, 1, 7, 30] {
        let study = study();
        let first = study.rows(cancelled_after).await;
        assert!((cancelled_after..48).contains(&first.len()), "{} of {cancelled_after}", first.len());
        let mut traces = Vec::new();
        for row in &first {
            traces.push(scored(&study.store, &row.run_id).await);
        }
        let all = study.rows(ALL).await;
        assert_eq!(all.len(), 48);
        assert!(first.iter().all(|row| all.contains(row)), "cancelled after {cancelled_after}");
        for trace in traces {
            assert_eq!(study.store.trace(&trace.header.run_id).unwrap(), trace, "nothing was added to it");
        }
        for (row, expected) in all.iter().zip(&expected) {
            assert_eq!((row.right, &row.answer), (expected.right, &expected.answer), "{row:?}");
        }
        let again = study.rows(ALL).await;
        assert_eq!(again, all);
    }
}

/// Methods take turns item by item: whenever an evaluation ends, all have been asked the same questions.
#[tokio::test]
async fn an_evaluation_that_ends_early_leaves_pairs() {
    let methods = ["vanilla", "chain:2", "sc-cot:3"];
    for cancelled_after in 1..=17 {
        let study = Study::new(cases(&[SetName::Svamp], 3), rules(&methods), &[1, 2], Budget::default(), 1);
        let rows = study.rows(cancelled_after).await;
        assert_eq!(rows.len(), cancelled_after);
        let of = |method: &str| -> Vec<(u64, usize)> {
            let mut places: Vec<_> =
                rows.iter().filter(|row| &*row.method == method).map(|row| (row.seed, row.item)).collect();
            places.sort_unstable();
            places
        };
        let whole = cancelled_after / methods.len();
        for method in methods {
            assert_eq!(of(method)[..whole], of("vanilla")[..whole], "{method} after {cancelled_after}");
            assert!(of(method).len() - whole <= 1, "{method} after {cancelled_after}");
        }
    }
}
