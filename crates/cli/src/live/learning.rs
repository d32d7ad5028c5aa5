//! What is shown while a model learns: a bar on a terminal, and lines for what is worth one.

use crate::say::harmless;
use console::Term;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar, lines, or nothing.
pub struct LearningTalk {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl LearningTalk {
    /// So many steps or tokens to go; `count` is how the bar tells them.
    pub fn new(quiet: bool, length: u64, count: &str) -> Self {
        let bar = (!quiet && Term::stderr().is_term()).then(|| {
            let style = ProgressStyle::with_template(&format!("{{bar:30}} {count} · {{msg}} · {{eta}} left"));
            ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        LearningTalk { bar, quiet }
    }

    /// A line of its own.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(harmless(line, true)),
            None if !self.quiet => eprintln!("{line}"),
            None => {}
        }
    }

    /// How far it is, and with what loss.
    pub fn reach(&self, position: u64, loss: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            bar.set_message(format!("loss {loss:.3}"));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
