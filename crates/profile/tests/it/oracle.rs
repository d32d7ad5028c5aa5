//! What the teams of the enumerable world answer, worked out without the crates under test.

use crate::enumerable::{Reading, is_right, noise};
use lemon_spec::AnswerRule;
use std::cmp::Reverse;

const JUDGE: usize = 3;
const SECOND_LOOK: usize = 4;

/// A team, with its agents by their place among all who can be asked.
#[derive(Clone)]
pub struct Team {
    pub members: Vec<Member>,
    pub from: Vec<usize>,
    pub rule: AnswerRule,
    pub reviewed: bool,
}

#[derive(Clone)]
pub struct Member {
    pub who: usize,
    pub level: usize,
    pub dutiful: bool,
    /// Its readers see its bare answer.
    pub bare: bool,
    pub reads: Vec<usize>,
}

pub fn member(who: usize, level: usize, dutiful: bool, bare: bool, reads: &[usize]) -> Member {
    Member { who, level, dutiful, bare, reads: reads.to_vec() }
}

impl Team {
    pub fn member(&mut self, who: usize) -> &mut Member {
        self.members.iter_mut().find(|member| member.who == who).unwrap()
    }

    /// Whether its answer is right with this noise, on a task so hard.
    pub fn is_right(&self, combination: u64, hard: i64) -> bool {
        let said = self.said(combination, hard);
        let right = |who: &usize| said.iter().find(|(member, _)| member.who == *who).unwrap().1;
        let level = |who: &usize| self.members.iter().find(|member| member.who == *who).unwrap().level;
        if self.reviewed {
            // The verifier of the second round, of the middle level, reads the first three of the first.
            let read = said.iter().take(3).map(|(member, right)| (*right, member.bare));
            return is_right(noise(combination, SECOND_LOOK), 1, false, read, hard);
        }
        match self.rule {
            AnswerRule::Last => right(self.from.last().unwrap()),
            // Of answers that are no programs, `test` takes the most frequent.
            AnswerRule::Vote | AnswerRule::Test => {
                vote(&self.from.iter().map(|who| (right(who), level(who))).collect::<Vec<_>>())
            }
            AnswerRule::Judge => {
                // A judge as strong as the strongest reads whole replies.
                let strongest = self.from.iter().map(level).max().unwrap();
                let read = self.from.iter().map(|who| (right(who), false));
                is_right(noise(combination, JUDGE), strongest, false, read, hard)
            }
        }
    }

    fn said(&self, combination: u64, hard: i64) -> Vec<(&Member, bool)> {
        let mut said: Vec<(&Member, bool)> = Vec::new();
        for member in &self.members {
            let parents = member.reads.iter().map(|who| said.iter().find(|(other, _)| other.who == *who).unwrap());
            let read: Vec<Reading> = parents.map(|(parent, right)| (*right, parent.bare)).collect();
            let right = is_right(noise(combination, member.who), member.level, member.dutiful, read, hard);
            said.push((member, right));
        }
        said
    }
}

/// The more frequent answer; of equals that of the strongest voter, of equals again that of the first of those.
fn vote(ballots: &[(bool, usize)]) -> bool {
    let rank = |answer: bool| {
        let own = || ballots.iter().enumerate().filter(move |(_, (ballot, _))| *ballot == answer);
        (own().count(), own().map(|(place, (_, level))| (*level, Reverse(place))).max())
    };
    rank(true) > rank(false)
}
