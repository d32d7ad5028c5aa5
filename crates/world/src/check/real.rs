//! The preset `real-1.5b` against the recorded items that it was not fitted to: accuracy of each level, gains of votes and of
//! mixtures, effects of readers, tokens. Votes are counted here by one rule for record and world.

use super::{Check, Figure};
use crate::fit::{RecordedSet, SETS, mean, reader_names, recorded_sets, solo};
use crate::outcomes::OutcomesError;
use crate::preset::{Fitted, Preset, REAL_LEVELS};
use crate::recordings::{RecordedCall, RecordedItem, Recordings, is_to_fit};
use crate::sim::World;
use lemon_exec::Form;
use lemon_exec::answer::{answer_of, ballot};
use lemon_exec::worker::{AgentPrompt, ChatMessage, Reply, Request};
use lemon_num::seed_of;
use lemon_task::{Item, Key, SetName, grade};
use std::path::Path;
use std::sync::Arc;

const PROGRAM: usize = 2;
const REASONED: usize = 3;
/// Teams of each kind that are simulated for an item.
const TEAMS: u64 = 8;

/// Compares a world with the recorded items for which [`is_to_fit`] does not hold.
///
/// # Errors
/// The record or the tasks it is about cannot be read.
pub fn check_real(fitted: &Fitted, data: &Path) -> Result<Check, OutcomesError> {
    let names = REAL_LEVELS.map(str::to_owned);
    let recordings = Recordings::read(data, &SETS, &names)?;
    let mut figures = Vec::new();
    for recorded in recorded_sets(data, &recordings)? {
        let world = World::with_figures(fitted.clone(), Preset::Real, recorded.items.iter().map(|(item, _)| item));
        compare(&recorded, &world, &mut figures);
    }
    Ok(Check { figures })
}

/// An answer, as a vote sees it.
#[derive(Clone)]
struct Answered {
    level: usize,
    ballot: String,
    right: bool,
    truncated: bool,
    tokens: f64,
}

/// One item of the other half, with what agents of each level answered: on record, and in teams of the world.
struct Seen<'a> {
    item: &'a Item,
    record: &'a RecordedItem,
    calls: Vec<Vec<Answered>>,
    made: Vec<Vec<Vec<Answered>>>,
}

fn compare(recorded: &RecordedSet<'_>, world: &World, figures: &mut Vec<Figure>) {
    let RecordedSet { set, items } = recorded;
    let others = items.iter().filter(|(_, record)| !is_to_fit(&record.name));
    let seen: Vec<Seen<'_>> = others.map(|(item, record)| Seen::new(item, record, world)).collect();
    let mut add = |what: String, level: Option<usize>, pairs: Vec<(f64, f64)>, bound: f64| {
        figures.extend(figure(*set, what, level, &pairs, bound));
    };
    for level in 0..REAL_LEVELS.len() {
        let share = |answers: &[Answered]| mean(answers.iter().map(|answer| f64::from(u8::from(answer.right))));
        let has = |seen: &&Seen<'_>| !seen.calls[level].is_empty();
        let solo = seen.iter().filter(has).map(|seen| (share(&seen.calls[level]), share(&seen.made[level].concat())));
        add("accuracy".to_owned(), Some(level), solo.collect(), 0.02);
        let tokens = |answers: &[Answered]| mean(answers.iter().map(|answer| answer.tokens));
        let pairs: Vec<(f64, f64)> = seen
            .iter()
            .filter(has)
            .map(|seen| (tokens(&seen.calls[level]), tokens(&seen.made[level].concat())))
            .collect();
        let usual = mean(pairs.iter().map(|(record, _)| *record)).max(1e-9);
        let pairs = pairs.into_iter().map(|(record, world)| (record / usual, world / usual)).collect();
        add("tokens of a reply, record = 100".to_owned(), Some(level), pairs, 0.1);
    }
    if *set != SetName::HumanEval {
        for level in [PROGRAM, REASONED] {
            for count in 2..=4 {
                let gain = |teams: &[Vec<Answered>]| mean(teams.iter().map(|team| voted(team) - solo_share(team)));
                let pairs = seen.iter().filter(|seen| seen.calls[level].len() >= count).map(|seen| {
                    let made: Vec<Vec<Answered>> = seen.made[level].iter().map(|team| team[..count].to_vec()).collect();
                    (gain(&subsets(&seen.calls[level], count)), gain(&made))
                });
                add(format!("gain of a vote of {count}"), Some(level), pairs.collect(), 0.02);
            }
        }
        for (programs, reasoners) in [(1, 2), (3, 4)] {
            let pairs = seen.iter().filter_map(|seen| {
                // Where fewer programs are on record, those.
                let programs = programs.min(seen.calls[PROGRAM].len());
                let enough = programs > 0 && seen.calls[REASONED].len() >= reasoners;
                enough.then(|| (seen.mixed_on_record(programs, reasoners), seen.mixed_in_world(programs, reasoners)))
            });
            add(
                format!("gain of {programs} program(s) beside {reasoners} voting reasoners"),
                Some(REASONED),
                pairs.collect(),
                0.03,
            );
        }
    }
    for (name, base) in [
        ("critic", "critic"),
        ("judge", "judge"),
        ("solver", "solver"),
        ("critic/answer", "critic"),
        ("judge/answer", "judge"),
    ] {
        let pairs: Vec<(f64, f64)> = seen.iter().filter_map(|seen| seen.reader(name, base, world)).collect();
        add(format!("effect of a {name} that reads"), Some(REASONED), pairs, 0.03);
    }
}

