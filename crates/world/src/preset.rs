//! The figures of a world: those fitted on recorded models, and those chosen because nothing is on record.

use crate::features::Difficulty;
use crate::skill::TaskFamily;
use lemon_num::logistic;
use lemon_spec::Style;
use lemon_task::Item;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The capacities of the published record of three models, weakest first.
pub const LEVELS: [&str; 3] = ["small", "medium", "large"];
/// The capacities of the preset `real-1.5b`, weakest first: a tiny model, and three efforts of one of 1.5 billion parameters.
pub const REAL_LEVELS: [&str; 4] = ["smol", "brief", "program", "reasoned"];

/// What was fitted; see `docs/world.md` for the equations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Word problems.
    pub reckoning: FamilyFit,
    /// Questions of knowledge.
    pub knowing: FamilyFit,
    /// Programs.
    pub coding: FamilyFit,
    /// Sets that were recorded on their own, by name: they are not simulated by their kind of task.
    #[serde(default)]
    pub sets: BTreeMap<String, FamilyFit>,
}

/// What was fitted for one kind of task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyFit {
    /// What items' own residuals are drawn from.
    pub salt: u64,
    /// From features to difficulty.
    pub difficulty: Difficulty,
    /// How an agent revises after reading answers.
    pub revision: Revision,
    /// The capacities, weakest first.
    pub levels: Vec<LevelFit>,
    /// Readers on record, by base role; with `/answer` where they saw answers alone. They do not revise: see [`ReaderFit`].
    #[serde(default)]
    pub readers: BTreeMap<String, ReaderFit>,
}

/// How often a recorded reader is right, by how much of what it reads is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReaderFit {
    /// The probability at evenly spaced shares of right readings, from none to all.
    pub right: Vec<f64>,
    /// Tokens of a reply.
    pub tokens: f64,
}

impl ReaderFit {
    /// The probability of a right answer after readings of which this share is right.
    pub fn at(&self, share: f64) -> f64 {
        let last = self.right.len().saturating_sub(1);
        let place = share.clamp(0.0, 1.0) * last as f64;
        let low = (place.floor() as usize).min(last);
        let value = |at: usize| self.right.get(at.min(last)).copied().unwrap_or(0.0);
        value(low) + (value(low + 1) - value(low)) * (place - low as f64)
    }
}

/// How likely an agent is right that has read answers: the logistic of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revision {
    pub constant: f64,
    /// Its own attempt was right.
    pub own: f64,
    /// Support, between -1 (all it read is wrong, and much of it) and 1.
    pub support: f64,
    /// Both at once.
    pub own_support: f64,
    /// The capacity's ability: the log-odds of its accuracy.
    pub ability: f64,
    /// Where no agent has the right answer, a second look finds it with so much of the probability that a first
    /// one would have: what is hard stays hard, however often it is looked at.
    pub second_look: f64,
}

/// What was fitted for one capacity.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelFit {
    pub name: String,
    /// Its accuracy on record.
    pub accuracy: f64,
    /// Log-odds of being right at difficulty 0.
    pub level: f64,
    /// What a unit of difficulty takes off.
    pub slope: f64,
    /// What a unit above 0 takes off besides.
    pub bend: f64,
    /// Spread of the items' residuals that all capacities share.
    pub shared: f64,
    /// Spread of those of this capacity alone.
    pub own: f64,
    /// How often a wrong answer is the item's favourite wrong one.
    pub favourite: f64,
    /// Added to the capacity, by field of knowledge.
    #[serde(default)]
    pub fields: BTreeMap<String, f64>,
    /// Mean length of a reply, in characters.
    pub characters: f64,
    /// Spread of the logarithm of that length.
    pub spread: f64,
    /// Mean tokens of a reply where they are on record; 0: four characters count as one.
    #[serde(default)]
    pub tokens: f64,
    /// How many of the wrong replies are cut off before they state an answer.
    #[serde(default)]
    pub cut: f64,
}

impl LevelFit {
    /// Log-odds of being right at a difficulty, without residuals and fields.
    pub fn at(&self, difficulty: f64) -> f64 {
        self.level - self.slope * difficulty - self.bend * difficulty.max(0.0)
    }
}

/// What was chosen, because no record says it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// Added to every capacity.
    pub level_shift: f64,
    /// A duty or role that names what the task needs adds this, one that names something else takes it off.
    pub duty: f64,
    /// The same for a plan or test cases that an agent reads.
    pub plan: f64,
    /// Added to the own attempt of a critic or verifier that has something to check.
    pub check: f64,
    /// Added to such an agent's trust in its own attempt.
    pub check_trust: f64,
    /// Added to the own attempt of a judge.
    pub judge: f64,
    /// What an agent loses whose role is not made for the kind of task.
    pub wrong_role: f64,
    /// What a word problem loses that is answered without working.
    pub without_working: f64,
    /// What word problems with options lose: AQuA is harder than it looks.
    pub options: f64,
    /// The weight of a bare answer against one with its reasoning.
    pub bare_answer: f64,
    /// Every log-odds of an own attempt is multiplied by this before it becomes a probability. 1: as on record; more: an agent
    /// gives the same answer to the same question more often, right or wrong; less: it is noisier.
    pub steadiness: f64,
    /// Tokens a second, by capacity.
    pub speed: [f64; 3],
}

