//! Roles and duties in words: what a task takes, named in several ways.
//!
//! Teams are decided with marks in place of duties ([`WORKED`], [`BRIEF`], [`REWORDED`]), so that a team can be tried on many
//! tasks; [`worded`] puts words for the marks. The words vary with the seed, the decisions do not.

use super::{draw, pick};
use lemon_policy::{TaskFeatures, TaskKind};
use lemon_spec::{Agent, Spec};

/// The mark of a duty that names what the task takes and asks for the working.
pub const WORKED: &str = "<worked>";
/// The mark of one that names it and asks for the answer alone.
pub const BRIEF: &str = "<brief>";
/// The mark of one that names it and asks for a paraphrase of the task. For the bundled models see
/// [`lemon_problems::in_other_words`]; other models get the request as text.
pub const REWORDED: &str = "<reworded>";

/// The team with words for its marks, for a task with these features. Duties without a mark stay.
pub fn worded(team: &Spec, features: &TaskFeatures, question: &str, seed: u64) -> Spec {
    let mut team = team.clone();
    for (at, agent) in team.agents.iter_mut().enumerate() {
        let drawn = draw(seed, &["words", question, &at.to_string()]);
        let frames = match agent.duty.as_deref() {
            Some(WORKED) => frames(agent, features.kind, false),
            Some(BRIEF) => frames(agent, features.kind, true),
            Some(REWORDED) => &REWORD,
            _ => continue,
        };
        let subject = subject(features, drawn);
        agent.role = role(features, drawn);
        agent.duty = match subject {
            Some(subject) => pick(frames.naming, drawn >> 8).map(|frame| frame.replace("{}", subject)),
            None => pick(frames.plain, drawn >> 8).map(str::to_owned),
        };
    }
    team
}

/// What the task takes, in words: what the role does not name already, where there is more than one thing. `None`: nothing
/// that can be seen.
fn subject(features: &TaskFeatures, drawn: u64) -> Option<&'static str> {
    let words = words_for(features.skills.last()?.name)?;
    pick(&words.subjects, drawn >> 16)
}

/// The role: an expert in the first skill that the task needs. `None`, for which the base role's title stands, where no skill is
/// known.
fn role(features: &TaskFeatures, drawn: u64) -> Option<String> {
    let words = words_for(features.skills.first()?.name)?;
    pick(&words.roles, drawn >> 32).map(str::to_owned)
}

fn words_for(skill: &str) -> Option<&'static Words> {
    WORDS.iter().find(|words| words.skill == skill)
}

/// Sentences for duties: those with a place for what the task takes, and those without.
struct Frames {
    naming: &'static [&'static str],
    plain: &'static [&'static str],
}

fn frames(agent: &Agent, kind: TaskKind, brief: bool) -> &'static Frames {
    match (kind, agent.after.is_empty(), brief) {
        (TaskKind::Program, true, false) => &PROGRAM,
        (TaskKind::Program, true, true) => &PROGRAM_BRIEF,
        (_, true, false) => &SOLVE,
        (_, true, true) => &SOLVE_BRIEF,
        (_, false, false) => &CHECK,
        (_, false, true) => &CHECK_BRIEF,
    }
}

// Short, because every call pays for them, and none of them names a skill by itself.
const SOLVE: Frames = Frames {
    naming: &["Work out the {}.", "Mind the {}.", "Do the {} first.", "Solve the {}.", "Find the {}."],
    plain: &["Work it out.", "Solve it.", "Go in steps.", "Think it through.", "Find it."],
};
const SOLVE_BRIEF: Frames = Frames {
    naming: &[
        "Give only the answer; use {}.",
        "By {}, the answer alone.",
        "Use {}, without explanation.",
        "Decide by {}; no explanation.",
    ],
    plain: &["Give only the answer.", "The answer alone.", "Choose, without explanation.", "Decide; no explanation."],
};
const CHECK: Frames = Frames {
    naming: &["Redo the {} and decide.", "Check the {}.", "Correct the {}.", "Test the answer; mind the {}."],
    plain: &["Redo it and decide.", "Check it.", "Correct it.", "Test the answer."],
};
const CHECK_BRIEF: Frames = Frames {
    naming: &[
        "Check by {}; give only the answer.",
        "Decide by {}, the answer alone.",
        "Review the {}, without explanation.",
        "Correct the {}; no explanation.",
    ],
    plain: &[
        "Check; give only the answer.",
        "Decide; the answer alone.",
        "Review it, without explanation.",
        "Correct it; no explanation.",
    ],
};
const REWORD: Frames = Frames {
    naming: &["Reword it, then do the {}.", "Rephrase it; work out the {}.", "Paraphrase it and mind the {}."],
    plain: &["Reword it, then solve it.", "Rephrase it; work it out.", "Paraphrase it and solve it."],
};
const PROGRAM: Frames = Frames {
    naming: &["Write it; mind the {}.", "Code the {}.", "Get the {} right."],
    plain: &["Write it.", "Code it.", "Get it right."],
};
const PROGRAM_BRIEF: Frames = Frames {
    naming: &["Mind the {}; no explanation.", "Code the {} without explanation.", "Get the {} right, no explanation."],
    plain: &["Write it; no explanation.", "Code it without explanation.", "Get it right, no explanation."],
};

