//! Which choices a specification is made of, which values each has, and by which tokens they are written.

use crate::fields::{FieldStart, FirstTeams};
use lemon_model::PolicyError;
use lemon_spec::{Agent, Answer, AnswerRule, Language, Next, Share, Spec, render};

/// What stands between values.
pub(super) const STRUCTURE: u32 = 0;
/// What ends a text.
pub(super) const END: u32 = 1;
/// The first token that is a value.
const FIRST_VALUE: u32 = 2;

/// The base roles an agent can have.
pub(super) const BASES: [&str; 5] = ["solver", "expert", "critic", "verifier", "planner"];
/// The duties it can have; what the second and the third say depends on the task.
pub(super) const DUTIES: [&str; 3] = ["none", "what the task needs", "what it does not need"];
/// Whether there is one more agent.
const SPAWN: [&str; 2] = ["more", "enough"];

/// Values that are named in code.
pub(super) const ENOUGH: usize = 1;
const MORE: usize = 0;
const CRITIC: usize = 2;
const VOTE: usize = 1;

/// Answer rules that ask no agent: the first ones.
const WITHOUT_JUDGE: usize = 2;

/// Agents of its own round that an agent can read.
const MOST_READ: usize = 3;
/// Agents of a round at most: with more, the table would be mostly ways to read.
const MOST_SLOTS: usize = 8;

/// One choice of a specification; agents by their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Whether there is an agent in this slot.
    Spawn(usize),
    Base(usize),
    Duty(usize),
    Level(usize),
    After(usize),
    Share(usize),
    By,
    Next,
}

/// What is known when a text is written and decides which values there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    /// The kind of task.
    pub(super) kind: usize,
    /// 0: the first round; 1: a later one, and all earlier answers agree; 2: they differ.
    pub(super) stage: usize,
    /// Whether another round may follow.
    pub(super) review: bool,
}

/// How many stages there are.
pub(super) const STAGES: usize = 3;

/// The choices and their places in a row of the table.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) slots: usize,
    /// How many of the base roles and of the duties an agent can have.
    bases: usize,
    duties: usize,
    /// Whether agents and judges can read other agents.
    readers: bool,
    /// The names of the levels as they are written, weakest first.
    pub(super) levels: Vec<String>,
    /// References that a list may have.
    most_parents: usize,
    /// By slot, the sets of earlier slots that an agent can read, as bits.
    reads: Vec<Vec<u32>>,
    places: Vec<Place>,
    /// For each place of a row, which of `places` it belongs to.
    owners: Vec<usize>,
}

/// Where the values of a choice stand in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) choice: Choice,
    pub(super) first: usize,
    pub(super) values: usize,
}

impl Layout {
    /// The choices of a table's teams in this language.
    pub(super) fn new(start: &FieldStart, language: &Language) -> Result<Layout, PolicyError> {
        let refuse = |fact: String| Err(PolicyError::Request(fact));
        let FieldStart { slots, bases, duties, .. } = *start;
        if !(1..=BASES.len()).contains(&bases) || !(1..=DUTIES.len()).contains(&duties) {
            let most = (BASES.len(), DUTIES.len());
            return refuse(format!(
                "expected 1 to {} bases and 1 to {} duties, got {bases} and {duties}",
                most.0, most.1
            ));
        }
        let limits = &language.limits;
        let most = MOST_SLOTS.min(limits.agents).min(limits.depth).min(limits.parents);
        if slots == 0 || slots > most {
            return refuse(format!("a table of {slots} slots; from 1 to {most} are possible here"));
        }
        if limits.parents <= MOST_READ {
            return refuse(format!("lists of {} references; a table needs {}", limits.parents, MOST_READ + 1));
        }
        if let Some(base) = BASES.iter().find(|base| language.roles.get(base).is_none()) {
            return refuse(format!("there is no base role `{base}`, which a table of fields writes"));
        }
        if language.capacities.is_empty() {
            return refuse("there is no capacity level".to_owned());
        }
        let most_read = if start.readers { MOST_READ } else { 0 };
        let sets = |slot: usize| (0..1u32 << slot).filter(|set| set.count_ones() as usize <= most_read).collect();
        let mut layout = Layout {
            slots,
            bases,
            duties,
            readers: start.readers,
            levels: language.capacities.iter().map(|level| scalar(level)).collect(),
            most_parents: limits.parents,
            reads: (0..slots).map(sets).collect(),
            places: Vec::new(),
            owners: Vec::new(),
        };
        for slot in 0..slots {
            use Choice::{After, Base, Duty, Level, Share, Spawn};
            for choice in [Spawn(slot), Base(slot), Duty(slot), Level(slot), After(slot), Share(slot)] {
                layout.add(choice);
            }
        }
        layout.add(Choice::By);
        layout.add(Choice::Next);
        Ok(layout)
    }

