//! Code that models write: who runs it, which part of a reply it is, and what becomes of what it prints.

use crate::answer;
use crate::form::Form;
use async_trait::async_trait;
use lemon_trace::FailureKind;
use serde::{Deserialize, Serialize};

/// Characters of what a program printed that go into the reply of its agent.
const MOST_PRINTED: usize = 2_000;

/// Runs code that a model wrote, away from everything it could harm, within bounds of time, memory and output.
///
/// An implementation must not block the thread it is polled on: it runs code on a thread for blocking work.
#[async_trait]
pub trait CodeRunner: Send + Sync {
    /// Whether code can be run: asked before a run that needs it. It may take a moment.
    ///
    /// # Errors
    /// Why it cannot.
    fn ready(&self) -> Result<(), CodeError> {
        Ok(())
    }

    /// Runs a job to its end or to a limit.
    ///
    /// # Errors
    /// For reasons that lie with the machine, or with the recording that answers in its place. Whatever the code does is a
    /// [`CodeRun`].
    async fn run(&self, job: &CodeJob) -> Result<CodeRun, CodeError>;
}

/// Python code to run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "lowercase")]
pub enum CodeJob {
    /// A program that prints its result.
    Script {
        /// The program.
        code: String,
    },
    /// A program and a test of it, which must not share an interpreter.
    Check {
        /// The program.
        code: String,
        /// The function that is tested.
        entry_point: String,
        /// Helpers that the test may use; may be empty.
        prompt: String,
        /// Source that defines `check(candidate)`.
        test: String,
    },
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRun {
    /// Whether the program ended well, and passed its test if it has one.
    pub ok: bool,
    /// What a script printed. Of a check, what the assertion of the test said that failed; the program cannot forge it.
    pub printed: String,
    /// What went wrong otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Code could not be run at all. It says nothing about the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct CodeError {
    /// How the agent fails that needed it.
    pub kind: FailureKind,
    /// What is missing.
    pub message: String,
}

/// The program in a reply: the last fenced block that prints something, else the last one in Python. A reply without
/// fences is a program where it prints something.
pub fn program_in(reply: &str) -> Option<String> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut open: Option<(String, Vec<&str>)> = None;
    for line in reply.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some((language, lines))) => blocks.push((language, lines.join("\n"))),
            (Some(language), None) => open = Some((language.trim().to_lowercase(), Vec::new())),
            (None, Some((language, mut lines))) => {
                lines.push(line);
                open = Some((language, lines));
            }
            (None, None) => {}
        }
    }
    // A block that is never closed goes on to the end.
    blocks.extend(open.map(|(language, lines)| (language, lines.join("\n"))));
    let prints = |text: &str| text.contains("print(");
    let python = |language: &str| language.is_empty() || language.starts_with("py");
    let chosen = blocks.iter().rev().find(|(language, text)| python(language) && prints(text));
    let chosen = chosen.or_else(|| blocks.iter().rev().find(|(language, _)| language.starts_with("py")));
    match chosen {
        Some((_, text)) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
        None => (blocks.is_empty() && prints(reply)).then(|| reply.trim().to_owned()),
    }
}

/// The answer that a program printed, to a task of this form; or why it is none.
pub(crate) fn printed_answer(run: &CodeRun, form: Form, options: &[(char, String)]) -> Result<String, String> {
    if !run.ok {
        return Err(run.error.clone().unwrap_or_else(|| "it failed".to_owned()));
    }
    let line = run.printed.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let line = line.ok_or("it printed nothing")?;
    let shown: String = line.chars().take(80).collect();
    match form {
        Form::Number => answer::last_number(line).ok_or(format!("it printed no number: `{shown}`")),
        Form::Choice if !options.is_empty() => {
            let letter = answer::option_in(line, options);
            letter.map(String::from).ok_or(format!("it printed none of the options: `{shown}`"))
        }
        _ => Ok(line.chars().take(MOST_PRINTED).collect()),
    }
}

