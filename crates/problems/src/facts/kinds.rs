//! Two kinds of things in one place. Things happen to both; a question is about one, or about both.

use crate::problem::{Draft, Op, ProblemStep};
use crate::situation::{WORDED, written};
use crate::template::render;
use crate::wording::capitalised;
use lemon_num::Random;

/// A place, what is there, in two kinds, and how they come and go. Keys: `n`, `k` the kind.
struct Scene {
    place: &'static str,
    kinds: [&'static str; 2],
    comes: &'static [&'static str],
    goes: &'static [&'static str],
}

#[rustfmt::skip]
const SCENES: &[Scene] = &[
    Scene { place: "in the park", kinds: ["oak trees", "maple trees"], comes: &["{n} {k} were planted", "workers planted {n} more {k}"], goes: &["{n} {k} were cut down", "a storm knocked down {n} {k}"] },
    Scene { place: "on the bus", kinds: ["boys", "girls"], comes: &["{n} {k} got on", "at the next stop {n} more {k} got on"], goes: &["{n} {k} got off", "at the market {n} of the {k} got off"] },
    Scene { place: "on the shelf", kinds: ["history books", "science books"], comes: &["{n} {k} were returned", "the librarian added {n} {k}"], goes: &["{n} {k} were borrowed", "somebody took {n} {k}"] },
    Scene { place: "on the farm", kinds: ["cows", "sheep"], comes: &["the farmer bought {n} {k}", "{n} {k} were born"], goes: &["the farmer sold {n} {k}", "{n} of the {k} ran off"] },
    Scene { place: "in the box", kinds: ["red pens", "black pens"], comes: &["someone put in {n} {k}", "{n} more {k} were added"], goes: &["{n} {k} were taken out", "{n} of the {k} were dry and thrown away"] },
    Scene { place: "in the pond", kinds: ["frogs", "ducks"], comes: &["{n} {k} came", "{n} more {k} arrived"], goes: &["{n} {k} left", "{n} of the {k} went away"] },
    Scene { place: "in the parking lot", kinds: ["cars", "trucks"], comes: &["{n} {k} drove in", "{n} more {k} arrived"], goes: &["{n} {k} drove off", "{n} of the {k} left"] },
    Scene { place: "in the bakery", kinds: ["loaves of bread", "rolls"], comes: &["the baker made {n} more {k}", "{n} fresh {k} came out of the oven"], goes: &["{n} {k} were sold", "a customer bought {n} {k}"] },
    Scene { place: "in the gym", kinds: ["adults", "children"], comes: &["{n} {k} came in", "then {n} more {k} joined"], goes: &["{n} {k} went home", "{n} of the {k} left early"] },
    Scene { place: "in the fridge", kinds: ["eggs", "yogurts"], comes: &["{n} {k} were put in", "the cook bought {n} {k}"], goes: &["{n} {k} were eaten", "the cook used {n} {k}"] },
    Scene { place: "in the harbor", kinds: ["sailing boats", "fishing boats"], comes: &["{n} {k} came in", "{n} more {k} docked"], goes: &["{n} {k} sailed off", "{n} of the {k} went out to sea"] },
    Scene { place: "in the drawer", kinds: ["forks", "spoons"], comes: &["{n} clean {k} were put back", "someone added {n} {k}"], goes: &["{n} {k} were taken out", "{n} of the {k} got lost"] },
    Scene { place: "at the zoo", kinds: ["monkeys", "parrots"], comes: &["{n} {k} were born", "another zoo sent {n} {k}"], goes: &["{n} {k} were moved to another zoo", "{n} of the {k} escaped"] },
    Scene { place: "in the hall", kinds: ["chairs", "tables"], comes: &["{n} {k} were carried in", "the helpers brought {n} more {k}"], goes: &["{n} {k} were carried out", "the helpers took away {n} {k}"] },
    Scene { place: "in the garden", kinds: ["roses", "tulips"], comes: &["{n} {k} were planted", "{n} new {k} bloomed"], goes: &["{n} {k} were picked", "a goat ate {n} {k}"] },
    Scene { place: "in the office", kinds: ["laptops", "printers"], comes: &["{n} new {k} were delivered", "the boss ordered {n} {k}"], goes: &["{n} {k} were given away", "{n} of the {k} broke and were thrown out"] },
];

