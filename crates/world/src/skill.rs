//! What a task needs, and what a text names: the words by which a duty, a role or a plan can fit a task or miss it.

use lemon_task::{Item, Key, SetName};

/// The three kinds of task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskFamily {
    /// Word problems with a number to find.
    Reckoning,
    /// Questions of knowledge.
    Knowing,
    /// Programs to write.
    Coding,
}

impl TaskFamily {
    /// The family of an item.
    pub fn of(item: &Item) -> Self {
        match (item.set(), item.key()) {
            (_, Key::Code { .. }) => TaskFamily::Coding,
            (SetName::Aqua, _) | (_, Key::Number(_)) => TaskFamily::Reckoning,
            _ => TaskFamily::Knowing,
        }
    }
}

/// Something a task may need and a text may name.
#[derive(Debug, PartialEq, Eq)]
pub struct Skill {
    pub name: &'static str,
    /// The kind of task that may need it.
    pub family: TaskFamily,
    /// Beginnings of words that name it.
    cues: &'static [&'static str],
    /// Beginnings of MMLU subjects that need it.
    subjects: &'static [&'static str],
}

/// All skills. Cues are beginnings of lower-case words; one that ends in a space is a whole word.
#[rustfmt::skip]
pub const SKILLS: &[Skill] = {
    use TaskFamily::*;
    &[
        skill("percentages", Reckoning, &["percent", "discount", "interest", "tax ", "taxes ", "tip "], &[]),
        skill("fractions", Reckoning, &["fraction", "half", "third", "quarter", "ratio", "proportion", "twice", "double", "triple"], &[]),
        skill("rates", Reckoning, &["rate", "speed", "mile", "kilomet", "per hour", "hour", "minute", "faster", "slower"], &[]),
        skill("money", Reckoning, &["money", "cost", "price", "dollar", "cent ", "cents ", "pay", "paid", "profit", "earn", "sell", "sold", "buy", "bought", "spend", "spent", "budget"], &[]),
        skill("ages", Reckoning, &["age ", "ages ", "older", "younger", "years old", "birthday"], &[]),
        skill("averages", Reckoning, &["average", "mean ", "median"], &[]),
        skill("areas", Reckoning, &["area", "perimeter", "rectang", "square", "triang", "circle", "width", "height", "volume", "feet ", "inch", "meter"], &[]),
        skill("calendars", Reckoning, &["week", "month", "day ", "days ", "year ", "years ", "calendar", "schedule"], &[]),
        skill("stock", Reckoning, &["remain", "left ", "rest ", "altogether", "total", "stock", "count"], &[]),
        skill("mathematics", Knowing, &["mathemat", "algebra", "calculus", "theorem", "equation", "statistic", "probabilit", "geometr"], &["abstract_algebra", "college_math", "elementary_math", "high_school_math", "high_school_stat", "formal_logic"]),
        skill("physics", Knowing, &["physic", "force", "energy", "velocit", "electric", "circuit", "planet", "star ", "stars ", "astronom", "quantum"], &["astronomy", "college_physics", "conceptual_physics", "high_school_physics", "electrical"]),
        skill("chemistry", Knowing, &["chemi", "molecul", "acid", "atom", "reaction", "ion ", "ions "], &["college_chem", "high_school_chem"]),
        skill("biology", Knowing, &["biolog", "cell ", "cells ", "gene ", "genes ", "genetic", "species", "evolution", "virus", "protein"], &["college_biology", "high_school_biology", "medical_genetics", "virology"]),
        skill("medicine", Knowing, &["medic", "patient", "disease", "clinic", "anatom", "nutrition", "diet", "symptom", "doctor", "aging"], &["anatomy", "clinical", "college_medicine", "professional_medicine", "nutrition", "human_aging", "human_sexuality"]),
        skill("computing", Knowing, &["comput", "algorithm", "software", "network", "security", "machine learning", "neural"], &["college_computer", "computer_security", "high_school_computer", "machine_learning"]),
        skill("history", Knowing, &["histor", "century", "war ", "empire", "ancient", "revolution", "archaeolog"], &["high_school_european", "high_school_us_h", "high_school_world", "prehistory"]),
        skill("law", Knowing, &["law ", "laws ", "legal", "court", "contract", "statute", "plaintiff", "defendant", "jurisprud"], &["international_law", "jurisprudence", "professional_law"]),
        skill("philosophy", Knowing, &["philosoph", "moral", "ethic", "argument", "fallac", "religio", "god "], &["philosophy", "moral_", "business_ethics", "logical_fallacies", "world_religions"]),
        skill("economics", Knowing, &["econom", "market", "demand", "supply", "inflation", "account", "management", "firm ", "trade"], &["econometrics", "high_school_macro", "high_school_micro", "management", "marketing", "professional_accounting"]),
        skill("society", Knowing, &["societ", "psycholog", "sociolog", "social", "behavio", "politic", "government", "geograph", "foreign policy", "public relation"], &["high_school_psychology", "professional_psychology", "sociology", "high_school_geography", "high_school_government", "public_relations", "security_studies", "us_foreign_policy"]),
        skill("general knowledge", Knowing, &["trivia", "general knowledge", "facts about the world"], &["global_facts", "miscellaneous"]),
        skill("strings", Coding, &["string", "character", "word", "letter", "substring", "palindrom"], &[]),
        skill("lists", Coding, &["list", "array", "element", "sort", "sequence"], &[]),
        skill("numbers", Coding, &["integer", "number", "prime", "digit", "sum ", "divis", "modulo"], &[]),
        skill("parsing", Coding, &["parse", "parsing", "bracket", "parenthes", "date", "encode", "decode"], &[]),
    ]
};

