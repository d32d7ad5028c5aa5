//! The project's one test command: `cargo xtask test`.
//!
//! The steps run cheapest first and stop at the first failure.

mod clients;
mod compile;
mod deps;
mod docs;
mod mcp;
mod pages;
mod real;
mod tidy;
mod unused;
mod walls;
mod words;

use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  test     all of the steps below, cheapest first, up to the first failure
  mcp      MCP against published servers and clients, where they are installed
  clients  published clients against `lemon serve`, where they are installed
  real     published models against llama.cpp, where LEMON_REAL_MODELS names a folder with them
";

/// What the property tests draw their cases from.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// One check.
struct Step {
    name: &'static str,
    what: &'static str,
    run: fn() -> Result<()>,
}

const STEPS: [Step; 8] = [
    Step { name: "fmt", what: "the code is formatted", run: fmt },
    Step { name: "walls", what: "no crate uses one it may not, or names one it does not use", run: check_walls },
    Step {
        name: "tidy",
        what: "no huge files, nothing left undone, no retired words, no name for two things, no broken links",
        run: check_tidy,
    },
    Step { name: "deny", what: "licenses, sources, versions and Rust versions of dependencies", run: check_deps },
    Step { name: "clippy", what: "no warnings; this compiles the tests too", run: clippy },
    Step { name: "docs", what: "the documentation has no warnings, and its examples pass", run: docs::check },
    Step { name: "suite", what: "unit, property, snapshot and end-to-end tests", run: suite },
    Step { name: "examples", what: "every example runs and finds what it expects", run: examples },
];

/// Not a part of `test`: it needs models that are no part of this repository.
const REAL: Step =
    Step { name: "real", what: "published models have llama.cpp's tokens and continuations", run: real::check };

/// Not a part of `test` either: it needs published programs.
const MCP: Step = Step { name: "mcp", what: "published MCP servers and clients work with ours", run: mcp::check };

/// Likewise.
const CLIENTS: Step =
    Step { name: "clients", what: "published clients of OpenAI's protocol work with our server", run: clients::check };

