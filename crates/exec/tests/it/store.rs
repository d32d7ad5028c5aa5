//! The store: what is found by which name, who may take a run up, and files that are no store.

use crate::common::*;
use lemon_exec::store::{RunMeta, Store, StoreError, Sync};
use lemon_exec::{Job, Runner};
use lemon_trace::{Event, EventKind, Header, Spend, StopReason, Trace};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const ONE: &str = "agents: [{id: solve, base: solver, capacity: small}]";

fn place() -> (PathBuf, TempDir) {
    let folder = TempDir::new().unwrap();
    (folder.path().join("lemon.db"), folder)
}

fn enter(store: &Store, run_id: &str) {
    enter_with(store, run_id, &RunMeta::default());
}

fn enter_with(store: &Store, run_id: &str, meta: &RunMeta) {
    store.begin_run(&Header { run_id: run_id.into(), ..no_trace().header }, meta).unwrap();
    // No call waits for it by itself; what is entered after it is not there before it.
    store.begin_batch(&format!("after {run_id}"), 1, String::new(), vec![]).wait_blocking().unwrap();
}

fn runner_with(store: &Arc<Store>) -> Runner {
    let mut runner = runner(Function::new(|_| ten("Answer: 68")), ONE);
    runner.store = Some(Arc::clone(store));
    runner
}

#[tokio::test]
async fn a_finished_run_is_listed_with_what_it_came_to() {
    let (store, _folder) = store();
    let trace = run(&runner_with(&store)).await;
    let row = store.runs(9).unwrap().remove(0);
    assert_eq!((row.run_id.as_str(), row.task_id.as_str(), row.question.as_str()), ("run1", "task1", QUESTION));
    assert_eq!((row.stop_reason.as_deref(), row.answer.as_deref(), row.running), (Some("answered"), Some("68"), false));
    assert_eq!((row.tokens, row.agents, row.seed), (Some(20), Some(1), 7));
    assert_eq!(row.cost_usd, Some(trace.summary().usd));
    assert_eq!(store.trace("run1").unwrap(), trace);
}

/// By another process, long after its end, and more than once.
#[tokio::test]
async fn a_finished_run_can_be_annotated() {
    let (path, _folder) = place();
    let mut trace = run(&runner_with(&Arc::new(Store::open(&path, Sync::Normal).unwrap()))).await;
    let events = trace.events.len();
    let score = |right| EventKind::Score { right: Some(right), rewards: Default::default() };
    for right in [false, true] {
        let store = Store::open_existing(&path).unwrap();
        store.annotate(&mut trace, [score(right), score(right)]).wait().await.unwrap();
        assert_eq!(store.trace("run1").unwrap(), trace);
    }
    assert_eq!(trace.events.len(), events + 4);
    let ids: Vec<u32> = trace.events.iter().map(|event| event.id).collect();
    assert_eq!(ids, (1..=ids.len() as u32).collect::<Vec<_>>());
    trace.header.run_id = "absent".into();
    let unknown = Store::open_existing(&path).unwrap().annotate(&mut trace, [score(true)]).wait().await;
    assert!(matches!(unknown, Err(StoreError::NoSuchRun(_))), "{unknown:?}");
}

#[test]
fn runs_are_found_by_unambiguous_names() {
    let (store, _folder) = store();
    assert!(matches!(store.find_run("last"), Err(StoreError::NoSuchRun(_))), "there is none yet");
    ["abc1", "abc2", "xyz", "abc"].iter().for_each(|name| enter(&store, name));
    let find = |name: &str| store.find_run(name).map_err(|error| error.to_string());
    assert_eq!(find("xyz").unwrap(), "xyz");
    assert_eq!(find("x").unwrap(), "xyz");
    assert_eq!(find("abc").unwrap(), "abc", "a whole name wins over the beginning of others");
    assert_eq!(find("abc2").unwrap(), "abc2");
    assert_eq!(find("last").unwrap(), "abc");
    assert_eq!(find("ab").unwrap_err(), "`ab` is the beginning of 3 runs");
    for unknown in ["q", "", "abc12", "%", "_bc", "ab*", "'; DROP TABLE runs; --", "ÄÖ"] {
        assert!(find(unknown).is_err(), "{unknown:?}: {:?}", find(unknown));
    }
    assert!(matches!(store.trace("absent"), Err(StoreError::NoSuchRun(_))));
    assert!(matches!(store.meta("absent"), Err(StoreError::NoSuchRun(_))));
}

#[test]
fn a_run_of_a_living_process_is_refused() {
    let (path, _folder) = place();
    let first = Store::open(&path, Sync::Normal).unwrap();
    let second = Store::open(&path, Sync::Normal).unwrap();
    enter(&first, "run1");
    assert!(first.meta("run1").is_ok(), "its own");
    let refused = second.meta("run1").unwrap_err();
    assert!(
        matches!(&refused, StoreError::Busy { name, process } if name == "run1" && *process == Some(std::process::id())),
        "{refused}"
    );
    assert!(second.runs(1).unwrap()[0].running && first.runs(1).unwrap()[0].running);
    drop(first);
    assert!(second.meta("run1").is_ok(), "its process is gone");
    assert!(!second.runs(1).unwrap()[0].running);
}

