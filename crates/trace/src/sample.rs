//! Sample runs, told the way the executor tells them: for tests and pictures. The same seed gives the same trace.

mod credited;
mod teller;

pub use credited::credited;

use crate::Trace;
use lemon_num::splitmix;
use lemon_spec::{AnswerRule, Share};
use teller::write;

/// What becomes of a sample agent once it is asked.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Done,
    Retried,
    Failed,
    Reused,
}

struct Member {
    id: String,
    base: &'static str,
    role: String,
    duty: String,
    level: usize,
    after: Vec<String>,
    share: Share,
    fate: Fate,
    answer: String,
}

struct Round {
    members: Vec<Member>,
    from: Vec<String>,
    rule: AnswerRule,
    review: bool,
    rejected_first: bool,
    withheld: Vec<(String, String)>,
}

/// Three agents in a row.
pub fn three() -> Trace {
    let members = vec![
        member("solve", "solver", "Percentages tutor", "Set up the price equation and solve it.", 0, &[], "33"),
        member("check", "critic", "Arithmetic checker", "Recompute each step and correct it.", 1, &["solve"], "33"),
        member("report", "writer", "Plain speaker", "State the price in one sentence.", 0, &["check"], "$33"),
    ];
    let round = Round { from: vec!["report".into()], ..Round::new(members) };
    let question = "A shirt costs $40. It is sold at 25 % off, then 10 % tax is added. What is paid at the till?";
    write(3, question, &[round])
}

/// Eight agents in two rounds: a refused specification, a retry, a failure, a skipped agent, a withheld message, a vote
/// and a judge.
pub fn eight() -> Trace {
    let mut first = vec![
        member("plan", "planner", "Combinatorics planner", "Split the problem into cases.", 1, &[], "3 cases"),
        member("solve_a", "solver", "Direct counter", "Count each case directly.", 0, &["plan"], "252"),
        member("solve_b", "solver", "Complement counter", "Count what is excluded and subtract.", 0, &["plan"], "246"),
        member("solve_c", "coder", "Enumerator", "Enumerate all of them in code and count.", 2, &["plan"], "246"),
        member("criticise", "critic", "Devil's advocate", "Find the weakest step.", 2, &["solve_a", "solve_b"], "246"),
        member("mend", "solver", "Fixer", "Mend what the critic found.", 1, &["criticise"], "246"),
    ];
    first[2].share = Share::Answer;
    first[3].fate = Fate::Retried;
    first[4].fate = Fate::Failed;
    let second = vec![
        member(
            "refine",
            "solver",
            "Case analyst",
            "Settle where the counts differ.",
            1,
            &["solve_a", "solve_c"],
            "246",
        ),
        member("verify", "critic", "Referee", "Check the final count against small cases.", 2, &["refine"], "246"),
    ];
    let from = |ids: &[&str]| ids.iter().map(ToString::to_string).collect();
    let rounds = [
        Round {
            from: from(&["solve_a", "solve_b", "solve_c"]),
            rule: AnswerRule::Vote,
            review: true,
            rejected_first: true,
            withheld: vec![("solve_a".into(), "criticise".into())],
            ..Round::new(first)
        },
        Round { from: from(&["refine", "verify"]), rule: AnswerRule::Judge, ..Round::new(second) },
    ];
    write(
        8,
        "How many six-person committees with at least two of each kind can five cooks and six bakers form?",
        &rounds,
    )
}

/// Forty agents in six layers.
pub fn forty() -> Trace {
    layered(40, &[1, 12, 12, 8, 5, 2])
}

/// A team of any shape up to twelve agents, ended or cut off anywhere.
pub fn random(seed: u64) -> Trace {
    let mut dice = Dice(seed);
    let layers: Vec<usize> = (0..1 + dice.below(4)).map(|_| 1 + dice.below(3)).collect();
    let mut trace = layered(seed, &layers);
    if dice.below(3) == 0 {
        trace.events.truncate(dice.below(trace.events.len() + 1));
    }
    trace
}

fn layered(seed: u64, layers: &[usize]) -> Trace {
    const KINDS: [(&str, &str, &str); 6] = [
        ("planner", "Lead planner", "Split the question into parts that can be worked on apart."),
        ("researcher", "Researcher", "Gather what is known about your part and name the source of each fact."),
        ("solver", "Analyst", "Work your part out and say how sure you are."),
        ("critic", "Reviewer", "Look for mistakes in what you read; give the corrected result."),
        ("writer", "Section editor", "Merge what you read into one coherent section."),
        ("writer", "Editor in chief", "Write the final answer."),
    ];
    let mut dice = Dice(seed);
    let mut members: Vec<Member> = Vec::new();
    let mut above: Vec<String> = Vec::new();
    for (layer, (&size, (base, role, duty))) in layers.iter().zip(KINDS).enumerate() {
        let ids: Vec<String> = (0..size).map(|place| format!("{base}{layer}_{}", place + 1)).collect();
        for (place, id) in ids.iter().enumerate() {
            // Each reads its neighbours of the layer above.
            let spread = 1 + dice.below(3);
            let centre = place * above.len() / size;
            let after: Vec<String> = above.iter().skip(centre).take(spread).cloned().collect();
            let after: Vec<&str> = after.iter().map(String::as_str).collect();
            let answer = format!("{}", 100 + dice.below(3));
            let role = format!("{role} {}", place + 1);
            let mut member = member(id, base, &role, duty, dice.below(3), &after, &answer);
            member.share = if dice.below(4) == 0 { Share::Answer } else { Share::Reply };
            member.fate = match dice.below(20) {
                // Failures near the root would leave little of a team to look at.
                0 if layer > 1 || layers.len() < 3 => Fate::Failed,
                1 | 2 => Fate::Retried,
                3 => Fate::Reused,
                _ => Fate::Done,
            };
            members.push(member);
        }
        above = ids;
    }
    let rule = [AnswerRule::Vote, AnswerRule::Last, AnswerRule::Judge][dice.below(3)];
    let round = Round { from: above, rule, ..Round::new(members) };
    write(seed, "Which of the three proposed bridge designs costs least over sixty years of use?", &[round])
}

impl Round {
    fn new(members: Vec<Member>) -> Round {
        let (rule, withheld) = (AnswerRule::Last, Vec::new());
        Round { members, from: Vec::new(), rule, review: false, rejected_first: false, withheld }
    }
}

fn member(id: &str, base: &'static str, role: &str, duty: &str, level: usize, after: &[&str], answer: &str) -> Member {
    Member {
        id: id.into(),
        base,
        role: role.into(),
        duty: duty.into(),
        level,
        after: after.iter().map(ToString::to_string).collect(),
        share: Share::Reply,
        fate: Fate::Done,
        answer: answer.into(),
    }
}

/// A small generator: the next draw below a bound.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = splitmix(self.0);
        (self.0 % bound as u64) as usize
    }
}
