//! Progress on standard error: a bar with an estimate on a terminal, a line a file elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub struct Progress {
    /// Files to fetch.
    all: usize,
    done: AtomicUsize,
    /// None where nobody watches.
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn start(all: usize, bytes: u64) -> Self {
        let watched = all > 0 && console::Term::stderr().features().is_attended();
        let progress = Progress { all, done: AtomicUsize::new(0), bar: watched.then(|| bar(bytes)) };
        progress.count();
        progress
    }

    /// Begins to count an attempt at a file.
    pub fn attempt(&self) -> Attempt<'_> {
        Attempt { bar: self.bar.as_ref(), bytes: 0 }
    }

    /// A file is here, or given up: how it ended.
    pub fn file_done(&self, path: &str, end: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.count();
        if self.bar.is_none() {
            eprintln!("{done} of {}: {end} {path}", self.all);
        }
    }

    /// Says something between the progress.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    pub fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }

    fn count(&self) {
        let done = self.done.load(Ordering::Relaxed);
        self.bar.iter().for_each(|bar| bar.set_message(format!("{done}/{} files", self.all)));
    }
}

/// What came of one attempt. Unless it is told to keep them, its bytes came in vain.
pub struct Attempt<'a> {
    bar: Option<&'a ProgressBar>,
    bytes: u64,
}

impl Attempt<'_> {
    pub fn receive(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.bar.iter().for_each(|bar| bar.inc(bytes));
    }

    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.bar.iter().for_each(|bar| bar.dec(self.bytes));
    }
}

fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(
        "{bar:32.yellow/dim} {bytes}/{total_bytes} · {msg} · {bytes_per_sec} · {eta} left",
    );
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
