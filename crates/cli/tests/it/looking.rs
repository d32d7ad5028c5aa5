//! Looking at a store that cannot be written, and files that are no store.

use crate::common::{Folder, Ran, finish, spawn};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn with_a_run() -> Folder {
    let folder = Folder::with_pair();
    folder
        .lemon(&["run", "What is it?", "--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml", "-q"])
        .ok();
    folder
}

/// Runs as an ordinary user: permissions do not bind root.
#[cfg(unix)]
fn lemon_unprivileged(folder: &Folder, args: &[&str]) -> Ran {
    use std::os::unix::process::CommandExt;
    let mut command = folder.command(args);
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if is_root {
        command.uid(65534).gid(65534);
    }
    finish(args, spawn(&mut command))
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// A store without write permission, in a folder without write permission: as on a read-only disk.
#[cfg(unix)]
fn check_looking(folder: &Folder) {
    let store = folder.path(".lemon");
    let files = |folder: &Path| {
        let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).map(read).collect::<BTreeMap<_, _>>()
    };
    let before = files(&store);
    before.keys().for_each(|file| set_mode(file, 0o444));
    set_mode(&store, 0o555);
    set_mode(&folder.path(""), 0o755);
    let listed = lemon_unprivileged(folder, &["trace", "list"]);
    let shown = lemon_unprivileged(folder, &["trace", "show", "last"]);
    let exported = lemon_unprivileged(folder, &["trace", "export", "--format", "jsonl"]);
    let same = lemon_unprivileged(folder, &["trace", "diff", "last", "last"]);
    let run = lemon_unprivileged(folder, &["run", "--resume", "last"]);
    set_mode(&store, 0o755);
    assert!(listed.ok().stdout.contains("What is it?"));
    assert!(shown.ok().stdout.contains("question  What is it?"));
    assert!(exported.ok().stdout.contains("\"question\""));
    assert!(same.ok().stdout.contains("did the same"));
    let run = run.code(2);
    assert!(run.stderr.contains("error: the store failed"), "{}", run.stderr);
    assert_eq!(files(&store), before, "nothing is written");
}

#[cfg(unix)]
#[test]
fn a_store_on_a_read_only_disk_can_be_looked_at() {
    check_looking(&with_a_run());
}

/// The process died: its last records are in the log beside the store.
#[cfg(unix)]
#[test]
fn a_store_with_a_log_on_a_read_only_disk_can_be_looked_at() {
    let folder = with_a_run();
    // A store that was copied while it was written has its log beside it, as after a kill.
    let store = lemon_exec::store::Store::open_existing(&folder.path(".lemon/lemon.db")).unwrap();
    store.begin_batch("b-1", 1, String::new(), Vec::new()).wait_blocking().unwrap();
    let copy = Folder::with_pair();
    std::fs::create_dir(copy.path(".lemon")).unwrap();
    for name in ["lemon.db", "lemon.db-wal", "lemon.db-shm"] {
        std::fs::copy(folder.path(".lemon").join(name), copy.path(".lemon").join(name)).unwrap();
    }
    drop(store);
    check_looking(&copy);
}

/// What it says of a file that is no store; the file stays as it is, and alone.
fn check_refused(name: &str, bytes: &[u8], words: &[&str]) {
    for args in [&["trace", "list"][..], &["trace", "show"], &["run", "What?", "--workers", "scripted"]] {
        let folder = Folder::new().file(&format!("here/{name}"), bytes);
        let path = folder.path("here").join(name);
        let store = path.to_str().unwrap();
        folder.lemon(&[&["--store", store][..], args].concat()).code(2).complains(&[words, &[name, "hint: "]].concat());
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{args:?}");
        assert_eq!(std::fs::read_dir(folder.path("here")).unwrap().count(), 1, "{args:?}: something lies beside it");
    }
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    check_refused("one.db", b"x", &["not a database"]);
    check_refused("letter.txt", "Dear Ann, ".repeat(1_000).as_bytes(), &["not a database"]);
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let path = folder.path("notes.db");
        let text = format!("PRAGMA journal_mode = {mode}; CREATE TABLE notes (text TEXT)");
        rusqlite::Connection::open(&path).unwrap().execute_batch(&text).unwrap();
        check_refused("notes.db", &std::fs::read(&path).unwrap(), &["database of another program"]);
    }
}

#[test]
fn a_folder_and_a_device_are_no_stores() {
    let folder = Folder::new();
    let here = folder.path("");
    folder.lemon(&["--store", here.to_str().unwrap(), "trace", "list"]).code(2).complains(&["it is a folder"]);
    if cfg!(unix) {
        folder.lemon(&["--store", "/dev/null", "trace", "list"]).code(2).complains(&["not a plain file"]);
        folder
            .lemon(&["--store", "/dev/zero", "run", "What?", "--workers", "scripted"])
            .code(2)
            .complains(&["not a plain file"]);
    }
}
