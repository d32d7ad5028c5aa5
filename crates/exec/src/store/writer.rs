//! The one thread that writes. Whatever waits is committed together.

use super::checkpoint::Checkpointer;
use super::{StoreError, owner};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Operations in one transaction at most, so that the first does not wait for ever.
const MOST_TOGETHER: usize = 4_096;

/// More operations at once than this come from many runs.
const BUSY: usize = 8;
/// How long to gather more of them.
const LINGER: Duration = Duration::from_micros(150);

pub(super) enum Op {
    BeginRun {
        run_id: String,
        started_at_ms: u64,
        owner: String,
        header: String,
        meta: String,
        batch: Option<(String, usize)>,
        /// The store, and the number of the last event the run must have: one that went on meanwhile is not taken over.
        after: Option<(PathBuf, u32)>,
    },
    ClaimBatch {
        batch: String,
        owner: String,
        store: PathBuf,
    },
    Events {
        run_id: String,
        events: Vec<(u32, String)>,
    },
    /// Events of a run that is no longer under way.
    Annotate {
        run_id: String,
        events: Vec<(u32, String)>,
    },
    FinishRun {
        run_id: String,
        stop_reason: Option<String>,
        answer: Option<String>,
        tokens: u64,
        usd: f64,
        wall_s: f64,
        agents: usize,
    },
    Reply {
        key: [u8; 32],
        reply: String,
    },
    BeginBatch {
        batch: String,
        started_at_ms: u64,
        meta: String,
        tasks: Vec<(String, String)>,
    },
}

impl Op {
    /// Its length, more or less.
    fn bytes(&self) -> usize {
        match self {
            Op::Events { events, .. } | Op::Annotate { events, .. } => {
                events.iter().map(|(_, event)| event.len()).sum()
            }
            Op::Reply { reply, .. } => reply.len(),
            Op::BeginRun { header, meta, .. } => header.len() + meta.len(),
            Op::FinishRun { .. } | Op::BeginBatch { .. } | Op::ClaimBatch { .. } => 0,
        }
    }
}

type Ack = Option<oneshot::Sender<Result<(), StoreError>>>;

/// The promise that something written becomes durable. Dropping it only means not to wait.
pub struct Durable(Option<oneshot::Receiver<Result<(), StoreError>>>);

impl Durable {
    /// Nothing to wait for.
    pub fn already() -> Self {
        Durable(None)
    }

    /// Waits until it is durable.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn wait(self) -> Result<(), StoreError> {
        match self.0 {
            None => Ok(()),
            Some(receiver) => receiver.await.unwrap_or_else(|_| Err(gone())),
        }
    }

    /// Waits on a thread that runs no tasks.
    ///
    /// # Errors
    /// It could not be written.
    pub fn wait_blocking(self) -> Result<(), StoreError> {
        match self.0 {
            None => Ok(()),
            Some(receiver) => receiver.blocking_recv().unwrap_or_else(|_| Err(gone())),
        }
    }
}

fn gone() -> StoreError {
    StoreError::Database("it is open for reading only, or the thread that writes has ended".into())
}

pub(super) struct Writer {
    // `Option` only so that drop can close the channel before it joins the thread.
    sender: Option<Sender<(Op, Ack)>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub fn start(connection: Connection, checkpointer: Checkpointer) -> Result<Self, StoreError> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || write_all(connection, &receiver, checkpointer))?;
        Ok(Writer { sender: Some(sender), thread: Some(thread) })
    }

    /// One that writes nothing: every wait returns an error.
    pub fn none() -> Self {
        Writer { sender: None, thread: None }
    }

    pub fn send(&self, op: Op) -> Durable {
        let (ack, receiver) = oneshot::channel();
        self.post(op, Some(ack));
        Durable(Some(receiver))
    }

    /// For what no run waits for by itself: whatever is sent after it is not durable before it.
    pub fn send_and_forget(&self, op: Op) {
        self.post(op, None);
    }

    fn post(&self, op: Op, ack: Ack) {
        // A send fails only when the thread is gone; the dropped `ack` then tells the waiter.
        if let Some(sender) = &self.sender {
            let _ = sender.send((op, ack));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; nothing is left to do for it here.
            let _ = thread.join();
        }
    }
}

fn write_all(mut connection: Connection, receiver: &Receiver<(Op, Ack)>, mut checkpointer: Checkpointer) {
    let mut busy = false;
    let mut numbers = HashMap::new();
    while let Ok((first, ack)) = receiver.recv() {
        if busy {
            // Many runs write at once: a moment's wait saves most of the commits, and no run notices it.
            std::thread::sleep(LINGER);
        }
        let mut ops = vec![first];
        let mut acks = vec![ack];
        while ops.len() < MOST_TOGETHER
            && let Ok((op, ack)) = receiver.try_recv()
        {
            ops.push(op);
            acks.push(ack);
        }
        busy = ops.len() > BUSY;
        let together = commit(&mut connection, &ops, &mut numbers);
        for (op, ack) in ops.iter().zip(acks) {
            // What failed together is tried one by one: the fault of one run is not that of others.
            let result = together.clone().or_else(|_| commit(&mut connection, std::slice::from_ref(op), &mut numbers));
            settle(op, &result, &mut numbers);
            if let Some(ack) = ack {
                // A receiver that was dropped waits for nothing.
                let _ = ack.send(result);
            }
        }
        checkpointer.note(ops.iter().map(Op::bytes).sum());
    }
}

