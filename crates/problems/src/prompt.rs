//! What a worker of a team reads, in training and when it works.

use crate::names;

/// What is asked of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LessonForm {
    /// Solve step by step.
    Solve,
    /// Say the answer only.
    Brief,
    /// Say the steps without results.
    Plan,
    /// Say the numbers that are needed.
    Extract,
    /// Do the next step.
    Step,
    /// Check a solution, and correct it.
    Check,
    /// Choose among solutions or answers.
    Choose,
}

impl LessonForm {
    /// All of them.
    pub const ALL: [LessonForm; 7] = [
        LessonForm::Solve,
        LessonForm::Brief,
        LessonForm::Plan,
        LessonForm::Extract,
        LessonForm::Step,
        LessonForm::Check,
        LessonForm::Choose,
    ];

    /// Its name in prompts.
    pub fn name(self) -> &'static str {
        match self {
            LessonForm::Solve => "solve",
            LessonForm::Brief => "brief",
            LessonForm::Plan => "plan",
            LessonForm::Extract => "extract",
            LessonForm::Step => "step",
            LessonForm::Check => "check",
            LessonForm::Choose => "choose",
        }
    }
}

/// Of a reading, no more than the last so many characters: answers stand at the end.
const LONGEST_READING: usize = 160;

/// The prompt: the task, what was read of others, and what is wanted.
///
/// ```
/// use lemon_problems::{LessonForm, prompt};
///
/// let text = prompt(LessonForm::Check, "Ana had $1,200.\nHow much is half?", &["1200 / 2 = 600\n#### 600"]);
/// assert_eq!(text, "task: alex had 1200 dollars. how much is half?\nread: 1200 / 2 = 600; #### 600\ncheck:\n");
/// ```
pub fn prompt(form: LessonForm, question: &str, readings: &[&str]) -> String {
    let mut prompt = format!("task: {}\n", normalised(&names::made_alike(question)));
    for reading in readings {
        let lines = reading.lines().map(normalised).filter(|line| !line.is_empty());
        let line = lines.collect::<Vec<_>>().join("; ");
        let begin = line.char_indices().rev().nth(LONGEST_READING - 1).map_or(0, |(index, _)| index);
        prompt += &format!("read: {}\n", line[begin..].trim_start());
    }
    prompt + form.name() + ":\n"
}

/// Small letters, plain quotes, single spaces, dollars as a word, no commas in numbers.
fn normalised(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    let mut dollars = false;
    while let Some(c) = chars.next() {
        let next_is_digit = chars.peek().is_some_and(char::is_ascii_digit);
        let after_digit = plain.ends_with(|last: char| last.is_ascii_digit());
        if dollars && !(c.is_ascii_digit() || matches!(c, '.' | ',') && after_digit && next_is_digit) {
            dollars = false;
            let rest: String = [c].into_iter().chain(chars.clone().take(7)).collect();
            if !rest.trim_start().to_lowercase().starts_with("dollar") {
                plain.push_str(" dollars");
            }
        }
        match c {
            '$' if next_is_digit => {
                dollars = true;
                // What the sign kept apart stays apart.
                if after_digit || plain.ends_with([',', '.']) {
                    plain.push(' ');
                }
            }
            '$' if chars.peek() == Some(&'$') => {}
            ',' if after_digit && next_is_digit => {}
            '‘' | '’' | '`' | '´' => plain.push('\''),
            '“' | '”' | '«' | '»' => plain.push('"'),
            '–' | '—' | '−' | '‐' | '‑' => plain.push('-'),
            '×' | '·' => plain.push('*'),
            '÷' => plain.push('/'),
            c if c.is_whitespace() || c.is_control() => {
                if !plain.is_empty() && !plain.ends_with(' ') {
                    plain.push(' ');
                }
            }
            c => plain.extend(c.to_lowercase()),
        }
    }
    if dollars {
        plain.push_str(" dollars");
    }
    plain.truncate(plain.trim_end().len());
    plain
}

/// The answer of a reply: the number after the last `####`.
///
/// ```
/// assert_eq!(lemon_problems::read_answer("7 * 3 = 21\n#### 21"), Some(21));
/// assert_eq!(lemon_problems::read_answer("I do not know."), None);
/// ```
pub fn read_answer(reply: &str) -> Option<i64> {
    let (_, after) = reply.rsplit_once("####")?;
    let word = after.trim_start().trim_start_matches('$').split(|c: char| c.is_whitespace() || c == ';').next()?;
    word.trim_end_matches('.').replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(normalised(text), expected, "{text}");
    }

    #[test]
    fn texts_are_made_plain() {
        check("Ana’s  “pen”\tcosts $1,250.50, or $3.", "ana's \"pen\" costs 1250.50 dollars, or 3 dollars.");
        check("It is $5", "it is 5 dollars");
        check("It is $5 dollars", "it is 5 dollars");
        check("3,000 and 4, 5,6", "3000 and 4, 56");
        check(" a $ b ", "a $ b");
        check("2 × 3 – 1", "2 * 3 - 1");
        check("", "");
    }

    fn check_answer(reply: &str, expected: Option<i64>) {
        assert_eq!(read_answer(reply), expected, "{reply}");
    }

    #[test]
    fn answers_are_read() {
        check_answer("#### 5\n#### 1,200.", Some(1200));
        check_answer("#### $12", Some(12));
        check_answer("#### -3", Some(-3));
        check_answer("1 + 1 = 2; #### 2; good", Some(2));
        check_answer("####", None);
        check_answer("#### many", None);
    }

    proptest! {
        #[test]
        fn a_prompt_has_one_line_for_each_part(question in any::<String>(), reading in any::<String>()) {
            let text = prompt(LessonForm::Solve, &question, &[&reading, &reading]);
            prop_assert_eq!(text.lines().count(), 4);
            prop_assert!(text.lines().nth(1).is_some_and(|line| line.chars().count() <= LONGEST_READING + 6));
            prop_assert_eq!(text.to_lowercase(), text);
        }

        #[test]
        fn normalising_twice_changes_nothing(text in "[A-Za-z0-9$,. \n’-]{0,60}") {
            prop_assert_eq!(normalised(&normalised(&text)), normalised(&text));
        }
    }
}