/// A reply with what its program printed, and the answer on the last line, where every reader of replies looks for it.
pub(crate) fn with_output(reply: &str, run: Option<&CodeRun>, answer: &Result<String, String>) -> String {
    let mut text = reply.trim_end().to_owned();
    if text.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1 {
        text.push_str("\n```");
    }
    if let Some(run) = run.filter(|run| !run.printed.trim().is_empty()) {
        // Printed fences would hide the answer behind them.
        let printed: String = run.printed.trim().replace("```", "'''").chars().take(MOST_PRINTED).collect();
        text.push_str(&format!("\n\nThe program printed:\n{printed}"));
    }
    match answer {
        Ok(answer) => text.push_str(&format!("\n\nAnswer: {answer}")),
        Err(fact) => text.push_str(&format!("\n\nThe program gave no answer: {fact}")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ran(printed: &str) -> CodeRun {
        CodeRun { ok: true, printed: printed.to_owned(), error: None }
    }

    #[test]
    fn the_program_is_found_in_a_reply() {
        let check = |reply: &str, expected: Option<&str>| assert_eq!(program_in(reply).as_deref(), expected, "{reply}");
        check("```python\nprint(1)\n```", Some("print(1)"));
        check(
            "First:\n```python\nx = 1\n```\nThen:\n```python\nprint(x)\n```\nIt prints\n```\n1\n```",
            Some("print(x)"),
        );
        check("```py\nx = 1\nx\n```", Some("x = 1\nx"));
        check("```python\nprint(2)", Some("print(2)"));
        check("x = 3\nprint(x)", Some("x = 3\nprint(x)"));
        check("```text\n42\n```", None);
        check("The answer is 42.", None);
        check("```python\n```", None);
        check("", None);
    }

    #[test]
    fn what_is_printed_becomes_the_answer() {
        let options = [('A', "32400".to_owned()), ('B', "9 miles".to_owned())];
        let check = |printed: &str, form, expected: Result<&str, &str>| {
            let found = printed_answer(&ran(printed), form, &options);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{printed}");
        };
        check("42\n\n", Form::Number, Ok("42"));
        check("Step 1: 7\nThe total of 2 is 17.999999999999996 dollars", Form::Number, Ok("18"));
        check("1,250.50", Form::Number, Ok("1250.50"));
        check("none", Form::Number, Err("it printed no number: `none`"));
        check("B", Form::Choice, Ok("B"));
        check("9.0", Form::Choice, Ok("B"));
        check("$32,400", Form::Choice, Ok("A"));
        check("12", Form::Choice, Err("it printed none of the options: `12`"));
        check("Paris", Form::Short, Ok("Paris"));
        check(" \n", Form::Short, Err("it printed nothing"));
        let failed = CodeRun { ok: false, printed: "7".into(), error: Some("NameError: x".into()) };
        assert_eq!(printed_answer(&failed, Form::Number, &[]), Err("NameError: x".to_owned()));
    }

    proptest! {
        /// Whatever a model wrote and its program printed, the answer of the reply is the one that was printed.
        #[test]
        fn the_answer_of_a_computed_reply_is_what_was_printed(
            reply in "(?s)(```(python)?\n|Answer: 3\n|[a-z#>*` \n]{0,9}){0,6}",
            printed in "(?s)(```\n|Answer: 4\n|[a-z0-9` \n]{0,9}){0,6}",
            answer in "[0-9]{1,6}",
        ) {
            let text = with_output(&reply, Some(&ran(&printed)), &Ok(answer.clone()));
            prop_assert_eq!(answer::extract(&text), Some(answer), "{}", text);
        }

        #[test]
        fn no_reply_breaks_the_reader(reply in "(?s).{0,200}") {
            if let Some(program) = program_in(&reply) {
                prop_assert!(!program.trim().is_empty());
            }
        }
    }
}
