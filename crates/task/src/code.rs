//! Programming problems: the code in a reply, the program to run, and pass@k.

use crate::{
    Item,
    item::{Gold, Problem},
};

/// What decides whether a reply solves a problem: the reply is right if `check` of the test, called with the function,
/// returns.
///
/// The code is not to be trusted; run it in a sandbox only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The function asked for.
    pub entry_point: String,
    /// The prompt alone; some tests use the helpers it defines.
    pub prompt: String,
    /// The code under test: the prompt, then what the reply adds or redefines.
    pub code: String,
    /// The test, which defines `check(candidate)`.
    pub test: String,
}

impl Program {
    /// The program for a reply; `None` if the item is no programming problem or the reply holds no code.
    pub fn new(item: &Item, reply: &str) -> Option<Self> {
        let Gold::Code(problem) = &item.gold else { return None };
        let code = extract(reply, &problem.entry_point)?;
        Some(problem.program(complete(problem, &code)))
    }

    /// The program the public repositories run for the same reply.
    pub fn legacy(item: &Item, reply: &str) -> Option<Self> {
        let Gold::Code(problem) = &item.gold else { return None };
        Some(problem.program(format!("from typing import *\n{}", legacy_extract(reply))))
    }
}

impl Problem {
    fn program(&self, code: String) -> Program {
        Program { entry_point: self.entry_point.clone(), prompt: self.prompt.clone(), code, test: self.test.clone() }
    }
}

/// The code of a reply: the last fenced block that defines the function, else the last fenced block, else the reply
/// itself if it looks like code.
pub(crate) fn extract(reply: &str, entry_point: &str) -> Option<String> {
    let defines = |code: &&str| defines(code, entry_point);
    let blocks = fenced_blocks(reply);
    if let Some(block) = blocks.iter().rev().copied().find(defines).or(blocks.last().copied()) {
        return Some(block.to_owned());
    }
    if let Some(start) = definition_start(reply, entry_point) {
        return Some(reply[start..].to_owned());
    }
    let indented = reply.trim_matches('\n').starts_with([' ', '\t']);
    (indented && !reply.trim().is_empty()).then(|| reply.trim_matches('\n').to_owned())
}

/// The public repositories' rule: strip the characters of "```python" and newlines off both ends, whatever they
/// belong to.
pub(crate) fn legacy_extract(reply: &str) -> &str {
    reply.trim_start_matches(|c| "`python\n".contains(c)).trim_end_matches(['\n', '`'])
}

/// Puts the prompt before the code: for its imports and helpers, and as the head of a body without one. A function
/// of nothing but a docstring is valid Python, so a complete function may follow and replace it.
fn complete(problem: &Problem, code: &str) -> String {
    if defines(code, &problem.entry_point) {
        return format!("{}\n{code}\n", problem.prompt);
    }
    let indented = code.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with([' ', '\t']));
    let body: String = match indented {
        true => code.to_owned(),
        false => code.lines().map(|line| format!("    {line}\n")).collect(),
    };
    format!("{}\n{body}\n", problem.prompt)
}

fn defines(code: &str, entry_point: &str) -> bool {
    code.lines().any(|line| is_definition(line, entry_point))
}

fn is_definition(line: &str, entry_point: &str) -> bool {
    let line = line.strip_prefix("async ").unwrap_or(line);
    let name = line.strip_prefix("def ").and_then(|rest| rest.trim_start().strip_prefix(entry_point));
    name.is_some_and(|rest| rest.trim_start().starts_with('('))
}

/// Where the code of a reply without fences begins: at its first import or definition.
fn definition_start(reply: &str, entry_point: &str) -> Option<usize> {
    if !defines(reply, entry_point) {
        return None;
    }
    let mut start = 0;
    for line in reply.split_inclusive('\n') {
        if ["def ", "async def ", "import ", "from ", "@", "class "].iter().any(|head| line.starts_with(head)) {
            return Some(start);
        }
        start += line.len();
    }
    None
}

/// The contents of the fenced blocks of a Markdown text. A fence that is never closed runs to the end, as it does
/// where a reply was cut off.
fn fenced_blocks(reply: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let mut open: Option<usize> = None;
    let mut at = 0;
    for line in reply.split_inclusive('\n') {
        let next = at + line.len();
        if line.trim_start().starts_with("```") {
            match open.take() {
                Some(start) => blocks.push(&reply[start..at]),
                None => open = Some(next),
            }
        }
        at = next;
    }
    blocks.extend(open.map(|start| &reply[start..]));
    blocks.retain(|block| !block.trim().is_empty());
    blocks
}

/// The probability that at least one of `k` samples is right, estimated without bias from `n` samples of which
/// `correct` were. `None` unless `1 ≤ k ≤ n` and `correct ≤ n`.
///
/// ```
/// assert_eq!(lemon_task::pass_at_k(4, 2, 1), Some(0.5));
/// ```
pub fn pass_at_k(n: u64, correct: u64, k: u64) -> Option<f64> {
    if k == 0 || k > n || correct > n {
        return None;
    }
    // 1 - C(n - c, k) / C(n, k), as a product so that nothing overflows.
    let wrong = n - correct;
    if wrong < k {
        return Some(1.0);
    }
    let none: f64 = (0..k).map(|drawn| (wrong - drawn) as f64 / (n - drawn) as f64).product();
    Some(1.0 - none)
}
