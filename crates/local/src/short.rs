//! What an agent of a team is told, in the short form that small models of our own were taught.

use lemon_exec::worker::Brief;
use lemon_problems::{Form, prompt};

/// What such models say of anything else.
pub const OUT_OF_REACH: &str =
    "it solves arithmetic word problems only, and this is not one: it has fewer than two numbers";

/// Whether a question is of the kind that small models of our own were taught: there are numbers to reckon with.
pub fn is_word_problem(question: &str) -> bool {
    const WORDS: &[&str] = &[
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "twenty",
        "dozen", "half", "twice", "double", "triple", "each", "every",
    ];
    let is_number = |word: &&str| word.contains(|c: char| c.is_ascii_digit()) || WORDS.contains(word);
    let text = question.to_lowercase();
    text.split(|c: char| !c.is_alphanumeric()).filter(is_number).count() >= 2
}

/// The prompt: the task, what was read of others, and one word for what is wanted.
pub fn short_prompt(brief: &Brief) -> String {
    let readings: Vec<String> = brief.readings.iter().map(|reading| marked(reading)).collect();
    let form = form(brief, &readings);
    prompt(form, &brief.question, &readings.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A bare answer is marked as one, as it was in the lessons.
fn marked(reading: &str) -> String {
    let is_number = !reading.is_empty() && reading.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '.' | ','));
    if is_number { format!("#### {reading}") } else { reading.to_owned() }
}

/// What is wanted, by the base role, what there is to read, and what the duty asks for.
fn form(brief: &Brief, readings: &[String]) -> Form {
    let answers = readings.iter().filter(|reading| reading.contains("####")).count();
    match (brief.base.as_str(), answers) {
        ("planner" | "decomposer", _) => plan_or_numbers(&brief.duty),
        ("critic" | "verifier" | "tester" | "judge" | "summariser", 1) => Form::Check,
        // Whoever sees several answers decides between them, whatever it is called.
        (_, 2..) => Form::Choose,
        (_, 1) if mentions(&brief.duty, &["check", "verify", "correct", "recompute", "review"]) => Form::Check,
        _ if brief.asks_for_answer_alone() => Form::Brief,
        _ if !readings.is_empty() && mentions(&brief.duty, &["next step", "one step"]) => Form::Step,
        _ => Form::Solve,
    }
}

fn plan_or_numbers(duty: &str) -> Form {
    if mentions(duty, &["numbers", "quantities", "extract"]) { Form::Extract } else { Form::Plan }
}

fn mentions(duty: &str, words: &[&str]) -> bool {
    let duty = duty.to_lowercase();
    words.iter().any(|word| duty.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, duty: &str, readings: &[&str], expected: &str) {
        let brief = Brief {
            question: "Ana has 3 pens and buys 4. How many?".into(),
            base: base.into(),
            duty: duty.into(),
            readings: readings.iter().map(|it| (*it).into()).collect(),
            ..Brief::default()
        };
        let text = short_prompt(&brief);
        let rest = text.strip_prefix("task: ana has 3 pens and buys 4. how many?\n").unwrap();
        assert_eq!(rest, expected);
    }

    #[test]
    fn word_problems_have_numbers() {
        let check = |question, expected| assert_eq!(is_word_problem(question), expected, "{question}");
        check("Ana has 3 pens and buys 4. How many?", true);
        check("Each of 5 friends gets a pen. How many pens?", true);
        check("I have two apples and eat one. What is left?", true);
        check("Who was the first president?", false);
        check("What happened in 1989?", false);
        check("Write a poem.", false);
        check("", false);
    }

    #[test]
    fn what_is_wanted_follows_from_role_duty_and_readings() {
        check("solver", "Solve it.", &[], "solve:\n");
        check("solver", "Give only the answer.", &[], "brief:\n");
        check("solver", "Solve it.", &["3 + that"], "read: 3 + that\nsolve:\n");
        check("solver", "Do the next step.", &["3 + 4 = 7"], "read: 3 + 4 = 7\nstep:\n");
        check("planner", "Plan.", &[], "plan:\n");
        check("decomposer", "Say which numbers matter.", &[], "extract:\n");
        check("critic", "Check it.", &["3 + 4 = 7\n#### 7"], "read: 3 + 4 = 7; #### 7\ncheck:\n");
        check("critic", "Check it.", &[], "solve:\n");
        check("solver", "Recompute and correct.", &["7"], "read: #### 7\ncheck:\n");
        check("solver", "Solve it.", &["7"], "read: #### 7\nsolve:\n");
        check("judge", "Decide.", &["7", "12"], "read: #### 7\nread: #### 12\nchoose:\n");
        check("expert", "Decide; no explanation.", &["7", "1,2"], "read: #### 7\nread: #### 12\nchoose:\n");
        check("of my own", "", &[], "solve:\n");
    }
}
