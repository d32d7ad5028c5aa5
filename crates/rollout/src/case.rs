//! A task with a known answer.

use lemon_task::Item;
use std::sync::Arc;

/// An item to be run and graded.
#[derive(Debug, Clone)]
pub struct Case {
    /// The set and split: `gsm8k/test`.
    pub set: Arc<str>,
    pub item: Item,
}

impl Case {
    /// Its name in a store: set, split and id.
    pub fn task_id(&self) -> String {
        format!("{}/{}", self.set, self.item.task.id)
    }
}
