//! What is asked, and was the answer right?
//!
//! Task sets are read in their public formats ([`load()`], [`load_jsonl`]), from a folder or from a small sample that
//! ships with the crate. Workers see a [`Task`]; the gold answer stays behind in the [`Item`], where only [`grade()`]
//! reaches it.
//!
//! ```
//! use lemon_task::{SetName, Source, Verdict, grade, load};
//!
//! let set = load(&Source::Sample, SetName::Gsm8k, "test")?;
//! let grade = grade(&set.items[0], "I do not know.");
//! assert_eq!(grade.verdict, Verdict::Wrong);
//! # Ok::<(), lemon_task::TaskError>(())
//! ```

mod code;
mod compose;
mod grade;
mod item;
mod load;
mod read;
mod record;
mod sample;
mod set;
mod shuffle;
mod sources;
mod split;

pub use code::{Program, pass_at_k};
pub use compose::{Everyday, compose, everyday};
pub use grade::{Grade, Verdict, gold_reply, grade};
pub use item::{Item, Key, SealedItem, Task};
pub use load::{FileInfo, RecordFault, SetReport, TaskSet, check, load, load_jsonl, read_jsonl};
pub use read::{Source, TaskError};
pub use set::SetName;
pub use sources::{Mismatch, SourceFile, SourcesError, Verifier, parse_sources, sources};
pub use split::{Split, splits};
