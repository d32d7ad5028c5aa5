//! Progress on standard error: a bar with an estimate on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lemon_eval::Row;
use std::cell::Cell;

pub struct EvalProgress {
    bar: Option<ProgressBar>,
    lines: bool,
    all: usize,
    done: Cell<usize>,
    right: Cell<usize>,
}

impl EvalProgress {
    pub fn start(quiet: bool, eval_id: &str, all: usize) -> Self {
        let attended = console::Term::stderr().features().is_attended();
        if !quiet {
            eprintln!("{eval_id}: {all} runs; go on after an interruption with `lemon eval --resume {eval_id}`");
        }
        let bar = (!quiet && attended).then(|| {
            let bar = ProgressBar::with_draw_target(Some(all as u64), ProgressDrawTarget::stderr());
            let style = "{bar:32.yellow/dim} {pos}/{len} runs · {msg} · {elapsed} · {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(std::time::Duration::from_millis(200));
            bar
        });
        EvalProgress { bar, lines: !quiet && !attended, all, done: Cell::new(0), right: Cell::new(0) }
    }

    /// Says something, above the bar where there is one.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None if self.lines => eprintln!("{text}"),
            None => {}
        }
    }

    pub fn add(&self, row: &Row) {
        self.done.set(self.done.get() + 1);
        self.right.set(self.right.get() + usize::from(row.right));
        let (done, right) = (self.done.get(), self.right.get());
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{right} right"));
            bar.inc(1);
        } else if self.lines && (done * 10 / self.all.max(1)) != ((done - 1) * 10 / self.all.max(1)) {
            eprintln!("{done} of {} runs, {right} right", self.all);
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
