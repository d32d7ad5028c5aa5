//! Following a critic on recorded replies, and the fixed methods beside it.

use crate::model::{DecisionCritic, Prepared, Rule, counts_of};
use crate::task::{RecordedTask, ScoredReply, Served};
use crate::team::{ONE_REASONER, STRONGEST, TEAMS, TeamCounts};
use crate::text::Group;

/// How a method did on one task.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Walked {
    pub right: bool,
    pub tokens: f64,
    pub rounds: u32,
    /// The team of the first round.
    pub first: TeamCounts,
    /// How likely the answer was expected to be right.
    pub expected: f64,
}

/// Follows a critic by a rule, for so many rounds at most.
pub(crate) fn follow(prepared: &Prepared<'_>, served: &Served<'_>, rule: &Rule, rounds: u32) -> Walked {
    let mut counts = TeamCounts::NONE;
    let mut walked = Walked::default();
    loop {
        let replies = served.prefix(counts);
        let seen: Vec<_> = replies.iter().map(|reply| &reply.seen).collect();
        debug_assert_eq!(counts_of(&seen), counts);
        let stand = prepared.standpoint(&seen, served.hide_sure);
        let answered = replies.get(stand.support.first().copied().unwrap_or_default());
        walked.right = answered.is_some_and(|reply| reply.right);
        walked.tokens = served.tokens(counts);
        walked.expected = prepared.stop(counts, &stand);
        if walked.rounds == rounds {
            return walked;
        }
        let Some(chosen) = prepared.choose(counts, &stand, served.available(), rule, walked.rounds + 1 == rounds)
        else {
            return walked;
        };
        if walked.rounds == 0 {
            walked.first = chosen.team;
        }
        walked.rounds += 1;
        let added = counts.0.iter_mut().zip(chosen.team.0);
        added.for_each(|(count, more)| *count = count.saturating_add(more));
    }
}

/// Follows a critic on a task; `None`: it was not trained for tasks of this form. Programs cannot be voted on: they get one plain
/// call, as in a run, where one is on record.
pub(crate) fn walk(
    critic: &DecisionCritic,
    task: &RecordedTask,
    served: &Served<'_>,
    rule: &Rule,
    rounds: u32,
) -> Option<Walked> {
    let prepared = critic.prepare(&task.question, task.form)?;
    if let (Group::Code, Some(plain)) = (prepared.group, task.plain.first()) {
        let expected = lemon_num::logistic(prepared.views[2 * STRONGEST]);
        let (right, tokens, first) = (plain.right, plain.tokens, TEAMS[ONE_REASONER]);
        return Some(Walked { right, tokens, rounds: 1, first, expected });
    }
    Some(follow(&prepared, served, rule, rounds))
}

/// Methods that ask every task the same way.
pub(crate) const FIXED: [(&str, Ask); 13] = [
    ("brief", Ask::Vote([1, 0, 0])),
    ("program", Ask::Vote([0, 1, 0])),
    ("one reasoner", Ask::Vote([0, 0, 1])),
    ("vote of 2", Ask::Vote([0, 0, 2])),
    ("vote of 3", Ask::Vote([0, 0, 3])),
    ("vote of 4", Ask::Vote([0, 0, 4])),
    ("vote of 5", Ask::Vote([0, 0, 5])),
    ("program + reasoner", Ask::Vote([0, 1, 1])),
    ("program + 2 reasoners", Ask::Vote([0, 1, 2])),
    ("3 programs", Ask::Vote([0, 3, 0])),
    ("3 programs + 4 reasoners", Ask::Vote([0, 3, 4])),
    ("3 programs + 5 reasoners", Ask::Vote([0, 3, 5])),
    ("stop on agreement", Ask::StopOnAgreement),
];

/// How a fixed method asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// So many of each level, and a vote. A level without a record for the task is left out; a team that would be empty
    /// becomes one reasoner.
    Vote([usize; 3]),
    /// A program and a reasoner (two reasoners where there are no programs); all others where the two disagree.
    StopOnAgreement,
}

