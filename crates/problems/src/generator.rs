//! Endless problems from a seed.

use crate::leak::{Dropped, Leaks};
use crate::problem::{Draft, Problem};
use crate::published::Template;
use crate::random::hash;
use crate::situation::{Situation, shipped};
use crate::tell::tell;
use crate::{drill, facts, story};
use lemon_num::Random;
use std::sync::Arc;

/// What a problem is for. A situation belongs to one part as a whole, so that success on another is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemPart {
    /// To learn from.
    Train,
    /// To see when to stop: about 6 % of situations.
    Dev,
    /// To learn checking and choosing from, about 20 %: who has not learned from these answers them as it will answer new
    /// ones, with the mistakes it will make there.
    Review,
}

impl ProblemPart {
    /// The part of a situation, by its name.
    pub fn of(situation: &str) -> ProblemPart {
        match hash(situation) % 100 {
            0..6 => ProblemPart::Dev,
            6..26 => ProblemPart::Review,
            _ => ProblemPart::Train,
        }
    }
}

/// How often each source of problems is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceWeights {
    /// Situations written by hand.
    pub situations: u32,
    /// Stories put together from parts.
    pub stories: u32,
    /// Small worlds of facts.
    pub facts: u32,
    /// Bare arithmetic.
    pub drills: u32,
    /// Published problems with other numbers, where some are given ([`Generator::with_published`]).
    pub published: u32,
}

impl Default for SourceWeights {
    fn default() -> Self {
        SourceWeights { situations: 40, stories: 36, facts: 16, drills: 8, published: 80 }
    }
}

/// Of published problems this share has few steps, however many there are of either kind.
const SHORT_SHARE: f64 = 0.65;
/// No more than this are few.
const FEW_STEPS: usize = 2;

/// Makes problems, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Generator {
    random: Random,
    part: ProblemPart,
    weights: SourceWeights,
    situations: Vec<&'static Situation>,
    /// Those of few steps first.
    published: Arc<[Template]>,
    /// How many have few steps.
    short: usize,
    leaks: Option<Arc<Leaks>>,
    dropped: Dropped,
}

impl Generator {
    /// From the situations that ship with the crate, and what is put together.
    pub fn new(seed: u64, part: ProblemPart) -> Self {
        Generator {
            random: crate::seeded(seed),
            part,
            weights: SourceWeights::default(),
            situations: shipped().iter().filter(|situation| ProblemPart::of(&situation.name) == part).collect(),
            published: Arc::new([]),
            short: 0,
            leaks: None,
            dropped: Dropped::default(),
        }
    }

    /// The same, from the beginning, with another seed.
    pub fn with_seed(self, seed: u64) -> Self {
        Generator { random: crate::seeded(seed), dropped: Dropped::default(), ..self }
    }

    /// With other weights.
    pub fn with_weights(self, weights: SourceWeights) -> Self {
        Generator { weights, ..self }
    }

    /// With published problems, those of its part.
    pub fn with_published(self, templates: &[Template]) -> Self {
        let of_part = templates.iter().filter(|template| ProblemPart::of(template.name()) == self.part).cloned();
        let (mut published, long): (Vec<Template>, Vec<Template>) =
            of_part.partition(|template| template.steps_needed() <= FEW_STEPS);
        let short = published.len();
        published.extend(long);
        Generator { published: published.into(), short, ..self }
    }

    /// Without any problem that is a test question or nearly one.
    pub fn without(self, leaks: Arc<Leaks>) -> Self {
        Generator { leaks: Some(leaks), ..self }
    }

    /// How many problems were made and dropped so far.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// The next problem.
    pub fn problem(&mut self) -> Problem {
        loop {
            // Some draws fail: numbers that do not fit, another part, a leak. Every source succeeds often.
            let Some(problem) = self.attempt() else { continue };
            match self.leaks.as_ref().and_then(|leaks| leaks.find(&problem.question)) {
                Some(leak) => self.dropped.count(leak),
                None => return problem,
            }
        }
    }

    fn attempt(&mut self) -> Option<Problem> {
        let weights = self.weights;
        let published = if self.published.is_empty() { 0 } else { weights.published };
        let random = &mut self.random;
        let kind = random.weighted(&[weights.situations, weights.stories, weights.facts, weights.drills, published]);
        // Tried again in place, so that what fails often is not drawn less often.
        (0..400).find_map(|_| match kind {
            0 => tell(random.pick(&self.situations)?.draft(random)?, random),
            4 => {
                let (short, long) = self.published.split_at(self.short);
                let is_short = long.is_empty() || !short.is_empty() && random.chance(SHORT_SHARE);
                random.pick(if is_short { short } else { long })?.problem(random)
            }
            _ => {
                let draft = composed(kind, random).filter(|draft| ProblemPart::of(&draft.situation) == self.part)?;
                if kind == 3 { as_it_stands(draft) } else { tell(draft, random) }
            }
        })
    }
}

fn composed(kind: usize, random: &mut Random) -> Option<Draft> {
    match kind {
        1 if random.chance(0.7) => story::draft(random),
        1 => story::owners::draft(random),
        2 => facts::draft(random),
        _ => drill::draft(random),
    }
}

fn as_it_stands(draft: Draft) -> Option<Problem> {
    let text = draft.facts.into_iter().chain([draft.question]).collect::<Vec<_>>().join(" ");
    Problem::new(text, draft.steps, draft.situation)
}
