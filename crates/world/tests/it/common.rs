//! What every test here needs: worlds whose odds are known, ways to ask, and counts of what came of it.

use lemon_exec::Worker;
use lemon_exec::worker::{AgentPrompt, AskError, ChatMessage, Reply, Request};
use lemon_task::{Item, Key, SetName, Source, grade, load, splits};
use lemon_world::{FamilyFit, Fitted, LEVELS, Preset, TaskFamily, World, needs};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

/// Every item of the samples, whatever its set and split.
pub static ITEMS: LazyLock<Vec<Item>> = LazyLock::new(|| SetName::PUBLIC.into_iter().flat_map(items_of).collect());

/// The items of a set's official splits, in the samples.
pub fn items_of(set: SetName) -> Vec<Item> {
    let official = splits(set).filter(|split| split.name == split.of);
    official.flat_map(|split| load(&Source::Sample, set, split.name).unwrap().items).collect()
}

/// A duty that names no skill.
pub const NEUTRAL: &str = "Do this with care.";

/// How an agent is asked.
#[derive(Clone)]
pub struct Asked {
    /// The base role; empty for the one that is made for the item.
    pub base: &'static str,
    pub role: String,
    pub duty: String,
    pub readings: Vec<String>,
    pub level: usize,
    pub seed: u64,
    pub max_tokens: u64,
}

impl Default for Asked {
    fn default() -> Self {
        Asked {
            base: "",
            role: "One of the team".into(),
            duty: NEUTRAL.into(),
            readings: Vec::new(),
            level: 0,
            seed: 1,
            max_tokens: 100_000,
        }
    }
}

impl Asked {
    pub fn request(&self, item: &Item) -> Request {
        let made_for = if TaskFamily::of(item) == TaskFamily::Coding { "programmer" } else { "solver" };
        let agent_prompt = AgentPrompt {
            question: item.task.question.as_str().into(),
            base: if self.base.is_empty() { made_for } else { self.base }.to_owned(),
            role: self.role.clone(),
            duty: self.duty.clone(),
            readings: self.readings.iter().map(|text| text.as_str().into()).collect(),
            team: None,
        };
        let said = agent_prompt.readings.join("\n");
        let prompt = format!("{} {}\n{}\n{said}", agent_prompt.role, agent_prompt.duty, agent_prompt.question);
        Request {
            agent: "agent".into(),
            level: self.level,
            capacity: LEVELS[self.level].into(),
            messages: vec![ChatMessage::user(prompt)],
            max_tokens: self.max_tokens,
            temperature: None,
            seed: self.seed,
            schema: None,
            tools: None,
            agent_prompt: Some(Arc::new(agent_prompt)),
            progress: None,
        }
    }

    pub fn of(&self, world: &World, item: &Item) -> Reply {
        ask(world, &self.request(item)).unwrap()
    }
}

/// Asks; these workers never wait, so nothing need be run to wait with.
pub fn ask(worker: &impl Worker, request: &Request) -> Result<Reply, AskError> {
    match pin!(worker.ask(request)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a worker without an endpoint waited"),
    }
}

/// Whether a reply is right, read as the graders read it.
pub fn is_right(item: &Item, reply: &str) -> bool {
    match item.key() {
        Key::Code { .. } => solution(item).is_some_and(|solution| reply.contains(solution.trim_end())),
        _ => grade(item, reply).verdict.is_right(),
    }
}

/// What completes a program: published with the item, or with the item of the same name in the other variant.
pub fn solution(item: &Item) -> Option<&str> {
    let own = |item: &'static Item| match item.key() {
        Key::Code { solution, .. } => solution.map(|solution| (item.task.id.replace(['/', '_'], " "), solution)),
        _ => None,
    };
    if let Key::Code { solution: Some(solution), .. } = item.key() {
        return Some(solution);
    }
    let id = item.task.id.replace(['/', '_'], " ");
    ITEMS.iter().filter_map(own).find(|(other, _)| id.starts_with(&format!("{other} "))).map(|(_, solution)| solution)
}

/// A text that argues for an answer at some length.
pub fn argued(answer: &str) -> String {
    format!("I took the parts one after another, looked at each of them twice, and they agree.\n\nAnswer: {answer}")
}

pub fn is_code(item: &Item) -> bool {
    TaskFamily::of(item) == TaskFamily::Coding
}

