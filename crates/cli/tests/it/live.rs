//! What a person sees: the team, drawn in place on a terminal.

use crate::common::{Folder, Ran, finish, spawn};
use std::process::Command;

/// Runs a command on a pseudo-terminal; `None` where there is no `script` that gives one.
pub fn on_a_terminal(folder: &Folder, args: &str) -> Option<Ran> {
    let usable = Command::new("script")
        .arg("--version")
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("util-linux"));
    if !usable {
        println!("skipped: there is no util-linux `script` here");
        return None;
    }
    let line = format!("stty rows 24 columns 100; exec {} {args}", env!("CARGO_BIN_EXE_lemon"));
    // Borrowed for its folder and its clean environment.
    let prepared = folder.command(&[]);
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_clear().env("TERM", "xterm");
    command.current_dir(prepared.get_current_dir()?).stdin(std::process::Stdio::null());
    command.envs(prepared.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(finish(&[args], spawn(&mut command)))
}

fn seen(folder: &Folder, args: &str) -> Option<String> {
    Some(on_a_terminal(folder, args)?.ok().stdout)
}

#[test]
fn the_team_is_drawn() {
    let script = "[[reply]]\ntext = \"Scripted.\\nAnswer: sixty-eight\"\ndelay_ms = 250\n";
    let folder = Folder::with_pair().file("script.toml", script);
    let args = "run 'What is it?' --workers scripted --script script.toml --spec pair.yaml";
    let Some(text) = seen(&folder, args) else { return };
    for word in ["one", "two", "small", "What is it?", "✓", "answered"] {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
    assert!(text.contains("\u{1b}["), "it is drawn in place, in colour");
    assert_eq!(text.trim_end().lines().last().map(str::trim), Some("Answer: sixty-eight"), "the answer comes last");
}

#[test]
fn a_batch_shows_its_progress() {
    let folder = Folder::with_pair()
        .file("tasks.jsonl", "{\"id\": \"a\", \"question\": \"Q?\"}\n{\"id\": \"b\", \"question\": \"R?\"}\n");
    let args = "run --tasks tasks.jsonl --workers scripted --script script.toml --spec pair.yaml";
    let Some(text) = seen(&folder, args) else { return };
    assert!(text.contains("a\t68") && text.contains("b\t68"), "{text:?}");
    assert!(text.contains("2 answered"), "{text:?}");
}

#[test]
fn quiet_is_quiet() {
    let folder = Folder::with_pair();
    let args = "run 'What is it?' --workers scripted --script script.toml --spec pair.yaml --quiet";
    let Some(text) = seen(&folder, args) else { return };
    assert_eq!(text.trim(), "Scripted.\r\nAnswer: 68");
}