impl Choices {
    /// The probability that an own attempt with these log-odds is right.
    pub(crate) fn chance(&self, log_odds: f64) -> f64 {
        logistic(self.steadiness * log_odds)
    }
}

/// The worlds that come with the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Workers as they are on record.
    #[default]
    Calibrated,
    /// A choice, not a record: weaker workers and useful critics, for studies of teams.
    Teams,
    /// A tiny model, and a model of 1.5 billion parameters asked in three ways, as they are on record with our prompts.
    #[serde(rename = "real-1.5b")]
    Real,
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 3] = [Preset::Calibrated, Preset::Teams, Preset::Real];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::Calibrated => "calibrated",
            Preset::Teams => "teams",
            Preset::Real => "real-1.5b",
        }
    }

    /// Its capacities, weakest first.
    pub fn levels(self) -> &'static [&'static str] {
        match self {
            Preset::Calibrated | Preset::Teams => &LEVELS,
            Preset::Real => &REAL_LEVELS,
        }
    }

    /// How agents of each capacity reply; empty where roles alone say it.
    pub fn styles(self) -> &'static [Option<Style>] {
        match self {
            Preset::Calibrated | Preset::Teams => &[],
            Preset::Real => &[None, Some(Style::Brief), Some(Style::Program), Some(Style::Reasoned)],
        }
    }

    /// Its fitted figures.
    pub fn fitted(self) -> &'static Fitted {
        match self {
            Preset::Calibrated | Preset::Teams => Fitted::shipped(),
            Preset::Real => Fitted::real(),
        }
    }

    /// Its chosen figures.
    pub fn choices(self) -> Choices {
        let calibrated = Choices {
            level_shift: 0.0,
            duty: 0.25,
            plan: 0.25,
            check: 0.0,
            check_trust: 0.0,
            judge: 0.0,
            wrong_role: 0.5,
            without_working: 1.0,
            options: 1.3,
            bare_answer: 0.8,
            steadiness: 1.0,
            speed: [150.0, 90.0, 50.0],
        };
        match self {
            Preset::Calibrated => calibrated,
            Preset::Teams => Choices {
                level_shift: -1.0,
                duty: 0.6,
                plan: 0.6,
                check: 1.0,
                check_trust: 2.5,
                judge: 0.5,
                ..calibrated
            },
            // Sets, styles and readers are on record here; that duties or plans matter is not.
            Preset::Real => Choices { duty: 0.0, plan: 0.0, without_working: 0.0, options: 0.0, ..calibrated },
        }
    }
}

impl Fitted {
    /// The figures that come with the project.
    pub fn shipped() -> &'static Self {
        static SHIPPED: OnceLock<Fitted> = OnceLock::new();
        // The file is ours and a test reads it; an unreadable one would give an empty world, which fails loudly.
        SHIPPED.get_or_init(|| toml::from_str(include_str!("fitted.toml")).unwrap_or_else(|_| Fitted::empty()))
    }

    /// The figures of the preset `real-1.5b`.
    pub fn real() -> &'static Self {
        static REAL: OnceLock<Fitted> = OnceLock::new();
        // As above.
        REAL.get_or_init(|| toml::from_str(include_str!("real.toml")).unwrap_or_else(|_| Fitted::empty()))
    }

    /// Figures of one's own, as fitting prints them.
    ///
    /// # Errors
    /// The text is not TOML of this shape.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The figures of one kind of task.
    pub fn family(&self, family: TaskFamily) -> &FamilyFit {
        match family {
            TaskFamily::Reckoning => &self.reckoning,
            TaskFamily::Knowing => &self.knowing,
            TaskFamily::Coding => &self.coding,
        }
    }

    /// The figures for one item: those of its set, or of its kind of task.
    pub fn of(&self, item: &Item) -> &FamilyFit {
        self.sets.get(item.set().as_str()).unwrap_or_else(|| self.family(TaskFamily::of(item)))
    }

    pub(crate) fn empty() -> Self {
        let family = FamilyFit {
            salt: 0,
            difficulty: Difficulty { mean: Vec::new(), deviation: Vec::new(), weight: Vec::new() },
            revision: Revision::default(),
            levels: Vec::new(),
            readers: BTreeMap::new(),
        };
        Fitted { reckoning: family.clone(), knowing: family.clone(), coding: family, sets: BTreeMap::new() }
    }
}
