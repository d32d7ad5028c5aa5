//! The runs as the page's script reads them.
//!
//! Columns instead of rows, and texts and teams by their place in a table, because most are the same in thousands of
//! runs: a run of six agents takes some two hundred bytes.

use crate::{AgentRow, Evaluation, Row};
use lemon_trace::text::clip;
use lemon_trace::{AgentStatus, StopReason};
use lemon_view::markup::{ScriptData, clean};
use serde::Serialize;
use std::collections::HashMap;
use std::hash::Hash;

/// Longer answers are cut on the page; the trace has them whole.
const ANSWER_CHARS: usize = 2_000;
const AGENT_ANSWER_CHARS: usize = 200;
const ROLE_CHARS: usize = 200;

/// Colours go by this order; capacities of other names follow it.
const CAPACITIES: [&str; 3] = ["small", "medium", "large"];

/// The runs as JSON that no text in it can end early.
pub fn json(evaluation: &Evaluation) -> ScriptData {
    // Only string keys, so that writing it cannot fail.
    ScriptData::from_json(&serde_json::to_string(&Data::new(evaluation)).unwrap_or_default())
}

#[derive(Serialize)]
struct Data {
    methods: Vec<String>,
    sets: Vec<String>,
    seeds: Vec<String>,
    capacities: Vec<String>,
    texts: Vec<String>,
    /// Teams, each a list of agents.
    teams: Vec<Vec<Member>>,
    items: Items,
    runs: Runs,
    agents: Agents,
}

/// An agent as it was planned: id, base, role, capacity (places among the texts) and the places of the agents it reads.
#[derive(Serialize, PartialEq, Eq, Hash, Clone)]
struct Member(usize, usize, usize, usize, Vec<usize>);

#[derive(Serialize, Default)]
struct Items {
    set: Vec<usize>,
    id: Vec<String>,
}

/// One entry a run in each column.
#[derive(Serialize, Default)]
struct Runs {
    id: Vec<String>,
    method: Vec<usize>,
    seed: Vec<usize>,
    item: Vec<usize>,
    team: Vec<usize>,
    right: Vec<u8>,
    legacy: Vec<u8>,
    answer: Vec<Option<usize>>,
    stop: Vec<Option<usize>>,
    total: Vec<u64>,
    orchestrator: Vec<u64>,
    workers: Vec<u64>,
    retried: Vec<u64>,
    failed: Vec<u64>,
    usd: Vec<Option<f64>>,
    seconds: Vec<f64>,
    calls: Vec<u64>,
    events: Vec<u64>,
}

/// One entry an agent of a run in each column, run after run.
#[derive(Serialize, Default)]
struct Agents {
    status: Vec<Option<usize>>,
    answer: Vec<Option<usize>>,
    right: Vec<Option<u8>>,
    tokens: Vec<u64>,
}

impl Data {
    fn new(evaluation: &Evaluation) -> Data {
        let mut tables = Tables::default();
        // In the order they were asked for, also those without a run.
        for method in &evaluation.set_up.methods {
            tables.methods.place(clean(method));
        }
        let (mut runs, mut agents, mut items) = (Runs::default(), Agents::default(), Items::default());
        let mut item_places = Places::default();
        for row in &evaluation.rows {
            let set = tables.sets.place(clean(&row.set));
            let item = item_places.place((set, row.item));
            if item == items.id.len() {
                items.set.push(set);
                items.id.push(clean(&row.item_id));
            }
            runs.item.push(item);
            runs.push(row, &mut tables);
            row.agents.iter().for_each(|agent| agents.push(agent, &mut tables));
        }
        Data {
            methods: tables.methods.list,
            sets: tables.sets.list,
            seeds: tables.seeds.list,
            capacities: capacities(&evaluation.rows),
            texts: tables.texts.list,
            teams: tables.teams.list,
            items,
            runs,
            agents,
        }
    }
}

impl Runs {
    /// All columns but the item.
    fn push(&mut self, row: &Row, tables: &mut Tables) {
        self.id.push(clean(&row.run_id));
        self.method.push(tables.methods.place(clean(&row.method)));
        self.seed.push(tables.seeds.place(row.seed.to_string()));
        self.team.push(tables.team(&row.agents));
        self.right.push(row.right.into());
        self.legacy.push(row.legacy_right.into());
        self.answer.push(row.answer.as_deref().map(|answer| tables.text(answer, ANSWER_CHARS)));
        self.stop.push(row.stop_reason.map(StopReason::as_str).map(|reason| tables.text(reason, usize::MAX)));
        self.total.push(row.tokens.total);
        self.orchestrator.push(row.tokens.orchestrator);
        self.workers.push(row.tokens.workers);
        self.retried.push(row.tokens.retried);
        self.failed.push(row.tokens.failed);
        self.usd.push(row.usd.map(|usd| rounded(usd, 1e8)));
        self.seconds.push(rounded(row.wall_s, 1e3));
        self.calls.push(row.calls);
        self.events.push(row.metrics.events);
    }
}

