//! A pool of threads that compute one step together.
//!
//! The pool is woken once per step, not once per operation, and its threads wait for each other by spinning. All threads walk
//! through the same phases. The pieces of a phase go to whichever thread takes them, and a phase ends when all its pieces
//! are done, whether or not every thread took part. So a thread that the system has suspended delays the others only while
//! it holds a piece.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that compute the steps of models. Engines may share a pool; they take turns.
pub struct ThreadPool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

/// One step, computed by several threads.
pub(crate) trait ParallelStep: Send + Sync {
    /// What each thread executes. The step ends when the caller's thread and all helpers that joined have returned.
    fn run_on(&self, thread: &WorkerThread<'_>);
}

struct Shared {
    size: usize,
    /// Steps begun so far; helpers watch it.
    started: AtomicU64,
    current: Mutex<Current>,
    posted: Condvar,
    turn: Mutex<Turn>,
    turned: Condvar,
    phases: Vec<Phase>,
    /// Helpers that are inside the step.
    inside: AtomicUsize,
    /// A thread panicked in this step; a piece it held will never be done.
    broken: AtomicBool,
}

#[derive(Default)]
struct Current {
    /// The step that helpers may still join.
    step: Option<Arc<dyn ParallelStep>>,
    closed: bool,
}

/// Numbers for callers, served first come first served. A plain lock may go to the same engine again and again.
#[derive(Default)]
struct Turn {
    next: u64,
    now: u64,
}

impl ThreadPool {
    /// A pool of so many threads, the caller's included; 0: one for each processor. If the system refuses threads, the pool
    /// has the caller's alone.
    pub fn new(threads: usize) -> ThreadPool {
        let size = if threads == 0 { thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let shared = Arc::new(Shared {
            size,
            started: AtomicU64::new(0),
            current: Mutex::default(),
            posted: Condvar::new(),
            turn: Mutex::default(),
            turned: Condvar::new(),
            phases: (0..MAX_PHASES).map(|_| Phase::default()).collect(),
            broken: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
        });
        let spawn = |rank| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("engine {rank}")).spawn(move || shared.help())
        };
        // Results do not depend on the number of threads: a pool that is smaller than asked for loses speed alone.
        let helpers: Vec<_> = (1..size).map_while(|rank| spawn(rank).ok()).collect();
        let pool = ThreadPool { shared, helpers };
        if pool.helpers.len() + 1 < size {
            // Dropping `pool` ends the helpers that were started.
            return ThreadPool::new(1);
        }
        pool
    }

    /// The pool of this process, with one thread for each processor.
    pub fn shared() -> Arc<ThreadPool> {
        static POOL: OnceLock<Arc<ThreadPool>> = OnceLock::new();
        Arc::clone(POOL.get_or_init(|| Arc::new(ThreadPool::new(0))))
    }

    /// Threads, the caller's included.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Computes one step on the caller's thread and all helpers that join in time.
    pub(crate) fn run(&self, step: &Arc<dyn ParallelStep>) {
        let shared = &*self.shared;
        if shared.size == 1 {
            return ThreadPool::run_on_caller(&**step);
        }
        let mut turn = lock(&shared.turn);
        let mine = turn.next;
        turn.next += 1;
        while turn.now != mine {
            turn = shared.turned.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        drop(turn);
        // Ends the turn even if the step panics.
        let _turn = TurnGuard(shared);
        let mut current = lock(&shared.current);
        current.step = Some(Arc::clone(step));
        // Under the lock, so that no helper goes to sleep between checking the counter and waiting for the signal.
        shared.started.fetch_add(1, Ordering::Release);
        drop(current);
        shared.posted.notify_all();
        shared.run(&**step);
        shared.close_step();
        // Where threads work independently, no thread has waited for the missing pieces yet.
        assert!(!shared.broken.load(Ordering::Acquire), "another thread of the pool panicked");
    }

    /// Computes one step on the caller's thread: for steps too small to be worth sharing.
    pub(crate) fn run_on_caller(step: &dyn ParallelStep) {
        step.run_on(&WorkerThread::alone());
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        lock(&self.shared.current).closed = true;
        self.shared.posted.notify_all();
        for helper in self.helpers.drain(..) {
            // Nothing is lost: helpers catch the panics of steps and return no value.
            let _ = helper.join();
        }
    }
}

struct TurnGuard<'a>(&'a Shared);

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.close_step();
        // The caller of this step has seen the failure; the next step may be another engine's.
        self.0.broken.store(false, Ordering::Relaxed);
        // Phases are used in order.
        for phase in self.0.phases.iter().take_while(|phase| phase.taken.load(Ordering::Relaxed) > 0) {
            phase.taken.store(0, Ordering::Relaxed);
            phase.done.store(0, Ordering::Relaxed);
        }
        lock(&self.0.turn).now += 1;
        self.0.turned.notify_all();
    }
}

