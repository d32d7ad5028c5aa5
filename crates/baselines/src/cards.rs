//! The roles that baselines choose from: nineteen cards in four groups, after the roles of the public code, in words of ours.
//!
//! A card is a base role of the library with a duty. Its description is what an encoder sees.

use lemon_rollout::Case;
use lemon_task::{Key, SetName};
use serde::{Deserialize, Serialize};

/// A role that an agent may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleCard {
    pub title: &'static str,
    /// The base role.
    pub base: &'static str,
    /// What it must do.
    pub duty: &'static str,
}

impl RoleCard {
    /// What an encoder sees of it.
    pub fn description(&self) -> String {
        format!("{}: {}", self.title, self.duty)
    }
}

/// What kind of task a roster is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// Word problems.
    Math,
    /// Word problems with options.
    Choice,
    /// Questions of knowledge.
    Knowledge,
    /// Programs.
    Code,
}

const fn card(title: &'static str, base: &'static str, duty: &'static str) -> RoleCard {
    RoleCard { title, base, duty }
}

/// All cards: those for word problems, for word problems with options, for questions of knowledge, for programs.
pub const CARDS: &[RoleCard] = &[
    card("Math solver", "solver", "Solve the word problem with arithmetic, one step at a time, and give the number."),
    card(
        "Mathematical analyst",
        "solver",
        "Name every quantity and how they depend on each other, then put in the numbers and compute.",
    ),
    card("Programming expert", "solver", "Compute the result as a short program would, one statement after the other."),
    card(
        "Inspector",
        "verifier",
        "Check the arithmetic and the logic of the solutions before you, and give the number that holds.",
    ),
    card(
        "Math solver for options",
        "solver",
        "Solve the word problem with arithmetic and choose the option that your result matches.",
    ),
    card(
        "Mathematical analyst for options",
        "solver",
        "Set up equations for the quantities, solve them, and compare the result with every option.",
    ),
    card(
        "Programming expert for options",
        "solver",
        "Compute the result as a short program would, and choose the nearest option.",
    ),
    card(
        "Inspector for options",
        "verifier",
        "Check the calculation before you, put the chosen option back into the problem, and give the option that holds.",
    ),
    card(
        "Knowledge expert",
        "expert",
        "Recall the facts and definitions that decide the question and choose the option they support.",
    ),
    card("Critic", "critic", "Look for weak points in the arguments before you and give the option that survives."),
    card("Mathematician", "expert", "Apply mathematics: calculate, prove and derive before you choose an option."),
    card("Psychologist", "expert", "Apply psychology, sociology and philosophy: how people think, feel and behave."),
    card("Historian", "expert", "Apply history, politics and law: events, their causes, and the rules of states."),
    card("Doctor", "expert", "Apply medicine, biology and chemistry: bodies, diseases and their treatment."),
    card("Project manager", "planner", "Lay out the structure of the program: functions, data and the order of work."),
    card("Algorithm designer", "planner", "Choose the algorithm and describe it in steps, with its edge cases."),
    card("Programmer", "programmer", "Write the whole function as the task describes it."),
    card("Test analyst", "tester", "Find the inputs on which a solution may fail, with the results expected."),
    card(
        "Bug fixer",
        "programmer",
        "Read the programs and tests before you, mend every fault, and give the whole function.",
    ),
];

impl Domain {
    /// All of them.
    pub const ALL: [Domain; 4] = [Domain::Math, Domain::Choice, Domain::Knowledge, Domain::Code];

    /// What kind of task a case is.
    pub fn of(case: &Case) -> Domain {
        match case.item.key() {
            Key::Code { .. } => Domain::Code,
            Key::Choice { .. } if case.item.set() == SetName::Aqua => Domain::Choice,
            Key::Choice { .. } => Domain::Knowledge,
            Key::Number(_) => Domain::Math,
            Key::Text(_) => Domain::Knowledge,
        }
    }

    /// The cards of its roster: positions in [`CARDS`].
    pub fn roster(self) -> std::ops::Range<usize> {
        match self {
            Domain::Math => 0..4,
            Domain::Choice => 4..8,
            Domain::Knowledge => 8..14,
            Domain::Code => 14..19,
        }
    }

    /// What an encoder sees of it.
    pub fn description(self) -> &'static str {
        match self {
            Domain::Math => "Word problems that ask for a number and need arithmetic in several steps.",
            Domain::Choice => "Word problems of algebra and reckoning with options to choose from.",
            Domain::Knowledge => "Questions of knowledge in sciences, humanities and professions, with options.",
            Domain::Code => "Programming problems that ask for a function in Python.",
        }
    }

    /// Whose words its roster reads at first, as sender and reader among the roster: the hand-written graph of G-Designer's
    /// public code, whose pairs for word problems and programs are 9 and 10.
    pub fn anchor(self) -> Vec<(usize, usize)> {
        let count = self.roster().len();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        pairs
            .filter(|(from, to)| match self {
                // All but the inspector are read by all.
                Domain::Math | Domain::Choice => from != to && *from != 3,
                // The expert is read by all, and the critic reads all.
                Domain::Knowledge => from != to && (*from == 0 || *to == 1),
                // Each reads those who work before it.
                Domain::Code => from < to,
            })
            .collect()
    }

    /// Whether a program is asked for.
    pub fn is_code(self) -> bool {
        self == Domain::Code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::RoleLibrary;
    use std::collections::HashSet;

    #[test]
    fn every_card_is_of_one_roster_and_has_a_base_role() {
        let rosters: Vec<usize> = Domain::ALL.iter().flat_map(|domain| domain.roster()).collect();
        assert_eq!(rosters, (0..CARDS.len()).collect::<Vec<_>>());
        let roles = RoleLibrary::builtin();
        assert!(CARDS.iter().all(|card| roles.get(card.base).is_some()));
        assert_eq!(CARDS.iter().map(RoleCard::description).collect::<HashSet<_>>().len(), CARDS.len());
    }

    #[test]
    fn anchors_have_the_published_sizes() {
        assert_eq!(Domain::ALL.map(|domain| domain.anchor().len()), [9, 9, 9, 10]);
    }
}