#[test]
fn a_run_that_has_ended_may_be_taken_up_by_anyone() {
    let (path, _folder) = place();
    let first = Store::open(&path, Sync::Normal).unwrap();
    let second = Store::open(&path, Sync::Normal).unwrap();
    enter(&first, "run1");
    let kind = EventKind::Stop { reason: StopReason::Answered, answer: None };
    let stop = Event { id: 1, t: 0.5, agent: "orchestrator".into(), kind, spend: Spend::default(), edges: vec![] };
    let trace = Trace { events: vec![stop], ..no_trace() };
    first.finish_run("run1", &trace.summary()).wait_blocking().unwrap();
    assert!(second.meta("run1").is_ok());
}

#[test]
fn looking_leaves_no_lock_files_behind() {
    let (path, folder) = place();
    let locks_in = folder.path().join("lemon.db.lemon-locks");
    let is_lock = |name: std::ffi::OsString| name.to_str().is_some_and(|name| name.starts_with("owner-"));
    let locks = || {
        let entries = std::fs::read_dir(&locks_in).into_iter().flatten();
        entries.filter(|entry| is_lock(entry.as_ref().unwrap().file_name())).count()
    };
    drop(Store::open(&path, Sync::Full).unwrap().runs(9));
    assert_eq!(locks(), 0);
    let store = Store::open(&path, Sync::Full).unwrap();
    enter(&store, "run1");
    assert_eq!(locks(), 1);
    drop(store);
    assert_eq!(locks(), 0, "{:?}", folder.path());
    // One that a process left behind when it died is cleared away.
    std::fs::write(locks_in.join("owner-deadbeef.lock"), "").unwrap();
    let store = Store::open(&path, Sync::Full).unwrap();
    enter(&store, "run2");
    assert_eq!(locks(), 1);
}

#[track_caller]
fn open_error(path: &Path) -> String {
    Store::open(path, Sync::Normal).err().expect("it cannot be opened").to_string()
}

#[test]
fn what_is_no_store_is_an_error_that_names_the_file() {
    let (path, folder) = place();
    assert!(matches!(Store::open_existing(&path), Err(StoreError::Missing(_))));
    std::fs::write(&path, "This is not a database, but it is long enough to be taken for one.".repeat(99)).unwrap();
    let error = open_error(&path);
    assert!(error.contains("lemon.db") && error.contains("not a database"), "{error}");
    let error = open_error(folder.path());
    assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
    let error = open_error(&path.join("below/a/file.db"));
    assert!(error.contains("lemon.db"), "{error}");
}

