//! Stories put together from parts: a beginning, events, a question, over the number of things that a person has.

pub(crate) mod ask;
pub(crate) mod event;
pub(crate) mod owners;
mod teller;
pub(crate) mod theme;

use crate::problem::{Draft, Op, ProblemStep};
use crate::wording;
use ask::{Ask, Effect};
use event::{Change, EVENTS, OPENERS, SETUPS, SPARES};
use lemon_num::Random;
use teller::Teller;

/// A story, or `None` where the numbers that were drawn do not fit: then try again.
pub(crate) fn draft(random: &mut Random) -> Option<Draft> {
    let weights: Vec<u32> = Ask::ALL.iter().map(|(_, weight)| *weight).collect();
    let asked = random.weighted(&weights);
    let ask = Ask::ALL.get(asked)?.0;
    let mut story = Story::begin(ask, random)?;
    let events = random.weighted(&[12, 38, 30, 14, 6]);
    let spare_after = random.chance(0.3).then(|| random.below(events + 1));
    for event in 0..=events {
        if event > 0 {
            story.happen(random)?;
        }
        if spare_after == Some(event) {
            let spare = story.teller.tell(random.pick(SPARES)?, random);
            story.facts.push(spare);
            story.strayed = true;
        }
    }
    let start = story.start;
    let mut steps = story.steps(ask)?;
    let falls = match ask {
        Ask::Difference => story.now < start,
        _ => story.effects.last().is_some_and(|effect| matches!(effect.op, Op::Subtract | Op::Divide)),
    };
    steps.extend(story.last_step(ask, random)?);
    let (said, questions) = ask.texts(falls);
    let said = random.pick(said)?;
    if !said.is_empty() {
        let said = story.teller.tell(said, random);
        story.facts.push(said);
    }
    let number = random.below(questions.len());
    let question = story.teller.tell(questions.get(number)?, random);
    let facts = story.facts.iter().flat_map(|fact| wording::sentences(&format!("{fact}."))).collect();
    let situation = format!("story:{}:{asked}:{number}", story.parts);
    ((1..=5).contains(&steps.len())).then_some(Draft { facts, question, steps, situation })
}

struct Story {
    teller: Teller,
    /// The range that single numbers are drawn from.
    size: (i64, i64),
    facts: Vec<String>,
    start: i64,
    /// How the number at the start is found, where it is not told.
    setup: Option<ProblemStep>,
    effects: Vec<Effect>,
    now: i64,
    /// The last sentence was about something else.
    strayed: bool,
    /// Which parts it is made of.
    parts: String,
}

impl Story {
    fn begin(ask: Ask, random: &mut Random) -> Option<Self> {
        let size = *random.pick(&[(2, 12), (3, 25), (5, 60), (10, 99), (40, 400)])?;
        let mut teller = Teller::draw(random);
        let kind = if ask == Ask::Start { 0 } else { random.weighted(&[60, 20, 20]) };
        let (op, texts) = SETUPS.get(kind)?;
        let (n, m) = match op {
            Some(Op::Multiply) => (random.within(2, 9), random.within(2, 12)),
            _ => (random.within(size.0.max(4), size.1), random.within(size.0, size.1)),
        };
        let setup = op.and_then(|op| ProblemStep::new(n, op, m));
        let start = setup.map_or(n, |step| step.result);
        let number = random.below(texts.len());
        let text = match ask {
            Ask::Start => random.pick(&["{P} had some {t}", "{P} had some {t} {place}", "{P} had a number of {t}"])?,
            _ => texts.get(number)?,
        };
        teller.set('n', n);
        teller.set('m', m);
        let facts = vec![teller.tell(text, random)];
        let parts = format!("{kind}.{number}");
        Some(Story { teller, size, facts, start, setup, effects: Vec::new(), now: start, strayed: false, parts })
    }

