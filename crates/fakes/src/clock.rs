//! Sleeps that end when they should. The runtime's timer counts whole milliseconds and rounds up twice, which makes 50 ms of
//! latency nearly 52: too coarse for a benchmark of what a client adds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Waits this long, to a tenth of a millisecond or so.
pub async fn sleep(time: Duration) {
    let (ring, rung) = oneshot::channel();
    CLOCK.set(Instant::now() + time, ring);
    // The clock's thread never ends; were it to, the sleep would only be short.
    let _ = rung.await;
}

static CLOCK: LazyLock<Clock> = LazyLock::new(|| {
    // Without its thread there would be no latency, which the first benchmark would show.
    let _ = thread::Builder::new().name("fake-clock".into()).spawn(|| CLOCK.run());
    Clock::default()
});

#[derive(Default)]
struct Clock {
    alarms: Mutex<Alarms>,
    earlier: Condvar,
}

#[derive(Default)]
struct Alarms {
    /// When, and the number of the alarm that is due then.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    rings: std::collections::HashMap<u64, oneshot::Sender<()>>,
    count: u64,
}

impl Clock {
    fn set(&self, when: Instant, ring: oneshot::Sender<()>) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let first = alarms.due.peek().is_none_or(|Reverse((next, _))| when < *next);
        alarms.count += 1;
        let number = alarms.count;
        alarms.due.push(Reverse((when, number)));
        alarms.rings.insert(number, ring);
        if first {
            self.earlier.notify_one();
        }
    }

    fn run(&self) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            while let Some(Reverse((when, number))) = alarms.due.peek().copied()
                && when <= now
            {
                alarms.due.pop();
                if let Some(ring) = alarms.rings.remove(&number) {
                    // A call that was given up on has no caller waiting.
                    let _ = ring.send(());
                }
            }
            let next = alarms.due.peek().map(|Reverse((when, _))| when.saturating_duration_since(now));
            alarms = match next {
                Some(time) => self.earlier.wait_timeout(alarms, time).unwrap_or_else(PoisonError::into_inner).0,
                None => self.earlier.wait(alarms).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