/// The right answer of an item that is no program, and a wrong one.
pub fn right_and_wrong(item: &Item) -> (String, String) {
    match item.key() {
        Key::Number(gold) => (gold.clone(), format!("{gold}1")),
        Key::Choice { answer, .. } => {
            let letter = |index: usize| char::from(b'A' + index as u8).to_string();
            (letter(answer), letter(usize::from(answer == 0)))
        }
        Key::Text(gold) => (gold.to_owned(), "something else".to_owned()),
        Key::Code { .. } => panic!("a program is no short answer"),
    }
}

/// The first skill an item needs, by name.
pub fn need(item: &Item) -> Option<&'static str> {
    needs(TaskFamily::of(item), &item.task.question, item.task.subject.as_deref()).first().map(|skill| skill.name)
}

pub fn shipped(preset: Preset) -> World {
    world(preset, |_| {})
}

/// A world in which every agent's own attempt has these log-odds, on every item and at every level.
pub fn flat(preset: Preset, log_odds: f64) -> World {
    world(preset, |fit| {
        for level in &mut fit.levels {
            level.level = log_odds - preset.choices().level_shift;
            (level.slope, level.bend, level.shared, level.own) = (0.0, 0.0, 0.0, 0.0);
            level.fields.clear();
        }
    })
}

/// A world of the samples whose figures are changed, and whose replies are short unless told otherwise: how long they are
/// is drawn apart from what they say.
fn world(preset: Preset, change: impl Fn(&mut FamilyFit)) -> World {
    let mut fitted = Fitted::shipped().clone();
    for family in [&mut fitted.reckoning, &mut fitted.knowing, &mut fitted.coding] {
        family.levels.iter_mut().for_each(|level| level.characters = 0.0);
        change(family);
    }
    World::with_figures(fitted, preset, &*ITEMS)
}

/// Whether AQuA's handicap makes an item harder than the figures say.
pub fn has_handicap(item: &Item) -> bool {
    item.set() == SetName::Aqua
}

/// Items of a flat world whose odds are as told.
pub fn plain_items() -> impl Iterator<Item = &'static Item> {
    ITEMS.iter().filter(|item| !has_handicap(item))
}

/// How often something happened, and how often it was expected to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub cases: f64,
    pub happened: f64,
    pub expected: f64,
    pub variance: f64,
}

impl Tally {
    pub fn add(&mut self, happened: bool, probability: f64) {
        self.cases += 1.0;
        self.happened += f64::from(u8::from(happened));
        self.expected += probability;
        self.variance += probability * (1.0 - probability);
    }

    pub fn share(&self) -> f64 {
        self.happened / self.cases
    }

    /// How many standard errors it is off.
    pub fn z(&self) -> f64 {
        (self.happened - self.expected) / self.variance.sqrt().max(1e-9)
    }

    /// As expected, within four standard errors.
    #[track_caller]
    pub fn check(&self, what: &str) {
        assert!(self.cases > 0.0, "{what}: nothing was asked");
        assert!(self.z().abs() < 4.0, "{what}: {:.2} standard errors off: {self:?}", self.z());
    }

    /// More often than the other, by more than chance.
    #[track_caller]
    pub fn check_above(&self, other: &Tally, what: &str) {
        let error = |tally: &Tally| (tally.share() * (1.0 - tally.share()) / tally.cases).max(1e-9);
        let z = (self.share() - other.share()) / (error(self) + error(other)).sqrt();
        assert!(z > 4.0, "{what}: {:.4} against {:.4}, {z:.2} standard errors", self.share(), other.share());
    }
}

/// How often these items' agents are right over many seeds, against an expected probability.
pub fn tally<'a>(
    world: &World,
    items: impl IntoIterator<Item = &'a Item>,
    seeds: u64,
    how: impl Fn(&Item) -> Option<(Asked, f64)>,
) -> Tally {
    let mut tally = Tally::default();
    for item in items {
        let Some((asked, probability)) = how(item) else { continue };
        for seed in 0..seeds {
            let reply = Asked { seed, ..asked.clone() }.of(world, item);
            tally.add(is_right(item, &reply.text), probability);
        }
    }
    tally
}

pub use lemon_num::{logistic, logit};

/// The folder with the public data: `LEMON_TEST_DATA`, else `../shared/data` beside the workspace.
pub fn public_data() -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let folder = std::env::var_os("LEMON_TEST_DATA").map_or_else(beside, PathBuf::from);
    if folder.join("outcomes").is_dir() {
        return Some(folder);
    }
    println!("skipped: no recorded outcomes in {}", folder.display());
    None
}
