//! Problems put together from sentences: something is there, things happen to it, and in the end a question is asked.

use crate::compose::sum;
use crate::compose::tell::{Teller, Told, sentences};
use lemon_num::Random;

/// What is being followed through a story.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// So many `{@thing}` of `{N}`.
    Things,
    /// So many `{@containers}` of them.
    Packs,
    /// Dollars of `{N}`.
    Money,
    /// Litres in a tank.
    Litres,
    /// Kilometres of a tour.
    Way,
}

use Kind::{Litres, Money, Packs, Things, Way};

/// A sentence, and what becomes of `x`.
struct Step {
    from: Kind,
    to: Kind,
    text: &'static str,
    result: &'static str,
}

const fn step(from: Kind, to: Kind, text: &'static str, result: &'static str) -> Step {
    Step { from, to, text, result }
}

#[rustfmt::skip]
const BEGINNINGS: &[(Kind, &str, &str)] = &[
    (Things, "{N} [has|owns|has collected] {a:24-120} {@thing}.", "a"),
    (Things, "{N} [buys|orders] {a:3-9} packets of {@thing} with {b:6-24} in each.", "a*b"),
    (Things, "{N} and {his} {@relative} put their {@thing} together: {N} has {a:20-70} and the {@relative} has {b:15-60}.", "a+b"),
    (Things, "In an old chest {N} finds {a:4-12} rows of {b:5-15} {@thing}.", "a*b"),
    (Things, "{N} has {a:30-90} {@thing}, which is {b:4-25} more than {M} has. {M} gives all of these to {N}.", "a+a-b"),
    (Money, "{N} has ${a:60-300:5} in {his} purse.", "a"),
    (Money, "{N} mows lawns for ${a:8-20} an hour and works {b:4-12} hours [this week|in a week].", "a*b"),
    (Money, "{N} runs a small {@shop}, which takes in ${a:200-900:20} on {@weekday}.", "a"),
    (Money, "{N} gets ${a:20-80:5} from {his} grandmother and twice as much from {his} uncle.", "3*a"),
    (Litres, "A water tank [holds|contains] {a:120-900:10} litres.", "a"),
    (Litres, "A brewery fills {a:6-20} barrels with {b:30-60:5} litres of cider each.", "a*b"),
    (Way, "{N} plans a tour of {a:80-600:10} kilometres.", "a"),
    (Way, "{N}'s tour has {a:4-9} stages of {b:20-60:5} kilometres each.", "a*b"),
];

#[rustfmt::skip]
const STEPS: &[Step] = &[
    step(Things, Things, "[Then|Later] {he} gives {a:3-20} of them to {M}.", "x-a"),
    step(Things, Things, "{M} [brings|sends] {him} {a:5-40} more.", "x+a"),
    step(Things, Things, "{He} loses {a:2-9} of them on the way home.", "x-a"),
    step(Things, Things, "A third of them [break|are damaged] and are thrown away.", "x-x/3"),
    step(Things, Things, "{He} gives half of them away.", "x/2"),
    step(Things, Things, "{L} has twice as many and hands all of them over to {him}.", "3*x"),
    step(Things, Things, "{a:10-50:10}% of them turn out to be [scratched|faulty], so {he} puts those aside.", "x-x*a/100"),
    step(Things, Things, "<b:2-12>{He} swaps {a:2-9} of them for {=b+a} [new|smaller] ones.", "x+b"),
    step(Things, Things, "At a fair {he} wins as many again as {he} has.", "2*x"),
    step(Things, Packs, "{He} [packs|puts] them into {@containers}, {a:3-12} into each.", "x/a"),
    step(Things, Money, "{He} sells all of them for ${a:2-9} each.", "x*a"),
    step(Packs, Packs, "{a:2-6} of the {@containers} are given to the {@place}.", "x-a"),
    step(Packs, Packs, "The next day {he} fills {a:3-12} more {@containers}.", "x+a"),
    step(Packs, Money, "{He} sells each for ${a:4-25}.", "x*a"),
    step(Packs, Money, "<b:2-12>Filling one costs ${a:2-5}, and {he} sells each for ${=a+b}; what {he} earns beyond the cost {he} keeps.", "x*b"),
    step(Money, Money, "{He} spends ${a:8-60} on {@ware}.", "x-a"),
    step(Money, Money, "{He} spends {a:10-50:10}% of the money on {@food}.", "x-x*a/100"),
    step(Money, Money, "{He} buys {a:2-6} {@drink} at ${b:2-6} each.", "x-a*b"),
    step(Money, Money, "A {@relative} pays back ${a:10-90:5} to {him}.", "x+a"),
    step(Money, Money, "{He} pays a quarter of it as rent for the stall.", "x-x/4"),
    step(Money, Money, "For {a:3-8} weeks {he} adds ${b:5-25:5} a week.", "x+a*b"),
    step(Money, Money, "{He} shares the money equally with {a:2-4} [friends|colleagues].", "x/(a+1)"),
    step(Litres, Litres, "{a:5-25:5} litres leak out every day for {b:2-6} days.", "x-a*b"),
    step(Litres, Litres, "A pump adds {a:10-60:5} litres per minute for {b:3-9} minutes.", "x+a*b"),
    step(Litres, Litres, "One fifth of it is [used up|drained].", "x-x/5"),
    step(Litres, Litres, "{a:20-90:10} litres are [poured|added] in.", "x+a"),
    step(Way, Way, "On the first day {he} covers {a:20-70:5} kilometres of it.", "x-a"),
    step(Way, Way, "A detour makes the way {a:5-40:5} kilometres longer.", "x+a"),
    step(Way, Way, "[Then|Later] {he} covers half of what is left.", "x/2"),
    step(Way, Way, "For {a:10-40:10}% of what is left {he} takes the train.", "x-x*a/100"),
];