    fn happen(&mut self, random: &mut Random) -> Option<()> {
        let kind = random.weighted(&[26, 30, 12, 12, 5, 6, 3, 3, 4]);
        let (change, texts) = EVENTS.get(kind)?;
        let (effect, n, m) = self.effect(*change, random)?;
        self.now = ProblemStep::new(self.now, effect.op, effect.amount).filter(|step| step.result >= 2)?.result;
        self.effects.push(effect);
        self.teller.set('n', n);
        self.teller.set('m', m);
        let number = random.below(texts.len());
        let mut text = (*texts.get(number)?).to_owned();
        // `Them` would be taken for the other things.
        if std::mem::take(&mut self.strayed) && !text.contains("{t}") {
            return None;
        }
        let free = !["a year", "soon", "for ", "each day", "on each", "every week", "out of"]
            .iter()
            .any(|begin| text.starts_with(begin));
        let dated = ["Monday", "Friday", "morning", "lunch"].iter().any(|day| text.contains(day));
        if free && !dated && random.chance(0.45) {
            text = format!("{} {text}", random.pick(OPENERS)?);
        }
        self.facts.push(self.teller.tell(&text, random));
        self.parts += &format!(".{kind}.{number}");
        Some(())
    }

    /// An event of this kind with its numbers `n` and `m`.
    fn effect(&self, change: Change, random: &mut Random) -> Option<(Effect, i64, i64)> {
        let (low, high) = self.size;
        let effect = |before, op, amount| Some(Effect { before, op, amount });
        // What is taken away has to be there.
        let most = |op| if op == Op::Subtract { high.min(self.now - 1) } else { high };
        match change {
            Change::One(op) => {
                // One would need the singular.
                let n = (most(op) >= 2).then(|| random.within(low.min(most(op)), most(op)))?;
                Some((effect(None, op, n)?, n, n))
            }
            Change::Sum(op) => {
                let (n, m) = (random.within(low, high), random.within(low, high));
                let step = ProblemStep::new(n, Op::Add, m)?;
                Some((effect(Some(step), op, step.result)?, n, m))
            }
            Change::Product(op) => {
                let (n, m) = (random.within(2, 9), random.within(2, 12));
                let step = ProblemStep::new(n, Op::Multiply, m)?;
                Some((effect(Some(step), op, step.result)?, n, m))
            }
            Change::Times => {
                let m = random.within(3, 6);
                Some((effect(None, Op::Multiply, m)?, m, m))
            }
            Change::Double => Some((effect(None, Op::Multiply, 2)?, 2, 2)),
            Change::Half => Some((effect(None, Op::Divide, 2)?, 2, 2)),
        }
    }

    /// The steps up to the end of the last event, as far as the question needs them.
    fn steps(&self, ask: Ask) -> Option<Vec<ProblemStep>> {
        match ask {
            Ask::Start => self.steps_back(),
            Ask::Flow(op) => Some(self.flow(op)?.0),
            Ask::Surplus => {
                let ((mut steps, came), (more, went)) = (self.flow(Op::Add)?, self.flow(Op::Subtract)?);
                steps.extend(more);
                steps.push(ProblemStep::new(came, Op::Subtract, went)?);
                Some(steps)
            }
            // What was there at the start does not matter for what came and went.
            Ask::Difference if self.only_adds_up() => match (self.flow(Op::Add), self.flow(Op::Subtract)) {
                (Some((mut steps, came)), Some((more, went))) => {
                    steps.extend(more);
                    steps.push(ProblemStep::new(came.max(went), Op::Subtract, came.min(went))?);
                    Some(steps)
                }
                (one, other) => one.or(other).map(|(steps, _)| steps),
            },
            _ => {
                let mut steps: Vec<ProblemStep> = self.setup.into_iter().collect();
                let mut now = self.start;
                for effect in &self.effects {
                    steps.extend(effect.before);
                    let step = ProblemStep::new(now, effect.op, effect.amount)?;
                    steps.push(step);
                    now = step.result;
                }
                Some(steps)
            }
        }
    }