fn main() -> ExitCode {
    if let Some(folder) = env::var_os(docs::FOLDER) {
        return docs::rustdoc(Path::new(&folder));
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let steps: Vec<&Step> = match arguments.as_slice() {
        [command] if command == REAL.name => vec![&REAL],
        [command] if command == MCP.name => vec![&MCP],
        [command] if command == CLIENTS.name => vec![&CLIENTS],
        [command] if command == "test" => STEPS.iter().collect(),
        [command] => STEPS.iter().filter(|step| step.name == command).collect(),
        _ => Vec::new(),
    };
    if steps.is_empty() {
        eprint!("{USAGE}");
        STEPS.iter().for_each(|step| eprintln!("  {:8} {}", step.name, step.what));
        return ExitCode::from(2);
    }
    if run_all(&steps) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the steps up to the first that fails, and says at the end what became of each. `true`: all passed.
fn run_all(steps: &[&Step]) -> bool {
    let mut passed: Vec<Duration> = Vec::new();
    let mut failed: Option<Duration> = None;
    for step in steps {
        println!("==> {}: {}", step.name, step.what);
        let begin = Instant::now();
        let result = (step.run)();
        let time = begin.elapsed();
        match result {
            Ok(()) => passed.push(time),
            Err(error) => {
                eprintln!("error: {error:#}");
                failed = Some(time);
                break;
            }
        }
        println!("    passed in {:.1} s", time.as_secs_f64());
    }
    println!("\nSummary");
    let times =
        passed.iter().map(|time| ("passed", Some(time))).chain(failed.iter().map(|time| ("FAILED", Some(time))));
    for (step, (end, time)) in steps.iter().zip(times.chain(std::iter::repeat(("not run", None)))) {
        let time = time.map(|time| format!("{:.1} s", time.as_secs_f64())).unwrap_or_default();
        println!("  {end:7}  {time:>8}  {}", step.name);
    }
    failed.is_none()
}

fn fmt() -> Result<()> {
    run(cargo(&["fmt", "--all", "--check"]))
}

fn check_walls() -> Result<()> {
    let metadata = output(cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata = serde_json::from_str(&metadata).context("what cargo metadata wrote is no JSON")?;
    let mut faults = walls::faults(&metadata, walls::WALLS);
    faults.extend(unused::faults(&metadata)?);
    report(&faults)
}

fn check_tidy() -> Result<()> {
    let mut git = Command::new("git");
    // A checkout that belongs to another user is refused otherwise, which is usual in containers.
    git.current_dir(root()).args(["-c", "safe.directory=*", "ls-files", "-z"]);
    // What git does not know yet counts too, so that a fault shows before the commit.
    git.args(["--cached", "--others", "--exclude-standard"]);
    report(&tidy::faults(&root(), output(git)?.split_terminator('\0'))?)
}

fn check_deps() -> Result<()> {
    let table = root().join("deny.toml");
    let table = std::fs::read_to_string(&table).with_context(|| table.display().to_string())?;
    let metadata =
        output(cargo(&["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]))?;
    let metadata = serde_json::from_str(&metadata).context("what cargo metadata wrote is no JSON")?;
    report(&deps::faults(&metadata, &deps::Table::parse(&table)?))?;
    // Its exit status alone: it is asked for, not needed.
    let installed = cargo(&["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !installed {
        return Ok(());
    }
    let mut checks = vec!["deny", "check", "licenses", "bans", "sources"];
    // Advisories need a copy of their database, which is not downloaded here.
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    if home.is_some_and(|home| home.join("advisory-dbs").is_dir()) {
        checks.extend(["advisories", "--disable-fetch"]);
    }
    run(cargo(&checks))
}

/// Without the feature `cuda`: it needs NVIDIA's compiler.
fn clippy() -> Result<()> {
    run(compile::checked(&["test", "--workspace", "--no-run"]))
}

fn suite() -> Result<()> {
    run(in_tests(compile::checked(&["test", "--workspace", "--lib", "--bins", "--tests"])))
}

/// What all tests find in their environment.
fn in_tests(mut command: Command) -> Command {
    // A snapshot that differs fails; it is never rewritten here.
    command.env("INSTA_UPDATE", "no").env_remove("INSTA_FORCE_PASS");
    // Servers that tests start are on this machine, whatever proxy it has for others.
    command.env("NO_PROXY", "127.0.0.1,localhost");
    // The same tests draw the same cases; set another seed, or run `cargo test`, to draw others.
    if env::var_os(PROPERTY_SEED).is_none() {
        command.env(PROPERTY_SEED, "1");
    }
    command
}

/// Runs `examples/*.rs`. They are built with the workspace, so that the suite and this step compile each crate once.
fn examples() -> Result<()> {
    run(compile::checked(&["build", "--workspace", "--examples"]))?;
    let folder = target()?.join("debug").join("examples");
    for name in example_names(&root().join("examples"))? {
        println!("--> {name}");
        let program = folder.join(&name);
        ensure!(program.is_file(), "examples/{name}.rs is not built: declare it in crates/lemon/Cargo.toml");
        let mut command = Command::new(program);
        command.current_dir(root()).env("NO_PROXY", "127.0.0.1,localhost");
        run(command)?;
    }
    Ok(())
}

/// Where cargo builds.
fn target() -> Result<PathBuf> {
    let metadata = output(cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).context("what cargo metadata wrote is no JSON")?;
    Ok(metadata["target_directory"].as_str().context("cargo metadata names no target directory")?.into())
}

/// The Rust files of a folder, without their ending, in order.
fn example_names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".rs")).map(str::to_owned));
    }
    names.sort();
    ensure!(!names.is_empty(), "{} holds no example", folder.display());
    Ok(names)
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    // Cargo describes this package to us in these. Passed on, they would make some build scripts run again each time.
    let describes_us = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(describes_us)) {
        command.env_remove(name);
    }
    command
}

fn run(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{} cannot be started", shown(&command)))?;
    ensure!(status.success(), "{} failed", shown(&command));
    Ok(())
}

fn output(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{} cannot be started", shown(&command)))?;
    ensure!(output.status.success(), "{} failed: {}", shown(&command), String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("what {} wrote is no UTF-8", shown(&command)))
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn report(faults: &[String]) -> Result<()> {
    if faults.is_empty() {
        return Ok(());
    }
    bail!("faults: {}\n  {}", faults.len(), faults.join("\n  "))
}

/// The root of the workspace. `cargo run` says where this package is; what was true when it was compiled may not be
/// true of a checkout that shares its build folder with another.
fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().unwrap_or(Path::new(".")).to_owned()
}