/// The words for one skill.
struct Words {
    skill: &'static str,
    roles: [&'static str; 3],
    subjects: [&'static str; 3],
}

const fn words(skill: &'static str, roles: [&'static str; 3], subjects: [&'static str; 3]) -> Words {
    Words { skill, roles, subjects }
}

#[rustfmt::skip]
const WORDS: &[Words] = &[
    words("percentages", ["Percent tutor", "Percent expert", "Percent solver"], ["percentages", "percentage", "percent part"]),
    words("fractions", ["Fractions tutor", "Ratio expert", "Fractions solver"], ["fractions", "ratios", "ratio"]),
    words("rates", ["Rates tutor", "Rates expert", "Speed solver"], ["rates", "speeds", "rate"]),
    words("money", ["Money tutor", "Price expert", "Money solver"], ["money", "prices", "costs"]),
    words("ages", ["Ages tutor", "Ages expert", "Ages solver"], ["ages", "ages of all", "ages named"]),
    words("averages", ["Average tutor", "Average expert", "Average solver"], ["averages", "average", "mean value"]),
    words("areas", ["Areas tutor", "Areas expert", "Areas solver"], ["areas", "area", "perimeter"]),
    words("calendars", ["Calendar tutor", "Schedule expert", "Calendar solver"], ["weeks", "schedule", "calendar"]),
    words("stock", ["Stock tutor", "Totals expert", "Stock solver"], ["totals", "stock", "total"]),
    words("mathematics", ["Mathematician", "Mathematics expert", "Mathematics tutor"], ["mathematics", "algebra", "mathematics of it"]),
    words("physics", ["Physicist", "Physics expert", "Physics tutor"], ["physics", "physics of it", "physics involved"]),
    words("chemistry", ["Chemist", "Chemistry expert", "Chemistry tutor"], ["chemistry", "chemistry of it", "chemistry involved"]),
    words("biology", ["Biologist", "Biology expert", "Biology tutor"], ["biology", "biology of it", "biology involved"]),
    words("medicine", ["Doctor", "Medical expert", "Medicine tutor"], ["medicine", "medical facts", "medicine of it"]),
    words("computing", ["Computer scientist", "Computing expert", "Software engineer"], ["computing", "computer science", "computing involved"]),
    words("history", ["Historian", "History expert", "History tutor"], ["history", "historical facts", "history of it"]),
    words("law", ["Legal adviser", "Law expert", "Law tutor"], ["law", "legal rule", "law of the matter"]),
    words("philosophy", ["Philosopher", "Philosophy expert", "Moral philosopher"], ["philosophy", "moral side", "philosophy of it"]),
    words("economics", ["Economist", "Economics expert", "Economics tutor"], ["economics", "economics of it", "economics involved"]),
    words("society", ["Sociologist", "Social scientist", "Psychologist"], ["society", "social science", "psychology"]),
    words("general knowledge", ["General knowledge expert", "Trivia expert", "Trivia champion"], ["general knowledge", "trivia", "facts about the world"]),
    words("strings", ["Strings expert", "String programmer", "Strings specialist"], ["strings", "string handling", "strings involved"]),
    words("lists", ["Lists expert", "List programmer", "Lists specialist"], ["lists", "list handling", "lists involved"]),
    words("numbers", ["Numbers expert", "Integer programmer", "Numbers specialist"], ["numbers", "integers", "numbers involved"]),
    words("parsing", ["Parsing expert", "Parsing programmer", "Parsing specialist"], ["parsing", "parsing steps", "parsing involved"]),
];

#[cfg(test)]
mod tests;
