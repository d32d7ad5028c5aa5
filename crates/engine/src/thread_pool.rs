//! Threads that work on one step together. They are woken once a step, not once an operation, and wait for each other
//! without sleeping. All walk through the same parts; the pieces of a part go to whoever takes them, and it is over when they
//! are done, whether or not every thread came. So a thread that the system has put aside holds up nobody, unless it has a
//! piece.

// One type here lets several threads write into one buffer; why that is safe stands beside it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that compute the steps of models. Engines may share one, and take turns.
pub struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

/// What a step does.
pub(super) trait Work: Send + Sync {
    /// One thread's share of it. The step is over when the caller's own share is, and those of all threads that came.
    fn share(&self, me: &Member<'_>);
}

struct Shared {
    size: usize,
    /// Steps begun so far; helpers watch it.
    step: AtomicU64,
    order: Mutex<Order>,
    ordered: Condvar,
    turn: Mutex<Turn>,
    turned: Condvar,
    parts: Vec<Part>,
    /// Helpers that are at work.
    inside: AtomicUsize,
    /// A thread panicked in this step, and a piece it had will never be done.
    broken: AtomicBool,
}

#[derive(Default)]
struct Order {
    /// The work of a step that may still be joined.
    work: Option<Arc<dyn Work>>,
    closed: bool,
}

/// Whose turn it is, first come first served: a plain lock may go to the same engine again and again.
#[derive(Default)]
struct Turn {
    next: u64,
    now: u64,
}

impl Crew {
    /// So many threads, of which one is the engine's own; 0: one for each processor.
    pub fn new(threads: usize) -> Crew {
        let size = if threads == 0 { thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let shared = Arc::new(Shared {
            size,
            step: AtomicU64::new(0),
            order: Mutex::default(),
            ordered: Condvar::new(),
            turn: Mutex::default(),
            turned: Condvar::new(),
            parts: (0..MOST_PARTS).map(|_| Part::default()).collect(),
            broken: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
        });
        let help = |rank| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("crew {rank}")).spawn(move || shared.help())
        };
        // A thread that cannot be had is not counted on.
        let helpers: Vec<_> = (1..size).map_while(|rank| help(rank).ok()).collect();
        let crew = Crew { shared, helpers };
        if crew.helpers.len() + 1 < size {
            // Those that came are let go with it.
            return Crew::new(1);
        }
        crew
    }

    /// The crew of this process, with a thread for each processor.
    pub fn shared() -> Arc<Crew> {
        static CREW: OnceLock<Arc<Crew>> = OnceLock::new();
        Arc::clone(CREW.get_or_init(|| Arc::new(Crew::new(0))))
    }

    /// Threads, the caller's included.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Does one step with as many threads as come; the caller's is one of them.
    pub(super) fn run(&self, work: &Arc<dyn Work>) {
        let shared = &*self.shared;
        if shared.size == 1 {
            return Crew::alone(&**work);
        }
        let mut turn = lock(&shared.turn);
        let mine = turn.next;
        turn.next += 1;
        while turn.now != mine {
            turn = shared.turned.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        drop(turn);
        // Ended even if the work panics.
        let _turn = EndOfTurn(shared);
        let mut order = lock(&shared.order);
        order.work = Some(Arc::clone(work));
        // Under the lock, so that no helper goes to sleep between looking and hearing of it.
        shared.step.fetch_add(1, Ordering::Release);
        drop(order);
        shared.ordered.notify_all();
        shared.work(&**work);
        shared.see_off();
        // Where each thread has work of its own, nobody has waited for what is missing.
        assert!(!shared.broken.load(Ordering::Acquire), "another thread of the crew panicked");
    }

    /// Does one step on the caller's thread, where it is too small to be shared out.
    pub(super) fn alone(work: &dyn Work) {
        work.share(&Member::alone());
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        lock(&self.shared.order).closed = true;
        self.shared.ordered.notify_all();
        for helper in self.helpers.drain(..) {
            // Helpers survive their panics.
            let _ = helper.join();
        }
    }
}

struct EndOfTurn<'a>(&'a Shared);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.see_off();
        // It was this step that failed, and whoever ordered it knows; the next one may be another engine's.
        self.0.broken.store(false, Ordering::Relaxed);
        // Parts are used in order.
        for part in self.0.parts.iter().take_while(|part| part.taken.load(Ordering::Relaxed) > 0) {
            part.taken.store(0, Ordering::Relaxed);
            part.done.store(0, Ordering::Relaxed);
        }
        lock(&self.0.turn).now += 1;
        self.0.turned.notify_all();
    }
}

