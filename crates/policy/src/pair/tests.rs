//! Pairs are read as they are written, and what is wrong with one is named.

use super::*;
use lemon_spec::{generate, validate};
use proptest::prelude::*;

const SPEC: &str = "agents:\n  - id: a1\n    base: solver\n    role: ~\n    duty: ~\n    capacity: small\n    after: []\n    \
                    share: reply\nanswer: {from: [a1], by: last}\nnext: stop\n";
const CLOSING: &str = "agents: []\nanswer: {from: [a1], by: last}\nnext: stop\n";

fn pair() -> Pair {
    Pair {
        task: TaskText { set: "gsm8k/train".into(), id: "7".into(), question: "How many?".into() },
        round: 1,
        results: Vec::new(),
        spec: SPEC.into(),
        teacher: Teacher::Rules,
        reward: Some(1.17),
        success: Some(1.0),
        tokens: Some(320.5),
        world: Some("calibrated".into()),
        seed: 3,
        runs: 2,
    }
}

fn told(agent: &str) -> Told {
    Told {
        agent: agent.into(),
        role: "Solver".into(),
        status: AgentStatus::Done,
        reply: Some("Answer: 4".into()),
        sure: None,
    }
}

fn second_round() -> Pair {
    Pair { round: 2, results: vec![told("a1")], spec: CLOSING.into(), ..pair() }
}

fn text(pairs: &[Pair]) -> String {
    let mut bytes = Vec::new();
    write(pairs, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn pairs_are_read_as_they_are_written() {
    let unmeasured =
        Pair { reward: None, success: None, tokens: None, world: None, runs: 0, teacher: Teacher::Endpoint, ..pair() };
    let pairs = [pair(), second_round(), unmeasured];
    let text = text(&pairs);
    assert_eq!(text.lines().count(), 3);
    assert_eq!(read(text.as_bytes(), &Language::default()).unwrap(), pairs);
    assert_eq!(read(format!("\n{text}\n \n").as_bytes(), &Language::default()).unwrap(), pairs);
    assert_eq!(read(&b""[..], &Language::default()).unwrap(), []);
}

#[track_caller]
fn check(line: &str, expected: &str) {
    let lines = format!("{}{line}\n", text(&[pair()]));
    let error = read(lines.as_bytes(), &Language::default()).unwrap_err().to_string();
    assert!(error.starts_with("line 2: ") && error.contains(expected), "{error}, not {expected}");
}

#[track_caller]
fn check_pair(pair: Pair, expected: &str) {
    check(text(&[pair]).trim_end(), expected);
}

#[test]
fn a_bad_line_is_named_with_its_fact() {
    check("nonsense", "not a pair: expected ident");
    check("{}", "missing field `task`");
    check("[1]", "not a pair");
    check(&text(&[pair()]).trim_end().replace("\"runs\":2", "\"runs\":2,\"more\":1"), "unknown field `more`");
    check(&text(&[pair()]).trim_end().replace("rules", "parents"), "unknown variant `parents`");
    check_pair(
        Pair { spec: "agents: []".into(), ..pair() },
        "the specification is not valid: 1:1: the team has no agents",
    );
    check_pair(Pair { spec: SPEC.replace("a1", "b"), ..pair() }, "not written canonically");
    check_pair(Pair { spec: format!("{SPEC}\n"), ..pair() }, "not written canonically");
    check_pair(Pair { spec: SPEC.replace("solver", "wizard"), ..pair() }, "the specification is not valid: 3:11");
    check_pair(Pair { round: 0, ..pair() }, "round 0 with");
    check_pair(Pair { round: 2, ..pair() }, "round 2 with the results of 0 agents");
    check_pair(Pair { round: 1, ..second_round() }, "round 1 with the results of 1 agents");
    check_pair(Pair { runs: 0, ..pair() }, "figures but no runs");
    check_pair(Pair { results: vec![told("b")], ..second_round() }, "the results are of `b` where `a1` would come");
    check_pair(Pair { task: TaskText { question: " ".into(), ..pair().task }, ..pair() }, "the question is empty");
    let bytes = [text(&[pair()]).into_bytes(), vec![b'"', 0xff, b'"']].concat();
    assert_eq!(read(&bytes[..], &Language::default()).unwrap_err().to_string(), "line 2: not UTF-8");
}

#[test]
fn equal_pairs_are_kept_once_where_the_first_stood() {
    let other = Pair { spec: SPEC.replace("small", "large"), ..pair() };
    let better = Pair { runs: 5, ..pair() };
    let worse = Pair { runs: 1, seed: 9, ..pair() };
    let pairs = vec![pair(), other.clone(), worse, better.clone(), second_round(), other.clone()];
    assert_eq!(dedupe(pairs), [better, other, second_round()]);
}

fn earlier(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("a{number}")).collect()
}

#[test]
fn ids_are_numbered_and_references_sorted() {
    let agent = |id: &str, after: &str| format!("  - {{id: {id}, base: solver, capacity: small, after: [{after}]}}\n");
    let check = |text: String, earlier: &[String], ids: &[&str], after: &[&str], from: &[&str]| {
        let spec = validate_round(&text, &Language::default(), earlier).unwrap().spec().clone();
        let canonical = canonical_round(&spec, earlier);
        let found: Vec<&str> = canonical.agents.iter().map(|agent| agent.id.as_str()).collect();
        assert_eq!(
            (found.as_slice(), canonical.agents.last().unwrap().after.as_slice()),
            (ids, &after.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()[..])
        );
        assert_eq!(canonical.answer.from, from);
    };
    let team = format!("agents:\n{}{}{}", agent("x", ""), agent("a1", "x"), agent("y", "a1, x"));
    check(
        format!("{team}answer: {{from: [y, a1], by: vote}}\n"),
        &[],
        &["a1", "a2", "a3"],
        &["a1", "a2"],
        &["a2", "a3"],
    );
    let later = format!("agents:\n{}answer: {{from: [z, a2], by: vote}}\n", agent("z", "a2, a1"));
    check(later, &earlier(2), &["a3"], &["a1", "a2"], &["a2", "a3"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_teams_are_valid_and_stay_as_they_are(seed: u64, rounds_before in 0_usize..3) {
        let language = Language::default();
        let earlier = earlier(rounds_before);
        let spec = generate::spec_after(seed, &language, &earlier);
        // An id of the old team may be one that the new numbers give to another agent, but not one of an earlier round.
        prop_assume!(spec.agents.iter().all(|agent| !earlier.contains(&agent.id)));
        let canonical = canonical_round(&spec, &earlier);
        let plan = validate_round(&render(&canonical).text, &language, &earlier);
        let plan = plan.unwrap();
        prop_assert_eq!(plan.spec(), &canonical);
        prop_assert_eq!(&canonical_round(&canonical, &earlier), &canonical);
        prop_assert_eq!(canonical.agents.len(), spec.agents.len());
        for (old, new) in spec.agents.iter().zip(&canonical.agents) {
            prop_assert_eq!(old.after.len(), new.after.len());
            prop_assert_eq!((&old.base, &old.role, &old.duty), (&new.base, &new.role, &new.duty));
        }
        if earlier.is_empty() {
            prop_assert_eq!(canonical_ids(&spec), canonical);
            prop_assert!(validate(&render(&spec).text, &language).is_ok());
        }
    }

    #[test]
    fn reading_never_panics(text in ".{0,200}") {
        prop_assert!(read(text.as_bytes(), &Language::default()).is_err() || text.trim().is_empty());
    }
}
