//! The replay buffer: tasks with the outcomes of the calls that were made about them.

use crate::team::{MOST, TeamCounts};
use crate::text::Group;
use lemon_exec::Form;
use lemon_num::Random;

/// What an orchestrator sees of a reply.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeenReply {
    /// Its level: a position in [`LEVELS`](crate::LEVELS).
    pub level: usize,
    /// Its answer as votes compare it ([`stated_answer`](crate::stated_answer)); `None`: it states none.
    pub answer: Option<String>,
    /// The mean log-probability of its tokens, where the worker reports a confidence.
    pub log_sure: Option<f64>,
    /// The logarithm of one more than its characters.
    pub log_length: f64,
}

impl SeenReply {
    /// What is seen of the reply of an agent of this level, to a question whose answer has this form.
    pub fn new(level: usize, reply: &str, log_sure: Option<f64>, form: Form, question: &str) -> Self {
        let answer = crate::stated_answer(reply, form, question);
        SeenReply { level, answer, log_sure, log_length: (reply.chars().count() as f64).ln_1p() }
    }

    /// What is seen of an agent that gave no reply.
    pub fn none(level: usize) -> Self {
        SeenReply { level, ..SeenReply::default() }
    }
}

/// A reply with what grading and the ledger say of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredReply {
    /// What an orchestrator sees.
    pub seen: SeenReply,
    /// Whether it is right.
    pub right: bool,
    /// What it cost, in weighted tokens.
    pub tokens: f64,
    /// Whether it was decoded greedily: such a reply comes first.
    pub greedy: bool,
}

/// A task with the replies on record, by level.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedTask {
    /// Its name, which decides the fold it is in.
    pub name: String,
    /// The set it belongs to: accuracies are averaged over sets.
    pub set: String,
    /// The question.
    pub question: String,
    /// The form of its answer.
    pub form: Form,
    /// The replies of each level.
    pub replies: [Vec<ScoredReply>; 3],
    /// The replies to the question alone, without a role: what a critic asks where votes tell nothing.
    pub plain: Vec<ScoredReply>,
}

/// The replies of a task in the order they will be served.
pub(crate) struct Served<'a> {
    pub replies: [Vec<&'a ScoredReply>; 3],
    /// Whether confidences are hidden, so that a critic learns to do without.
    pub hide_sure: bool,
}

impl RecordedTask {
    pub(crate) fn group(&self) -> Option<Group> {
        Group::of(self.form, &self.question)
    }

    /// One order of the replies: greedy ones first, the others drawn.
    pub(crate) fn serve(&self, seed: u64, hide_sure: bool) -> Served<'_> {
        let mut random = Random::named(seed, &self.name);
        let replies = std::array::from_fn(|level| {
            let all = &self.replies[level];
            let (mut first, mut rest): (Vec<_>, Vec<_>) = all.iter().partition(|reply| reply.greedy);
            random.shuffle(&mut rest);
            first.append(&mut rest);
            first.truncate(self.group().map_or(MOST[level], |group| group.most()[level]));
            first
        });
        Served { replies, hide_sure }
    }
}

impl<'a> Served<'a> {
    /// How many replies of each level there are.
    pub fn available(&self) -> [usize; 3] {
        std::array::from_fn(|level| self.replies[level].len())
    }

    /// The replies of a prefix, level by level.
    pub fn prefix(&self, counts: TeamCounts) -> Vec<&'a ScoredReply> {
        let parts = self.replies.iter().zip(counts.counts());
        parts.flat_map(|(replies, count)| replies.iter().take(count).copied()).collect()
    }

    /// What a prefix cost.
    pub fn tokens(&self, counts: TeamCounts) -> f64 {
        self.prefix(counts).iter().map(|reply| reply.tokens).sum()
    }
}

/// What a question is known by, in a list of those that a critic was fitted to. It does not depend on set or position.
pub(crate) fn fingerprint(question: &str) -> u32 {
    // The lower half of the hash.
    (lemon_num::fnv1a(question.split_whitespace().flat_map(str::bytes)) & u64::from(u32::MAX)) as u32
}
