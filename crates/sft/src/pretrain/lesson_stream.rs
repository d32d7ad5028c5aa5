//! Lessons by number: lesson number *n* follows from the settings and *n*, whichever thread generates it.

use super::replies::PeerReplies;
use super::size::CONTEXT;
use lemon_model::{Example, Objective, Sequence, Tokenizer};
use lemon_num::Random;
use lemon_problems::{
    DataError, Generator, Leaks, Lesson, LessonForm, Mix, Noise, ProblemPart, Published, Template, read_published,
    seeded, test_questions,
};
use std::path::Path;
use std::sync::Arc;

/// Lessons in a block: those of one block are generated together, from one seed.
pub const BLOCK: usize = 256;
/// The weight of a prompt token relative to a reply token. Prompts teach vocabulary, but with a larger weight the model learns to
/// write problems instead of solving them.
const PROMPT_WEIGHT: f32 = 0.1;
/// With replies of peers: the share of problems from the part that the peers were not trained on. It is that part's share of
/// situations.
const REVIEW_SHARE: f64 = 0.21;
/// The share of checks and choices that use recorded replies. Their number is limited, and a model that sees one often memorises
/// its answer.
const REAL_SHARE: f64 = 0.3;

/// An endless stream of lessons.
#[derive(Clone)]
pub struct LessonStream {
    seed: u64,
    train: Generator,
    /// With replies of peers: the problems they were asked, and all others of that part.
    review: Option<(Generator, Arc<PeerReplies>)>,
    mix: Mix,
    noise: Noise,
    tokenizer: Tokenizer,
}

/// Published problems, and test questions that no problem may resemble.
#[derive(Clone, Default)]
pub struct Sources {
    /// Published problems.
    pub templates: Vec<Template>,
    /// Test questions.
    pub leaks: Option<Arc<Leaks>>,
}

impl Sources {
    /// The published problems of a folder without those that resemble a test question, and what was dropped.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(folder: &Path) -> Result<(Self, Published), DataError> {
        let leaks = Arc::new(Leaks::of(&test_questions(folder)?));
        let published = read_published(folder, &leaks)?;
        Ok((Sources { templates: published.templates.clone(), leaks: Some(leaks) }, published))
    }

    /// Makes problems of a part.
    pub fn generator(&self, seed: u64, part: ProblemPart) -> Generator {
        let generator = Generator::new(seed, part).with_published(&self.templates);
        match &self.leaks {
            None => generator,
            Some(leaks) => generator.without(leaks.clone()),
        }
    }
}

/// A generated lesson.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub lesson: Lesson,
    /// The situation of its problem.
    pub situation: String,
    /// Problems dropped since the previous lesson because they resemble a test question.
    pub dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonTokens {
    /// The prompt, the reply and the token that ends it.
    pub tokens: Vec<u32>,
    /// Of these, the prompt.
    pub prompt: usize,
    /// As [`Made::dropped`].
    pub dropped: u64,
}

impl LessonStream {
    /// Lessons on problems to train with; with `replies`, on those of [`ProblemPart::Review`] too.
    pub fn new(seed: u64, sources: &Sources, replies: Option<Arc<PeerReplies>>, tokenizer: &Tokenizer) -> Self {
        let review = replies.filter(|replies| !replies.is_empty());
        LessonStream {
            seed,
            train: sources.generator(seed, ProblemPart::Train),
            review: review.map(|replies| (sources.generator(seed, ProblemPart::Review), replies)),
            mix: Mix::default(),
            noise: Noise::default(),
            tokenizer: tokenizer.clone(),
        }
    }

    /// The lessons of a block as texts, without end and however long they are.
    pub fn lessons(&self, block: u64) -> impl Iterator<Item = Made> {
        // Draws of blocks next to each other are unrelated: a seed is mixed before it is used.
        let seed = seeded(self.seed).next_u64().wrapping_add(block);
        let mut random = seeded(seed ^ 0x1e55);
        let mut train = self.train.clone().with_seed(seed);
        let mut review = self.review.clone().map(|(generator, replies)| (generator.with_seed(seed ^ 0x4e1), replies));
        let mut before = 0;
        std::iter::repeat_with(move || {
            let form = self.mix.draw(&mut random);
            let (lesson, situation) = match &mut review {
                Some((_, replies))
                    if matches!(form, LessonForm::Check | LessonForm::Choose) && random.chance(REAL_SHARE) =>
                {
                    replies.lesson(form, self.noise, &mut random)
                }
                Some((generator, _)) if random.chance(REVIEW_SHARE) => self.made(generator, form, &mut random),
                _ => self.made(&mut train, form, &mut random),
            };
            let counts = [Some(&train), review.as_ref().map(|(generator, _)| generator)].into_iter().flatten();
            let all: usize = counts.map(|generator| generator.dropped().exact + generator.dropped().near).sum();
            let dropped = (all - before) as u64;
            before = all;
            Made { lesson, situation, dropped }
        })
    }

    fn made(&self, generator: &mut Generator, form: LessonForm, random: &mut Random) -> (Lesson, String) {
        let mut problem = generator.problem();
        problem.question = self.noise.apply(&problem.question, random);
        (Lesson::new(&problem, form, random), problem.situation)
    }

    /// The lessons of a block as tokens, those that the model can read.
    pub fn block(&self, block: u64) -> Vec<LessonTokens> {
        let tokens = self.lessons(block).map(|made| LessonTokens::new(&made.lesson, made.dropped, &self.tokenizer));
        tokens.filter(|lesson| lesson.tokens.len() <= CONTEXT).take(BLOCK).collect()
    }
}

impl LessonTokens {
    /// A lesson as tokens. Prompt and reply are cut into tokens each by itself, as they are when the model works.
    pub fn new(lesson: &Lesson, dropped: u64, tokenizer: &Tokenizer) -> Self {
        let mut tokens = tokenizer.encode_plain(&lesson.prompt);
        let prompt = tokens.len();
        tokens.extend(tokenizer.encode_plain(&lesson.reply));
        tokens.push(tokenizer.end());
        LessonTokens { tokens, prompt, dropped }
    }

    /// What all its tokens count for together.
    pub(super) fn weight(&self) -> f32 {
        let learned = self.prompt.saturating_sub(1); // Nothing predicts the first.
        learned as f32 * PROMPT_WEIGHT + (self.tokens.len() - self.prompt) as f32
    }

    /// As an example, where all that is learned together counts for `total`.
    pub(super) fn example(self, total: f32) -> Example {
        let mut tokens = self.tokens;
        let rest = tokens.split_off(1.min(tokens.len()));
        let learned = self.prompt.saturating_sub(1);
        let weight = |at: usize| if at < learned { PROMPT_WEIGHT / total } else { 1.0 / total };
        let objective = Objective::Likelihood { weights: (0..rest.len()).map(weight).collect() };
        Example { sequence: Sequence { prompt: tokens, tokens: rest, grammar: None }, objective }
    }

    /// The reply after the whole prompt, for evaluation of the loss.
    pub(super) fn sequence(&self) -> Sequence {
        let (prompt, reply) = self.tokens.split_at(self.prompt.min(self.tokens.len()));
        Sequence { prompt: prompt.to_vec(), tokens: reply.to_vec(), grammar: None }
    }
}
