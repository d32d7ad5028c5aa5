//! `lemon bench serve`: how fast a model is served here, and by llama.cpp on the same prompts in the same minute.
//!
//! Each program runs in a process of its own, started anew in every round. The programs take turns; the one that begins
//! changes with the round. So a machine that slows down in between slows both.

use super::serve_worker::{CONTEXT, ServeReply, ServeRequest};
use super::{process, this_program};
use crate::args::{Rival, ServeArgs};
use crate::fault::Fault;
use crate::{print, print_json};
use lemon_model::Tokenizer;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const LLAMA_CPP: &str = include_str!("llama_cpp.py");
/// Tokens of the prompts: to be continued, to be read, and of the first request after a start.
const SHORT: usize = 16;
const LONG: usize = 512;
const FIRST: usize = 100;
/// Tokens of a reply.
const WRITTEN: usize = 64;
/// A program that is silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(600);

/// Prompts are cut from this text.
const TEXT: &str = "The harbour was quiet when the first boats came back. Each of them carried a different catch, and the \
buyers who had waited since dawn walked along the quay to compare prices. A young clerk wrote every offer into a book, \
because her employer believed that numbers which are not written down change overnight. By eight o'clock she had filled \
three pages. She noticed that the boats from the north paid less for ice, and that those from the south sold sooner. To \
find out why, she began to keep a second list with the time of arrival, the weight of the load and the weather of the \
night before. After a month the answer was plain: those who came early chose the buyers, and those who came late were chosen by \
them. She drew a small chart, pinned it to the door of the office and explained it to anyone who asked. The function that \
she used was simple. For each boat it took the hour, subtracted the average and multiplied the rest by a weight that she \
had found by trying. An engineer who was repairing the crane read the chart and asked how she had chosen the weight. She \
said that she had compared ten of them on the first half of the month and kept the one that was best on the second. He \
laughed, because his own department had spent a year on the same question. In the evening they sat on the wall and wrote \
the procedure down, step by step, so that another port could repeat it. First, count what can be counted. Second, keep one \
part of the record aside and do not look at it. Third, change one thing at a time and note the reason. Fourth, when the \
result is surprising, check the scales before you believe it. The last rule was hers: tell those who did the work what you \
found, and listen to their objections, since they know which of the numbers were guesses.";

/// What is measured, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Measure {
    OneText,
    ManyTexts,
    PromptReading,
    FirstToken,
    ResidentMemory,
}

const MEASURES: [Measure; 5] =
    [Measure::OneText, Measure::ManyTexts, Measure::PromptReading, Measure::FirstToken, Measure::ResidentMemory];

impl Measure {
    fn label(self, texts: usize) -> String {
        match self {
            Measure::OneText => "one text, tokens/s".to_owned(),
            Measure::ManyTexts => format!("{texts} texts, tokens/s"),
            Measure::PromptReading => format!("reading a prompt of {LONG}, tokens/s"),
            Measure::FirstToken => format!("start to first token, prompt of {FIRST}, s"),
            Measure::ResidentMemory => "peak of resident memory, MB".to_owned(),
        }
    }
}

/// One line of the table: medians over the rounds.
#[derive(Debug, Serialize)]
struct Line {
    measure: Measure,
    lemon: Option<f64>,
    other: Option<f64>,
    /// The median over rounds of lemon's figure divided by the other's.
    ratio: Option<f64>,
}