impl Shared {
    fn help(&self) {
        let mut seen = 0;
        while let Some(work) = self.next(&mut seen) {
            let _here = Here(self);
            // Whoever ordered the step hears of a panic; the helper stays, since others share it.
            let _ = catch_unwind(AssertUnwindSafe(|| self.work(&*work)));
        }
    }

    /// Lets no more helpers in and waits for those who are.
    fn see_off(&self) {
        lock(&self.order).work = None;
        wait_until(|| self.inside.load(Ordering::Acquire) == 0);
    }

    /// The work of the next step that can be joined. It comes soon after the last one usually, so it is watched for a while
    /// before sleeping.
    fn next(&self, seen: &mut u64) -> Option<Arc<dyn Work>> {
        for _ in 0..SPINS {
            if self.step.load(Ordering::Acquire) != *seen {
                break;
            }
            std::hint::spin_loop();
        }
        let mut order = lock(&self.order);
        loop {
            if order.closed {
                return None;
            }
            // No step is joined twice.
            let step = self.step.load(Ordering::Acquire);
            if step != std::mem::replace(seen, step)
                && let Some(work) = &order.work
            {
                self.inside.fetch_add(1, Ordering::AcqRel);
                return Some(Arc::clone(work));
            }
            order = self.ordered.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, work: &dyn Work) {
        let _alarm = Alarm(&self.broken);
        work.share(&Member { crew: Some(self), part: Cell::new(0) });
    }
}

/// A helper at work.
struct Here<'a>(&'a Shared);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Looks until something holds, without sleeping; after a while others may run in between.
fn wait_until(holds: impl Fn() -> bool) {
    let mut looks = 0usize;
    while !holds() {
        looks += 1;
        if looks < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
    }
}

/// How often to look before giving way to others: some tenths of a millisecond.
const SPINS: usize = 20_000;

/// Parts that a step may have.
pub(super) const MOST_PARTS: usize = 4_096;

/// A part of a step, alone on its line of the cache, because all threads write to it.
#[derive(Default)]
#[repr(align(64))]
struct Part {
    /// Things that were taken, and more than there are once all were.
    taken: AtomicUsize,
    done: AtomicUsize,
}

struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// A thread on its way through a step.
pub(super) struct Member<'a> {
    /// `None`: it walks alone.
    crew: Option<&'a Shared>,
    /// The part it comes to next.
    part: Cell<usize>,
}

impl Member<'_> {
    /// A thread that walks alone.
    pub(super) fn alone() -> Member<'static> {
        Member { crew: None, part: Cell::new(0) }
    }

    /// Parts it has walked through.
    #[cfg(test)]
    pub(super) fn walked(&self) -> usize {
        self.part.get()
    }

    /// The next part of a step: so many things, each done once by one of the threads, in stretches. When it returns, all
    /// are done, and what was written for them can be read.
    pub(super) fn each(&self, count: usize, mut work: impl FnMut(Range<usize>)) {
        let number = self.part.replace(self.part.get() + 1);
        let Some(crew) = self.crew else {
            if count > 0 {
                work(0..count);
            }
            return;
        };
        // A panic where there are too few: without a part in common every thread would do all of it, at once.
        let part = &crew.parts[number];
        // A few stretches for each thread: one that comes late leaves the rest to others.
        let stretch = count.div_ceil(4 * crew.size).max(1);
        loop {
            let start = part.taken.fetch_add(stretch, Ordering::Relaxed);
            if start >= count {
                break;
            }
            let end = (start + stretch).min(count);
            work(start..end);
            part.done.fetch_add(end - start, Ordering::AcqRel);
        }
        wait_until(|| {
            // Going on without what is missing would read what was never written.
            assert!(!crew.broken.load(Ordering::Acquire), "another thread of the crew panicked");
            part.done.load(Ordering::Acquire) >= count
        });
    }
}