const fn skill(
    name: &'static str,
    family: TaskFamily,
    cues: &'static [&'static str],
    subjects: &'static [&'static str],
) -> Skill {
    Skill { name, family, cues, subjects }
}

/// Skills one task needs at most: those its text names most often.
const MOST_NEEDS: usize = 2;

/// What a task needs: by its subject where it has one, else by the words of its text.
pub fn needs(family: TaskFamily, question: &str, subject: Option<&str>) -> Vec<&'static Skill> {
    let of_subject = |skill: &&Skill| {
        subject.is_some_and(|subject| skill.subjects.iter().any(|beginning| subject.starts_with(beginning)))
    };
    if let Some(skill) = SKILLS.iter().find(of_subject) {
        return vec![skill];
    }
    let words = plain_words(question);
    let mut counted: Vec<(usize, &Skill)> = SKILLS
        .iter()
        .filter(|skill| skill.family == family)
        .map(|skill| (skill.cues.iter().map(|cue| occurrences(&words, cue)).sum(), skill))
        .filter(|(count, _)| *count > 0)
        .collect();
    // Stable, so that ties go to the earlier skill of the table.
    counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    counted.into_iter().take(MOST_NEEDS).map(|(_, skill)| skill).collect()
}

/// How a text bears on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillFit {
    /// It names something the task needs.
    Helps,
    /// It names no skill at all.
    Neutral,
    /// It names skills, but none that the task needs.
    Misses,
}

/// How a text bears on a task with these needs.
pub fn fit(needs: &[&'static Skill], text: &str) -> SkillFit {
    let words = plain_words(text);
    let named = |skill: &&&Skill| skill.cues.iter().any(|cue| occurrences(&words, cue) > 0);
    if needs.iter().any(|skill| named(&skill)) {
        SkillFit::Helps
    } else if SKILLS.iter().any(|skill| named(&&skill)) {
        SkillFit::Misses
    } else {
        SkillFit::Neutral
    }
}

/// The words of a text in lower case, each after one space and before another, so that a cue is found where a word begins.
fn plain_words(text: &str) -> String {
    let mut words = String::with_capacity(text.len() + 2);
    words.push(' ');
    for c in text.chars() {
        if c.is_alphanumeric() {
            words.extend(c.to_lowercase());
        } else if !words.ends_with(' ') {
            words.push(' ');
        }
    }
    words.push(' ');
    words
}

fn occurrences(words: &str, cue: &str) -> usize {
    words.match_indices(cue).filter(|(at, _)| words[..*at].ends_with(' ')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(skills: Vec<&Skill>) -> Vec<&str> {
        skills.into_iter().map(|skill| skill.name).collect()
    }

    #[test]
    fn a_task_needs_what_its_text_or_subject_says() {
        let needed = |family, question| names(needs(family, question, None));
        let jacket = "A jacket costs 80 dollars and is sold at a discount of 15 percent.";
        assert_eq!(needed(TaskFamily::Reckoning, jacket), ["money", "percentages"]);
        assert_eq!(needed(TaskFamily::Reckoning, "Two and two?"), Vec::<&str>::new());
        assert_eq!(names(needs(TaskFamily::Knowing, "What is it?", Some("college_chemistry"))), ["chemistry"]);
        assert_eq!(needed(TaskFamily::Knowing, "Which planet has a moon?"), ["physics"]);
        assert_eq!(needed(TaskFamily::Coding, "Reverse the string."), ["strings"]);
    }

    #[test]
    fn every_subject_cue_belongs_to_one_skill() {
        for skill in SKILLS {
            for subject in skill.subjects {
                let owners = SKILLS.iter().filter(|other| other.subjects.iter().any(|s| subject.starts_with(s)));
                assert_eq!(owners.count(), 1, "{subject}");
            }
        }
    }

    #[test]
    fn a_duty_helps_misses_or_says_nothing() {
        let needs = needs(TaskFamily::Reckoning, "What is 15 percent of 80?", None);
        assert_eq!(fit(&needs, "Work out the percentage first."), SkillFit::Helps);
        assert_eq!(fit(&needs, "Recall the laws of chemistry."), SkillFit::Misses);
        assert_eq!(fit(&needs, "Solve the task step by step."), SkillFit::Neutral);
        assert_eq!(fit(&[], "Solve the task step by step."), SkillFit::Neutral);
    }

    #[test]
    fn the_name_of_a_skill_names_it_and_nothing_else() {
        for skill in SKILLS {
            let sentence = format!("This is a matter of {}: settle that part first.", skill.name);
            let named = SKILLS.iter().filter(|other| fit(&[other], &sentence) == SkillFit::Helps);
            assert_eq!(names(named.collect()), [skill.name]);
        }
    }

    #[test]
    fn a_cue_is_found_where_a_word_begins_only() {
        let named = |text| fit(&[], text) == SkillFit::Misses;
        assert!(named("RATES matter") && named("the rate") && named("(rate)"));
        assert!(!named("accurate") && !named("Generate it."));
        assert!(named("my age") && !named("my agent") && !named("a page"));
        assert!(!named("") && !named("…"));
    }

    #[test]
    fn the_base_roles_name_no_skill() {
        for role in lemon_spec::Language::default().roles.iter() {
            let text = format!("{} {}", role.title, role.duty);
            let naming: Vec<_> = SKILLS.iter().filter(|skill| fit(&[skill], &text) == SkillFit::Helps).collect();
            assert!(naming.is_empty(), "{}: {naming:?}", role.name);
        }
    }
}