    fn steps_back(&self) -> Option<Vec<ProblemStep>> {
        let mut steps = Vec::new();
        let mut now = self.now;
        for effect in self.effects.iter().rev() {
            steps.extend(effect.before);
            let step = effect.undone(now)?;
            steps.push(step);
            now = step.result;
        }
        Some(steps)
    }

    fn only_adds_up(&self) -> bool {
        self.effects.iter().all(|effect| matches!(effect.op, Op::Add | Op::Subtract))
    }

    /// What all events of one kind amount to. `None` where the question would make no sense.
    fn flow(&self, op: Op) -> Option<(Vec<ProblemStep>, i64)> {
        if !self.only_adds_up() {
            return None;
        }
        let mut steps = Vec::new();
        let mut sum = None;
        for effect in self.effects.iter().filter(|effect| effect.op == op) {
            steps.extend(effect.before);
            match sum {
                None => sum = Some(effect.amount),
                Some(so_far) => {
                    let step = ProblemStep::new(so_far, Op::Add, effect.amount)?;
                    steps.push(step);
                    sum = Some(step.result);
                }
            }
        }
        Some((steps, sum?))
    }

    /// The step that the question itself adds, with its number. The outer `None`: it cannot be asked here.
    fn last_step(&mut self, ask: Ask, random: &mut Random) -> Option<Option<ProblemStep>> {
        let other = random.within(self.size.0, self.size.1);
        self.teller.set('e', self.now);
        let now = self.now;
        let step = match ask {
            Ask::End | Ask::Start | Ask::Flow(_) | Ask::Surplus => return Some(None),
            Ask::Unknown(op) => {
                let change = if op == Op::Subtract { random.within(2, now - 2) } else { other };
                let end = ProblemStep::new(now, op, change).filter(|step| step.result >= 2)?.result;
                self.teller.set('e', end);
                ProblemStep::new(now.max(end), Op::Subtract, now.min(end))
            }
            Ask::Difference if self.only_adds_up() => return Some(None),
            Ask::Difference => ProblemStep::new(now.max(self.start), Op::Subtract, now.min(self.start)),
            Ask::Goal => {
                self.teller.set('k', now + other);
                ProblemStep::new(now + other, Op::Subtract, now)
            }
            Ask::Price => {
                let price = random.within(2, 12);
                self.teller.set('k', price);
                ProblemStep::new(now, Op::Multiply, price)
            }
            Ask::Share | Ask::Packs => {
                let parts: Vec<i64> = (2..=12).filter(|parts| now % parts == 0 && now / parts > 1).collect();
                let parts = *random.pick(&parts)?;
                self.teller.set('k', parts);
                ProblemStep::new(now, Op::Divide, parts)
            }
        };
        step.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::keys;
    use std::collections::HashSet;

    #[test]
    fn there_are_many_parts_and_every_hole_has_a_filling() {
        let events: Vec<&str> = EVENTS.iter().flat_map(|(_, texts)| *texts).copied().collect();
        assert!(events.len() >= 60 && theme::THEMES.len() >= 40, "{} {}", events.len(), theme::THEMES.len());
        let setups = SETUPS.iter().flat_map(|(_, texts)| *texts).copied();
        let asks = Ask::ALL.iter().flat_map(|(ask, _)| [true, false].map(|falls| ask.texts(falls)));
        let asks = asks.flat_map(|(said, asked)| said.iter().chain(asked)).copied();
        let known: HashSet<&str> =
            "P S O H Q Q.his R V n m e k z t u one packs pack got lost place".split(' ').collect();
        for text in events.into_iter().chain(setups).chain(asks).chain(SPARES.iter().copied()) {
            let keys = keys(text).unwrap_or_else(|why| panic!("{why}: {text}"));
            assert!(keys.iter().all(|key| known.contains(key)), "{text}");
        }
    }

    #[test]
    fn most_draws_succeed() {
        let mut random = crate::seeded(1);
        let made = (0..1000).filter(|_| draft(&mut random).is_some()).count();
        assert!(made > 300, "{made} of 1000");
    }
}
