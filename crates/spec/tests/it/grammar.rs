//! The grammar of canonical texts. That its sentences are what it says is tested where texts are written under it.

use lemon_spec::{Language, RoleLibrary, Shape, grammar};

fn shape(agents: usize) -> Shape {
    Shape { agents, parents: 1, role_chars: 20, ..Shape::default() }
}

#[test]
fn a_small_grammar() {
    let mut language = Language::default();
    language.limits.depth = 2;
    insta::assert_snapshot!(grammar(&language, &[], &shape(3)));
}

#[test]
fn a_later_round() {
    let earlier = ["a1", "null"].map(String::from);
    insta::assert_snapshot!(grammar(&Language::default(), &earlier, &Shape { review: false, ..shape(1) }));
}

#[test]
fn a_language_that_allows_no_text_has_no_sentence() {
    let check = |change: fn(&mut Language)| {
        let mut language = Language::default();
        change(&mut language);
        assert!(grammar(&language, &[], &shape(3)).starts_with("start: NOTHING\n"));
    };
    check(|language| language.roles = RoleLibrary::empty());
    check(|language| language.capacities.clear());
    check(|language| language.limits.agents = 0);
    check(|language| language.limits.parents = 0);
    check(|language| language.limits.depth = 0);
    check(|language| language.limits.id_chars = 1);
    check(|language| language.limits.bytes = 100);
}

#[test]
fn limits_bound_the_shape() {
    let teams = |change: fn(&mut Language), shape: &Shape| {
        let mut language = Language::default();
        change(&mut language);
        grammar(&language, &[], shape).lines().filter(|line| line.starts_with("team_")).count()
    };
    assert_eq!(teams(|_| (), &Shape::default()), 6);
    assert_eq!(teams(|_| (), &shape(usize::MAX)), 64);
    assert_eq!(teams(|language| language.limits.agents = 2, &Shape::default()), 2);
    assert_eq!(teams(|language| language.limits.id_chars = 2, &shape(12)), 9);
    assert_eq!(teams(|language| language.limits.bytes = 1_500, &Shape::default()), 2);
}
