//! What a person sees while a run goes: the team live on a terminal, plain lines elsewhere.

mod growing;
pub mod learning;
mod lines;
pub mod train;
mod view;

use crate::args::{RunArgs, WorkerKind};
use crate::commands::run::Prepared;
use console::Term;
use lemon_exec::{Observer, OnDelta};
use lemon_trace::{Event, Header, Trace};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use view::TeamView;

/// How often the live view is drawn.
const FRAME: Duration = Duration::from_millis(80);

/// Talk about one run, on standard error.
pub enum Talk {
    /// None.
    Silent,
    /// A line for each thing worth telling.
    Lines(Arc<Mutex<TeamView>>),
    /// The team, drawn over and over in place.
    Live(Live),
}

/// The live view and the thread that draws it.
pub struct Live {
    view: Arc<Mutex<TeamView>>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Talk {
    /// Begins to talk, for a terminal or for a file. A run that begins has a question.
    pub fn start(args: &RunArgs, prepared: &Prepared, question: Option<&str>) -> Self {
        if args.quiet {
            return Talk::Silent;
        }
        if prepared.resolved.kind == WorkerKind::SCRIPTED {
            eprintln!("scripted workers: the replies come from a script, no model is called");
        }
        let mut view = TeamView::new(prepared.runner.settings.budget);
        let terminal = Term::stderr();
        let attended = terminal.features().is_attended();
        if let Some(question) = question.filter(|_| prepared.meta.spec.is_none()) {
            // Said before the orchestrator is asked, which may take long.
            view.write(question);
            if !attended {
                eprintln!("{}", lines::writing(0.0));
            }
        }
        // Where the answer goes to a file or a program, the view does not show it growing.
        if attended && !args.json && std::io::stdout().is_terminal() {
            view.show_growing(prepared.runner.language.clone());
        }
        let view = Arc::new(Mutex::new(view));
        if !attended {
            return Talk::Lines(view);
        }
        let (stop, stopped) = channel();
        let drawn = view.clone();
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            let mut height = 0;
            loop {
                let last = !matches!(stopped.recv_timeout(FRAME), Err(RecvTimeoutError::Timeout));
                let (rows, columns) = terminal.size();
                let frame = drawn.lock().unwrap_or_else(PoisonError::into_inner).frame(
                    began.elapsed().as_secs_f64(),
                    usize::from(rows),
                    usize::from(columns),
                    last,
                );
                let text: String = frame.iter().map(|line| format!("{line}\n")).collect();
                // A terminal that cannot be drawn on does not stop the run.
                let _ = terminal.clear_last_lines(height).and_then(|()| terminal.write_str(&text));
                height = frame.len();
                if last {
                    return;
                }
            }
        });
        Talk::Live(Live { view, stop, thread })
    }

    /// What the run calls for each event.
    pub fn observer(&self) -> Option<Observer> {
        match self {
            Talk::Silent => None,
            Talk::Lines(view) => {
                let view = view.clone();
                Some(Arc::new(move |header: &Header, event: &Event| {
                    let mut view = view.lock().unwrap_or_else(PoisonError::into_inner);
                    let was_writing = view.is_writing();
                    view.note(header, event);
                    if let Some(line) = lines::line(event, was_writing) {
                        eprintln!("{line}");
                    }
                }))
            }
            Talk::Live(live) => {
                let view = live.view.clone();
                Some(Arc::new(move |header: &Header, event: &Event| {
                    view.lock().unwrap_or_else(PoisonError::into_inner).note(header, event);
                }))
            }
        }
    }

    /// What the run calls for each piece of a reply.
    pub fn on_delta(&self) -> Option<OnDelta> {
        let Talk::Live(live) = self else { return None };
        let view = live.view.clone();
        Some(Arc::new(move |_: &Header, agent: &str, piece: &str| {
            view.lock().unwrap_or_else(PoisonError::into_inner).hear(agent, piece);
        }))
    }

    /// Takes in what happened before this process.
    pub fn catch_up(&self, trace: &Trace) {
        if let Talk::Lines(view) | Talk::Live(Live { view, .. }) = self {
            let mut view = view.lock().unwrap_or_else(PoisonError::into_inner);
            trace.events.iter().for_each(|event| view.note(&trace.header, event));
        }
    }

    /// Says the last word.
    pub fn finish(self) {
        match self {
            Talk::Silent => {}
            Talk::Lines(view) => eprintln!("{}", view.lock().unwrap_or_else(PoisonError::into_inner).totals()),
            Talk::Live(live) => {
                // The thread ends when it is told to, and when the channel is closed.
                let _ = live.stop.send(());
                let _ = live.thread.join();
            }
        }
    }
}
