use super::*;
use crate::samples::{learned, row, studies};

fn written(rows: &[StudyRow]) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("study");
    let paths = write(&inside, rows, "lemon ablate --out study", MixedRows::Refuse).unwrap();
    assert_eq!(paths.len(), fs::read_dir(&inside).unwrap().count());
    let name = |path: &PathBuf| path.strip_prefix(&inside).unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn file<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
    &files.iter().find(|(file, _)| file == name).unwrap().1
}

#[test]
fn a_study_on_paper() {
    let files = written(&studies());
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    insta::assert_snapshot!("files", names.join("\n"));
    let tables = file(&files, "tables.md");
    let small = |row: &StudyRow| row.study == "map" && row.arm != "plain-shared" && row.regime.starts_with("noise=0.2");
    let small = written(&studies().into_iter().filter(small).collect::<Vec<_>>());
    insta::assert_snapshot!("tables", file(&small, "tables.md"));
    for figure in names.iter().filter(|name| name.ends_with(".svg")) {
        assert!(tables.contains(&format!("({figure})")), "{figure} is not shown");
    }
    let csv = file(&files, "rows.csv");
    assert_eq!(csv.lines().count(), studies().len() + 1);
    insta::assert_snapshot!("csv", csv.lines().take(3).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let mut rows = studies();
    let before = written(&rows);
    rows.reverse();
    assert_eq!(written(&rows), before);
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let files = written(&[]);
    assert!(file(&files, "tables.md").contains("There are no runs: nothing was compared."));
    assert_eq!(file(&files, "rows.csv").lines().count(), 1);
    assert_eq!(files.len(), 2);
}

#[test]
fn what_cannot_be_known_is_said() {
    let check = |rows: &[StudyRow], said: &[&str]| {
        let files = written(rows);
        let tables = file(&files, "tables.md");
        said.iter().for_each(|said| assert!(tables.contains(said), "{said}: {tables}"));
    };
    let five: Vec<StudyRow> =
        (0..5).flat_map(|seed| [row("full", seed, 2.0 + seed as f64), row("plain", seed, 1.0)]).collect();
    check(
        &five,
        &["not significantly different: full", "With 5 pairs and 1 arm compared, the smallest Holm p", "is 0.062"],
    );
    let ten: Vec<StudyRow> =
        (0..10).flat_map(|seed| [row("full", seed, 2.0 + seed as f64), row("plain", seed, 1.0)]).collect();
    check(&ten, &["Reward, at Holm p < 0.05: above plain: full."]);
    check(&[row("plain", 0, 1.0)], &["There is no other arm to compare with plain."]);
    check(&[row("full", 0, 1.0), row("plain", 1, 1.0)], &["| full | 0 (2 left out) | – | – | – |"]);
    check(&[row("full", 0, 1.0), row("full", 0, 2.0)], &["2 runs", "1 stands there twice: the last of each counts."]);
}

#[test]
fn hostile_names_stay_names() {
    let name = "a|b<script>`*\n../../etc";
    let mut rows: Vec<StudyRow> = (0..3).map(|seed| learned(name, name, name, seed, 1.0)).collect();
    rows.extend((0..3).map(|seed| learned(name, name, "plain", seed, 1.0)));
    let files = written(&rows);
    for (file, content) in &files {
        assert!(!file.contains(['/', '\\', ' ']), "{file}");
        assert!(file.ends_with(".csv") || !content.contains("<script>"), "{file}");
    }
    let tables = file(&files, "tables.md");
    let rows = tables.lines().filter(|line| line.starts_with("| a\\|")).collect::<Vec<_>>();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.starts_with("| a\\|b&lt;script&gt;\\`\\* ../../etc |")));
    // Two studies whose names look the same in a file system.
    let twins = ["a b", "a-b"].map(|study| learned(study, "", "full", 0, 1.0));
    let names: Vec<String> = written(&twins).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[2..], ["a-b-curves.svg", "a-b-economy.svg", "a-b-curves-2.svg", "a-b-economy-2.svg"]);
}