impl Shared {
    /// What a helper thread does until the pool is dropped.
    fn help(&self) {
        let mut seen = 0;
        while let Some(step) = self.next(&mut seen) {
            let _inside = InsideGuard(self);
            // Nothing is lost: `PanicGuard` has set `broken`, and the caller of the step panics for it.
            let _ = catch_unwind(AssertUnwindSafe(|| self.run(&*step)));
        }
    }

    /// Lets no more helpers in and waits for those inside.
    fn close_step(&self) {
        lock(&self.current).step = None;
        wait_until(|| self.inside.load(Ordering::Acquire) == 0);
    }

    /// The next step that can be joined. It usually follows the last one soon, so the helper spins before it sleeps.
    fn next(&self, seen: &mut u64) -> Option<Arc<dyn ParallelStep>> {
        for _ in 0..SPINS {
            if self.started.load(Ordering::Acquire) != *seen {
                break;
            }
            std::hint::spin_loop();
        }
        let mut current = lock(&self.current);
        loop {
            if current.closed {
                return None;
            }
            // No helper joins a step twice.
            let started = self.started.load(Ordering::Acquire);
            if started != std::mem::replace(seen, started)
                && let Some(step) = &current.step
            {
                self.inside.fetch_add(1, Ordering::AcqRel);
                return Some(Arc::clone(step));
            }
            current = self.posted.wait(current).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self, step: &dyn ParallelStep) {
        let _guard = PanicGuard(&self.broken);
        step.run_on(&WorkerThread { pool: Some(self), phase: Cell::new(0) });
    }
}

/// Counts a helper that is inside a step.
struct InsideGuard<'a>(&'a Shared);

impl Drop for InsideGuard<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Spins until a condition holds; after a while other threads of the system may run in between.
fn wait_until(holds: impl Fn() -> bool) {
    let mut checks = 0usize;
    while !holds() {
        checks += 1;
        if checks < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
    }
}

/// Checks before a spinning thread yields: some tenths of a millisecond.
const SPINS: usize = 20_000;

/// Phases that a step may have.
pub(crate) const MAX_PHASES: usize = 4_096;

/// The progress of a phase, alone on its cache line because all threads write to it.
#[derive(Default)]
#[repr(align(64))]
struct Phase {
    /// Items that were taken; more than there are once all were.
    taken: AtomicUsize,
    done: AtomicUsize,
}

/// Records a panic of its thread.
struct PanicGuard<'a>(&'a AtomicBool);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// A thread on its way through the phases of a step.
pub(crate) struct WorkerThread<'a> {
    /// `None`: the thread computes the step alone.
    pool: Option<&'a Shared>,
    /// The number of the next phase.
    phase: Cell<usize>,
}

impl WorkerThread<'_> {
    /// A thread that computes a step alone.
    pub(crate) fn alone() -> WorkerThread<'static> {
        WorkerThread { pool: None, phase: Cell::new(0) }
    }

    /// Phases it has passed.
    #[cfg(test)]
    pub(crate) fn phases(&self) -> usize {
        self.phase.get()
    }

    /// The next phase of a step: `work` gets ranges that together cover `0..count`, each item once on one of the threads.
    /// When it returns, all items are done on all threads, and what was written for them can be read.
    pub(crate) fn parallel_for(&self, count: usize, mut work: impl FnMut(Range<usize>)) {
        let number = self.phase.replace(self.phase.get() + 1);
        let Some(pool) = self.pool else {
            if count > 0 {
                work(0..count);
            }
            return;
        };
        // Panics if there are too many phases: without shared progress every thread would do all of the work at once.
        let phase = &pool.phases[number];
        // A few ranges for each thread: a thread that comes late leaves the rest to others.
        let length = count.div_ceil(4 * pool.size).max(1);
        loop {
            let start = phase.taken.fetch_add(length, Ordering::Relaxed);
            if start >= count {
                break;
            }
            let end = (start + length).min(count);
            work(start..end);
            phase.done.fetch_add(end - start, Ordering::AcqRel);
        }
        wait_until(|| {
            // Going on without the missing items would read what was never written.
            assert!(!pool.broken.load(Ordering::Acquire), "another thread of the pool panicked");
            phase.done.load(Ordering::Acquire) >= count
        });
    }
}

/// Locks a mutex. If its holder panicked, the numbers that it guards are still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
