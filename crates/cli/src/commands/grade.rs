//! `lemon grade`: grade replies made elsewhere.

use crate::args::GradeArgs;
use crate::fault::{Fault, read_file};
use crate::{one_line, print, print_json, println};
use lemon_rollout::Grader;
use lemon_sandbox::Containment;
use lemon_task::{SetName, Source, TaskSet, load};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Reply {
    item: usize,
    reply: String,
}

/// One graded reply. The field names are an interface.
#[derive(Serialize)]
struct Graded {
    item: usize,
    correct: bool,
    legacy: bool,
    extracted: Option<String>,
    /// Why it is not right.
    reason: Option<String>,
}

/// A line that is no reply to an item of the set.
#[derive(Serialize)]
struct Skipped {
    line: usize,
    reason: String,
}

#[derive(Default, Serialize)]
struct Totals {
    graded: usize,
    correct: usize,
    legacy: usize,
    /// Lines that are no replies to an item of the set.
    skipped: usize,
}

pub fn grade(args: &GradeArgs) -> Result<u8, Fault> {
    let set: SetName = args.set.parse().map_err(Fault::new)?;
    let source = args.data.clone().map_or(Source::Sample, Source::Folder);
    let tasks = load(&source, set, &args.split).map_err(Fault::new)?;
    let grader = Grader::for_items(&tasks.items, Containment::unless(args.unsafe_no_sandbox))?;
    let name = args.replies.display();
    let (mut items, mut skipped, mut totals) = (Vec::new(), Vec::new(), Totals::default());
    for (at, line) in read_file(&args.replies)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match grade_line(&tasks, line, &grader)? {
            Ok(graded) => {
                totals.add(&graded);
                items.push(graded);
            }
            Err(fact) => {
                eprintln!("warning: {name}, line {}: {fact}; skipped", at + 1);
                totals.skipped += 1;
                skipped.push(Skipped { line: at + 1, reason: fact });
            }
        }
    }
    if items.is_empty() {
        return Err(Fault::new(format!("{name} has no reply to an item of {set}")).hint(
            r#"one JSON object a line: {"item": 0, "reply": "… Answer: 42"}, item = position in the set from 0"#,
        ));
    }
    if args.json {
        return print_json(&serde_json::json!({ "items": items, "skipped": skipped, "totals": totals }));
    }
    for Graded { item, correct, legacy, extracted, .. } in &items {
        let word = |right: &bool| if *right { "right" } else { "wrong" };
        let extracted = one_line(extracted.as_deref().unwrap_or("-"));
        let short: String = extracted.chars().take(60).collect();
        print(&format!("{item:>6}  {}  legacy {}  {short}\n", word(correct), word(legacy)))?;
    }
    let Totals { graded, correct, legacy, skipped } = totals;
    println(&format!("{correct} of {graded} right (legacy rule: {legacy}); {skipped} lines skipped"))
}

/// A graded line, or why it is none.
fn grade_line(tasks: &TaskSet, line: &str, grader: &Grader) -> Result<Result<Graded, String>, Fault> {
    let Reply { item, reply } = match serde_json::from_str(line) {
        Ok(reply) => reply,
        Err(error) => return Ok(Err(format!("not {{item, reply}}: {error}"))),
    };
    let Some(task) = tasks.at(item) else { return Ok(Err(format!("the split has no item {item}"))) };
    let graded = grader.grade(task, &reply)?;
    let lemon_rollout::Graded { right: correct, legacy, extracted, reason } = graded;
    Ok(Ok(Graded { item, correct, legacy, extracted, reason }))
}

impl Totals {
    fn add(&mut self, graded: &Graded) {
        self.graded += 1;
        self.correct += usize::from(graded.correct);
        self.legacy += usize::from(graded.legacy);
    }
}