#[test]
fn a_newer_store_is_left_alone() {
    let (path, _folder) = place();
    drop(Store::open(&path, Sync::Normal).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Store::open(&path, Sync::Normal).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
}

#[test]
fn another_program_s_database_is_left_alone() {
    let (path, _folder) = place();
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    let error = open_error(&path);
    assert!(error.contains("lemon.db"), "{error}");
    let tables: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn a_broken_record_is_an_error_and_no_panic() {
    let (path, _folder) = place();
    let store = Arc::new(Store::open(&path, Sync::Normal).unwrap());
    run(&runner_with(&store)).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE events SET event = '{\"id\": tru'", []).unwrap();
    let error = store.trace("run1").unwrap_err().to_string();
    assert!(error.contains("a record cannot be read"), "{error}");
    connection.execute("UPDATE runs SET header = '', meta = '['", []).unwrap();
    assert!(store.trace("run1").is_err() && store.meta("run1").is_err());
    let rows = store.runs(9).unwrap();
    assert_eq!(rows.len(), 1, "a listing goes on");
    assert!(rows[0].question.starts_with("(the header cannot be read: "), "{}", rows[0].question);
}

#[tokio::test]
async fn a_reply_that_cannot_be_read_is_no_reason_to_pay_for_it_again() {
    let (path, _folder) = place();
    let store = Arc::new(Store::open(&path, Sync::Normal).unwrap());
    let mut runner = runner_with(&store);
    runner.settings.reuse = true;
    run(&runner).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    assert!(connection.execute("UPDATE replies SET reply = '{\"text\": tru'", []).unwrap() > 0);
    let again = Job { run_id: "run2".into(), ..job() };
    let error = runner.run(&again, &CancellationToken::new(), None).await.unwrap_err().to_string();
    assert!(error.contains("a record cannot be read"), "{error}");
}

#[tokio::test]
async fn many_runs_share_a_store() {
    let (store, _folder) = store();
    let runner = runner_with(&store);
    let jobs: Vec<Job> = (0..100).map(|n| Job { run_id: format!("run-{n:03}"), ..job() }).collect();
    let cancel = CancellationToken::new();
    let runs = jobs.iter().map(|job| runner.run(job, &cancel, None));
    for trace in futures::future::join_all(runs).await {
        let trace = trace.unwrap();
        check_end(&trace, StopReason::Answered, Some("68"));
        assert_eq!(store.trace(&trace.header.run_id).unwrap(), trace);
    }
    assert_eq!(store.runs(7).unwrap().len(), 7, "no more than asked for");
}

#[tokio::test]
async fn nothing_goes_on_that_cannot_be_recorded() {
    let (path, _folder) = place();
    let store = Arc::new(Store::open(&path, Sync::Normal).unwrap());
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE events").unwrap();
    let worker = Function::new(|_| ten("Answer: 68"));
    let mut runner = runner(worker.clone(), ONE);
    runner.store = Some(store);
    let error = runner.run(&job(), &CancellationToken::new(), None).await.unwrap_err().to_string();
    assert!(error.contains("the store failed"), "{error}");
    assert!(worker.asked().is_empty(), "no worker was asked");
}

#[test]
fn a_batch_is_kept_in_order() {
    let (store, _folder) = store();
    let tasks: Vec<(String, String)> = (0..5).map(|n| (format!("t{n}"), format!("Question {n}?"))).collect();
    store.begin_batch("batch1", 1, "{}".into(), tasks.clone()).wait_blocking().unwrap();
    let found = store.batch("batch1").unwrap().unwrap();
    let read: Vec<_> = found.tasks.into_iter().map(|task| (task.task_id, task.question)).collect();
    assert_eq!((found.meta.as_str(), read), ("{}", tasks));
    assert_eq!(store.batch("batch2").unwrap(), None);
    let meta = RunMeta { batch: Some(("batch1".into(), 3)), ..RunMeta::default() };
    enter_with(&store, "run1", &meta);
    assert_eq!(store.run_of_task("batch1", 3).unwrap().as_deref(), Some("run1"));
    assert_eq!(store.run_of_task("batch1", 4).unwrap(), None);
}

/// A folder of the user's that happens to be called as lock files once were is not ours to empty.
#[test]
fn a_folder_beside_the_store_is_left_alone() {
    let (path, folder) = place();
    let owners = folder.path().join("lemon.owners");
    std::fs::create_dir(&owners).unwrap();
    std::fs::write(owners.join("list.csv"), "Ann, Ben").unwrap();
    let store = Store::open(&path, Sync::Normal).unwrap();
    enter(&store, "run1");
    drop(store);
    assert_eq!(std::fs::read_to_string(owners.join("list.csv")).unwrap(), "Ann, Ben");
}

/// Many at the same time: one takes the run over, the others are told who has it.
#[test]
fn of_many_that_take_up_a_dead_run_one_succeeds() {
    let (path, _folder) = place();
    for round in 0..20 {
        let run_id = format!("run{round}");
        enter(&Store::open(&path, Sync::Normal).unwrap(), &run_id);
        let stores: Vec<Store> = (0..4).map(|_| Store::open(&path, Sync::Normal).unwrap()).collect();
        let barrier = std::sync::Barrier::new(stores.len());
        let take = |store: &Store| {
            let trace = store.trace(&run_id).unwrap();
            let meta = store.meta(&run_id).unwrap();
            barrier.wait();
            store.take_up(&trace, &meta).unwrap().wait_blocking()
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = stores.iter().map(|store| scope.spawn(move || take(store))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        let told = |error: &StoreError| matches!(error, StoreError::Busy { process: Some(_), .. });
        assert!(results.iter().all(|result| result.as_ref().err().is_none_or(told)), "{results:?}");
    }
}

/// Read by one process, taken up, worked on and given back by another: what was read is no longer so.
#[test]
fn a_run_that_went_on_meanwhile_is_not_taken_up() {
    let (path, _folder) = place();
    let slow = Store::open(&path, Sync::Normal).unwrap();
    enter(&Store::open(&path, Sync::Normal).unwrap(), "run1");
    let read = slow.trace("run1").unwrap();
    let quick = Store::open(&path, Sync::Normal).unwrap();
    quick.take_up(&read, &RunMeta::default()).unwrap().wait_blocking().unwrap();
    let score = EventKind::Score { right: Some(true), rewards: Default::default() };
    quick.annotate(&mut quick.trace("run1").unwrap(), [score]).wait_blocking().unwrap();
    drop(quick);
    let refused = slow.take_up(&read, &RunMeta::default()).unwrap().wait_blocking();
    assert!(matches!(&refused, Err(StoreError::WentOn(run)) if run == "run1"), "{refused:?}");
    let read = slow.trace("run1").unwrap();
    slow.take_up(&read, &RunMeta::default()).unwrap().wait_blocking().unwrap();
}

#[test]
fn a_batch_belongs_to_one_process() {
    let (path, _folder) = place();
    let first = Store::open(&path, Sync::Normal).unwrap();
    let second = Store::open(&path, Sync::Normal).unwrap();
    let claim = |store: &Store| store.claim_batch("b-1").unwrap().wait_blocking();
    claim(&first).unwrap();
    claim(&first).unwrap();
    let refused = claim(&second);
    assert!(matches!(&refused, Err(StoreError::Busy { name, .. }) if name == "b-1"), "{refused:?}");
    drop(first);
    claim(&second).unwrap();
}
