//! What a team asks of a worker, and what it should say.

use crate::generator::{Generator, ProblemPart};
use crate::noise::Noise;
use crate::problem::{Problem, ProblemStep, solution};
use crate::prompt::{LessonForm, prompt};
use crate::wrong::{Source, sources, wrong};
use lemon_num::Random;

/// A document to learn from: what is read, and what is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lesson {
    /// What is asked.
    pub form: LessonForm,
    /// What the worker reads.
    pub prompt: String,
    /// What it should say.
    pub reply: String,
}

/// How often each form is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// [`LessonForm::Solve`]
    pub solve: u32,
    /// [`LessonForm::Brief`]
    pub brief: u32,
    /// [`LessonForm::Plan`]
    pub plan: u32,
    /// [`LessonForm::Extract`]
    pub extract: u32,
    /// [`LessonForm::Step`]
    pub step: u32,
    /// [`LessonForm::Check`]
    pub check: u32,
    /// [`LessonForm::Choose`]
    pub choose: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Mix { solve: 56, brief: 3, plan: 4, extract: 3, step: 4, check: 14, choose: 16 }
    }
}

impl Mix {
    /// A form, each as often as it says.
    pub fn draw(&self, random: &mut Random) -> LessonForm {
        let weights = [self.solve, self.brief, self.plan, self.extract, self.step, self.check, self.choose];
        LessonForm::ALL[random.weighted(&weights)] // one weight for each form
    }
}

/// Lessons without end, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Lessons {
    generator: Generator,
    random: Random,
    mix: Mix,
    noise: Noise,
}

impl Lessons {
    /// On problems of the crate's own. Questions to learn from have some noise, others have none.
    pub fn new(seed: u64, part: ProblemPart, mix: Mix) -> Self {
        let noise = if part == ProblemPart::Dev { Noise::NONE } else { Noise::default() };
        Lessons::on(Generator::new(seed, part), seed, mix, noise)
    }

    /// On the problems of a generator.
    pub fn on(generator: Generator, seed: u64, mix: Mix, noise: Noise) -> Self {
        Lessons { generator, random: crate::seeded(seed ^ 0x1e55), mix, noise }
    }

    /// Where the problems come from.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }
}

impl Iterator for Lessons {
    type Item = Lesson;

    fn next(&mut self) -> Option<Lesson> {
        let mut problem = self.generator.problem();
        problem.question = self.noise.apply(&problem.question, &mut self.random);
        let form = self.mix.draw(&mut self.random);
        Some(Lesson::new(&problem, form, &mut self.random))
    }
}

impl Lesson {
    /// A lesson with readings made up: some right, some wrong.
    pub fn new(problem: &Problem, form: LessonForm, random: &mut Random) -> Self {
        let readings = match form {
            LessonForm::Brief | LessonForm::Plan | LessonForm::Extract => Vec::new(),
            LessonForm::Solve => hint(problem, random).into_iter().collect(),
            LessonForm::Step => {
                let done = random.below(problem.steps.len() + 1);
                let lines: Vec<String> = problem.steps.iter().take(done).map(ProblemStep::to_string).collect();
                if lines.is_empty() { Vec::new() } else { vec![lines.join("\n")] }
            }
            LessonForm::Check => vec![candidate(problem, 0.5, 0.15, random)],
            LessonForm::Choose => candidates(problem, random),
        };
        let readings: Vec<&str> = readings.iter().map(String::as_str).collect();
        Lesson::from_replies(problem, form, &readings)
    }

    /// A lesson whose readings are replies of others, as they were.
    pub fn from_replies(problem: &Problem, form: LessonForm, replies: &[&str]) -> Self {
        let answer = || format!("#### {}", problem.answer);
        let reply = match form {
            LessonForm::Solve | LessonForm::Check => problem.solution(),
            LessonForm::Brief | LessonForm::Choose => answer(),
            LessonForm::Plan => plan(&problem.steps, &problem.numbers),
            LessonForm::Extract => extract(&problem.steps, &problem.numbers),
            LessonForm::Step => {
                // The first step that is not done yet.
                let done = |step: &ProblemStep| {
                    replies.iter().flat_map(|reply| reply.lines()).any(|line| line.trim() == step.to_string())
                };
                problem.steps.iter().find(|step| !done(step)).map_or_else(answer, ProblemStep::to_string)
            }
        };
        Lesson { form, prompt: prompt(form, &problem.question, replies), reply }
    }
}

/// The steps without results; `that` is the result of the step before, `first` that of the first, and so on.
fn plan(steps: &[ProblemStep], told: &[i64]) -> String {
    const ORDINALS: [&str; 4] = ["first", "second", "third", "fourth"];
    let steps = sources(steps, told).into_iter().zip(steps).enumerate().map(|(index, (sources, step))| {
        let [left, right] = sources.map(|source| match source {
            Source::Number(number) => number.to_string(),
            Source::Result(at) if at + 1 == index => "that".to_owned(),
            Source::Result(at) => {
                ORDINALS.get(at).map_or_else(|| steps[at].result.to_string(), |name| (*name).to_owned())
            }
        });
        format!("{left} {} {right}", step.op.sign())
    });
    steps.collect::<Vec<_>>().join("; ")
}

/// The numbers that the steps take from the text, in order of use.
fn extract(steps: &[ProblemStep], told: &[i64]) -> String {
    let numbers = sources(steps, told).into_iter().flatten().filter_map(|source| match source {
        Source::Number(number) => Some(number.to_string()),
        Source::Result(_) => None,
    });
    numbers.collect::<Vec<_>>().join(", ")
}

