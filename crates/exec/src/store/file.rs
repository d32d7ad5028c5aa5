//! The file of a store: whether it is one, and how it is opened to write or to look.
//!
//! A file that is not ours is not changed, and nothing is left beside it. A store on a read-only disk can be looked at.

use super::{SCHEMA_VERSION, StoreError};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What tells our files from other databases: `LEMN`.
pub const APPLICATION: i64 = 0x4c45_4d4e;

/// How the file of every SQLite database begins.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Where the number of the application stands in it, with the highest byte first.
const APPLICATION_AT: usize = 68;

/// Opens a store to write to it, or a new one.
pub fn connect(path: &Path) -> Result<Connection, StoreError> {
    open(path, OpenFlags::default())
}

/// Opens a store to look at it: one that cannot be written is opened as it is.
pub fn connect_to_look(path: &Path) -> Result<Connection, StoreError> {
    let writable = std::fs::OpenOptions::new().write(true).open(path).is_ok();
    if writable {
        let opened = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|connection| {
            connection.busy_timeout(super::PATIENCE)?;
            connection.query_row(TABLES, [], |_| Ok(()))?;
            Ok(connection)
        });
        match opened {
            // The folder cannot be written.
            Err(error) if matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)) => {}
            opened => return opened.map_err(|error| at(path, &error)),
        }
    }
    match has_log(path) {
        true => {
            let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            connection.query_row(TABLES, [], |_| Ok(())).map_err(|error| {
                let log = log(path);
                StoreError::Database(format!(
                    "{}: {error}; its newest records are in {}: copy both files to where they can be written",
                    path.display(),
                    log.display()
                ))
            })?;
            Ok(connection)
        }
        false => connect_as_it_is(path),
    }
}

/// Looks into a file before it is opened as a store: what is not one is not touched.
pub fn check(path: &Path) -> Result<(), StoreError> {
    let refused = |why: &'static str| Err(StoreError::NoStore { path: path.to_owned(), why });
    let failed = |error: std::io::Error| StoreError::Database(format!("{}: {error}", path.display()));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_dir() {
        return refused("it is a folder");
    }
    if !metadata.is_file() {
        return refused("it is not a plain file");
    }
    // Empty: nothing is lost.
    if metadata.len() == 0 {
        return Ok(());
    }
    let mut head = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(100).read_to_end(&mut head)).map_err(failed)?;
    if !head.starts_with(MAGIC) {
        return refused("it is not a database");
    }
    if head.get(APPLICATION_AT..APPLICATION_AT + 4).is_some_and(|bytes| bytes == (APPLICATION as u32).to_be_bytes()) {
        return Ok(());
    }
    // What was written last may stand in the log only.
    let connection = match has_log(path) {
        true => open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?,
        false => connect_as_it_is(path)?,
    };
    check_ours(&connection, path)
}

/// Looks into a database before anything is written to it.
pub fn check_ours(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let number = |query: &str| connection.query_row(query, [], |row| row.get(0)).map_err(|error| at(path, &error));
    let (tables, application): (i64, i64) = (number(TABLES)?, number("PRAGMA application_id")?);
    if application != APPLICATION && (tables > 0 || application != 0) {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    let found = number("PRAGMA user_version")?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: SCHEMA_VERSION });
    }
    Ok(())
}

/// Whether there is nothing in it yet.
pub fn is_empty(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection.query_row(TABLES, [], |row| row.get::<_, i64>(0))? == 0)
}

const TABLES: &str = "SELECT count(*) FROM sqlite_master";

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags).map_err(|error| at(path, &error))?;
    connection.busy_timeout(super::PATIENCE)?;
    Ok(connection)
}

/// Opens a file that no process writes: without locks, logs, or anything else beside it.
fn connect_as_it_is(path: &Path) -> Result<Connection, StoreError> {
    let mut address = String::from("file:");
    for byte in std::path::absolute(path)?.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => address.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => address.push(char::from(*byte)),
            // Writing to a string cannot fail.
            byte => drop(write!(address, "%{byte:02x}")),
        }
    }
    address.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(address, flags).map_err(|error| at(path, &error))
}

/// The write-ahead log beside a store.
fn log(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn has_log(path: &Path) -> bool {
    std::fs::metadata(log(path)).is_ok_and(|log| log.len() > 0)
}

fn at(path: &Path, error: &rusqlite::Error) -> StoreError {
    StoreError::Database(format!("{}: {error}", path.display()))
}
