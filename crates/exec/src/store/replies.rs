//! Which replies are on record, known without asking the database: most calls are new, and a look-up that finds nothing
//! costs as much as the rest of the bookkeeping of a call.

use rusqlite::Connection;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// With more replies than this on record, the database is asked each time instead.
const MOST_KEPT: usize = 200_000;

/// The beginnings of the keys of all replies on record when they were first asked for, and of those added since. A reply
/// that another process adds later is missed, which costs a call and nothing else.
#[derive(Default)]
pub struct KnownReplies(Mutex<Known>);

#[derive(Default)]
enum Known {
    #[default]
    NotYet,
    Few(HashSet<u64>),
    TooMany,
}

impl KnownReplies {
    /// Whether the reply may be on record. `false` is certain, but for other processes.
    pub fn may_have(&self, key: &[u8; 32], database: &Connection) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*known, Known::NotYet) {
            *known = read(database).map_or(Known::TooMany, Known::Few);
        }
        match &*known {
            Known::Few(keys) => keys.contains(&beginning(key)),
            Known::NotYet | Known::TooMany => true,
        }
    }

    /// Notes that a reply was added.
    pub fn add(&self, key: &[u8; 32]) {
        if let Known::Few(keys) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            keys.insert(beginning(key));
        }
    }
}

/// All keys, or `None` if there are too many or they cannot be read: then every call asks the database, which reports why.
fn read(database: &Connection) -> Option<HashSet<u64>> {
    let mut statement = database.prepare("SELECT key FROM replies LIMIT ?1").ok()?;
    let keys = statement.query_map([MOST_KEPT as i64 + 1], |row| row.get::<_, [u8; 32]>(0)).ok()?;
    let keys: HashSet<u64> = keys.map(|key| key.map(|key| beginning(&key))).collect::<Result<_, _>>().ok()?;
    (keys.len() <= MOST_KEPT).then_some(keys)
}

/// Keys are hashes: eight bytes tell them apart well enough, and a mistake only asks the database.
fn beginning(key: &[u8; 32]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&key[..8]);
    u64::from_le_bytes(first)
}