fn figure(set: SetName, what: String, level: Option<usize>, pairs: &[(f64, f64)], bound: f64) -> Option<Figure> {
    let record = mean(pairs.iter().map(|pair| pair.0));
    let count = pairs.len() as f64;
    let variance = mean(pairs.iter().map(|pair| (pair.0 - record).powi(2)));
    (!pairs.is_empty()).then(|| Figure {
        set: set.as_str(),
        what,
        level: level.map(|level| REAL_LEVELS[level]),
        record,
        world: mean(pairs.iter().map(|pair| pair.1)),
        bound: Some(bound),
        cases: pairs.len(),
        error: Some((variance / count).sqrt()),
    })
}

impl<'a> Seen<'a> {
    fn new(item: &'a Item, record: &'a RecordedItem, world: &World) -> Self {
        let on_record = |level: usize| solo(record, level).map(|call| recorded_answer(item, level, call)).collect();
        let made = |level: usize| {
            let team = |team: u64| {
                (0..4)
                    .filter_map(|agent| {
                        Some(made_answer(item, level, &ask(item, world, level, (team, agent), "", &[])?))
                    })
                    .collect()
            };
            (0..TEAMS).map(team).collect()
        };
        let levels = 0..REAL_LEVELS.len();
        Seen { item, record, calls: levels.clone().map(on_record).collect(), made: levels.map(made).collect() }
    }

    /// What programs add to a vote of reasoners, over all choices of the recorded samples.
    fn mixed_on_record(&self, programs: usize, reasoners: usize) -> f64 {
        let programs = subsets(&self.calls[PROGRAM], programs);
        let gain = |team: Vec<Answered>| {
            mean(programs.iter().map(|with| voted(&[team.clone(), with.clone()].concat()) - voted(&team)))
        };
        mean(subsets(&self.calls[REASONED], reasoners).into_iter().map(gain))
    }

    fn mixed_in_world(&self, programs: usize, reasoners: usize) -> f64 {
        let teams = self.made[REASONED].iter().zip(&self.made[PROGRAM]);
        mean(teams.map(|(reasoned, programmed)| {
            let alone = &reasoned[..reasoners.min(reasoned.len())];
            voted(&[alone, &programmed[..programs.min(programmed.len())]].concat()) - voted(alone)
        }))
    }

    /// How much better a reader is than the mean of what it reads: on record, and in the world.
    fn reader(&self, name: &str, base: &'static str, world: &World) -> Option<(f64, f64)> {
        let exact = |call: &&RecordedCall| {
            !call.reads.is_empty() && !call.sees_answers && call.bases.iter().any(|base| base == "critic")
        };
        let exact = self.record.calls.iter().any(|call| exact(&call));
        let named = |call: &&RecordedCall| {
            !call.reads.is_empty() && reader_names(call, exact).is_some_and(|names| names.iter().any(|it| it == name))
        };
        let call = self.record.calls.iter().find(named)?;
        let share = |right: bool| f64::from(u8::from(right));
        let source = |(level, sample): &(usize, u32)| {
            solo(self.record, *level)
                .find(|source| source.sample == *sample)
                .map(|source| share(source.correct == Some(true)))
        };
        let before = mean(call.reads.iter().filter_map(source));
        let record = share(call.correct == Some(true)) - before;
        let form = form_of(self.item);
        let team = |team: u64| {
            let read: Vec<Reply> = (0..call.reads.len() as u64)
                .filter_map(|agent| ask(self.item, world, REASONED, (team, agent), "", &[]))
                .collect();
            let before = mean(read.iter().map(|reply| share(is_right(self.item, &answer_of(&reply.text, form)))));
            let texts: Vec<String> = read
                .iter()
                .map(|reply| if call.sees_answers { answer_of(&reply.text, form) } else { reply.text.clone() })
                .collect();
            let reply = ask(self.item, world, REASONED, (team, 9), base, &texts)?;
            Some(share(is_right(self.item, &answer_of(&reply.text, form))) - before)
        };
        Some((record, mean((0..TEAMS).filter_map(team))))
    }
}

