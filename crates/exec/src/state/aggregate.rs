//! One answer of several: the rule that a round names, applied to what its agents gave.

use super::{AgentOutcome, RunState, Standing};
use crate::answer::{answer_of, ballot};
use crate::form::Form;
use lemon_spec::{AnswerRule, PLAIN};
use lemon_trace::AgentStatus;

/// The answer of a round and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregation {
    /// The rule that was applied, which is not the one written where that one could not be.
    pub rule: AnswerRule,
    /// The agents it chose from, with their answers.
    pub candidates: Vec<(usize, String)>,
    /// The one whose answer it took.
    pub chosen: Option<usize>,
    pub answer: Option<String>,
    /// Whether it comes from the agents the specification names.
    pub as_written: bool,
}

impl RunState {
    /// The answer of the last round, made of what there is.
    pub fn aggregate(&self) -> Aggregation {
        self.aggregate_round(self.rounds.len())
    }

    fn aggregate_round(&self, round: usize) -> Aggregation {
        let nothing = Aggregation {
            rule: AnswerRule::Last,
            candidates: Vec::new(),
            chosen: None,
            answer: None,
            as_written: false,
        };
        let Some(plan) = round.checked_sub(1).and_then(|index| self.rounds.get(index)) else {
            return self.aggregate_leftovers().unwrap_or(nothing);
        };
        let candidates = self.answers(&self.complete_or_all(self.done(plan.answer_from())));
        if candidates.is_empty() {
            return Aggregation { as_written: false, ..self.aggregate_round(round - 1) };
        }
        let judge = self.members.iter().position(|member| member.is_judge && member.round as usize == round);
        let all_cut = candidates.iter().all(|(index, _)| self.is_truncated(*index));
        let judge = judge.filter(|index| all_cut || !self.is_truncated(*index));
        let judged = judge.and_then(|index| Some((index, self.answer_of(index)?)));
        let (rule, chosen) = match (plan.answer_rule(), judged) {
            (AnswerRule::Judge, Some((index, answer))) => (AnswerRule::Judge, Some((index, answer))),
            (AnswerRule::Last, _) => (AnswerRule::Last, candidates.last().cloned()),
            (AnswerRule::Test, _) if self.form == Form::Code => (AnswerRule::Test, self.best_tested(&candidates)),
            (AnswerRule::Vote | AnswerRule::Judge | AnswerRule::Test, _) => (AnswerRule::Vote, self.vote(&candidates)),
        };
        let (chosen, answer) = chosen.unzip();
        Aggregation { rule, candidates, chosen, answer, as_written: true }
    }

    /// Where no agent that was to answer is done: the last agent that is done and that no done agent reads.
    fn aggregate_leftovers(&self) -> Option<Aggregation> {
        let done = self.done(&(0..self.members.len()).collect::<Vec<_>>());
        let read = |index: usize| {
            done.iter()
                .filter_map(|reader| self.members.get(*reader))
                .any(|reader| reader.agent.parents.contains(&index))
        };
        let last = done.iter().rev().find(|index| !read(**index))?;
        let candidates = self.answers(&[*last]);
        let answer = candidates.first().map(|(_, answer)| answer.clone());
        Some(Aggregation { rule: AnswerRule::Last, candidates, chosen: Some(*last), answer, as_written: false })
    }

    /// The program that passes most examples, of equals the first. Where no example was run, the first plain agent's, or the
    /// first: the trace says why.
    fn best_tested(&self, candidates: &[(usize, String)]) -> Option<(usize, String)> {
        let passed = |index: usize| self.tested.get(&index).copied();
        let is_plain = |index: usize| self.members.get(index).is_some_and(|member| member.agent.base.name == PLAIN);
        let ran = candidates.iter().any(|(index, _)| passed(*index).is_some());
        let rank = |index: usize| if ran { passed(index).map_or(0, |it| it + 1) } else { usize::from(is_plain(index)) };
        candidates.iter().rev().max_by_key(|(index, _)| rank(*index)).cloned()
    }

    /// Where all say how sure they are, the answer whose agents are surest together: two who give it one chance in ten count less
    /// than one who gives it nine. Otherwise the most frequent. Of equals that of the highest capacity, then of the earliest agent.
    fn vote(&self, candidates: &[(usize, String)]) -> Option<(usize, String)> {
        let keys: Vec<String> = candidates.iter().map(|(_, answer)| ballot(answer, self.form, &self.options)).collect();
        let level = |index: usize| self.members.get(index).map_or(0, |member| member.agent.level);
        let confidences: Option<Vec<f64>> = candidates.iter().map(|(index, _)| self.confidence(*index)).collect();
        // A probability from 0 to 1 in steps that can be compared.
        let sure = |at: usize| confidences.as_ref().and_then(|all| all.get(at)).map_or(0, |it| (it * 1e9) as u64);
        let rank = |at: usize| {
            let same = || (0..candidates.len()).filter(|other| keys.get(*other) == keys.get(at));
            let level = |at: usize| candidates.get(at).map_or(0, |(index, _)| level(*index));
            let (together, strongest) = (same().map(sure).sum::<u64>(), same().map(level).max());
            (together, same().count(), strongest, sure(at), level(at), std::cmp::Reverse(at))
        };
        (0..candidates.len()).max_by_key(|at| rank(*at)).and_then(|at| candidates.get(at).cloned())
    }

    fn answers(&self, indices: &[usize]) -> Vec<(usize, String)> {
        indices.iter().filter_map(|index| Some((*index, self.answer_of(*index)?))).collect()
    }

    /// The answer of an agent that is done. One that was asked for code, gives none and has read some leaves that as it is: small
    /// models say that a program is right and do not repeat it.
    fn answer_of(&self, index: usize) -> Option<String> {
        let answer = self.own_answer_of(index)?;
        if self.form != Form::Code || shows_code(&answer) {
            return Some(answer);
        }
        let read = self.deliveries(index).into_iter().rev().filter(|delivery| delivery.delivered);
        // Parents come before their readers, so this ends.
        let kept = read.filter(|delivery| delivery.from < index).find_map(|delivery| self.answer_of(delivery.from));
        Some(kept.filter(|kept| shows_code(kept)).unwrap_or(answer))
    }

    fn own_answer_of(&self, index: usize) -> Option<String> {
        match self.standing(index)? {
            Standing::Ended(AgentOutcome { status: AgentStatus::Done, reply: Some(reply), .. }) => {
                Some(answer_of(reply, self.form))
            }
            _ => None,
        }
    }

    /// Those whose replies are complete; where there are none, all of them.
    pub(super) fn complete_or_all(&self, indices: Vec<usize>) -> Vec<usize> {
        let complete: Vec<usize> = indices.iter().copied().filter(|index| !self.is_truncated(*index)).collect();
        if complete.is_empty() { indices } else { complete }
    }

    fn is_truncated(&self, index: usize) -> bool {
        matches!(self.standing(index), Some(Standing::Ended(AgentOutcome { truncated: true, .. })))
    }

    fn confidence(&self, index: usize) -> Option<f64> {
        match self.standing(index)? {
            Standing::Ended(outcome) => outcome.confidence,
            _ => None,
        }
    }
}

/// Whether there is code in an answer: a fenced block, or a line that begins as code does.
fn shows_code(answer: &str) -> bool {
    const BEGINS: [&str; 8] = ["def ", "class ", "import ", "from ", "fn ", "function ", "#include", "return "];
    answer.contains("```") || answer.lines().any(|line| BEGINS.iter().any(|begin| line.trim_start().starts_with(begin)))
}
