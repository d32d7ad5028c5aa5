//! A specification from its choices: the text that `lemon_spec::render` would write, token by token.

use super::layout::{BASES, Choice, END, ENOUGH, Layout, STRUCTURE, scalar};
use super::scene::Scene;
use lemon_model::{Finish, Sample};
use lemon_spec::{AnswerRule, Next, Share};

/// What was chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen {
    pub(super) value: usize,
    pub(super) logprob: f32,
    /// There was nothing to choose.
    pub(super) forced: bool,
}

/// Writes a round, asking for each choice in the order of the text. `None`: one could not be made.
pub(super) fn write(layout: &Layout, scene: &Scene, choose: impl FnMut(Choice) -> Option<Chosen>) -> Option<Sample> {
    let mut pen = Pen::new(layout, choose);
    let mut team =
        Team { scene, earlier: scene.earlier.iter().map(|id| written(id)).collect(), ids: Vec::new(), read: 0 };
    let mut fresh = (1usize..).map(|number| format!("a{number}")).filter(|id| !scene.earlier.contains(id));
    for slot in 0..layout.slots {
        let spawn = (pen.choose)(Choice::Spawn(slot))?;
        if spawn.value == ENOUGH {
            pen.fixed(if slot == 0 { "agents: []\n" } else { "" });
            // Nothing, at the place where the entry would begin.
            pen.value(Choice::Spawn(slot), spawn, "");
            break;
        }
        pen.fixed(if slot == 0 { "agents:\n  - id: " } else { "  - id: " });
        let id = fresh.next()?;
        pen.value(Choice::Spawn(slot), spawn, &id);
        team.entry(slot, &mut pen)?;
        team.ids.push(id);
    }
    pen.fixed("answer: {from: ");
    pen.fixed(&team.answering(layout));
    pen.fixed(", by: ");
    pen.choice(Choice::By, |value| AnswerRule::WITHOUT_CODE.get(value).map(|rule| rule.as_str()))?;
    pen.fixed("}\nnext: ");
    pen.choice(Choice::Next, |value| Next::ALL.get(value).map(|next| next.as_str()))?;
    pen.fixed("\n");
    Some(pen.end())
}

/// An id as it is written. No word that needs quotes has a digit in it, and most ids have.
fn written(id: &str) -> String {
    if id.contains(|c: char| c.is_ascii_digit()) { id.to_owned() } else { scalar(id) }
}

/// What was written so far.
struct Team<'s> {
    scene: &'s Scene,
    /// The agents of earlier rounds and of this one, as they are written.
    earlier: Vec<String>,
    ids: Vec<String>,
    /// The slots that another agent reads, as bits.
    read: u32,
}

impl Team<'_> {
    /// An agent's entry behind its id.
    fn entry<F: FnMut(Choice) -> Option<Chosen>>(&mut self, slot: usize, pen: &mut Pen<'_, F>) -> Option<()> {
        let layout = pen.layout;
        pen.fixed("\n    base: ");
        pen.choice(Choice::Base(slot), |value| BASES.get(value).copied())?;
        pen.fixed("\n    role: ~\n    duty: ");
        pen.choice(Choice::Duty(slot), |value| Some(self.scene.skills.duty(value).unwrap_or_else(|| "~".to_owned())))?;
        pen.fixed("\n    capacity: ");
        pen.choice(Choice::Level(slot), |value| layout.levels.get(value))?;
        pen.fixed("\n    after: ");
        let after = pen.choice(Choice::After(slot), |value| {
            let (set, with_earlier) = layout.set(slot, value)?;
            let others = if with_earlier { layout.readable(&self.earlier) } else { &[] };
            Some(list(others.iter().chain(self.own(|parent| set >> parent & 1 == 1))))
        })?;
        self.read |= layout.set(slot, after)?.0;
        pen.fixed("\n    share: ");
        pen.choice(Choice::Share(slot), |value| Share::ALL.get(value).map(|share| share.as_str()))?;
        pen.fixed("\n");
        Some(())
    }

    /// Those of the round that no agent reads; in a round without agents all of earlier rounds, and where no agent can be read all
    /// of all rounds.
    fn answering(&self, layout: &Layout) -> String {
        if !layout.has_readers() {
            let all: Vec<String> = self.earlier.iter().chain(&self.ids).cloned().collect();
            return list(layout.answering(&all).iter());
        }
        match self.ids.is_empty() {
            true => list(layout.answering(&self.earlier).iter()),
            false => list(self.own(|slot| self.read >> slot & 1 == 0)),
        }
    }

    fn own(&self, is_meant: impl Fn(usize) -> bool) -> impl Iterator<Item = &String> {
        self.ids.iter().enumerate().filter(move |(slot, _)| is_meant(*slot)).map(|(_, id)| id)
    }
}

fn list<'i>(ids: impl Iterator<Item = &'i String>) -> String {
    let mut text = String::from("[");
    for id in ids {
        text.push_str(if text.len() > 1 { ", " } else { "" });
        text.push_str(id);
    }
    text.push(']');
    text
}

/// Writes text and the tokens beside it.
struct Pen<'l, F> {
    layout: &'l Layout,
    choose: F,
    sample: Sample,
}

impl<'l, F: FnMut(Choice) -> Option<Chosen>> Pen<'l, F> {
    fn new(layout: &'l Layout, choose: F) -> Self {
        // An agent's entry is about 120 bytes and 12 tokens long.
        let (bytes, tokens) = (128 * (layout.slots + 1), 12 * layout.slots + 8);
        let sample = Sample {
            text: String::with_capacity(bytes),
            tokens: Vec::with_capacity(tokens),
            ends: Vec::with_capacity(tokens),
            logprobs: Vec::with_capacity(tokens),
            forced: Vec::with_capacity(tokens),
            finish: Finish::Stop,
        };
        Pen { layout, choose, sample }
    }

    /// What has to stand there. All of it up to the next value makes one token.
    fn fixed(&mut self, text: &str) {
        self.sample.text.push_str(text);
    }

    /// Has a choice made, and writes the text of its value.
    fn choice<T: AsRef<str>>(&mut self, choice: Choice, text: impl FnOnce(usize) -> Option<T>) -> Option<usize> {
        let chosen = (self.choose)(choice)?;
        self.value(choice, chosen, text(chosen.value)?.as_ref());
        Some(chosen.value)
    }

    fn value(&mut self, choice: Choice, chosen: Chosen, text: &str) {
        self.close();
        self.sample.text.push_str(text);
        let token = self.layout.token(self.layout.place(choice), chosen.value);
        self.token(token, chosen.logprob, chosen.forced);
    }

    fn end(mut self) -> Sample {
        self.close();
        self.token(END, 0.0, true);
        self.sample
    }

    fn close(&mut self) {
        if self.sample.ends.last().copied().unwrap_or(0) < self.sample.text.len() {
            self.token(STRUCTURE, 0.0, true);
        }
    }

    fn token(&mut self, token: u32, logprob: f32, forced: bool) {
        self.sample.tokens.push(token);
        self.sample.ends.push(self.sample.text.len());
        self.sample.logprobs.push(logprob);
        self.sample.forced.push(forced);
    }
}
