//! The rules that write teams, one for each method that has one.

use super::Team;
use lemon_spec::{Next, PLAIN, Style};

pub fn vanilla(team: &mut Team) {
    let base = if team.ask.code { "programmer" } else { "solver" };
    team.add(base, Some("Answer the task."), &[]);
}

pub fn plain(team: &mut Team) {
    team.add(PLAIN, None, &[]);
}

pub fn brief(team: &mut Team) {
    match team.ask.with_style(Style::Brief) {
        Some(capacity) => team.add_at(capacity, PLAIN, None, &[]),
        None => team.add(PLAIN, Some("Give the answer alone, without explanation."), &[]),
    };
}

pub fn program(team: &mut Team) {
    team.programmer();
}

pub fn mixed(team: &mut Team) {
    let programs: Vec<_> = (0..team.number).map(|_| team.programmer()).collect();
    let solvers: Vec<_> = (0..=team.number).map(|_| team.solver(&[])).collect();
    team.vote(&[programs, solvers].concat());
}

pub fn agree(team: &mut Team) {
    let both = [team.programmer(), team.solver(&[])];
    team.vote(&both);
    // Programs are not alike in any word: there is nothing to agree on.
    team.next = if team.ask.code { Next::Stop } else { Next::Review };
}

pub fn disagree(team: &mut Team) {
    let programs: Vec<_> = (0..2).map(|_| team.programmer()).collect();
    let solvers: Vec<_> = (0..3).map(|_| team.solver(&[])).collect();
    let all = [team.before.clone(), programs, solvers].concat();
    team.vote(&all);
}

pub fn critic(team: &mut Team) {
    let first = team.solver(&[]);
    let second = team.add("critic", None, &[first]);
    team.answer(&[second], "last");
}

pub fn judge(team: &mut Team) {
    let all: Vec<_> = (0..team.number).map(|_| team.solver(&[])).collect();
    team.answer(&all, "judge");
}

pub fn cot(team: &mut Team) {
    team.solver(&[]);
}

pub fn sc_cot(team: &mut Team) {
    let all: Vec<_> = (0..team.number).map(|_| team.solver(&[])).collect();
    team.vote(&all);
}

pub fn chain(team: &mut Team) {
    let mut last = Vec::new();
    for _ in 0..team.number {
        last = vec![team.solver(&last)];
    }
}

pub fn star(team: &mut Team) {
    let around: Vec<_> = (1..team.number).map(|_| team.solver(&[])).collect();
    let centre = team.solver(&around);
    team.answer(&[centre], "last");
}

pub fn tree(team: &mut Team) {
    let mut layer: Vec<_> = (0..team.number).map(|_| team.solver(&[])).collect();
    while layer.len() > 1 {
        layer =
            layer.chunks(2).map(<[String]>::to_vec).collect::<Vec<_>>().iter().map(|pair| team.solver(pair)).collect();
    }
    team.answer(&layer, "last");
}

pub fn complete(team: &mut Team) {
    let mut before = Vec::new();
    for _ in 0..team.number {
        before.push(team.solver(&before));
    }
    let last = before.split_off(before.len().saturating_sub(1));
    team.answer(&last, "last");
}

pub fn random(team: &mut Team) {
    let mut draws = lemon_num::Random::new(team.ask.seed);
    let mut before: Vec<String> = Vec::new();
    let mut unread: Vec<String> = Vec::new();
    for _ in 0..team.number {
        let read: Vec<String> = before.iter().filter(|_| draws.next_u64().is_multiple_of(2)).cloned().collect();
        unread.retain(|id| !read.contains(id));
        let id = team.solver(&read);
        before.push(id.clone());
        unread.push(id);
    }
    match unread.len() {
        1 => team.answer(&unread, "last"),
        _ => team.vote(&unread),
    }
}

pub fn debate(team: &mut Team) {
    let mut round: Vec<String> = (0..3).map(|_| team.solver(&[])).collect();
    for _ in 1..team.number {
        round = (0..3).map(|_| team.solver(&round)).collect::<Vec<_>>();
    }
    team.vote(&round);
}
