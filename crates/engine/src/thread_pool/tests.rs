#![allow(unsafe_code)] // Threads write into one buffer, each in its own range.

use super::*;
use crate::shared_buffer::SharedBuffer;

/// Each step sums what the step before wrote, in two phases.
struct Sums {
    numbers: SharedBuffer<u64>,
    totals: SharedBuffer<u64>,
}

impl ParallelStep for Sums {
    fn run_on(&self, thread: &WorkerThread<'_>) {
        thread.parallel_for(1_000, |places| {
            for at in places {
                // SAFETY: each thread has its own places.
                unsafe { self.numbers.range_mut(at..at + 1)[0] += at as u64 };
            }
        });
        thread.parallel_for(100, |places| {
            for at in places {
                // SAFETY: the numbers are only read until the end; each thread has its own totals.
                unsafe {
                    self.totals.range_mut(at..at + 1)[0] = self.numbers.range(at * 10..at * 10 + 10).iter().sum();
                }
            }
        });
    }
}

fn sums() -> Arc<Sums> {
    Arc::new(Sums { numbers: SharedBuffer::new(1_000).unwrap(), totals: SharedBuffer::new(100).unwrap() })
}

#[test]
fn all_threads_see_what_the_others_wrote() {
    for size in [1, 2, 3, 5] {
        let pool = ThreadPool::new(size);
        let sums = sums();
        let work: Arc<dyn ParallelStep> = sums.clone();
        for step in 1..=50 {
            pool.run(&work);
            // SAFETY: the step is over.
            let totals = unsafe { sums.totals.range(0..100) };
            let expected: Vec<u64> = (0..100).map(|at| step * (100 * at + 45)).collect();
            assert_eq!(totals, expected, "{size} threads, step {step}");
        }
    }
}

#[test]
fn several_callers_share_a_pool() {
    let pool = ThreadPool::new(2);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let sums = sums();
                let work: Arc<dyn ParallelStep> = sums.clone();
                (0..20).for_each(|_| pool.run(&work));
                // SAFETY: the steps are over.
                assert_eq!(unsafe { sums.totals.range(1..2) }, [20 * 145]);
            });
        }
    });
}

#[test]
fn a_panic_ends_the_step_for_all() {
    struct Fails;
    impl ParallelStep for Fails {
        fn run_on(&self, thread: &WorkerThread<'_>) {
            thread.parallel_for(100, |places| assert!(!places.contains(&57), "as it should"));
        }
    }
    let pool = ThreadPool::new(2);
    fails(&pool, Arc::new(Fails));
    serves(&pool);
}

#[test]
fn a_helper_that_panics_with_work_of_its_own_is_heard() {
    /// Only helpers fail, and the caller waits for none of their work.
    struct Apart(thread::ThreadId, AtomicBool);
    impl ParallelStep for Apart {
        fn run_on(&self, _: &WorkerThread<'_>) {
            if thread::current().id() == self.0 {
                wait_until(|| self.1.load(Ordering::Acquire));
            } else {
                self.1.store(true, Ordering::Release);
                panic!("as it should");
            }
        }
    }
    let pool = ThreadPool::new(3);
    for _ in 0..20 {
        fails(&pool, Arc::new(Apart(thread::current().id(), AtomicBool::new(false))));
        serves(&pool);
    }
}

#[test]
fn too_many_phases_are_a_panic() {
    struct TooLong;
    impl ParallelStep for TooLong {
        fn run_on(&self, thread: &WorkerThread<'_>) {
            (0..=MAX_PHASES).for_each(|_| thread.parallel_for(1, drop));
        }
    }
    fails(&ThreadPool::new(2), Arc::new(TooLong));
}

fn fails(pool: &ThreadPool, work: Arc<dyn ParallelStep>) {
    assert!(catch_unwind(AssertUnwindSafe(|| pool.run(&work))).is_err());
}

/// A step that failed does not affect the next one.
fn serves(pool: &ThreadPool) {
    let sums = sums();
    let work: Arc<dyn ParallelStep> = sums.clone();
    pool.run(&work);
    // SAFETY: the step is over.
    assert_eq!(unsafe { sums.totals.range(1..2) }, [145]);
    assert!(pool.helpers.iter().all(|helper| !helper.is_finished()), "helpers stay");
}
