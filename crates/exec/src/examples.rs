//! The examples that a question about code gives, as a test: what `by: test` runs. Hidden tests are never seen here.

use crate::code::CodeJob;

/// Examples that are run; more tell little and take time.
const MOST: usize = 12;

/// The examples of a question, and the function they call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Examples {
    entry_point: String,
    /// What stands before the function in the question: imports and helpers.
    preamble: String,
    /// The question, where it is a program that breaks off.
    prompt: String,
    /// Python statements; one that raises is an example that failed.
    checks: Vec<String>,
}

impl Examples {
    /// The examples of a question: `>>> f(1)` with the result below it, `assert f(1) == 2`, or `f(1) == 2` and the like.
    /// `None`: it has none, or names no function.
    pub fn of(question: &str) -> Option<Examples> {
        let defined = question.lines().filter_map(|line| function_name(line.strip_prefix("def ")?)).next_back();
        let lines: Vec<&str> = question.lines().map(str::trim).collect();
        let named =
            || lines.iter().filter_map(|line| line.strip_prefix(">>> ").or(line.strip_prefix("assert "))).next();
        let entry_point = defined.or_else(|| function_name(named()?))?.to_owned();
        let mut checks = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let check = match line.strip_prefix(">>> ") {
                Some(call) => session(call, lines.get(at + 1..).unwrap_or_default()),
                None if line.starts_with("assert ") => Some((*line).to_owned()),
                None => equation(line, &entry_point),
            };
            checks.extend(check.filter(|check| check.contains(&format!("{entry_point}("))));
        }
        checks.dedup();
        checks.truncate(MOST);
        let begins =
            question.find(&format!("def {entry_point}(")).filter(|at| is_code(question.get(..*at).unwrap_or("")));
        let preamble = begins.and_then(|at| question.get(..at)).unwrap_or_default().to_owned();
        let prompt = if begins.is_some() { question.to_owned() } else { String::new() };
        (!checks.is_empty()).then_some(Examples { entry_point, preamble, prompt, checks })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.checks.len()
    }

    /// The job that runs them on the program in a reply.
    pub fn job(&self, reply: &str) -> CodeJob {
        let code = self.program(reply);
        // JSON strings are Python strings.
        let checks = serde_json::Value::from(self.checks.clone());
        let test = format!(
            "def check(candidate):\n    passed = 0\n    for source in {checks}:\n        try:\n            exec(source, globals())\n            passed += 1\n        except Exception:\n            pass\n    assert passed == {count}, 'passed %d' % passed\n",
            count = self.count()
        );
        CodeJob::Check { code, entry_point: self.entry_point.clone(), prompt: self.prompt.clone(), test }
    }

    /// How many of them passed, by what the test said.
    pub fn passed(&self, run: &crate::code::CodeRun) -> usize {
        let said = || run.printed.split_once("passed ")?.1.split_whitespace().next()?.parse::<usize>().ok();
        // A run without a word of the test: the program was cut off, and nothing is known to have passed.
        if run.ok { self.count() } else { said().unwrap_or(0).min(self.count()) }
    }

    /// The whole program: the block that defines the function, after what stands before it in the question. A block that
    /// does not define it continues the question.
    fn program(&self, reply: &str) -> String {
        let defines = |text: &str| text.contains(&format!("def {}(", self.entry_point));
        let blocks = blocks(reply);
        let block = blocks.iter().rev().find(|block| defines(block)).or(blocks.last());
        let code = block.map_or(reply, String::as_str);
        let before = if defines(code) { &self.preamble } else { &self.prompt };
        format!("{before}\n{code}\n")
    }
}

/// Whether a text reads as Python that stands before a function.
fn is_code(text: &str) -> bool {
    let begins = |line: &str| {
        line.is_empty()
            || line.starts_with([' ', '\t', '#', '@', '"', '\''])
            || ["import ", "from ", "def ", "class "].iter().any(|word| line.starts_with(word))
            || line
                .split_once('=')
                .is_some_and(|(name, _)| name.trim().chars().all(|c| c.is_alphanumeric() || c == '_'))
    };
    text.lines().all(begins)
}

/// The name before the first parenthesis, if it is one.
fn function_name(text: &str) -> Option<&str> {
    let (before, _) = text.split_once('(')?;
    let name = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let begins = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    begins.then_some(name)
}

/// An example as an interactive session shows it.
fn session(call: &str, below: &[&str]) -> Option<String> {
    let ends = |line: &&str| {
        line.is_empty() || line.starts_with(">>>") || line.starts_with("\"\"\"") || line.starts_with("'''")
    };
    let result: Vec<&str> = below.iter().copied().take_while(|line| !ends(line)).collect();
    let result = result.first().filter(|_| !call.contains("print("))?;
    Some(format!("assert ({call}) == ({result})"))
}