pub fn bench(args: &ServeArgs) -> Result<u8, Fault> {
    let threads = match args.threads {
        Some(threads) => threads.max(1),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let prompts = Prompts::new(&args.model)?;
    let size = std::fs::metadata(&args.model).map_err(Fault::new)?.len();
    if args.rounds == 0 || args.texts == 0 {
        return Err(Fault::new("--rounds and --texts must be at least 1"));
    }
    let mut programs: Vec<Program> = vec![Program::lemon(args, threads)];
    programs.extend(args.against.map(|Rival::LlamaCpp| Program::llama_cpp(args, threads)));
    // figures[program][round][measure]
    let mut figures: Vec<Vec<[Option<f64>; 5]>> = vec![Vec::new(); programs.len()];
    let mut about = vec![String::new(); programs.len()];
    for round in 0..args.rounds {
        let mut order: Vec<usize> = (0..programs.len()).collect();
        order.rotate_left(round % programs.len());
        let mut processes = Vec::new();
        for program in order {
            if args.cold {
                evict(&args.model)?;
            }
            let (process, first) = Process::start(&programs[program], &prompts.first(round))?;
            about[program] = process.about.clone();
            figures[program].push([None, None, None, Some(first), None]);
            processes.push((program, process));
        }
        for (measure, request) in prompts.requests(round, args.texts) {
            for (program, process) in &mut processes {
                let reply = process.ask(&request)?;
                let count = match measure {
                    Measure::PromptReading => request.prompts.iter().map(Vec::len).sum::<usize>(),
                    _ => reply.written.iter().map(Vec::len).sum(),
                };
                figures[*program][round][measure as usize] = Some(count as f64 / reply.seconds);
            }
        }
        for (program, process) in &processes {
            figures[*program][round][Measure::ResidentMemory as usize] = process.peak_mb();
        }
        eprintln!("round {} of {} is done", round + 1, args.rounds);
    }
    report(args, threads, size, &figures, &about)
}

fn report(
    args: &ServeArgs,
    threads: usize,
    size: u64,
    figures: &[Vec<[Option<f64>; 5]>],
    about: &[String],
) -> Result<u8, Fault> {
    let rounds = |program: usize, measure: Measure| -> Vec<f64> {
        figures.get(program).into_iter().flatten().filter_map(|round| round[measure as usize]).collect()
    };
    let line = |measure: Measure| {
        let (ours, theirs) = (rounds(0, measure), rounds(1, measure));
        let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        Line { measure, lemon: median(ours), other: median(theirs), ratio: median(ratios) }
    };
    let lines: Vec<Line> = MEASURES.into_iter().map(line).collect();
    let (processor, tree) = (processor(), tree());
    if args.json {
        return print_json(&json!({
            "model": args.model, "model_bytes": size, "processor": processor, "tree": tree, "threads": threads,
            "rounds": args.rounds, "texts": args.texts, "cold": args.cold, "programs": about, "lines": lines,
            "all": figures,
        }));
    }
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = writeln!(text, "model      {} ({:.0} MB)", args.model.display(), size as f64 / 1e6);
    let _ = writeln!(text, "processor  {processor}, {threads} threads");
    let _ = writeln!(text, "tree       {tree}");
    for about in about {
        let _ = writeln!(text, "program    {about}");
    }
    let cold = if args.cold { ", file not in the page cache at each start" } else { "" };
    let _ = writeln!(text, "rounds     {}, medians{cold}\n", args.rounds);
    let _ = writeln!(text, "{:<44} {:>9} {:>10} {:>7}", "", "lemon", "llama.cpp", "ratio");
    let shown = |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |value| format!("{value:.digits$}"));
    for Line { measure, lemon, other, ratio } in &lines {
        let digits = match measure {
            Measure::FirstToken => 2,
            Measure::ResidentMemory => 0,
            _ => 1,
        };
        let (label, lemon, other) = (measure.label(args.texts), shown(*lemon, digits), shown(*other, digits));
        let _ = writeln!(text, "{label:<44} {lemon:>9} {other:>10} {:>7}", shown(*ratio, 2));
    }
    print(&text)
}

/// The median; `None` of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

/// The prompts of all rounds: the same token ids for both programs.
struct Prompts {
    text: Vec<u32>,
}

impl Prompts {
    fn new(model: &Path) -> Result<Prompts, Fault> {
        let text = Tokenizer::load(model).map_err(Fault::new)?.encode_plain(TEXT);
        if text.is_empty() {
            return Err(Fault::new("the tokenizer makes no tokens of an English text"));
        }
        Ok(Prompts { text })
    }

    /// So many tokens from a place on; the text begins again where it ends. Prompts that begin at different places share
    /// no prefix, so no program can reuse what it has read.
    fn cut(&self, start: usize, count: usize) -> Vec<u32> {
        self.text.iter().cycle().skip(start % self.text.len()).take(count).copied().collect()
    }

    fn first(&self, round: usize) -> ServeRequest {
        ServeRequest { prompts: vec![self.cut(3 + round, FIRST)], tokens: 1 }
    }

    fn requests(&self, round: usize, texts: usize) -> [(Measure, ServeRequest); 3] {
        let many = (0..texts).map(|text| self.cut(40 + round + 17 * text, SHORT)).collect();
        [
            (Measure::OneText, ServeRequest { prompts: vec![self.cut(20 + round, SHORT)], tokens: WRITTEN }),
            (Measure::ManyTexts, ServeRequest { prompts: many, tokens: WRITTEN }),
            (Measure::PromptReading, ServeRequest { prompts: vec![self.cut(11 + 29 * round, LONG)], tokens: 1 }),
        ]
    }
}

/// How a program is started.
struct Program {
    name: &'static str,
    hint: Option<String>,
    command: Box<dyn Fn() -> Result<Command, Fault>>,
}

impl Program {
    fn lemon(args: &ServeArgs, threads: usize) -> Program {
        let (model, simd) = (args.model.clone(), args.simd.clone());
        let weights = format!("{:?}", args.weights).to_lowercase();
        let command = move || {
            let mut command = this_program()?;
            command.args(["bench", "serve-worker", "--threads", &threads.to_string(), "--weights", &weights]);
            command.arg("--model").arg(&model);
            command.envs(simd.iter().map(|simd| ("LEMON_SIMD", simd)));
            Ok(command)
        };
        Program { name: "the engine", hint: None, command: Box::new(command) }
    }

