//! How many programs are graded at a time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Places for programs, one for each processor: more at a time would take each other's time, and right ones would be stopped at
/// their limit.
pub struct GradingPlaces {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A place that was taken; dropping it frees it.
pub struct GradingPlace<'a>(&'a GradingPlaces);

impl GradingPlaces {
    pub fn new(count: usize) -> Self {
        GradingPlaces { free: Mutex::new(count.max(1)), freed: Condvar::new() }
    }

    /// Waits for a place.
    pub fn take(&self) -> GradingPlace<'_> {
        // A count is whole even where a thread panicked.
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        GradingPlace(self)
    }
}

impl Drop for GradingPlace<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_than_the_places_are_taken_at_a_time_and_all_get_one() {
        let (places, now, most, done) =
            (GradingPlaces::new(3), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _place = places.take();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    now.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 20);
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    }
}