#[test]
fn axes_are_found_where_there_are_two() {
    let check = |regimes: &[&str], expected: Option<(&str, &str)>| {
        let rows: Vec<StudyRow> = regimes.iter().map(|regime| learned("map", regime, "full", 0, 1.0)).collect();
        let comparisons = compare(&rows, &[]);
        let found = two_axes(&comparisons.iter().collect::<Vec<_>>());
        assert_eq!(found.as_ref().map(|(down, across)| (down.as_str(), across.as_str())), expected);
    };
    check(&[], None);
    check(&["noise=1 team=2", "noise=2 team=2"], None);
    check(&["noise=1 team=2", "noise=2 team=4"], Some(("noise", "team")));
    check(&["noise=1 team=2 start=lean", "noise=2 team=4 start=lean"], Some(("noise", "team")));
    check(&["noise=1 team=2", "team=4"], None);
    check(&["a=1 b=1 c=1", "a=2 b=2 c=2"], None);
}

/// A difference between builds or devices is not one between arms.
#[test]
fn rows_of_different_builds_or_devices_are_pooled_only_when_asked_to() {
    let stamp = |commit: &str, device: &str| Stamp {
        commit: commit.to_owned(),
        device: device.to_owned(),
        recipe: "r".to_owned(),
        learning_rate: 0.1,
        seconds: 1.0,
        worker_tokens: 10,
        policy_tokens: 20,
    };
    let of = |arm: &str, stamp: Option<Stamp>| StudyRow { stamp, ..row(arm, 1, 0.5) };
    let folder = tempfile::tempdir().unwrap();
    let check = |one: Option<Stamp>, other: Option<Stamp>, expected: Option<&str>| {
        let rows = [of("full", one), of("plain", other)];
        let refused = write(folder.path(), &rows, "", MixedRows::Refuse).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), expected);
        write(folder.path(), &rows, "", MixedRows::Allow).unwrap();
    };
    check(Some(stamp("a", "cpu")), Some(stamp("a", "cpu")), None);
    check(None, None, None);
    check(Some(stamp("a", "cpu")), Some(stamp("b", "cpu")), Some("expected rows of one commit, got a, b"));
    check(Some(stamp("a", "cpu")), Some(stamp("a", "cuda")), Some("expected rows of one device, got cpu, cuda"));
    check(Some(stamp("a", "cpu")), None, Some("expected rows of one commit, got a, unknown"));
    let csv = std::fs::read_to_string(folder.path().join("rows.csv")).unwrap();
    assert!(csv.lines().any(|line| line.contains(",20,a,cpu,r,0.1,1.0,")), "{csv}");
}

#[test]
fn regret_and_intervals_over_tasks_are_shown() {
    let evaluation = |rewards: [f64; 2]| lemon_train::HeldOutResult {
        items: rewards.map(Some).to_vec(),
        ..lemon_train::HeldOutResult::default()
    };
    let of = |arm: &str, seed: u64, reward: f64| StudyRow {
        evaluations: vec![evaluation([reward + 0.01 * seed as f64, reward]); 2],
        ..row(arm, seed, reward)
    };
    let arms = [("full", 0.8), ("plain-shared", 0.7), ("fixed-team", 0.85), ("one-agent", 0.75)];
    let rows: Vec<StudyRow> = (1..=4)
        .flat_map(|seed| arms.iter().map(move |(arm, reward)| (arm, seed, reward)))
        .map(|(arm, seed, reward)| of(arm, seed, *reward))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &rows, "", MixedRows::Refuse).unwrap();
    let tables = std::fs::read_to_string(folder.path().join("tables.md")).unwrap();
    let line = |start: &str| tables.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    assert!(line("| full | 4 |").contains("| +0.050 |"), "{}", line("| full"));
    let against: Vec<&str> =
        tables.lines().filter(|line| line.starts_with("| full | 4 | ") && line.contains("[+0.100, +0.100]")).collect();
    assert!(!against.is_empty(), "{tables}");
}
