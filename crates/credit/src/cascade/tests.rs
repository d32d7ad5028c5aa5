use super::*;
use crate::story::{StoryPart, begin, part, round, stop, tell};
use lemon_spec::edit::Change;
use lemon_spec::edit::Decision;
use lemon_trace::sample;
use proptest::prelude::*;

fn edit(family: Family, change: Change) -> Edit {
    Edit { family, decision: Decision::Delegate, forward: true, change }
}

fn lower(agent: &str) -> Edit {
    edit(Family::Capacity, Change::LowerCapacity { agent: agent.into() })
}

/// `a` is read by `b` and `c`, `b` by `d`, and `d` answers.
fn team<'a>(answers: [&'a str; 4]) -> Vec<StoryPart<'a>> {
    let [a, b, c, d] = answers;
    let after: [(&str, &[&str], &str); 4] = [("a", &[], a), ("b", &["a"], b), ("c", &["a"], c), ("d", &["b"], d)];
    after.into_iter().map(|(id, after, answer)| part(id, "solver", after, answer)).collect()
}

fn check(before: [&str; 4], after: [&str; 4], edit: &Edit, expected: Cascade) {
    let cascade = cascade(&tell(&team(before), &["d"]), &tell(&team(after), &["d"]), edit);
    assert_eq!(cascade, expected, "{before:?} {after:?} {edit:?}");
}

#[test]
fn descendants_that_say_something_else_are_counted() {
    let counts =
        |descendants, changed, own, answer_changed| Cascade { descendants, changed, own_changed: own, answer_changed };
    check(["1"; 4], ["1"; 4], &lower("a"), counts(3, 0, Some(false), false));
    check(["1"; 4], ["2", "2", "1", "1"], &lower("a"), counts(3, 1, Some(true), false));
    check(["1"; 4], ["2", "2", "1", "2"], &lower("a"), counts(3, 2, Some(true), true));
    // Another reply with the same answer.
    check(["1"; 4], ["1", "1", "1", "1.0"], &lower("b"), counts(1, 1, Some(false), false));
    // What changed elsewhere is not its doing.
    check(["1"; 4], ["1", "1", "2", "1"], &lower("b"), counts(1, 0, Some(false), false));
    let vote = edit(Family::Answer, Change::AnswerBy { rule: lemon_spec::AnswerRule::Vote });
    check(["1"; 4], ["1", "1", "1", "2"], &vote, counts(0, 0, None, true));
    let withhold = edit(Family::Message, Change::WithholdMessage { from: "a".into(), to: "b".into() });
    check(["1"; 4], ["1", "2", "1", "2"], &withhold, counts(1, 1, Some(true), true));
    check(["1"; 4], ["1"; 4], &lower("absent"), counts(0, 0, None, false));
}

#[test]
fn a_removed_agent_has_the_descendants_it_had() {
    let before = tell(&team(["1"; 4]), &["d"]);
    let without = [part("a", "solver", &[], "1"), part("c", "solver", &["a"], "1"), part("d", "solver", &["a"], "2")];
    let removed = edit(Family::Agent, Change::RemoveAgent { agent: "b".into() });
    let expected = Cascade { descendants: 1, changed: 1, own_changed: None, answer_changed: true };
    assert_eq!(cascade(&before, &tell(&without, &["d"]), &removed), expected);
}

#[test]
fn a_later_round_is_downstream_of_all_before_it() {
    let two = |later: &str| {
        let mut trace = begin();
        round(&mut trace, 1, &team(["1"; 4]), &["d"]);
        round(&mut trace, 2, &[part(later, "solver", &[], "1")], &[later]);
        stop(&mut trace);
        trace
    };
    let expected = Cascade { descendants: 3, changed: 2, own_changed: Some(false), answer_changed: false };
    assert_eq!(cascade(&two("x"), &two("y"), &lower("b")), expected);
}

#[test]
fn an_effect_is_the_sum_of_its_parts() {
    let split = EffectSplit::new(1.0, 0.25, 0.75);
    assert_eq!(split, EffectSplit { total: 0.25, direct: 0.75, downstream: -0.5 });
    assert_eq!(split.total, split.direct + split.downstream);
}

#[test]
fn families_are_summed_apart() {
    let mut summary = CascadeSummary::default();
    let one = Cascade { descendants: 4, changed: 1, own_changed: Some(true), answer_changed: true };
    let two = Cascade { descendants: 0, changed: 0, own_changed: None, answer_changed: false };
    summary.push(Family::Agent, &one, Some(&EffectSplit::new(1.0, 0.5, 0.0)));
    summary.push(Family::Agent, &two, None);
    summary.push(Family::Stop, &two, None);
    let agent = summary.get(Family::Agent).unwrap();
    assert_eq!((agent.mean_descendants(), agent.changed_share()), (Some(2.0), Some(0.25)));
    assert_eq!((agent.own_changed_share(), agent.answer_changed_share()), (Some(1.0), Some(0.5)));
    assert_eq!((agent.direct.mean(), agent.downstream.mean(), agent.total.n()), (Some(0.5), Some(0.5), 1));
    let stop = summary.get(Family::Stop).unwrap();
    assert_eq!((stop.changed_share(), stop.own_changed_share(), stop.direct.mean()), (None, None, None));
    assert_eq!(summary.get(Family::Duty), None);

    let mut doubled = summary.clone();
    doubled.merge(&summary);
    assert_eq!(doubled.get(Family::Agent).unwrap().n, 4);
    assert_eq!(doubled.get(Family::Agent).unwrap().changed_share(), Some(0.25));
    assert_eq!(doubled.iter().map(|(family, _)| family).collect::<Vec<_>>(), [Family::Agent, Family::Stop]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A run against itself changed nothing, and never do more change than can.
    #[test]
    fn no_more_change_than_can(left: u64, right: u64, place: prop::sample::Index) {
        let (before, after) = (sample::random(left), sample::random(right));
        let agents = before.summary().agents;
        let agent = if agents.is_empty() { "absent".to_owned() } else { agents[place.index(agents.len())].id.clone() };
        let same = cascade(&before, &before, &lower(&agent));
        prop_assert_eq!((same.changed, same.own_changed.unwrap_or(false), same.answer_changed), (0, false, false));
        let other = cascade(&before, &after, &lower(&agent));
        prop_assert!(other.changed <= other.descendants);
        prop_assert!(other.descendants < agents.len() + after.summary().agents.len() + 1);
    }
}
