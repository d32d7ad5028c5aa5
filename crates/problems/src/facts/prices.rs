//! Things with prices, and a buyer.

use crate::person::Person;
use crate::problem::{Draft, Op, ProblemStep};
use crate::story::theme::{THEMES, Theme};
use crate::template::render;
use crate::wording;
use lemon_num::Random;

/// The prices `x`, `y`, `z` of three things, and what is bought of the first two.
const SHAPES: [(&str, &str); 3] = [
    ("One {a} costs ${x}, one {b} costs ${y} and one {c} costs ${z}.", "{P} buys {m} {as} and {n} {bs}."),
    (
        "At the market, {as} cost ${x} each, {bs} cost ${y} each and {cs} cost ${z} each.",
        "{P} needs {m} {as} and {n} {bs}.",
    ),
    ("The price is ${x} for one {a}, ${y} for one {b} and ${z} for one {c}.", "{P} picks {m} {as} and {n} {bs}."),
];

pub(super) fn draft(random: &mut Random) -> Option<Draft> {
    let shop = Shop::draw(random);
    let number = random.below(SHAPES.len());
    let (prices, purchase) = SHAPES.get(number)?;
    let ask = random.weighted(&[13, 12, 30, 15, 15, 15]);
    let (steps, question) = shop.ask(ask)?;
    let mut facts = vec![shop.tell(prices, random), shop.tell(purchase, random)];
    facts.extend(wording::sentences(&shop.tell(question, random)));
    let question = facts.pop()?;
    let situation = format!("prices:{number}.{ask}.{}.{}", shop.things[0].many, shop.things[1].many);
    Some(Draft { facts, question, steps, situation })
}

struct Shop {
    things: [&'static Theme; 3],
    prices: [i64; 3],
    counts: [i64; 2],
    buyer: Person,
    /// What is left when everything is paid.
    change: i64,
}

impl Shop {
    fn draw(random: &mut Random) -> Self {
        let first = random.below(THEMES.len());
        let step = 1 + random.below(THEMES.len() / 3 - 1);
        let [buyer] = Person::draw(random);
        Shop {
            things: [0, 1, 2].map(|index| &THEMES[(first + index * step) % THEMES.len()]),
            prices: [(); 3].map(|()| random.within(2, 25)),
            counts: [(); 2].map(|()| random.within(2, 12)),
            buyer,
            change: random.within(1, 40),
        }
    }

    fn ask(&self, ask: usize) -> Option<(Vec<ProblemStep>, &'static str)> {
        let [first, second] =
            [0, 1].map(|index| ProblemStep::new(self.counts[index], Op::Multiply, self.prices[index]));
        let (first, second) = (first?, second?);
        let all = ProblemStep::new(first.result, Op::Add, second.result)?;
        Some(match ask {
            0 => (vec![first], "How much do the {as} cost?"),
            1 => (vec![second], "How much do the {bs} cost?"),
            2 => (vec![first, second, all], "How much does {P} [spend|pay] [in all|altogether|in total]?"),
            3 => {
                let change = ProblemStep::new(self.paid(), Op::Subtract, all.result)?;
                (vec![first, second, all, change], "{P} pays with ${w}. How much change does {he} get?")
            }
            4 => {
                let more = ProblemStep::new(self.prices[0], Op::Subtract, self.prices[2])?;
                (vec![more], "How much more does one {a} cost than one {c}?")
            }
            _ => (
                vec![ProblemStep::new(self.counts[0], Op::Add, self.counts[1])?],
                "How many things does {P} [take|get]?",
            ),
        })
    }

    fn paid(&self) -> i64 {
        self.counts[0] * self.prices[0] + self.counts[1] * self.prices[1] + self.change
    }

    fn tell(&self, template: &str, random: &mut Random) -> String {
        render(template, random, |key, _| match key {
            "a" => self.things[0].one.to_owned(),
            "b" => self.things[1].one.to_owned(),
            "c" => self.things[2].one.to_owned(),
            "as" => self.things[0].many.to_owned(),
            "bs" => self.things[1].many.to_owned(),
            "cs" => self.things[2].many.to_owned(),
            "x" => self.prices[0].to_string(),
            "y" => self.prices[1].to_string(),
            "z" => self.prices[2].to_string(),
            "m" => self.counts[0].to_string(),
            "n" => self.counts[1].to_string(),
            "w" => self.paid().to_string(),
            "he" => self.buyer.form("he").to_owned(),
            _ => self.buyer.name.to_owned(),
        })
    }
}