/// A buffer of numbers that the threads of a crew fill together. It begins at a line of the cache, since registers as wide
/// as a line are slow to load across two.
pub(super) struct Common<T: Number> {
    values: *mut [T],
    /// What was allocated.
    start: *mut u8,
    layout: Layout,
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Numbers.
///
/// # Safety
/// All bits zero is one of them: memory begins like that.
pub(super) unsafe trait Number: Copy + Send + Sync {}
// SAFETY: zero, in all of them.
unsafe impl Number for f32 {}
// SAFETY: as above.
unsafe impl Number for i32 {}
// SAFETY: as above.
unsafe impl Number for u16 {}
// SAFETY: as above.
#[cfg(test)]
unsafe impl Number for u64 {}

// SAFETY: it is memory of its own; who may touch which part of it is for the callers of its unsafe functions to see to.
unsafe impl<T: Number> Send for Common<T> {}
// SAFETY: as above.
unsafe impl<T: Number> Sync for Common<T> {}

impl<T: Number> Common<T> {
    /// So many zeros; `None` if there is no memory for them.
    pub(super) fn new(count: usize) -> Option<Self> {
        // A line more than needed, to begin at one. Asked for an alignment as large, the allocator would write all the zeros
        // itself; so the system has them, and gives memory only to those that are used.
        let bytes = count.checked_mul(size_of::<T>())?.checked_add(LINE)?;
        let layout = Layout::array::<u8>(bytes).ok()?;
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        // SAFETY: the next line begins less than a line further, and there is a line more than needed.
        let values = unsafe { start.add(start.align_offset(LINE)) };
        Some(Common { values: std::ptr::slice_from_raw_parts_mut(values.cast(), count), start, layout })
    }

    /// A part to read.
    ///
    /// # Safety
    /// No thread writes into it until the part of the step is over.
    pub(super) unsafe fn part(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.values.len());
        // SAFETY: inside, as just asserted; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.values.cast::<T>().add(range.start), range.len()) }
    }

    /// All of it, to read.
    ///
    /// # Safety
    /// No thread writes into any of it until the part of the step is over.
    pub(super) unsafe fn all(&self) -> &[T] {
        // SAFETY: the caller's promise.
        unsafe { self.part(0..self.values.len()) }
    }

    /// A part to write.
    ///
    /// # Safety
    /// No other thread touches it until the part of the step is over, nor this one by another name while the result lives.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn part_mut(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.values.len());
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.values.cast::<T>().add(range.start), range.len()) }
    }
}

impl<T: Number> Drop for Common<T> {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nobody else has it any more.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// A lock whose holder panicked guards plain numbers that are still whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step sums what the step before wrote, in two parts.
    struct Sums {
        numbers: Common<u64>,
        totals: Common<u64>,
    }

    impl Work for Sums {
        fn share(&self, me: &Member<'_>) {
            me.each(1_000, |places| {
                for at in places {
                    // SAFETY: each thread has its own places.
                    unsafe { self.numbers.part_mut(at..at + 1)[0] += at as u64 };
                }
            });
            me.each(100, |places| {
                for at in places {
                    // SAFETY: the numbers are only read until the end; each thread has its own totals.
                    unsafe {
                        self.totals.part_mut(at..at + 1)[0] = self.numbers.part(at * 10..at * 10 + 10).iter().sum();
                    }
                }
            });
        }
    }

    fn sums() -> Arc<Sums> {
        Arc::new(Sums { numbers: Common::new(1_000).unwrap(), totals: Common::new(100).unwrap() })
    }