    fn add(&mut self, choice: Choice) {
        let values = match choice {
            Choice::Spawn(_) => SPAWN.len(),
            Choice::Base(_) => self.bases,
            Choice::Duty(_) => self.duties,
            Choice::Level(_) => self.levels.len(),
            // Each set alone, and with the agents of earlier rounds.
            Choice::After(slot) => 2 * self.sets(slot).len(),
            Choice::Share(_) => Share::ALL.len(),
            Choice::By => AnswerRule::WITHOUT_CODE.len(),
            Choice::Next => Next::ALL.len(),
        };
        self.places.push(Place { choice, first: self.owners.len(), values });
        self.owners.extend(std::iter::repeat_n(self.places.len() - 1, values));
    }

    /// Values of all choices together: the length of a row.
    pub(super) fn width(&self) -> usize {
        self.owners.len()
    }

    /// The choices, in the order they are written.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn place(&self, choice: Choice) -> Place {
        let at = match choice {
            Choice::Spawn(slot) => 6 * slot,
            Choice::Base(slot) => 6 * slot + 1,
            Choice::Duty(slot) => 6 * slot + 2,
            Choice::Level(slot) => 6 * slot + 3,
            Choice::After(slot) => 6 * slot + 4,
            Choice::Share(slot) => 6 * slot + 5,
            Choice::By => 6 * self.slots,
            Choice::Next => 6 * self.slots + 1,
        };
        // Callers stay below `slots`; a choice beyond has no values.
        self.places.get(at).copied().unwrap_or(Place { choice, first: 0, values: 0 })
    }

    /// How many of its values a choice has here: they are always the first ones. One: there is no choice.
    pub(super) fn allowed(&self, place: Place, setting: Setting) -> usize {
        match place.choice {
            Choice::Spawn(0) if setting.stage == 0 => 1,
            Choice::After(_) if setting.stage == 0 || !self.readers => place.values / 2,
            Choice::By if !self.readers => WITHOUT_JUDGE,
            Choice::Next if !setting.review => 1,
            _ => place.values,
        }
    }

    /// The token of a value.
    pub(super) fn token(&self, place: Place, value: usize) -> u32 {
        FIRST_VALUE + (place.first + value) as u32
    }

    /// The choice and the value that a token stands for; `None`: it is none of a value.
    pub(super) fn value(&self, token: u32) -> Option<(Place, usize)> {
        let at = token.checked_sub(FIRST_VALUE)? as usize;
        let place = self.places.get(*self.owners.get(at)?)?;
        Some((*place, at - place.first))
    }

    /// The sets of slots that the agent in a slot can read, as bits.
    pub(super) fn sets(&self, slot: usize) -> &[u32] {
        self.reads.get(slot).map_or(&[], Vec::as_slice)
    }

    /// What a value of `after` says: which slots are read, as bits, and whether agents of earlier rounds are.
    pub(super) fn set(&self, slot: usize, value: usize) -> Option<(u32, bool)> {
        let sets = self.sets(slot);
        Some((*sets.get(value % sets.len().max(1))?, value >= sets.len()))
    }

    /// Of the agents of earlier rounds those that an agent reads if it reads any: all, or the latest that its list can hold.
    pub(super) fn readable<'e>(&self, earlier: &'e [String]) -> &'e [String] {
        latest(earlier, self.most_parents - MOST_READ)
    }

    /// Of these agents those whose answers a round without agents, or one that no agent reads in, can give.
    pub(super) fn answering<'e>(&self, agents: &'e [String]) -> &'e [String] {
        latest(agents, self.most_parents)
    }

    /// Whether agents can read others.
    pub(super) fn has_readers(&self) -> bool {
        self.readers
    }

    /// The value that the first logits favour; `None`: none.
    pub(super) fn leaning(&self, choice: Choice, stage: usize, first: FirstTeams) -> Option<usize> {
        let later = stage > 0;
        match (first, choice) {
            (FirstTeams::Large, Choice::Spawn(_)) => Some(MORE),
            (FirstTeams::Large, Choice::Base(slot)) => {
                Some(if slot > 0 || later { CRITIC.min(self.bases - 1) } else { 0 })
            }
            (FirstTeams::Large, Choice::Level(_)) => self.levels.len().checked_sub(1),
            (FirstTeams::Large, Choice::After(slot)) => {
                let sets = self.sets(slot);
                // The most, and of as many the latest.
                let (most, _) = sets.iter().enumerate().max_by_key(|(_, set)| (set.count_ones(), **set))?;
                Some(if later { sets.len() + most } else { most })
            }
            (FirstTeams::Large, Choice::By) => Some(VOTE),
            (FirstTeams::Large, Choice::Share(_)) | (FirstTeams::Large | FirstTeams::Lean, Choice::Next) => Some(0),
            (FirstTeams::Lean, Choice::Spawn(_)) => Some(ENOUGH),
            (FirstTeams::Lean, Choice::Level(_)) => Some(0),
            (FirstTeams::Large, Choice::Duty(_)) | (FirstTeams::Lean | FirstTeams::Uniform, _) => None,
        }
    }

    /// The name of a choice, for people.
    pub(super) fn name(&self, choice: Choice) -> String {
        match choice {
            Choice::Spawn(slot) => format!("a{} spawn", slot + 1),
            Choice::Base(slot) => format!("a{} base", slot + 1),
            Choice::Duty(slot) => format!("a{} duty", slot + 1),
            Choice::Level(slot) => format!("a{} capacity", slot + 1),
            Choice::After(slot) => format!("a{} after", slot + 1),
            Choice::Share(slot) => format!("a{} share", slot + 1),
            Choice::By => "answer by".to_owned(),
            Choice::Next => "next".to_owned(),
        }
    }

    /// The name of a value, for people.
    pub(super) fn value_name(&self, choice: Choice, value: usize) -> String {
        let name = match choice {
            Choice::Spawn(_) => SPAWN.get(value).copied(),
            Choice::Base(_) => BASES.get(value).copied(),
            Choice::Duty(_) => DUTIES.get(value).copied(),
            Choice::Level(_) => self.levels.get(value).map(String::as_str),
            Choice::After(slot) => return self.list_name(slot, value),
            Choice::Share(_) => Share::ALL.get(value).map(|share| share.as_str()),
            Choice::By => AnswerRule::WITHOUT_CODE.get(value).map(|rule| rule.as_str()),
            Choice::Next => Next::ALL.get(value).map(|next| next.as_str()),
        };
        name.unwrap_or_default().to_owned()
    }

    fn list_name(&self, slot: usize, value: usize) -> String {
        let (set, with_earlier) = self.set(slot, value).unwrap_or_default();
        let earlier = with_earlier.then(|| "earlier rounds".to_owned());
        let own = (0..slot).filter(|parent| set >> parent & 1 == 1).map(|parent| format!("a{}", parent + 1));
        format!("[{}]", earlier.into_iter().chain(own).collect::<Vec<_>>().join(", "))
    }
}

