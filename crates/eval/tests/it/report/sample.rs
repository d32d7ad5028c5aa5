//! Made-up evaluations with the shapes of real ones, always the same for the same seed.

use lemon_eval::{AgentRow, Evaluation, Row, SetUp, TokenRow, Training};
use lemon_num::Random;
use lemon_trace::{AgentStatus, Metrics, StopReason};

/// How an evaluation is to be.
pub struct Shape {
    pub methods: usize,
    pub sets: &'static [&'static str],
    /// Of each set.
    pub items: usize,
    pub seeds: u64,
}

/// Name, agents (0: as the run likes), who reads whom, skill.
const METHODS: [(&str, usize, Reading, f64); 7] = [
    ("single", 1, Reading::Nothing, 0.55),
    ("self-consistency", 6, Reading::Nothing, 0.63),
    ("debate", 6, Reading::Halves, 0.65),
    ("chain", 6, Reading::Last, 0.6),
    ("planner", 6, Reading::First, 0.62),
    ("learned-fixed", 4, Reading::Halves, 0.66),
    ("lemon", 0, Reading::Halves, 0.74),
];

const ROLES: [&str; 6] =
    ["Arithmetic tutor", "Sceptic", "Unit checker", "Planner of steps", "Second opinion", "Careful editor of results"];

#[derive(Clone, Copy)]
enum Reading {
    Nothing,
    Last,
    First,
    /// The second half reads all of the first.
    Halves,
}

pub fn evaluation(shape: &Shape) -> Evaluation {
    let methods = METHODS.iter().take(shape.methods);
    let mut rows = Vec::new();
    for (method, agents, reading, skill) in methods.clone() {
        for seed in 0..shape.seeds {
            for (place, set) in shape.sets.iter().enumerate() {
                for item in 0..shape.items {
                    // The same item is as hard for all.
                    let hardness = Random::new((place * 100_000 + item) as u64).uniform() - 0.5;
                    let mut random = Random::new(rows.len() as u64 + 1_000_000);
                    let chance = skill - 0.25 * place as f64 + hardness * 0.7;
                    rows.push(row(&mut random, (method, *agents, *reading), (set, item, seed), chance));
                }
            }
        }
    }
    let set_up = SetUp {
        clusters: None,
        eval_id: "e-sample".into(),
        started_at_ms: 1_767_225_600_000,
        sets: shape.sets.iter().map(|set| (*set).into()).collect(),
        items: shape.items * shape.sets.len(),
        methods: methods.map(|(method, ..)| (*method).into()).collect(),
        capacity: None,
        workers: "sim (even)".into(),
        seeds: (0..shape.seeds).collect(),
    };
    let training = if shape.methods > 5 {
        vec![Training {
            method: "learned-fixed".into(),
            runs: 400,
            tokens: 1_234_567,
            spec: "agents:\n  - id: a\n".into(),
            ..Training::default()
        }]
    } else {
        Vec::new()
    };
    Evaluation { set_up, training, rows }
}

fn row(
    random: &mut Random,
    (method, agents, reading): (&str, usize, Reading),
    (set, item, seed): (&str, usize, u64),
    chance: f64,
) -> Row {
    let right = random.uniform() < chance;
    let count = if agents == 0 { 2 + random.below(5) } else { agents };
    let gold = (item * 7 % 300).to_string();
    let answer = |right: bool, random: &mut Random| match right {
        true => gold.clone(),
        false => (random.below(300) + 300).to_string(),
    };
    let mut team: Vec<AgentRow> = Vec::with_capacity(count);
    for place in 0..count {
        let is_last = place + 1 == count;
        let is_right = if is_last { right } else { random.uniform() < chance };
        let fails = !is_last && random.below(40) == 0;
        team.push(AgentRow {
            id: format!("a{}", place + 1).into(),
            base: if is_last && count > 1 { "judge" } else { "solver" }.into(),
            role: ROLES[(place + if agents == 0 { random.below(2) } else { 0 }) % ROLES.len()].into(),
            capacity: ["small", "medium", "large"][if agents == 0 { place % 3 } else { 1 }].into(),
            after: read_by(place, count, reading).map(|parent| format!("a{}", parent + 1).into()).collect(),
            status: Some(if fails { AgentStatus::Failed } else { AgentStatus::Done }),
            answer: (!fails).then(|| answer(is_right, random).into()),
            right: (!fails).then_some(is_right),
            tokens: 150 + random.below(400) as u64,
        });
    }
    let orchestrator = if agents == 0 { 500 + random.below(400) as u64 } else { 0 };
    let workers: u64 = team.iter().map(|agent| agent.tokens).sum();
    let retried = if random.below(10) == 0 { 80 } else { 0 };
    let failed = team.iter().filter(|agent| agent.right.is_none()).map(|agent| agent.tokens).sum();
    let total = orchestrator + workers;
    Row {
        cluster: None,
        set: set.into(),
        item,
        item_id: format!("{}-{item}", set.split('/').next().unwrap_or(set)).into(),
        method: method.into(),
        seed,
        run_id: format!("r-{method}-{}-{item}-{seed}", set.replace('/', "-")),
        right,
        legacy_right: right != (random.below(25) == 0),
        reward: Some(f64::from(u8::from(right)) + 0.2 * (-(total as f64) / 5000.0).exp() - 0.005 * count as f64),
        answer: (random.below(50) != 0 || right).then(|| answer(right, random).into()),
        stop_reason: Some(if random.below(30) == 0 { StopReason::TokenBudget } else { StopReason::Answered }),
        tokens: TokenRow { total, orchestrator, workers, retried, failed },
        usd: Some(total as f64 * 0.000_000_6),
        wall_s: (total as f64 / 300.0).round() / 10.0,
        calls: count as u64 + u64::from(orchestrator > 0),
        agents: team,
        metrics: Metrics {
            parallel_speedup: Some(1.0 + count as f64 / 4.0),
            useful_agents: Some(1.0 - random.below(4) as f64 / 10.0),
            message_redundancy: (count > 1).then(|| random.uniform() / 4.0),
            protocol_overhead: Some(orchestrator as f64 / total as f64),
            events: 4 * count as u64 + 3,
            messages: count as u64,
            ..Metrics::default()
        },
    }
}

fn read_by(place: usize, count: usize, reading: Reading) -> std::ops::Range<usize> {
    match reading {
        Reading::Nothing => 0..0,
        Reading::Last => place.saturating_sub(1)..place,
        Reading::First => 0..place.min(1),
        Reading::Halves => 0..if place * 2 >= count { count / 2 } else { 0 },
    }
}
