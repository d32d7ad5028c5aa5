//! What do small models learn from?
//!
//! Arithmetic word problems, without end and each with its calculation ([`Generator`]): situations written by hand
//! ([`Situation`]), stories put together from parts, small worlds of facts, bare arithmetic, and, where their files are given,
//! published problems with other numbers ([`read_published`]). What is a test question or nearly one is dropped ([`Leaks`]).
//! From problems, the lessons of a team ([`Lessons`]): solve, plan, extract, do a step, check, choose. Of a
//! reply, what is doubtful about it ([`doubts`]).
//!
//! ```
//! use lemon_problems::{Generator, Lessons, Mix, ProblemPart};
//!
//! let problem = Generator::new(1, ProblemPart::Train).problem();
//! assert!(problem.steps.iter().all(|step| step.holds()));
//!
//! let lesson = Lessons::new(1, ProblemPart::Train, Mix::default()).next().unwrap();
//! assert!(lesson.prompt.starts_with("task: "));
//! ```

mod doubt;
mod drill;
mod expression;
mod facts;
mod generator;
mod leak;
mod lesson;
mod names;
mod noise;
mod parse;
mod person;
mod problem;
mod prompt;
mod published;
mod random;
mod situation;
mod story;
mod tell;
mod template;
mod wording;
mod wrong;

pub use doubt::{Doubts, doubts};
pub use expression::Condition;
pub use generator::{Generator, ProblemPart, SourceWeights};
pub use leak::{Dropped, Leak, Leaks, NEAR, clusters};
pub use lesson::{Lesson, Lessons, Mix};
pub use noise::{Noise, in_other_words};
pub use parse::{ParseError, parse};
pub use problem::{Op, Problem, ProblemStep};
pub use prompt::{LessonForm, prompt, read_answer};
pub use published::{DataError, Published, Template, read_published, test_questions};
pub use random::seeded;
pub use situation::{Number, Operand, Situation, SituationQuestion, StepRule, Thing, shipped};
pub use wrong::wrong;
