//! What an agent of a team is told, in the short form that small models of our own were taught.

use lemon_exec::worker::AgentPrompt;
use lemon_problems::{LessonForm, in_other_words, prompt};
use std::borrow::Cow;

/// What such models solve, said of anything else.
pub const OUT_OF_REACH: &str =
    "arithmetic word problems only, and this is not one: it should have two numbers and ask for a third";

/// Words that stand for a number.
const NUMBERS: &[&str] = &[
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "twenty",
    "dozen", "half", "twice", "double", "triple", "each", "every",
];
/// Words that ask for one.
const ASKS: &[&str] = &["find", "calculate", "compute", "determine", "total", "altogether", "sum"];
/// What follows a "how" that asks for one.
const HOW: &[&str] = &[
    "many", "much", "few", "more", "less", "far", "long", "longer", "short", "old", "tall", "high", "deep", "wide",
    "thick", "big", "large", "heavy", "fast", "soon", "late", "often", "likely",
];
/// What follows a "what" that asks for one.
const WHAT: &[&str] = &[
    "is",
    "s",
    "was",
    "will",
    "would",
    "does",
    "number",
    "amount",
    "fraction",
    "percent",
    "percentage",
    "time",
    "year",
    "speed",
    "score",
];

/// Whether a question is of the kind that small models of our own were taught: there are numbers to reckon with, and it asks
/// for a number. It is no proof, but it keeps them from making something up about most of what they know nothing of.
pub fn is_word_problem(question: &str) -> bool {
    let text = question.to_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_number = |word: &&&str| word.contains(|c: char| c.is_ascii_digit()) || NUMBERS.contains(word);
    let numbers = words.iter().filter(is_number).count();
    let asks = |pair: &[&str]| match pair {
        ["how", next] => HOW.contains(next),
        ["what", next] => WHAT.contains(next),
        _ => false,
    };
    // A sum that stands alone, as 2 + 2, asks for itself.
    let asked = numbers == words.len() || words.windows(2).any(asks) || words.iter().any(|word| ASKS.contains(word));
    numbers >= 2 && asked
}

/// The prompt: the task, what the agent reads of others, and one word for what is wanted. Where the duty asks for a paraphrase, the
/// task is paraphrased; the seed selects the words.
pub fn short_prompt(agent_prompt: &AgentPrompt, seed: u64) -> String {
    let readings: Vec<String> = agent_prompt.readings.iter().map(|reading| marked(reading)).collect();
    let form = form(agent_prompt, &readings);
    let question = match mentions(&agent_prompt.duty, REWORDING) {
        true => Cow::Owned(in_other_words(&agent_prompt.question, seed)),
        false => Cow::Borrowed(&*agent_prompt.question),
    };
    prompt(form, &question, &readings.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What a duty says that wants the task read in other words.
const REWORDING: &[&str] = &["other words", "reword", "rephrase", "paraphrase"];

/// A bare answer is marked as one, as it was in the lessons.
fn marked(reading: &str) -> String {
    let is_number = !reading.is_empty() && reading.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '.' | ','));
    if is_number { format!("#### {reading}") } else { reading.to_owned() }
}

/// What is wanted, by the base role, what there is to read, and what the duty asks for.
fn form(agent_prompt: &AgentPrompt, readings: &[String]) -> LessonForm {
    let answers = readings.iter().filter(|reading| reading.contains("####")).count();
    match (agent_prompt.base.as_str(), answers) {
        ("planner" | "decomposer", _) => plan_or_numbers(&agent_prompt.duty),
        ("critic" | "verifier" | "tester" | "judge" | "summariser", 1) => LessonForm::Check,
        // An agent that reads several answers decides between them, whatever its role is.
        (_, 2..) => LessonForm::Choose,
        (_, 1) if mentions(&agent_prompt.duty, &["check", "verify", "correct", "recompute", "review"]) => {
            LessonForm::Check
        }
        _ if agent_prompt.asks_for_answer_alone() => LessonForm::Brief,
        _ if !readings.is_empty() && mentions(&agent_prompt.duty, &["next step", "one step"]) => LessonForm::Step,
        _ => LessonForm::Solve,
    }
}

fn plan_or_numbers(duty: &str) -> LessonForm {
    if mentions(duty, &["numbers", "quantities", "extract"]) { LessonForm::Extract } else { LessonForm::Plan }
}

fn mentions(duty: &str, words: &[&str]) -> bool {
    let duty = duty.to_lowercase();
    words.iter().any(|word| duty.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, duty: &str, readings: &[&str], expected: &str) {
        let agent_prompt = AgentPrompt {
            question: "Ana has 3 pens and buys 4. How many?".into(),
            base: base.into(),
            duty: duty.into(),
            readings: readings.iter().map(|it| (*it).into()).collect(),
            ..AgentPrompt::default()
        };
        let text = short_prompt(&agent_prompt, 0);
        // What becomes of the question itself is a matter of `lemon_problems`.
        let (task, rest) = text.split_once('\n').unwrap();
        assert!(task.starts_with("task: ") && task.ends_with(" has 3 pens and buys 4. how many?"), "{task}");
        assert_eq!(rest, expected);
    }

    #[test]
    fn a_duty_may_ask_for_other_words() {
        let asked = |duty: &str, seed| {
            let question = "The florist had 12 tulips, 3 daffodils and 40 lilies. How many flowers had the florist?";
            short_prompt(&AgentPrompt { question: question.into(), duty: duty.into(), ..AgentPrompt::default() }, seed)
        };
        let plain = asked("Solve it.", 1);
        assert!(plain.contains("florist had 12 tulips") && plain == asked("Solve it.", 2));
        for duty in ["Read it in other words.", "Reword it, then solve it.", "Rephrase the task.", "PARAPHRASE, solve."]
        {
            let other = asked(duty, 1);
            assert!(other != plain && other.contains(" had 12 ") && other.ends_with("\nsolve:\n"), "{duty}: {other}");
            assert!(other == asked(duty, 1) && other != asked(duty, 2));
        }
    }

    #[test]
    fn word_problems_have_numbers() {
        let check = |question, expected| assert_eq!(is_word_problem(question), expected, "{question}");
        check("Ana has 3 pens and buys 4. How many?", true);
        check("Each of 5 friends gets a pen. How many pens?", true);
        check("I have two apples and eat one. What is left?", true);
        check("It was 80 dollars and is 15 % off. What does it cost?", true);
        check("Find the sum of 3 and 4.", true);
        check("2 + 2", true);
        check("2?", false);
        check("Who was the first president?", false);
        check("What happened in 1989?", false);
        check("What happened between 1914 and 1918?", false);
        check("Who were the two first presidents, and which one was older?", false);
        check("Write a function that adds 2 and 3.", false);
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