#[rustfmt::skip]
const QUESTIONS: &[(Kind, &str, &str)] = &[
    (Things, "How many {@thing} does {N} have [in the end|now|after all that]?", ""),
    (Things, "[What number of|How many] {@thing} [remain|are there at last]?", ""),
    (Packs, "How many {@containers} [are there now|does {N} have in the end]?", ""),
    (Packs, "[How many|What number of] {@containers} is that?", ""),
    (Money, "How much money [is left|does {N} have then], in dollars?", "$"),
    (Money, "How many dollars is that?", "$"),
    (Litres, "How many litres are there [now|in the end]?", " litres"),
    (Litres, "What is the amount at the end, in litres?", " litres"),
    (Way, "How many kilometres are [still to go|left]?", " km"),
];

/// Sentences that say a number nobody needs.
#[rustfmt::skip]
const ASIDES: &[&str] = &[
    "{N} is {z:9-60} years old.", "It is {z:2-30} degrees outside.", "{L}, who is {z:5-14}, watches.",
    "The {@place} is {z:2-9} kilometres away.", "{N} lives at number {z:2-99}.", "All this takes {z:2-9} days.",
    "The {@shop} closes at {z:5-9}.", "Nobody else knows about it.",
    "{N} has done this for {z:2-12} years.", "The radio plays \"Song {z:2-99}\".",
];

/// How often a chain is begun anew until its numbers are sensible.
const MOST_TRIES: usize = 400;

/// What there has to be for something to happen to it.
const FEWEST: i64 = 10;

/// Tells a story of so many steps after its beginning; with an aside in so many of a hundred.
pub(in crate::compose) fn chain(steps: usize, asides: usize, random: &mut Random) -> Option<Told> {
    (0..MOST_TRIES).find_map(|_| attempt(steps, asides, random))
}

fn attempt(steps: usize, asides: usize, random: &mut Random) -> Option<Told> {
    let (mut kind, text, result) = *random.pick(BEGINNINGS)?;
    let happens: Vec<&Step> = (0..steps)
        .filter_map(|_| {
            let fitting: Vec<&Step> = STEPS.iter().filter(|step| step.from == kind).collect();
            let step = random.pick(&fitting).copied()?;
            kind = step.to;
            Some(step)
        })
        .collect();
    let questions: Vec<_> = QUESTIONS.iter().filter(|(asked, ..)| *asked == kind).collect();
    let (_, ask, unit) = **random.pick(&questions)?;
    let aside = random.percent(asides).then(|| random.pick(ASIDES).copied()).flatten();

    let mut told = Followed { body: String::new(), value: 0, sum: String::new(), given: Vec::new() };
    let mut teller = Teller::new(random);
    told.add(&mut teller, text, result)?;
    if let Some(aside) = aside {
        told.body.push_str(&teller.fill(aside)?);
        told.body.push(' ');
    }
    for (at, step) in happens.iter().enumerate() {
        // The same thing does not happen twice.
        if happens.iter().take(at).any(|before| before.text == step.text) {
            return None;
        }
        told.add(&mut teller, step.text, step.result)?;
    }
    let ask = sentences(&teller.fill(ask)?);
    let Followed { body, value, sum, given } = told;
    Some(Told { body: sentences(&body), ask, answer: value, unit, sum, given })
}

/// A story as far as it is told, and what `x` is by then.
struct Followed {
    body: String,
    value: i64,
    sum: String,
    given: Vec<i64>,
}

impl Followed {
    fn add(&mut self, teller: &mut Teller<'_>, text: &str, result: &str) -> Option<()> {
        // Nobody gives nine of four away.
        if !self.body.is_empty() && self.value < FEWEST {
            return None;
        }
        teller.forget_numbers();
        teller.set('x', self.value);
        self.body.push_str(&teller.fill(text)?);
        self.body.push(' ');
        let before = format!("({})", self.sum);
        let write = |c: char| if c == 'x' { Some(before.clone()) } else { teller.value(c).map(|v| v.to_string()) };
        self.sum = sum::written(result, &write);
        self.value = teller.work_out(result)?;
        self.given.extend(teller.values().skip(1));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_can_be_followed_by_a_question() {
        for step in STEPS {
            assert!(QUESTIONS.iter().any(|(kind, ..)| *kind == step.to), "{}", step.text);
            assert!(BEGINNINGS.iter().any(|(kind, ..)| *kind == step.from) || step.from == Packs, "{}", step.text);
        }
    }

    #[test]
    fn chains_of_every_length_come_about() {
        for steps in 1..=5 {
            let mut random = crate::compose::draw::random(steps as u64, "chains");
            for _ in 0..200 {
                let told = chain(steps, 30, &mut random).unwrap();
                assert!(told.answer > 0 && told.body.matches(". ").count() + 1 >= steps, "{told:?}");
            }
        }
    }
}
