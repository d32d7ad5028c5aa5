//! `lemon world`: searching the simulated world; what needs a record says so where there is none.

use crate::common::Folder;

#[test]
fn the_best_teams_of_the_sample() {
    let folder = Folder::new();
    let args = ["world", "teams", "--set", "gsm8k", "--world", "teams", "--teams", "30", "--json"];
    let found = folder.lemon(&args).ok().json();
    assert_eq!(found["groups"].as_array().unwrap().len(), 4);
    for group in found["groups"].as_array().unwrap() {
        let best: Vec<String> =
            group["found"].as_array().unwrap().iter().map(|team| team["best"].to_string()).collect();
        let alone = ["small", "medium", "large"].map(|level| format!("{{\"alone\":\"{level}\"}}"));
        assert_eq!(best[..2], ["\"value\"", "\"accuracy\""]);
        assert_eq!(best[2..], alone);
    }
    assert_eq!(folder.lemon(&args).ok().json(), found);
    let other = folder.lemon(&[&args[..], &["--seed", "1"]].concat()).ok().json();
    assert_ne!(other["groups"], found["groups"]);
}

#[test]
fn the_best_teams_as_text() {
    let args = ["world", "teams", "--world", "teams", "--teams", "30"];
    let text = Folder::new().lemon(&args).ok().stdout;
    assert!(text.starts_with("gsm8k/test in the teams world: 30 teams tried"), "{text}");
    assert_eq!(text.matches(" small agent alone ").count(), 4, "{text}");
    assert!(text.contains("\nis one agent always best here?\n  for its price: "), "{text}");
}

#[test]
fn bad_prices_and_sets() {
    for (arg, fact) in [
        ("--price=-1", "error: price must be at least 0, got -1"),
        ("--price=nan", "error: price must be at least 0, got NaN"),
        ("--set=sums", "error: unknown task set `sums`"),
    ] {
        let ran = Folder::new().lemon(&["world", "teams", arg]).code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.contains(fact), "{}", ran.stderr);
    }
}

#[test]
fn without_a_record_nothing_is_fitted_or_compared() {
    for command in ["fit", "check"] {
        let ran = Folder::new().lemon(&["world", command, "--data", "."]).code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.contains("recorded outcomes in outcomes/"), "{}", ran.stderr);
    }
    let ran = Folder::new().file("own.toml", "nonsense = 1\n");
    let ran = ran.lemon(&["world", "check", "--data", ".", "--figures", "own.toml"]).code(2);
    assert!(ran.stderr.contains("error: own.toml: "), "{}", ran.stderr);
}
