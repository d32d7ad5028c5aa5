//! What stories ask.

use crate::problem::{Op, ProblemStep};

/// What is asked of a finished story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// How many there are at the end.
    End,
    /// How many there were at the start, which is not told.
    Start,
    /// How many came or went in the last event, which is not told.
    Unknown(Op),
    /// How many more or fewer than at the start.
    Difference,
    /// How many are missing to a goal.
    Goal,
    /// How many each gets.
    Share,
    /// How many packs they fill.
    Packs,
    /// What they are worth.
    Price,
    /// How many came, or went, in all.
    Flow(Op),
    /// How many more came than went.
    Surplus,
}

impl Ask {
    #[rustfmt::skip]
    pub const ALL: &[(Ask, u32)] = &[
        (Ask::End, 30), (Ask::Start, 9), (Ask::Unknown(Op::Add), 7), (Ask::Unknown(Op::Subtract), 8), (Ask::Difference, 4),
        (Ask::Goal, 7), (Ask::Share, 10), (Ask::Packs, 6), (Ask::Price, 6), (Ask::Flow(Op::Add), 4), (Ask::Flow(Op::Subtract), 5), (Ask::Surplus, 4),
    ];

    /// What is said last, if anything, and what is asked. `k` is a number of the question.
    #[rustfmt::skip]
    pub fn texts(self, falls: bool) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Ask::End if falls => (&[""], &[
                "How many {t} does {P} have left?", "How many {t} are left?", "How many {t} does {P} have now?", "How many {t} did {P} have in the end?",
                "How many {t} did {P} still have?", "What number of {t} remains?", "How many {t} does that leave {P} with?", "Find the number of {t} that {P} has now.",
            ]),
            Ask::End => (&[""], &[
                "How many {t} does {P} have now?", "How many {t} did {P} have in the end?", "How many {t} does {P} have in all?", "How many {t} does {P} have altogether?",
                "How many {t} are there now?", "What is the number of {H} {t} now?", "How many {t} does that make?", "Find the number of {t} that {P} has in total.",
            ]),
            Ask::Start => (&["Now {S} has {e} {t}", "In the end {S} had {e} {t}", "After all this, {e} {t} were there", "That left {O} with {e} {t}"], &[
                "How many {t} did {P} have at first?", "How many {t} did {P} have in the beginning?", "How many {t} did {P} start with?",
                "How many {t} were there to begin with?", "What was the number of {t} at the start?",
            ]),
            Ask::Unknown(Op::Add) => (
                &["Then {V} gave {O} some more, and now {S} has {e} {t}", "{S} got some more {t} from {V}. Now {S} has {e} {t}", "After {V} brought {O} some more {t}, {S} had {e}"],
                &["How many {t} did {V} give to {P}?", "How many {t} did {P} get from {V}?", "How many {t} came from {V}?"],
            ),
            Ask::Unknown(_) => (
                &["{S} gave some of the {t} to {V} and had {e} left", "Then {V} took some of the {t}. Now {S} has {e} {t}", "After giving some {t} to {V}, {S} had {e} {t} left"],
                &["How many {t} did {V} get?", "How many {t} went to {V}?", "How many {t} does {V} have from {P}?"],
            ),
            Ask::Difference if falls => (&[""], &[
                "How many fewer {t} does {P} have now than at the start?", "By how many {t} did the number go down from start to end?", "How many {t} less than in the beginning are there now?",
            ]),
            Ask::Difference => (&[""], &[
                "How many more {t} does {P} have now than at the start?", "By how many {t} did the number go up from start to end?", "How many {t} more than in the beginning are there now?",
            ]),
            Ask::Goal => (&["{P} wants to have {k} {t}", "{S} needs {k} {t} for a project", "The goal is {k} {t}"], &[
                "How many more {t} does {P} need?", "How many {t} are still missing?", "How many {t} does {P} still have to get?", "How many more {t} are needed?",
            ]),
            Ask::Share => (
                &["{S} shared all the {t} equally among {k} friends", "{S} divided the {t} evenly between {k} [friends|cousins|people]", "In the end {S} put the {t} into {k} equal piles", "{k} children shared the {t} equally", "{S} spread the {t} evenly over {k} {packs}"],
                &["How many {t} were in each part?", "How many {t} did each get?", "How many {t} is that for each?", "What is the size of each share?"],
            ),
            Ask::Packs => (
                &["{S} put all the {t} into {packs} of {k}", "{S} packed the {t} so that each {pack} held {k}", "A {pack} holds {k} {t}, and {S} packed all of them"],
                &["How many {packs} did that make?", "How many {packs} were filled?", "How many {packs} did {P} need?"],
            ),
            Ask::Price => (
                &["{S} sold all the {t} for ${k} each", "Each {one} is worth ${k}", "The price of one {one} was ${k}, and {S} sold them all", "For every {one}, {S} got ${k}"],
                &["How much money is that?", "How many dollars is that for all the {t}?", "How much are the {t} worth together?", "What is the total in dollars?"],
            ),
            Ask::Flow(Op::Add) => (&[""], &[
                "How many {t} came in after the start?", "How many {t} were added to the first ones?", "How many {t} did {P} get on top of the first ones?",
            ]),
            Ask::Flow(_) => (&[""], &[
                "How many {t} did {P} part with in all?", "How many {t} went away in all?", "How many {t} were taken out altogether?",
            ]),
            Ask::Surplus => (&[""], &[
                "After the start, how many more {t} came in than went out?", "How many more {t} were added than taken away?", "By how many {t} was the gain larger than the loss?",
            ]),
        }
    }
}

/// An event as arithmetic: the number of things becomes `number op amount`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect {
    /// How the amount is found, where it is not told.
    pub before: Option<ProblemStep>,
    pub op: Op,
    pub amount: i64,
}

impl Effect {
    /// The step that undoes it.
    pub fn undone(&self, after: i64) -> Option<ProblemStep> {
        let op = match self.op {
            Op::Add => Op::Subtract,
            Op::Subtract => Op::Add,
            Op::Multiply => Op::Divide,
            Op::Divide => Op::Multiply,
        };
        ProblemStep::new(after, op, self.amount)
    }
}