    fn llama_cpp(args: &ServeArgs, threads: usize) -> Program {
        let (model, python, texts) = (args.model.clone(), args.python.clone(), args.texts);
        let hint = format!(
            "`python3 -m venv DIR && DIR/bin/pip install xllamacpp`, then --python DIR/bin/python (now {})",
            python.display()
        );
        let command = move || {
            let mut command = Command::new(&python);
            command.args(["-c", LLAMA_CPP]).arg(&model);
            command.args([threads, texts, CONTEXT].map(|it| it.to_string()));
            // Its log; errors come as replies.
            command.stderr(Stdio::null());
            Ok(command)
        };
        Program { name: "llama.cpp", hint: Some(hint), command: Box::new(command) }
    }

    fn fault(&self, fact: impl std::fmt::Display) -> Fault {
        let fault = Fault::new(format!("{}: {fact}", self.name));
        match &self.hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

/// A program that runs; it is ended with this value.
struct Process<'p> {
    program: &'p Program,
    child: Child,
    replies: Receiver<String>,
    about: String,
}

impl<'p> Process<'p> {
    /// Starts a program and has it read a first prompt; returns the seconds from the start to the first token.
    fn start(program: &'p Program, first: &ServeRequest) -> Result<(Process<'p>, f64), Fault> {
        let mut command = (program.command)()?;
        let began = Instant::now();
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| program.fault(format!("it cannot be started: {error}")))?;
        let out = child.stdout.take().ok_or_else(|| program.fault("it has no standard output"))?;
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Without a receiver the measurement is over.
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut process = Process { program, child, replies, about: String::new() };
        let reply = process.ask(first)?;
        process.about = reply.program;
        Ok((process, began.elapsed().as_secs_f64()))
    }

    fn ask(&mut self, request: &ServeRequest) -> Result<ServeReply, Fault> {
        let program = self.program;
        let line = serde_json::to_string(request).map_err(Fault::new)?;
        let input = self.child.stdin.as_mut().ok_or_else(|| program.fault("it has no standard input"))?;
        // A program that has ended says why in its last line, which is read below.
        let sent = writeln!(input, "{line}");
        loop {
            let line = self.replies.recv_timeout(PATIENCE).map_err(|error| match (error, &sent) {
                (RecvTimeoutError::Timeout, _) => program.fault(format!("no reply in {} s", PATIENCE.as_secs())),
                (RecvTimeoutError::Disconnected, Err(error)) => program.fault(format!("it has ended: {error}")),
                (RecvTimeoutError::Disconnected, Ok(())) => program.fault("it has ended without a reply"),
            })?;
            // Libraries may print lines of their own.
            let Ok(value) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
            if let Some(error) = value.get("error").and_then(|error| error.as_str()) {
                return Err(program.fault(error));
            }
            let reply: ServeReply = serde_json::from_value(value).map_err(|error| program.fault(error))?;
            return match reply.written.iter().all(|written| !written.is_empty()) {
                true => Ok(reply),
                false => Err(program.fault("a reply has no tokens")),
            };
        }
    }

    /// The most memory it had, in MB; `None` where the system does not say it this way.
    fn peak_mb(&self) -> Option<f64> {
        process::peak_bytes(self.child.id()).map(|bytes| bytes / 1e6)
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        // A process that has ended already cannot be ended; nothing is lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Removes a file from the page cache.
fn evict(path: &Path) -> Result<(), Fault> {
    let failed = |error: String| Fault::new(format!("{} stays in the page cache: {error}", path.display()));
    let argument = format!("if={}", path.display());
    let ran = Command::new("dd").args([&argument, "iflag=nocache", "count=0", "status=none"]).status();
    match ran.map_err(|error| failed(error.to_string()))? {
        status if status.success() => Ok(()),
        status => Err(failed(format!("`dd` ended with {status}")).hint("--cold needs GNU dd")),
    }
}

/// The processor's name.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_else(|_| String::new());
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|it| it.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let numbers = value("cpu family").zip(value("model"));
    let numbers = numbers.map(|(family, model)| format!(" (family {family}, model {model})"));
    format!("{}{}", value("model name").unwrap_or_else(|| "unknown".to_owned()), numbers.unwrap_or_else(String::new))
}

/// The commit of the working folder.
fn tree() -> String {
    let ran = Command::new("git").args(["describe", "--always", "--dirty"]).stderr(Stdio::null()).output();
    match ran {
        Ok(ran) if ran.status.success() => String::from_utf8_lossy(&ran.stdout).trim().to_owned(),
        Ok(_) | Err(_) => "unknown (no git repository here)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn prompts_have_their_lengths_and_share_no_beginning() {
        let prompts = Prompts { text: (0..300).collect() };
        for round in 0..3 {
            let first = prompts.first(round);
            assert_eq!((first.prompts[0].len(), first.tokens), (FIRST, 1));
            let mut begins = vec![first.prompts[0][0]];
            for (measure, request) in prompts.requests(round, 12) {
                let length = if measure == Measure::PromptReading { LONG } else { SHORT };
                assert!(request.prompts.iter().all(|prompt| prompt.len() == length), "{measure:?}");
                begins.extend(request.prompts.iter().map(|prompt| prompt[0]));
            }
            let count = begins.len();
            begins.sort_unstable();
            begins.dedup();
            assert_eq!(begins.len(), count, "round {round}");
        }
    }
}