/// `f(1) == 2`, `f(1) ➞ 2`, `f(1) should return 2` and the like, anywhere in a line.
fn equation(line: &str, entry_point: &str) -> Option<String> {
    let from = line.find(&format!("{entry_point}("))?;
    let rest = line.get(from..)?;
    let open = entry_point.len();
    let mut depth = 0usize;
    let close = rest.char_indices().skip(open).find_map(|(at, c)| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let (call, after) = rest.split_at_checked(close + 1)?;
    let after = after.trim_start().trim_start_matches(['#', ',']).trim_start();
    let words = ["==", "=>", "->", "➞", "→", "=", "should return ", "returns ", "should be ", "return "];
    let result = words.iter().find_map(|word| after.strip_prefix(word))?.trim();
    let result = result.split(" #").next().unwrap_or(result).trim_end_matches(['.', ';', ',']).trim();
    (!result.is_empty() && !result.ends_with(':')).then(|| format!("assert ({call}) == ({result})"))
}

/// The fenced blocks of a reply.
fn blocks(reply: &str) -> Vec<String> {
    let (mut blocks, mut open): (Vec<String>, Option<Vec<&str>>) = (Vec::new(), None);
    for line in reply.lines() {
        match (line.trim_start().starts_with("```"), &mut open) {
            (true, Some(_)) => blocks.extend(open.take().map(|lines| lines.join("\n"))),
            (true, None) => open = Some(Vec::new()),
            (false, Some(lines)) => lines.push(line),
            (false, None) => {}
        }
    }
    blocks.extend(open.map(|lines| lines.join("\n")));
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::CodeRun;
    use proptest::prelude::*;

    const PROMPT: &str = "from typing import List\n\n\ndef half(x: int) -> int:\n    \"\"\" Half of x.\n    >>> half(4)\n    2\n    >>> half(10)\n    5\n    \"\"\"\n";

    fn checks(question: &str) -> Vec<String> {
        Examples::of(question).map(|examples| examples.checks).unwrap_or_default()
    }

    #[test]
    fn examples_are_found_in_the_usual_forms() {
        assert_eq!(checks(PROMPT), ["assert (half(4)) == (2)", "assert (half(10)) == (5)"]);
        let arrows = "def add(a, b):\n    \"\"\"add(2, 3) ➞ 5\n    add([1, 2], (3)) => [1, 2, 3]\n    add(1, 1) should return 2.\"\"\"";
        let expected = [
            "assert (add(2, 3)) == (5)",
            "assert (add([1, 2], (3))) == ([1, 2, 3])",
            "assert (add(1, 1)) == (2.\"\"\")",
        ];
        assert_eq!(checks(arrows), expected, "one that is no Python fails for every program alike");
        let asserts = "Write a function that doubles.\nassert double(2) == 4\nassert double(0) == 0";
        assert_eq!(checks(asserts), ["assert double(2) == 4", "assert double(0) == 0"]);
        for none in
            ["Write a function f(x) that doubles x.", "What is 2 + 2?", "def f(x):\n    \"\"\"Doubles x.\"\"\"", ""]
        {
            assert_eq!(Examples::of(none), None, "{none}");
        }
    }

    #[test]
    fn the_program_is_whole() {
        let examples = Examples::of(PROMPT).unwrap();
        let code = |reply: &str| match examples.job(reply) {
            CodeJob::Check { code, .. } => code,
            CodeJob::Script { .. } => String::new(),
        };
        let whole = code("Here:\n```python\ndef half(x: List) -> int:\n    return x // 2\n```\nDone.");
        assert_eq!(whole, "from typing import List\n\n\n\ndef half(x: List) -> int:\n    return x // 2\n");
        let body = code("```python\n    return x // 2\n```");
        assert!(body.starts_with(PROMPT) && body.ends_with("\n    return x // 2\n"), "{body}");
        let prose = Examples::of("Write double(x).\nassert double(1) == 2").unwrap();
        assert_eq!((prose.preamble.as_str(), prose.prompt.as_str()), ("", ""), "prose is no program");
    }

    #[test]
    fn what_the_test_said_is_counted() {
        let examples = Examples::of(PROMPT).unwrap();
        let passed = |ok, printed: &str| examples.passed(&CodeRun { ok, printed: printed.into(), error: None });
        assert_eq!(passed(true, ""), 2);
        assert_eq!(passed(false, "AssertionError: passed 1\nin the test, line 9"), 1);
        assert_eq!(passed(false, "AssertionError: passed 99"), 2);
        assert_eq!(passed(false, ""), 0);
    }

    proptest! {
        #[test]
        fn any_question_is_read_without_panic(question in "(?s)(def f\\(x\\):|>>> f\\(|assert |f\\(1\\) == |\\)|\n|.){0,40}") {
            if let Some(examples) = Examples::of(&question) {
                prop_assert!((1..=MOST).contains(&examples.count()));
                examples.job(&question);
            }
        }
    }
}
