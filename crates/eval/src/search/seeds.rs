//! The teams a search begins with: the common shapes, at every capacity.

use crate::trial::agent;
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, Spec};

/// One agent, votes, solver and critic, the same with a second try, planner and solver, a judged star, a debate. The
/// single agents come first.
pub fn seed_teams(language: &Language, code: bool) -> Vec<Spec> {
    let solver = if code { "programmer" } else { "solver" };
    let levels = &language.capacities;
    let mut specs: Vec<Spec> =
        levels.iter().map(|level| team(&[(solver, level, &[])], &[0], AnswerRule::Last)).collect();
    for level in levels {
        let alone = (solver, level.as_str(), [].as_slice());
        specs.push(team(&[alone; 3], &[0, 1, 2], AnswerRule::Vote));
        specs.push(team(&[alone; 5], &[0, 1, 2, 3, 4], AnswerRule::Vote));
        specs.push(team(&[alone; 3], &[0, 1, 2], AnswerRule::Judge));
        specs.push(team(&[("planner", level, &[]), (solver, level, &[0])], &[1], AnswerRule::Last));
        let again = (solver, level.as_str(), [0, 1, 2].as_slice());
        specs.push(team(&[alone, alone, alone, again, again, again], &[3, 4, 5], AnswerRule::Vote));
        for checking in levels {
            specs.push(team(&[alone, ("critic", checking, &[0])], &[1], AnswerRule::Last));
        }
        specs.push(team(&[alone, ("critic", level, &[0]), (solver, level, &[1])], &[2], AnswerRule::Last));
    }
    specs
}

/// A team of agents given as base role, capacity and the positions of those they read.
fn team(agents: &[(&str, &str, &[usize])], from: &[usize], by: AnswerRule) -> Spec {
    let ids = |positions: &[usize]| positions.iter().map(|at| id(*at)).collect();
    let agent = |(at, (base, capacity, after)): (usize, &(&str, &str, &[usize]))| Agent {
        after: ids(after),
        ..agent(id(at), base, capacity)
    };
    Spec {
        agents: agents.iter().enumerate().map(agent).collect(),
        answer: Answer { from: ids(from), by },
        next: Next::Stop,
    }
}

fn id(position: usize) -> String {
    format!("a{}", position + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_spec::{render, validate};
    use std::collections::HashSet;

    #[test]
    fn seed_teams_are_valid_and_differ() {
        let language = Language::default();
        for code in [false, true] {
            let texts: Vec<String> = seed_teams(&language, code).iter().map(|spec| render(spec).text).collect();
            assert_eq!(texts.iter().collect::<HashSet<_>>().len(), 3 + 3 * 9);
            let agents: Vec<usize> =
                texts.iter().map(|text| validate(text, &language).unwrap().agents().len()).collect();
            assert_eq!(agents[..3], [1; 3]);
            assert_eq!(agents[3..12], [3, 5, 3, 2, 6, 2, 2, 2, 3]);
        }
    }
}