impl Agents {
    fn push(&mut self, agent: &AgentRow, tables: &mut Tables) {
        self.status.push(agent.status.map(AgentStatus::as_str).map(|status| tables.text(status, usize::MAX)));
        self.answer.push(agent.answer.as_deref().map(|answer| tables.text(answer, AGENT_ANSWER_CHARS)));
        self.right.push(agent.right.map(u8::from));
        self.tokens.push(agent.tokens);
    }
}

/// What is said once and pointed at.
#[derive(Default)]
struct Tables {
    methods: Places<String>,
    sets: Places<String>,
    seeds: Places<String>,
    texts: Places<String>,
    teams: Places<Vec<Member>>,
}

impl Tables {
    fn text(&mut self, text: &str, chars: usize) -> usize {
        self.texts.place(clip(&clean(text), chars))
    }

    fn team(&mut self, agents: &[AgentRow]) -> usize {
        let mut earlier: HashMap<&str, usize> = HashMap::new();
        let mut members = Vec::with_capacity(agents.len());
        for (place, agent) in agents.iter().enumerate() {
            // An agent reads those before it; what points elsewhere could not be drawn.
            let after = agent.after.iter().filter_map(|id| earlier.get(&**id).copied()).collect();
            let [id, base, role, capacity] =
                [&agent.id, &agent.base, &agent.role, &agent.capacity].map(|text| self.text(text, ROLE_CHARS));
            members.push(Member(id, base, role, capacity, after));
            earlier.entry(&agent.id).or_insert(place);
        }
        self.teams.place(members)
    }
}

/// Distinct values in the order of their first appearance, and where each is.
struct Places<T> {
    list: Vec<T>,
    places: HashMap<T, usize>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Places { list: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Places<T> {
    fn place(&mut self, value: T) -> usize {
        if let Some(place) = self.places.get(&value) {
            return *place;
        }
        let place = self.list.len();
        self.list.push(value.clone());
        self.places.insert(value, place);
        place
    }
}

fn capacities(rows: &[Row]) -> Vec<String> {
    let rank = |name: &String| CAPACITIES.iter().position(|known| known == name).unwrap_or(CAPACITIES.len());
    let mut names: Vec<String> =
        rows.iter().flat_map(|row| &row.agents).map(|agent| clip(&clean(&agent.capacity), ROLE_CHARS)).collect();
    names.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
    names.dedup();
    names
}

/// Fewer digits, fewer bytes.
fn rounded(x: f64, parts: f64) -> f64 {
    (x * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(agents: &[(&str, &[&str])], expected: &[&[usize]]) {
        let agents: Vec<AgentRow> = agents
            .iter()
            .map(|(id, after)| AgentRow {
                id: (*id).into(),
                after: after.iter().map(|id| (*id).into()).collect(),
                ..AgentRow::default()
            })
            .collect();
        let mut tables = Tables::default();
        let team = tables.team(&agents);
        let after: Vec<&[usize]> = tables.teams.list[team].iter().map(|member| member.4.as_slice()).collect();
        assert_eq!(after, expected);
    }

    #[test]
    fn agents_read_those_before_them() {
        check(&[], &[]);
        check(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"])], &[&[], &[0], &[0, 1]]);
        // Itself, a later one, an unknown one, and one of two with the same name.
        check(&[("a", &["a", "b", "x"]), ("b", &[]), ("a", &[]), ("c", &["a"])], &[&[], &[], &[], &[0]]);
    }

    #[test]
    fn the_same_is_said_once() {
        let row = |item, answer: &str| Row {
            item,
            answer: Some(answer.into()),
            agents: vec![AgentRow { id: "solo".into(), capacity: "large".into(), ..AgentRow::default() }],
            ..Row::default()
        };
        let rows = vec![row(0, "7"), row(1, "7"), row(0, "<b>"), row(1, &"x".repeat(3_000))];
        let evaluation = Evaluation { set_up: Default::default(), training: Vec::new(), rows };
        let data = Data::new(&evaluation);
        assert_eq!((data.teams.len(), data.items.id.len(), data.runs.id.len()), (1, 2, 4));
        assert_eq!(data.runs.item, [0, 1, 0, 1]);
        assert_eq!(data.runs.answer[0], data.runs.answer[1]);
        assert_eq!(data.capacities, ["large"]);
        let json = json(&evaluation);
        let json = json.as_str();
        assert!(json.contains(r#""\u003cb>""#) && !json.contains('<'));
        assert!(json.contains(&format!("{}…", "x".repeat(1_999))) && !json.contains(&"x".repeat(2_000)));
    }
}