/// The first logits: they favour some values, in every kind of task alike.
pub(super) fn first_logits(layout: &Layout, start: &FieldStart) -> Vec<f32> {
    let mut logits = vec![0f32; start.kinds * STAGES * layout.width()];
    for (context, row) in logits.chunks_mut(layout.width()).enumerate() {
        for place in layout.places() {
            let value = layout.leaning(place.choice, context % STAGES, start.first);
            if let Some(logit) = value.and_then(|value| row.get_mut(place.first + value)) {
                *logit = start.lean as f32;
            }
        }
    }
    logits
}

/// A word as it is written in a specification: in quotes where it needs them.
pub(super) fn scalar(word: &str) -> String {
    let agent = Agent {
        id: word.to_owned(),
        base: String::new(),
        role: None,
        duty: None,
        capacity: String::new(),
        after: Vec::new(),
        share: Share::Reply,
        tools: Vec::new(),
    };
    let answer = Answer { from: Vec::new(), by: AnswerRule::Last };
    let written = render(&Spec { agents: vec![agent], answer, next: Next::Stop });
    written.spans.agents.first().map_or(word, |spans| spans.id.of(&written.text)).to_owned()
}

fn latest(ids: &[String], most: usize) -> &[String] {
    ids.get(ids.len().saturating_sub(most)..).unwrap_or_default()
}
