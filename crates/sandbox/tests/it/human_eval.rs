//! All of HumanEval, where the data is at hand.

use std::{fs::File, io::Read, path::PathBuf, sync::Mutex, time::Instant};

use crate::common::{alone, sandbox};
use lemon_sandbox::{SandboxLimits, TestedProgram};
use serde_json::Value;

/// The problems: name, program without and with its solution.
fn problems() -> Option<Vec<(String, TestedProgram, String)>> {
    let data = std::env::var_os("LEMON_TEST_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let path = data.join("humaneval/HumanEval.jsonl.gz");
    let Ok(file) = File::open(&path) else {
        eprintln!("skipped: no {}", path.display());
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let problem = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| record[name].as_str().unwrap().to_owned();
        let prompt = field("prompt");
        let program = TestedProgram {
            prompt_and_code: prompt.clone(),
            test: field("test"),
            entry_point: field("entry_point"),
            prompt,
        };
        (field("task_id"), program, field("canonical_solution"))
    };
    Some(text.lines().map(problem).collect())
}

/// The problems that pass with what `complete` adds to the prompt.
fn passing(complete: impl Fn(&str) -> String + Sync) -> Option<(usize, Vec<String>)> {
    let (problems, sandbox) = (problems()?, sandbox()?);
    let _alone = alone();
    let (started, passed) = (Instant::now(), Mutex::new(Vec::new()));
    let judge = &|(name, program, solution): &(String, TestedProgram, String)| {
        let prompt_and_code = format!("{}{}", program.prompt, complete(solution));
        let program = TestedProgram { prompt_and_code, ..program.clone() };
        let verdict = sandbox.run_python(&program, &SandboxLimits::default()).unwrap();
        if verdict.passed() {
            passed.lock().unwrap().push(name.clone());
        } else {
            eprintln!("{name} {verdict:?}");
        }
    };
    std::thread::scope(|scope| {
        for half in problems.chunks(problems.len().div_ceil(2).max(1)) {
            scope.spawn(|| half.iter().for_each(judge));
        }
    });
    eprintln!("{} programs, two at a time, in {:?}", problems.len(), started.elapsed());
    crate::common::assert_nothing_left();
    Some((problems.len(), passed.into_inner().unwrap()))
}

#[test]
fn every_canonical_solution_passes() {
    let Some((all, passed)) = passing(str::to_owned) else { return };
    assert_eq!((all, passed.len()), (164, 164));
}

#[test]
fn no_empty_solution_passes() {
    let Some((_, passed)) = passing(|_| "    return None\n".to_owned()) else { return };
    assert_eq!(passed, [""; 0]);
}