/// The numbers of the runs under way, by their names; or why nothing more of a run is written: its record would have a gap.
type Numbers = HashMap<String, Result<i64, StoreError>>;

fn settle(op: &Op, result: &Result<(), StoreError>, numbers: &mut Numbers) {
    match (op, result) {
        (Op::BeginRun { run_id, .. } | Op::Events { run_id, .. }, Err(error)) => {
            numbers.insert(run_id.clone(), Err(error.clone()));
        }
        (Op::FinishRun { run_id, .. }, Ok(())) => {
            numbers.remove(run_id);
        }
        _ => {}
    }
}

fn commit(connection: &mut Connection, ops: &[Op], numbers: &mut Numbers) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for op in ops {
        write(&transaction, op, numbers)?;
    }
    Ok(transaction.commit()?)
}

fn write(connection: &Connection, op: &Op, numbers: &mut Numbers) -> Result<(), StoreError> {
    match op {
        Op::BeginRun { run_id, started_at_ms, owner, header, meta, batch, after } => {
            if let Some((store, last)) = after {
                check_free(connection, store, owner, run_id, *last)?;
            }
            let (batch, position) = batch.as_ref().map(|(batch, position)| (batch, *position as i64)).unzip();
            let number = connection
                .prepare_cached(
                    "INSERT INTO runs (run_id, started_at_ms, owner, header, meta, batch, position)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                     ON CONFLICT (run_id) DO UPDATE SET owner = ?3, meta = ?5, stop_reason = NULL
                     RETURNING run",
                )?
                .query_row(params![run_id, *started_at_ms as i64, owner, header, meta, batch, position], |row| {
                    row.get(0)
                })?;
            numbers.insert(run_id.clone(), Ok(number));
        }
        Op::ClaimBatch { batch, owner, store } => {
            let held: Option<String> = connection
                .query_row("SELECT owner FROM claims WHERE batch = ?1", [batch], |row| row.get(0))
                .optional()?;
            check_gone(store, owner, batch, held.as_deref())?;
            connection.execute("INSERT OR REPLACE INTO claims (batch, owner) VALUES (?1, ?2)", [batch, owner])?;
        }
        Op::Events { run_id, events } => {
            let number = numbers.get(run_id).cloned().unwrap_or_else(|| Err(StoreError::NoSuchRun(run_id.clone())))?;
            let mut insert = connection.prepare_cached("INSERT INTO events (run, id, event) VALUES (?1, ?2, ?3)")?;
            for (id, event) in events {
                insert.execute(params![number, id, event])?;
            }
        }
        Op::Annotate { run_id, events } => {
            let mut insert = connection
                .prepare_cached("INSERT INTO events (run, id, event) SELECT run, ?2, ?3 FROM runs WHERE run_id = ?1")?;
            for (id, event) in events {
                if insert.execute(params![run_id, id, event])? == 0 {
                    return Err(StoreError::NoSuchRun(run_id.clone()));
                }
            }
        }
        Op::FinishRun { run_id, stop_reason, answer, tokens, usd, wall_s, agents } => {
            connection
                .prepare_cached(
                    "UPDATE runs SET stop_reason = ?2, answer = ?3, tokens = ?4, usd = ?5, wall_s = ?6, agents = ?7
                     WHERE run_id = ?1",
                )?
                .execute(params![run_id, stop_reason, answer, *tokens as i64, usd, wall_s, *agents as i64])?;
        }
        Op::Reply { key, reply } => {
            connection
                .prepare_cached("INSERT OR IGNORE INTO replies (key, reply) VALUES (?1, ?2)")?
                .execute(params![&key[..], reply])?;
        }
        Op::BeginBatch { batch, started_at_ms, meta, tasks } => {
            connection.execute(
                "INSERT INTO batches (batch, started_at_ms, meta) VALUES (?1, ?2, ?3)",
                params![batch, *started_at_ms as i64, meta],
            )?;
            let mut insert = connection
                .prepare_cached("INSERT INTO tasks (batch, position, task_id, question) VALUES (?1, ?2, ?3, ?4)")?;
            for (position, (task_id, question)) in tasks.iter().enumerate() {
                insert.execute(params![batch, position as i64, task_id, question])?;
            }
        }
    }
    Ok(())
}

/// That no other process has a run, or has gone on with it after its event number `last`. In the transaction that takes the run
/// over, nothing can come between this look and the taking.
fn check_free(connection: &Connection, store: &Path, own: &str, run_id: &str, last: u32) -> Result<(), StoreError> {
    let row: Option<(i64, String, Option<String>)> = connection
        .prepare_cached("SELECT run, owner, stop_reason FROM runs WHERE run_id = ?1")?
        .query_row([run_id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((run, owner, stop_reason)) = row else { return Ok(()) };
    if stop_reason.is_none() {
        check_gone(store, own, run_id, Some(&owner))?;
    }
    let newest: Option<u32> =
        connection.prepare_cached("SELECT max(id) FROM events WHERE run = ?1")?.query_row([run], |row| row.get(0))?;
    if newest.unwrap_or(0) != last {
        return Err(StoreError::WentOn(run_id.to_owned()));
    }
    Ok(())
}

/// That the process that held this run or batch is this one, or is gone.
fn check_gone(store: &Path, own: &str, name: &str, holder: Option<&str>) -> Result<(), StoreError> {
    match holder.filter(|holder| *holder != own).and_then(|holder| owner::alive(store, holder)) {
        Some(other) => Err(StoreError::Busy { name: name.to_owned(), process: other.process }),
        None => Ok(()),
    }
}