/// Runs a fixed method.
pub(crate) fn fixed(ask: Ask, served: &Served<'_>) -> Walked {
    let most = |counts: [usize; 3]| -> Vec<&ScoredReply> {
        let parts = served.replies.iter().zip(counts);
        parts.flat_map(|(replies, count)| replies.iter().take(count).copied()).collect()
    };
    let replies = match ask {
        Ask::Vote(counts) => match most(counts) {
            none if none.is_empty() => most([0, 0, 1]),
            some => some,
        },
        Ask::StopOnAgreement => {
            let programs = !served.replies[1].is_empty();
            let first = if programs { most([0, 1, 1]) } else { most([0, 0, 2]) };
            let stated: Vec<_> = first.iter().map(|reply| reply.seen.answer.as_deref()).collect();
            let agree =
                stated.first().is_some_and(|answer| answer.is_some()) && stated.windows(2).all(|it| it[0] == it[1]);
            if agree { first } else { most([0, 3, 4]) }
        }
    };
    let tokens = replies.iter().map(|reply| reply.tokens).sum();
    let right = voted(&replies).is_some_and(|reply| reply.right);
    Walked { right, tokens, rounds: 1, ..Walked::default() }
}

/// The first reply of the answer that most replies state, the first of equals; the first reply where none states one.
fn voted<'a>(replies: &[&'a ScoredReply]) -> Option<&'a ScoredReply> {
    let support = |reply: &ScoredReply| {
        replies.iter().filter(|other| other.seen.answer.is_some() && other.seen.answer == reply.seen.answer).count()
    };
    // `max_by_key` takes the last of equals.
    replies.iter().rev().copied().max_by_key(|reply| support(reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeenReply;
    use lemon_exec::Form;

    fn reply(level: usize, answer: &str, right: bool) -> ScoredReply {
        let seen = SeenReply { level, answer: Some(answer.to_owned()), log_sure: None, log_length: 5.0 };
        ScoredReply { seen, right, tokens: 100.0, greedy: true }
    }

    #[test]
    fn a_program_is_asked_for_by_a_plain_call_where_one_is_on_record() {
        let mut tasks = crate::synthetic::tasks(40, 1);
        for task in &mut tasks {
            task.form = Form::Code;
            task.plain = vec![ScoredReply { tokens: 7.0, ..reply(2, "1", true) }];
        }
        let critic = crate::fit_critic(&tasks, &crate::CriticSettings::default()).unwrap();
        let followed = |task: &RecordedTask| walk(&critic, task, &task.serve(0, false), &Rule::priced(0.1), 2).unwrap();
        let plain = followed(&tasks[0]);
        assert_eq!((plain.right, plain.tokens, plain.rounds), (true, 7.0, 1));
        let with_a_role = followed(&RecordedTask { plain: Vec::new(), ..tasks[0].clone() });
        assert_eq!((with_a_role.tokens, with_a_role.rounds), (300.0, 1));
    }

    #[test]
    fn votes_and_stops_follow_the_answers() {
        let task = |programs: &[&str], reasoners: &[&str]| RecordedTask {
            name: "a".into(),
            set: "s".into(),
            question: "How many?".into(),
            form: Form::Number,
            replies: [
                Vec::new(),
                programs.iter().map(|it| reply(1, it, *it == "1")).collect(),
                reasoners.iter().map(|it| reply(2, it, *it == "1")).collect(),
            ],
            plain: Vec::new(),
        };
        let check = |task: &RecordedTask, ask, expected: (bool, f64)| {
            let walked = fixed(ask, &task.serve(0, false));
            assert_eq!((walked.right, walked.tokens), expected, "{ask:?}");
        };
        let split = task(&["2", "1", "1"], &["1", "2", "3", "1"]);
        check(&split, Ask::Vote([0, 1, 1]), (false, 200.0));
        check(&split, Ask::Vote([0, 3, 4]), (true, 700.0));
        check(&split, Ask::StopOnAgreement, (true, 700.0));
        check(&split, Ask::Vote([1, 0, 0]), (true, 100.0));
        let agreed = task(&["1"], &["1", "2"]);
        check(&agreed, Ask::StopOnAgreement, (true, 200.0));
        check(&task(&[], &["2", "2", "1"]), Ask::StopOnAgreement, (false, 200.0));
    }
}
