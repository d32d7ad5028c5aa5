//! Functions to complete: a signature, a docstring, what completes them and the calls that test them.

mod lists;
mod numbers;
mod parsing;
mod strings;

use lemon_num::Random;
use serde_json::{Value, json};

/// A function to write. The calls were worked out by another program than the one that completes it.
pub(super) struct Program {
    /// Names it may go by.
    names: [&'static str; 2],
    /// Its parameters and result.
    head: &'static str,
    /// Ways to say what it does.
    docs: &'static [&'static str],
    /// What completes it, without indentation.
    body: &'static str,
    /// Arguments and results; the first serve as examples.
    calls: &'static [(&'static str, &'static str)],
}

/// All of them.
const STOCK: [&[Program]; 4] = [lists::PROGRAMS, numbers::PROGRAMS, parsing::PROGRAMS, strings::PROGRAMS];

/// A record in the format of HumanEval.
pub(super) fn record(position: usize, random: &mut Random) -> Option<Value> {
    let program = random.pick(&STOCK).and_then(|programs| random.pick(programs))?;
    let name = *random.pick(&program.names)?;
    let doc = *random.pick(program.docs)?;
    let imports = if program.head.contains(['[']) { "from typing import Dict, List, Optional\n\n\n" } else { "" };
    let examples = examples(name, program.calls, random);
    let opening = random.pick(OPENINGS).copied().unwrap_or_default();
    let count = random.below(4);
    let remarks: String = random.some(REMARKS, count).into_iter().map(|remark| format!(" {remark}")).collect();
    let doc = wrapped(&format!("{opening}{doc}{remarks}"));
    let prompt = format!("{imports}def {name}{}:\n    \"\"\"{doc}\n{examples}    \"\"\"\n", program.head);
    let body: String = program.body.lines().map(|line| format!("    {line}\n")).collect();
    let asserts = program.calls.iter().map(|(given, result)| format!("    assert candidate({given}) == {result}\n"));
    let test = format!("def check(candidate):\n{}", asserts.collect::<String>());
    Some(json!({
        "task_id": format!("Composed/{position}"),
        "prompt": prompt,
        "entry_point": name,
        "canonical_solution": body,
        "test": test,
    }))
}

/// What may stand before the description.
const OPENINGS: &[&str] = &["", "", " ", "Write this function. ", "Your task: "];

/// What may stand behind it; true of every function here.
const REMARKS: &[&str] = &[
    "Do not print anything.",
    "The arguments are never None.",
    "The function is called very often, so it should not do needless work, but clarity matters more than speed.",
    "Only the standard library may be used.",
    "The arguments must not be changed.",
    "Inputs are small: none has more than 1000 elements or characters.",
    "See the examples, if there are any, for the exact form of the result.",
    "You may assume that every argument has the type that the signature says.",
    "Two calls with the same arguments give the same result.",
];

/// Examples in one of the usual manners, or none.
fn examples(name: &str, calls: &[(&str, &str)], random: &mut Random) -> String {
    let shown = calls.iter().take(random.below(4));
    match random.below(3) {
        0 => shown.map(|(given, result)| format!("    >>> {name}({given})\n    {result}\n")).collect(),
        1 => shown.map(|(given, result)| format!("    {name}({given}) == {result}\n")).collect(),
        _ => shown.map(|(given, result)| format!("    For example, {name}({given}) returns {result}.\n")).collect(),
    }
}

/// The text in lines of the width that docstrings have.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 76;
    let mut wrapped = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if width + length > WIDTH && width > 0 {
            wrapped.push_str("\n    ");
            width = 0;
        } else if !wrapped.is_empty() || width > 0 {
            wrapped.push(' ');
        }
        wrapped.push_str(word);
        width += length + 1;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn all() -> impl Iterator<Item = &'static Program> {
        STOCK.iter().flat_map(|programs| programs.iter())
    }

    #[test]
    fn there_are_enough_and_every_one_is_complete() {
        let names: HashSet<&str> = all().map(|program| program.names[0]).collect();
        assert!(names.len() >= 40, "{}", names.len());
        for program in all() {
            assert!(program.head.starts_with('(') && program.head.contains(") -> "), "{}", program.head);
            assert!(
                program.docs.len() >= 2 && program.docs.iter().all(|doc| doc.ends_with(['.', '?'])),
                "{:?}",
                program.names
            );
            assert!(program.body.contains("return ") && !program.body.contains('\t'), "{}", program.body);
            assert!(program.calls.len() >= 3);
            assert!(!format!("{}{:?}", program.body, program.docs).contains("\"\"\""));
        }
    }

    #[test]
    fn programs_differ() {
        let bodies: HashSet<String> = all().map(|program| format!("{:?}{}", program.docs, program.body)).collect();
        assert_eq!(bodies.len(), all().count());
    }

    #[test]
    fn long_texts_are_wrapped_and_keep_their_words() {
        let text = "word ".repeat(60);
        let lines = wrapped(text.trim());
        assert!(lines.lines().all(|line| line.len() <= 80));
        assert_eq!(lines.split_whitespace().count(), 60);
        assert_eq!(wrapped("short"), "short");
    }
}
