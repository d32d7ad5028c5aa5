//! The `lemon` command. Standard output is data, standard error is talk; exit codes: 0 answered or valid, 1 ended otherwise
//! or invalid, 2 bad usage or unreadable input.

// First: its macro takes the place of a standard one in all that follow.
#[macro_use]
mod say;
mod args;
mod commands;
mod cut_off;
mod fault;
mod live;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use fault::{Fault, USAGE};
use lemon::jobs::Notices;
use lemon_trace::text::one_line;
use lemon_workers::Tell;
use say::{print, print_data, print_json, println, to_json};
use std::pin::Pin;
use std::process::ExitCode;

fn main() -> ExitCode {
    let fault = match Cli::try_parse() {
        Ok(cli) => match dispatch(&cli) {
            Ok(code) => return ExitCode::from(code),
            Err(fault) => {
                fault.print();
                fault
            }
        },
        Err(error) if error.use_stderr() => {
            let text = error.render();
            let colours = console::colors_enabled_stderr();
            eprintln!("{}", if colours { text.ansi().to_string() } else { text.to_string() }.trim_end());
            usage_fault(&text.to_string())
        }
        // Help and version.
        Err(error) => error.exit(),
    };
    // Before that exit code nothing but whole lines of JSON was printed.
    if fault.code == USAGE && wants_json() {
        // Without a reader of standard output there is nothing left to tell.
        let _ = println(&fault.json());
    }
    ExitCode::from(fault.code)
}

/// Whether the caller asked for JSON, whatever else is wrong with the command line.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// What is wrong with a command line: the first paragraph is the fact, the rest says how it is used.
fn usage_fault(text: &str) -> Fault {
    let (fact, usage) = text.split_once("\n\n").unwrap_or((text, ""));
    let fault = Fault::new(fact.trim().trim_start_matches("error: "));
    if usage.trim().is_empty() { fault } else { fault.hint(usage.trim()) }
}

/// Where the library's notices go.
fn tell(quiet: bool) -> Tell {
    if quiet { |_| {} } else { say::talk }
}

/// Where the notices of jobs go. Warnings are no talk: they are heard always.
fn notices(quiet: bool) -> Notices {
    Notices { tell: tell(quiet), warn: say::talk }
}

fn dispatch(cli: &Cli) -> Result<u8, Fault> {
    match &cli.command {
        Command::Init(args) => commands::init::init(args),
        Command::Doctor(args) => commands::doctor::doctor(cli, args),
        Command::Run(args) => commands::run::run(cli, args),
        Command::Plan(args) => commands::plan::plan(cli, args),
        Command::Validate(args) => commands::validate::validate(cli, args),
        Command::Schema(args) => commands::schema::schema(cli, args),
        Command::Edits(args) => commands::edits::edits(cli, args),
        Command::Trace(command) => commands::trace::trace(cli, command),
        Command::Tools(command) => commands::tools::tools(cli, command),
        Command::Mcp(args) => commands::mcp::mcp(cli, args),
        Command::Serve(args) => commands::serve::serve(cli, args),
        Command::Keys(command) => commands::keys::keys(cli, command),
        Command::Data(command) => commands::data::data(command),
        Command::Grade(args) => commands::grade::grade(args),
        Command::Eval(args) => commands::eval::eval(cli, args),
        Command::Worker(args) => commands::cluster::worker(args),
        Command::Cluster(command) => commands::cluster::cluster(command),
        Command::Baseline(command) => commands::baseline::baseline(cli, command),
        Command::Compare(args) => commands::compare::compare(cli, args),
        Command::Credit(args) => commands::credit::credit(cli, args),
        Command::Critic(command) => commands::critic::critic(command),
        Command::World(command) => commands::world::world(command),
        Command::Teach(args) => commands::teach::teach(cli, args),
        Command::Sft(args) => commands::sft::sft_command(cli, args),
        Command::Pretrain(args) => commands::pretrain::pretrain_command(args),
        Command::Train(args) => commands::train::train_command(cli, args),
        Command::Ablate(args) => commands::ablate::ablate(cli, args),
        Command::Policy(command) => commands::policy::policy(cli, command),
        Command::Models(command) => commands::models::models(command),
        Command::Bench(command) => commands::bench::bench(cli, command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "lemon", &mut script);
            print_data(&String::from_utf8_lossy(&script))
        }
    }
}

/// The runtime of the commands that wait for something. One thread: a call takes about a tenth of a millisecond of it, so it
/// keeps thousands of calls a second in flight, and more threads would spend more on waking each other than they save.
fn runtime() -> Result<Runtime, Fault> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map(Runtime).map_err(|error| Fault::new(format!("no runtime: {error}")))
}

/// A runtime whose loop is compiled once for each result, and not for each future.
struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    fn block_on<'a, T>(&self, future: impl Future<Output = T> + 'a) -> T {
        let future: Pin<Box<dyn Future<Output = T> + 'a>> = Box::pin(future);
        self.0.block_on(future)
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(future);
    }
}