/// 1 if the vote of a team is right: the most frequent complete answer; of equals that of the highest level, then the first.
fn voted(team: &[Answered]) -> f64 {
    let complete: Vec<&Answered> = team.iter().filter(|answer| !answer.truncated).collect();
    let candidates = if complete.is_empty() { team.iter().collect() } else { complete };
    let rank = |at: usize| {
        let same = || candidates.iter().filter(|other| other.ballot == candidates[at].ballot);
        (same().count(), same().map(|other| other.level).max(), std::cmp::Reverse(at))
    };
    let chosen = (0..candidates.len()).max_by_key(|at| rank(*at));
    chosen.map_or(0.0, |at| f64::from(u8::from(candidates[at].right)))
}

fn solo_share(team: &[Answered]) -> f64 {
    mean(team.iter().map(|answer| f64::from(u8::from(answer.right))))
}

/// All choices of so many.
fn subsets(all: &[Answered], count: usize) -> Vec<Vec<Answered>> {
    match (count, all.split_first()) {
        (0, _) => vec![Vec::new()],
        (_, None) => Vec::new(),
        (_, Some((first, rest))) => {
            let with = subsets(rest, count - 1).into_iter().map(|more| [vec![first.clone()], more].concat());
            with.chain(subsets(rest, count)).collect()
        }
    }
}

fn form_of(item: &Item) -> Form {
    match item.key() {
        Key::Number(_) => Form::Number,
        Key::Choice { .. } => Form::Choice,
        Key::Text(_) => Form::Short,
        Key::Code { .. } => Form::Code,
    }
}

fn options_of(item: &Item) -> Vec<(char, String)> {
    match item.key() {
        Key::Choice { options, .. } => ('A'..='Z').zip(options.iter().cloned()).collect(),
        _ => Vec::new(),
    }
}

/// Programs of the world are right if they hold the published solution, which nothing else does.
fn is_right(item: &Item, answer: &str) -> bool {
    match item.key() {
        Key::Code { solution, .. } => solution.is_some_and(|solution| answer.contains(solution.trim_end())),
        _ => grade(item, answer).verdict.is_right(),
    }
}

fn recorded_answer(item: &Item, level: usize, call: &RecordedCall) -> Answered {
    let form = form_of(item);
    Answered {
        level,
        ballot: ballot(&answer_of(&call.text, form), form, &options_of(item)),
        right: call.correct.unwrap_or(false),
        truncated: call.truncated || call.silent,
        tokens: call.tokens.map_or(0.0, |(_, out)| out as f64),
    }
}

fn made_answer(item: &Item, level: usize, reply: &Reply) -> Answered {
    let form = form_of(item);
    let answer = answer_of(&reply.text, form);
    Answered {
        level,
        ballot: ballot(&answer, form, &options_of(item)),
        right: is_right(item, &answer),
        truncated: reply.truncated,
        tokens: reply.usage.tokens_out as f64,
    }
}

/// The reply of an agent of a team; without a base role, of one that solves.
fn ask(
    item: &Item,
    world: &World,
    level: usize,
    (team, agent): (u64, u64),
    base: &str,
    readings: &[String],
) -> Option<Reply> {
    let solves = if matches!(item.key(), Key::Code { .. }) { "programmer" } else { "solver" };
    let base = if base.is_empty() || base == "solver" { solves } else { base };
    let prompt = AgentPrompt {
        question: item.task.question.as_str().into(),
        base: base.to_owned(),
        readings: readings.iter().map(|text| text.as_str().into()).collect(),
        ..AgentPrompt::default()
    };
    let request = Request {
        agent: format!("a{agent}"),
        level,
        capacity: REAL_LEVELS[level].to_owned(),
        messages: vec![ChatMessage::user(item.task.question.as_str())],
        max_tokens: u64::MAX,
        temperature: None,
        seed: seed_of(&["check", &team.to_string(), &agent.to_string()]),
        schema: None,
        tools: None,
        agent_prompt: Some(Arc::new(prompt)),
        progress: None,
    };
    // The world knows every item that is asked about.
    world.reply_to(&request).ok()
}