const OPENINGS: [&str; 3] = [
    "There were {a} {x} and {b} {y} {p}.",
    "{P}, there were {a} {x} and {b} {y}.",
    "There were {a} {x} {p}, and also {b} {y}.",
];

pub(super) fn draft(random: &mut Random) -> Option<Draft> {
    let mut story = Story::begin(random)?;
    for _ in 0..1 + random.below(3) {
        story.happen(random)?;
    }
    let ask = random.weighted(&[50, 25, 15, 10]);
    let kind = random.below(2);
    let (steps, question) = story.ask(ask, kind)?;
    let situation = format!("kinds:{}:{ask}.{kind}", story.parts);
    (1..=5).contains(&steps.len()).then_some(Draft { facts: story.facts, question, steps, situation })
}

struct Story {
    scene: &'static Scene,
    /// The largest number drawn.
    high: i64,
    worded: bool,
    start: [i64; 2],
    now: [i64; 2],
    /// What happened to each kind.
    steps: [Vec<ProblemStep>; 2],
    facts: Vec<String>,
    /// Which parts it is made of.
    parts: String,
}

impl Story {
    fn begin(random: &mut Random) -> Option<Self> {
        let number = random.below(SCENES.len());
        let scene = SCENES.get(number)?;
        let high = *random.pick(&[15, 40, 90, 300])?;
        let start = [random.within(3, high), random.within(3, high)];
        let worded = random.chance(WORDED);
        let opening = random.below(OPENINGS.len());
        let fact = render(OPENINGS.get(opening)?, random, |key, _| match key {
            "a" => written(start[0], worded),
            "b" => written(start[1], worded),
            "x" => scene.kinds[0].to_owned(),
            "y" => scene.kinds[1].to_owned(),
            "P" => capitalised(scene.place),
            _ => scene.place.to_owned(),
        });
        let parts = format!("{number}.{opening}");
        Some(Story {
            scene,
            high,
            worded,
            start,
            now: start,
            steps: [Vec::new(), Vec::new()],
            facts: vec![fact],
            parts,
        })
    }

    fn happen(&mut self, random: &mut Random) -> Option<()> {
        let kind = random.below(2);
        let joins = random.chance(0.5);
        let texts = if joins { self.scene.comes } else { self.scene.goes };
        let (op, most) = if joins { (Op::Add, self.high) } else { (Op::Subtract, self.now[kind] - 1) };
        // One would need the singular.
        let n = (most >= 2).then(|| random.within(2, most))?;
        let step = ProblemStep::new(self.now[kind], op, n).filter(|step| step.result >= 2)?;
        let number = random.below(texts.len());
        let told = render(texts.get(number)?, random, |key, _| match key {
            "n" => written(n, self.worded),
            _ => self.scene.kinds[kind].to_owned(),
        });
        self.facts.push(format!("{}.", capitalised(&told)));
        self.now[kind] = step.result;
        self.steps[kind].push(step);
        self.parts += &format!(".{kind}{joins}{number}");
        Some(())
    }

    fn ask(&self, ask: usize, kind: usize) -> Option<(Vec<ProblemStep>, String)> {
        let Scene { place, kinds: [first, second], .. } = self.scene;
        let (this, other) = (self.scene.kinds[kind], self.scene.kinds[1 - kind]);
        let all = |last: ProblemStep| self.steps.iter().flatten().copied().chain([last]).collect();
        Some(match ask {
            0 => (self.steps[kind].clone(), format!("How many {this} are {place} now?")),
            1 => {
                let last = ProblemStep::new(self.now[0], Op::Add, self.now[1])?;
                (all(last), format!("How many {first} and {second} are there now in all?"))
            }
            2 => {
                let last = ProblemStep::new(self.now[kind], Op::Subtract, self.now[1 - kind])?;
                (all(last), format!("How many more {this} than {other} are {place} now?"))
            }
            _ => {
                let last = ProblemStep::new(self.start[0], Op::Add, self.start[1])?;
                (vec![last], format!("How many {first} and {second} were there at first?"))
            }
        })
    }
}
