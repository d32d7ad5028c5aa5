//! Progress on standard error: a bar with an estimate on a terminal, a line a file elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon_workers::progress::DownloadProgress;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Progress {
    /// Files to fetch.
    all: usize,
    done: AtomicUsize,
    /// None where standard error is no terminal.
    bar: Option<ProgressBar>,
}

/// Begins to show the progress of so many files with so many bytes in all.
pub fn start(all: usize, bytes: u64) -> Box<dyn DownloadProgress> {
    let watched = all > 0 && console::Term::stderr().features().is_attended();
    let progress = Progress { all, done: AtomicUsize::new(0), bar: watched.then(|| bar(bytes)) };
    progress.count();
    Box::new(progress)
}

impl DownloadProgress for Progress {
    fn received(&self, bytes: u64) {
        self.bar.iter().for_each(|bar| bar.inc(bytes));
    }

    fn lost(&self, bytes: u64) {
        self.bar.iter().for_each(|bar| bar.dec(bytes));
    }

    fn file_done(&self, path: &str, end: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.count();
        if self.bar.is_none() {
            eprintln!("{done} of {}: {end} {path}", self.all);
        }
    }

    fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Progress {
    fn count(&self) {
        let done = self.done.load(Ordering::Relaxed);
        self.bar.iter().for_each(|bar| bar.set_message(format!("{done}/{} files", self.all)));
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
