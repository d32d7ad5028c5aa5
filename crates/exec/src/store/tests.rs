//! What many hand the writer at once, and what becomes of it when some of it cannot be written.

use super::*;
use tempfile::TempDir;

fn open() -> (Store, TempDir) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(&folder.path().join("lemon.db"), Sync::Normal).unwrap();
    (store, folder)
}

fn enter(store: &Store, run_id: &str) {
    let header = Header {
        version: lemon_trace::VERSION,
        run_id: run_id.into(),
        task_id: "task1".into(),
        question: "Why?".into(),
        started_at_ms: 1,
        seed: 7,
        workers: "test".into(),
    };
    store.begin_run(&header, &RunMeta::default()).unwrap();
    store.append(run_id, Vec::new()).wait_blocking().unwrap();
}

fn event(id: u32) -> Vec<(u32, String)> {
    let stop = serde_json::json!({"id": id, "t": 0.5, "agent": "orchestrator", "type": "stop", "reason": "answered"});
    vec![(id, stop.to_string())]
}

#[test]
fn an_event_is_entered_once_and_its_fault_stays_its_own() {
    let (store, _folder) = open();
    enter(&store, "good");
    enter(&store, "bad");
    store.append("bad", event(1)).wait_blocking().unwrap();
    // Handed over together they are written in one transaction; the one that cannot be must not take others with it.
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for id in 1..=200 {
        good.push(store.append("good", event(id)));
        bad.push(store.append("bad", event(1)));
    }
    assert!(bad.into_iter().all(|durable| durable.wait_blocking().is_err()), "entered twice");
    assert!(good.into_iter().all(|durable| durable.wait_blocking().is_ok()), "fails with another run's event");
    assert_eq!(store.trace("good").unwrap().events.len(), 200);
    assert_eq!(store.trace("bad").unwrap().events.len(), 1);
}

#[test]
fn after_a_gap_nothing_more_of_a_run_is_written() {
    let (store, _folder) = open();
    enter(&store, "run1");
    store.append("run1", event(1)).wait_blocking().unwrap();
    // Nothing waits for this one, which cannot be written; a wait for the next one reports it.
    drop(store.append("run1", event(1)));
    let error = store.append("run1", event(3)).wait_blocking().unwrap_err().to_string();
    assert!(error.contains("UNIQUE"), "the cause, and not its consequence: {error}");
    assert_eq!(store.trace("run1").unwrap().events.len(), 1);
    // Taken up again, it goes on.
    enter(&store, "run1");
    store.append("run1", event(2)).wait_blocking().unwrap();
}

#[test]
fn an_event_of_a_run_that_was_never_entered_is_refused() {
    let (store, _folder) = open();
    let refused = store.append("absent", event(1)).wait_blocking();
    assert!(matches!(refused, Err(StoreError::NoSuchRun(_))), "{refused:?}");
}

#[test]
fn a_run_that_fails_in_company_keeps_its_number() {
    let (store, _folder) = open();
    enter(&store, "bad");
    store.append("bad", event(1)).wait_blocking().unwrap();
    // Beginnings, events and ends of many runs, with a fault among them, in as few transactions as may be.
    let summary = lemon_trace::Trace { header: store.trace("bad").unwrap().header, events: vec![] }.summary();
    let mut waiting = Vec::new();
    for number in 0..50 {
        let run_id = format!("run{number}");
        let header = Header { run_id: run_id.clone(), ..store.trace("bad").unwrap().header };
        store.begin_run(&header, &RunMeta::default()).unwrap();
        drop(store.append("bad", event(1)));
        waiting.push(store.append(&run_id, event(1)));
        waiting.push(store.append(&run_id, event(2)));
        waiting.push(store.finish_run(&run_id, &summary));
    }
    waiting.into_iter().for_each(|durable| durable.wait_blocking().unwrap());
    for number in 0..50 {
        assert_eq!(store.trace(&format!("run{number}")).unwrap().events.len(), 2);
    }
}

#[test]
fn two_handles_write_at_the_same_time() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("lemon.db");
    let write = |name: &'static str| {
        let store = Store::open(&path, Sync::Normal).unwrap();
        std::thread::spawn(move || {
            for number in 0..30 {
                let run_id = format!("{name}{number}");
                enter(&store, &run_id);
                (1..=20).for_each(|id| store.append(&run_id, event(id)).wait_blocking().unwrap());
            }
        })
    };
    let threads = [write("left"), write("right")];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let store = Store::open_existing(&path).unwrap();
    let rows = store.runs(1_000).unwrap();
    assert_eq!(rows.len(), 60);
    assert!(rows.iter().all(|row| store.trace(&row.run_id).unwrap().events.len() == 20));
}
