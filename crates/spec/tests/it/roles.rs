//! The library of base roles.

use lemon_spec::{BaseRole, Language, PLAIN, RoleLibrary, Share, validate};
use std::path::PathBuf;

/// A folder of its own for each test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn with(name: &str, files: &[(&str, &str)]) -> Folder {
        let path = std::env::temp_dir().join(format!("lemon-spec-roles-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_library_is_complete_and_its_solvers_end_with_an_answer() {
    let library = RoleLibrary::builtin();
    let names: Vec<&str> = library.iter().map(|role| role.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "solver",
            "planner",
            "decomposer",
            "expert",
            "programmer",
            "tester",
            "critic",
            "verifier",
            "summariser",
            "judge",
            "plain"
        ]
    );
    for role in library.iter() {
        let answers = ["solver", "expert", "critic", "verifier", "summariser", "judge"].contains(&role.name.as_str());
        assert_eq!(role.answers, answers || role.name == PLAIN, "{}", role.name);
        assert_eq!(role.prompt.is_empty(), role.name == PLAIN, "{}", role.name);
        assert!(role.prompt.len() < 700 && !role.prompt.contains('\n'), "{}", role.name);
        assert!(!role.title.is_empty() && role.duty.ends_with('.'), "{}", role.name);
    }
}

#[test]
fn roles_of_a_folder_are_added_or_replace_others() {
    let folder = Folder::with(
        "good",
        &[
            ("chemist.yaml", "title: Chemist\nduty: Balance the equation.\nprompt: |\n  Count atoms.\n  Twice.\n"),
            ("solver.yml", "{title: Mine, duty: D, prompt: P, reads: answer, answers: false}"),
            ("notes.txt", "not a role"),
        ],
    );
    let mut language = Language::default();
    language.roles.add_folder(&folder.0).unwrap();
    assert_eq!(language.roles.get("chemist").unwrap().prompt, "Count atoms.\nTwice.");
    let solver = language.roles.get("solver").unwrap();
    assert_eq!((solver.title.as_str(), solver.reads, solver.answers), ("Mine", Share::Answer, false));
    assert_eq!(language.roles.iter().count(), 12);
    let plan = validate("agents: [{id: a, base: chemist, capacity: small}]", &language).unwrap();
    assert_eq!((plan.agents()[0].role.as_str(), plan.agents()[0].duty.as_str()), ("Chemist", "Balance the equation."));
}

#[test]
fn all_faults_of_all_files_are_reported_and_nothing_is_added() {
    let folder = Folder::with(
        "bad",
        &[
            ("1st.yaml", "title: T\nduty: D\nprompt: P\n"),
            ("fine.yaml", "title: T\nduty: D\nprompt: P\n"),
            ("list.yaml", "- a\n"),
            ("odd.yaml", "title: T\nduty: D\nprompt: P\nreads: all\nanswers: [no]\n"),
            ("poor.yaml", "title: T\ntitel: T\nduty:\nprompt: [x]\n"),
            ("torn.yaml", "title: \"T\n"),
        ],
    );
    let mut library = RoleLibrary::builtin();
    let errors = library.add_folder(&folder.0).unwrap_err();
    let prefix = folder.0.join("").display().to_string();
    let shown: Vec<String> = errors
        .iter()
        .map(|error| format!("{error} ({})", error.hint.as_deref().unwrap_or_default()).replace(&prefix, ""))
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
    assert!(library.get("fine").is_none());
}

#[test]
fn a_folder_that_is_not_there_is_a_fault() {
    let errors = RoleLibrary::empty().add_folder(&PathBuf::from("/nowhere/at/all")).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].fact.starts_with("the folder of roles cannot be read"), "{}", errors[0]);
}

#[test]
fn inserting_replaces_a_role_of_the_same_name() {
    let role = |title: &str| BaseRole {
        name: "x".into(),
        title: title.into(),
        duty: "d".into(),
        prompt: "p".into(),
        reads: Share::Reply,
        answers: true,
    };
    let mut library = RoleLibrary::empty();
    library.insert(role("one"));
    library.insert(role("two"));
    assert_eq!(library.iter().map(|role| role.title.as_str()).collect::<Vec<_>>(), ["two"]);
}