/// What a solver may have read: mostly nothing; a plan, the numbers, or an answer, which may be wrong.
fn hint(problem: &Problem, random: &mut Random) -> Option<String> {
    match random.weighted(&[76, 7, 6, 11]) {
        0 => None,
        kind @ (1 | 2) => {
            let (wrong_steps, _) = wrong(problem, random);
            let steps = if random.chance(0.75) { &problem.steps } else { &wrong_steps };
            Some(if kind == 1 { plan(steps, &problem.numbers) } else { extract(steps, &problem.numbers) })
        }
        _ => Some(candidate(problem, 0.5, 0.5, random)),
    }
}

/// A solution, right and bare with these probabilities.
fn candidate(problem: &Problem, right: f64, bare: f64, random: &mut Random) -> String {
    let (steps, answer) =
        if random.chance(right) { (problem.steps.clone(), problem.answer) } else { wrong(problem, random) };
    solution(if random.chance(bare) { &[] } else { &steps }, answer)
}

/// Two to four candidates, mostly with a right one among them.
fn candidates(problem: &Problem, random: &mut Random) -> Vec<String> {
    let count = 2 + random.below(3);
    let bare = if random.chance(0.4) { 1.0 } else { 0.1 };
    let rightness = *random.pick(&[0.1, 0.3, 0.5]).unwrap_or(&0.3);
    let mut candidates: Vec<String> = (0..count).map(|_| candidate(problem, rightness, bare, random)).collect();
    if random.chance(0.75)
        && let Some(first) = candidates.first_mut()
    {
        *first = candidate(problem, 1.0, bare, random);
    }
    // Models of a team often make the same mistake: being many is no proof.
    if count > 2 && random.chance(0.2) {
        let twice = candidates[count - 1].clone();
        candidates[count - 2] = twice;
    }
    random.shuffle(&mut candidates);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Op;
    use crate::prompt::read_answer;
    use proptest::prelude::*;

    fn stickers() -> Problem {
        let steps = vec![
            ProblemStep::new(5, Op::Multiply, 3).unwrap(),
            ProblemStep::new(24, Op::Subtract, 15).unwrap(),
            ProblemStep::new(9, Op::Add, 12).unwrap(),
        ];
        let question = "Maya had 24 stickers. She gave 3 to each of 5 friends and bought 12. How many has she?";
        Problem::new(question.into(), steps, "stickers".into()).unwrap()
    }

    fn check(form: LessonForm, replies: &[&str], expected: &str) {
        let lesson = Lesson::from_replies(&stickers(), form, replies);
        assert_eq!(lesson.reply, expected, "{form:?}");
        assert_eq!(lesson.prompt.matches("read: ").count(), replies.len());
        assert!(lesson.prompt.ends_with(&format!("\n{}:\n", form.name())));
    }

    #[test]
    fn replies_have_their_forms() {
        check(LessonForm::Solve, &[], "5 * 3 = 15\n24 - 15 = 9\n9 + 12 = 21\n#### 21");
        check(LessonForm::Brief, &[], "#### 21");
        check(LessonForm::Plan, &[], "5 * 3; 24 - that; that + 12");
        check(LessonForm::Extract, &[], "5, 3, 24, 12");
        check(LessonForm::Step, &[], "5 * 3 = 15");
        check(LessonForm::Step, &["5 * 3 = 15"], "24 - 15 = 9");
        check(LessonForm::Step, &["5 * 3 = 15\n24 - 15 = 9\n9 + 12 = 21"], "#### 21");
        check(LessonForm::Check, &["24 - 3 = 21\n#### 21"], "5 * 3 = 15\n24 - 15 = 9\n9 + 12 = 21\n#### 21");
        check(LessonForm::Choose, &["#### 20", "#### 21"], "#### 21");
    }

    #[test]
    fn a_plan_names_results_from_further_back() {
        let steps = [
            ProblemStep::new(4, Op::Multiply, 5).unwrap(),
            ProblemStep::new(3, Op::Multiply, 6).unwrap(),
            ProblemStep::new(20, Op::Add, 18).unwrap(),
        ];
        assert_eq!(plan(&steps, &[4, 5, 3, 6]), "4 * 5; 3 * 6; first + that");
    }

    #[test]
    fn the_mix_is_what_it_says() {
        let solves = Lessons::new(3, ProblemPart::Train, Mix::default())
            .take(2000)
            .filter(|lesson| lesson.form == LessonForm::Solve);
        let solves = solves.count();
        assert!((1060..1180).contains(&solves), "{solves}");
    }

    proptest! {
        #[test]
        fn wrong_solutions_are_wrong(seed: u64) {
            let problem = Generator::new(seed, ProblemPart::Train).problem();
            let (steps, answer) = wrong(&problem, &mut crate::seeded(seed));
            prop_assert_ne!(answer, problem.answer);
            prop_assert!(answer > 0 && !steps.is_empty());
        }

        #[test]
        fn the_same_seed_gives_the_same_lessons(seed: u64) {
            let lessons = |seed| Lessons::new(seed, ProblemPart::Train, Mix::default()).take(5).collect::<Vec<_>>();
            prop_assert_eq!(lessons(seed), lessons(seed));
            prop_assert_ne!(lessons(seed), lessons(seed.wrapping_add(1)));
        }

        #[test]
        fn lessons_are_in_small_letters_and_answer_rightly(seed: u64) {
            let problem = Generator::new(seed, ProblemPart::Dev).problem();
            for form in LessonForm::ALL {
                let lesson = Lesson::new(&problem, form, &mut crate::seeded(seed));
                prop_assert_eq!(lesson.prompt.to_lowercase(), lesson.prompt.clone());
                if matches!(form, LessonForm::Solve | LessonForm::Brief | LessonForm::Check | LessonForm::Choose) {
                    prop_assert_eq!(read_answer(&lesson.reply), Some(problem.answer));
                }
            }
        }
    }
}