    #[test]
    fn all_threads_see_what_the_others_wrote() {
        for size in [1, 2, 3, 5] {
            let crew = Crew::new(size);
            let sums = sums();
            let work: Arc<dyn Work> = sums.clone();
            for step in 1..=50 {
                crew.run(&work);
                // SAFETY: the step is over.
                let totals = unsafe { sums.totals.part(0..100) };
                let expected: Vec<u64> = (0..100).map(|at| step * (100 * at + 45)).collect();
                assert_eq!(totals, expected, "{size} threads, step {step}");
            }
        }
    }

    #[test]
    fn several_share_a_crew() {
        let crew = Crew::new(2);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let sums = sums();
                    let work: Arc<dyn Work> = sums.clone();
                    (0..20).for_each(|_| crew.run(&work));
                    // SAFETY: the steps are over.
                    assert_eq!(unsafe { sums.totals.part(1..2) }, [20 * 145]);
                });
            }
        });
    }

    #[test]
    fn a_panic_ends_the_step_for_all() {
        struct Fails;
        impl Work for Fails {
            fn share(&self, me: &Member<'_>) {
                me.each(100, |places| assert!(!places.contains(&57), "as it should"));
            }
        }
        let crew = Crew::new(2);
        fails(&crew, Arc::new(Fails));
        serves(&crew);
    }

    #[test]
    fn a_helper_that_panics_with_work_of_its_own_is_heard() {
        /// Only helpers fail, and the caller waits for none of their work.
        struct Apart(thread::ThreadId, AtomicBool);
        impl Work for Apart {
            fn share(&self, _: &Member<'_>) {
                if thread::current().id() == self.0 {
                    wait_until(|| self.1.load(Ordering::Acquire));
                } else {
                    self.1.store(true, Ordering::Release);
                    panic!("as it should");
                }
            }
        }
        let crew = Crew::new(3);
        for _ in 0..20 {
            fails(&crew, Arc::new(Apart(thread::current().id(), AtomicBool::new(false))));
            serves(&crew);
        }
    }

    #[test]
    fn more_parts_than_there_are_is_a_panic() {
        struct TooLong;
        impl Work for TooLong {
            fn share(&self, me: &Member<'_>) {
                (0..=MOST_PARTS).for_each(|_| me.each(1, drop));
            }
        }
        fails(&Crew::new(2), Arc::new(TooLong));
    }

    fn fails(crew: &Crew, work: Arc<dyn Work>) {
        assert!(catch_unwind(AssertUnwindSafe(|| crew.run(&work))).is_err());
    }

    /// A step that failed is nobody else's trouble.
    fn serves(crew: &Crew) {
        let sums = sums();
        let work: Arc<dyn Work> = sums.clone();
        crew.run(&work);
        // SAFETY: the step is over.
        assert_eq!(unsafe { sums.totals.part(1..2) }, [145]);
        assert!(crew.helpers.iter().all(|helper| !helper.is_finished()), "helpers stay");
    }

    #[test]
    fn buffers_begin_at_a_line_and_take_memory_when_used() {
        for count in [0, 1, 1_000] {
            let buffer = Common::<u16>::new(count).unwrap();
            // SAFETY: nobody else has it.
            let all = unsafe { buffer.all() };
            assert!(all.as_ptr().addr().is_multiple_of(LINE) && all.len() == count && all.iter().all(|it| *it == 0));
        }
        assert!(Common::<u64>::new(usize::MAX / 4).is_none() && Common::<u64>::new(usize::MAX / 8).is_none());
        #[cfg(target_os = "linux")]
        {
            let pages = || -> usize {
                let text = std::fs::read_to_string("/proc/self/statm").unwrap();
                text.split(' ').nth(1).unwrap().parse().unwrap()
            };
            let before = pages();
            let _large = Common::<u64>::new(1 << 27); // A gibibyte.
            assert!(pages().saturating_sub(before) < 1 << 17, "half of it is in memory");
        }
    }
}
