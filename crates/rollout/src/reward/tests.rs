use super::*;
use crate::story::{StoryPart, begin, decide, failure, part, push, round, stop, tell};
use lemon_trace::{EventKind, Failure, ORCHESTRATOR, Spend, StopReason, Trace, sample};
use proptest::prelude::*;

fn grades(team: Option<bool>, agents: &[(&str, bool)]) -> Grades {
    Grades { team, agents: agents.iter().map(|(id, right)| ((*id).to_owned(), *right)).collect() }
}

fn reject(trace: &mut Trace, round: u32, failure: Option<Failure>) {
    push(trace, ORCHESTRATOR, EventKind::Rejection { round, diagnostics: Vec::new(), failure });
}

/// Checks one channel of a run.
fn check(trace: &Trace, grades: &Grades, channel: Channel, expected: Option<f64>) {
    let got = measure(trace, grades, &RewardSettings::default()).get(channel);
    let same = match (got, expected) {
        (Some(got), Some(expected)) => (got - expected).abs() < 1e-12,
        (got, expected) => got == expected,
    };
    assert!(same, "{channel}: {got:?} is not {expected:?}");
}

fn solve_and_check<'a>(solved: &'a str, checked: &'a str) -> Trace {
    tell(&[part("solve", "solver", &[], solved), part("check", "critic", &["solve"], checked)], &["check"])
}

#[test]
fn success_is_graded_or_plainly_absent() {
    let run = solve_and_check("1", "1");
    check(&run, &grades(Some(true), &[]), Channel::Success, Some(1.0));
    check(&run, &grades(Some(false), &[]), Channel::Team, Some(0.0));
    check(&run, &grades(None, &[]), Channel::Success, None);
    let no_answer = tell(&[StoryPart { answer: None, ..part("a", "solver", &[], "") }], &["a"]);
    check(&no_answer, &grades(None, &[]), Channel::Success, Some(0.0));
    check(&begin(), &grades(None, &[]), Channel::Success, None);
    let mut cancelled = begin();
    decide(&mut cancelled, 1, "fixed");
    push(&mut cancelled, ORCHESTRATOR, EventKind::Stop { reason: StopReason::Cancelled, answer: None });
    check(&cancelled, &grades(None, &[]), Channel::Success, None);
}

#[test]
fn efficiency_weighs_tokens_by_level() {
    let team = [part("a", "solver", &[], "1"), StoryPart { level: 2, ..part("b", "solver", &[], "1") }];
    check(&tell(&team, &["b"]), &Grades::default(), Channel::Efficiency, Some((-550.0_f64 / 5000.0).exp()));
    let strongest = [StoryPart { level: 9, ..part("b", "solver", &[], "1") }];
    check(&tell(&strongest, &["b"]), &Grades::default(), Channel::Efficiency, Some((-450.0_f64 / 5000.0).exp()));
    let mut unfinished = tell(&team, &["b"]);
    unfinished.events.pop();
    check(&unfinished, &Grades::default(), Channel::Efficiency, None);
}

#[test]
fn a_reused_reply_costs_what_it_cost_when_it_was_made() {
    let mut run = solve_and_check("1", "1");
    let paid = measure(&run, &Grades::default(), &RewardSettings::default());
    assert_eq!(team_tokens(&run.summary()), Some(200));
    let set = |run: &mut Trace, cost: Option<Spend>| {
        for event in &mut run.events {
            if let EventKind::Return { reused, saved, .. } = &mut event.kind {
                (*reused, *saved, event.spend) = (true, cost, Spend::default());
            }
        }
    };
    set(&mut run, Some(Spend { tokens_in: 60, tokens_out: 40, ..Spend::default() }));
    let reused = measure(&run, &Grades::default(), &RewardSettings::default());
    assert_eq!(reused.get(Channel::Efficiency), paid.get(Channel::Efficiency));
    assert_eq!(team_tokens(&run.summary()), Some(200));
    assert_eq!(reused.get(Channel::Speedup), None);
    set(&mut run, None);
    assert_eq!(measure(&run, &Grades::default(), &RewardSettings::default()).get(Channel::Efficiency), None);
    assert_eq!(team_tokens(&run.summary()), None);
}

#[test]
fn structure_counts_agents_and_references() {
    check(&solve_and_check("1", "1"), &Grades::default(), Channel::Structure, Some(2.5));
    check(&tell(&[part("a", "solver", &[], "1")], &["a"]), &Grades::default(), Channel::Structure, Some(1.0));
    check(&begin(), &Grades::default(), Channel::Structure, None);
}

#[test]
fn invalid_is_the_share_of_own_texts_refused() {
    let share = |told: &dyn Fn(&mut Trace), expected| {
        let mut trace = begin();
        told(&mut trace);
        check(&trace, &Grades::default(), Channel::Invalid, expected);
    };
    share(&|_| {}, None);
    share(&|trace| decide(trace, 1, "prompted"), Some(0.0));
    share(&|trace| reject(trace, 1, Some(failure())), None);
    let refused = |trace: &mut Trace| {
        decide(trace, 1, "prompted");
        reject(trace, 1, None);
    };
    share(&refused, Some(1.0));
    share(
        &|trace| {
            refused(trace);
            decide(trace, 1, "repair");
        },
        Some(0.5),
    );
    share(
        &|trace| {
            refused(trace);
            decide(trace, 1, "fallback");
        },
        Some(1.0),
    );
}

#[test]
fn a_rejected_specification_earns_the_penalty_and_no_bonus() {
    let mut trace = begin();
    decide(&mut trace, 1, "prompted");
    reject(&mut trace, 1, None);
    stop(&mut trace);
    let channels = measure(&trace, &Grades::default(), &RewardSettings::default());
    assert_eq!(
        channels.named(),
        [("invalid", 1.0), ("success", 0.0), ("team", 0.0)].map(|(n, v)| (n.into(), v)).into()
    );
    assert_eq!(channels.total(&Weights::default(), 0), Some(-1.0));
}

#[test]
fn individual_and_hybrid_come_from_grades() {
    let run = solve_and_check("1", "2");
    let graded = grades(Some(true), &[("solve", false), ("check", true)]);
    check(&run, &graded, Channel::Individual, Some(0.5));
    check(&run, &graded, Channel::Hybrid, Some(0.75));
    check(&run, &grades(Some(true), &[]), Channel::Individual, None);
    check(&run, &grades(Some(true), &[]), Channel::Hybrid, None);
    check(&run, &grades(None, &[("solve", true)]), Channel::Hybrid, None);
}

#[test]
fn a_role_holds_if_the_critic_ends_right_and_the_planners_readers_do() {
    let run = solve_and_check("1", "2");
    check(&run, &grades(None, &[("solve", false), ("check", true)]), Channel::Role, Some(1.0));
    check(&run, &grades(None, &[("solve", true), ("check", false)]), Channel::Role, Some(0.0));
    check(&run, &grades(None, &[("check", true)]), Channel::Role, None);
    check(&run, &grades(None, &[("solve", true)]), Channel::Role, None);
    let planned = tell(
        &[
            part("plan", "planner", &[], "a plan"),
            part("a", "solver", &["plan"], "1"),
            part("b", "solver", &["plan"], "2"),
            part("idle", "planner", &[], "a plan"),
        ],
        &["a", "b"],
    );
    check(&planned, &grades(None, &[("a", true), ("b", false)]), Channel::Role, Some(0.5));
    check(&planned, &Grades::default(), Channel::Role, None);
}

#[test]
fn a_clean_process_has_no_failure_retry_or_waste() {
    let idle = [part("a", "solver", &[], "1"), part("idle", "solver", &[], "1"), part("b", "solver", &["a"], "1")];
    check(&tell(&idle, &["b"]), &Grades::default(), Channel::Process, Some(2.0 / 3.0));
    let failed = [StoryPart { answer: None, ..part("a", "solver", &[], "") }, part("b", "solver", &[], "1")];
    check(&tell(&failed, &["b"]), &Grades::default(), Channel::Process, Some(0.5));
    let mut retried = solve_and_check("1", "1");
    for event in &mut retried.events {
        if let (EventKind::Return { attempts, .. }, "solve") = (&mut event.kind, event.agent.as_str()) {
            *attempts = 2;
        }
    }
    check(&retried, &Grades::default(), Channel::Process, Some(0.5));
    // The orchestrator read what no agent did.
    let mut reviewed = begin();
    round(&mut reviewed, 1, &idle, &["b"]);
    round(&mut reviewed, 2, &[part("c", "solver", &["b"], "1")], &["c"]);
    stop(&mut reviewed);
    check(&reviewed, &Grades::default(), Channel::Process, Some(1.0));
    check(&begin(), &Grades::default(), Channel::Process, None);
}

#[test]
fn tools_are_absent_unless_used() {
    let mut run = solve_and_check("1", "1");
    check(&run, &Grades::default(), Channel::Tool, None);
    for ok in [true, false, true, true] {
        push(
            &mut run,
            "solve",
            EventKind::ToolResult { tool: "python".into(), output: serde_json::Value::Null, ok, call: None },
        );
    }
    check(&run, &Grades::default(), Channel::Tool, Some(0.75));
}

#[test]
fn a_verdict_is_true_if_it_accepts_what_is_right_and_refuses_what_is_wrong() {
    let verdict = |solved: &str, checked: &str, solved_right: bool, expected: Option<f64>| {
        check(
            &solve_and_check(solved, checked),
            &grades(None, &[("solve", solved_right)]),
            Channel::Verifier,
            expected,
        );
    };
    verdict("1", "1.0", true, Some(1.0));
    verdict("1", "1", false, Some(0.0));
    verdict("1", "2", false, Some(1.0));
    verdict("1", "2", true, Some(0.0));
    let three = |answers: [&str; 3]| {
        let solvers = ["a", "b", "c"].iter().zip(answers).map(|(id, answer)| part(id, "solver", &[], answer));
        let judge = part("judge", "judge", &["a", "b", "c"], "1");
        tell(&solvers.chain([judge]).collect::<Vec<_>>(), &["judge"])
    };
    let right = grades(None, &[("a", true), ("b", true), ("c", false)]);
    check(&three(["1", "1", "2"]), &right, Channel::Verifier, Some(1.0));
    check(&three(["1", "2", "3"]), &right, Channel::Verifier, None);
    check(&three(["1", "1", "2"]), &Grades::default(), Channel::Verifier, None);
}

#[test]
fn aggregation_is_measured_only_where_a_right_answer_could_be_taken() {
    let run = |from: &[&str]| tell(&[part("a", "solver", &[], "1"), part("b", "solver", &[], "2")], from);
    check(&run(&["a", "b"]), &grades(None, &[("a", true), ("b", false)]), Channel::Aggregation, Some(0.0));
    check(&run(&["b", "a"]), &grades(None, &[("a", true), ("b", false)]), Channel::Aggregation, Some(1.0));
    check(&run(&["b", "a"]), &grades(None, &[("a", false), ("b", false)]), Channel::Aggregation, None);
    check(&run(&["a"]), &grades(None, &[("a", true)]), Channel::Aggregation, None);
    check(&run(&["a", "b"]), &grades(Some(false), &[("a", true)]), Channel::Aggregation, Some(0.0));
    check(&run(&["a", "b"]), &grades(None, &[("a", true)]), Channel::Aggregation, None);
}

#[test]
fn speedup_is_the_share_of_time_saved() {
    check(&solve_and_check("1", "1"), &Grades::default(), Channel::Speedup, Some(0.0));
    check(&tell(&[part("a", "solver", &[], "1")], &["a"]), &Grades::default(), Channel::Speedup, None);
    let mut parallel = solve_and_check("1", "1");
    // Both calls take from 0 to 1 s.
    for event in &mut parallel.events {
        event.t = f64::from(u8::from(matches!(event.kind, EventKind::Return { .. } | EventKind::Stop { .. })));
    }
    check(&parallel, &Grades::default(), Channel::Speedup, Some(0.5));
}

#[test]
fn weights_change_in_equal_parts_and_then_stay() {
    let weight = Weight { start: 1.0, end: 0.0, steps: 4 };
    assert_eq!([0, 1, 2, 3, 4, 5, u64::MAX].map(|step| weight.at(step)), [1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0]);
    assert_eq!([0, 9].map(|step| Weight { start: 5.0, end: 2.0, steps: 0 }.at(step)), [2.0, 2.0]);
    assert_eq!(Weight::fixed(0.2).at(3), 0.2);
}

#[test]
fn the_total_needs_success_only_where_it_counts() {
    let channels = Channels::default().with(Channel::Efficiency, 0.5).with(Channel::Structure, 4.0);
    assert_eq!(channels.total(&Weights::default(), 0), None);
    let only_structure = Weights::none().with(Channel::Structure, Weight::fixed(-0.25));
    assert_eq!(channels.total(&only_structure, 0), Some(-1.0));
    let annealed = only_structure.with(Channel::Success, Weight { start: 0.0, end: 1.0, steps: 10 });
    assert_eq!(channels.total(&annealed, 0), Some(-1.0));
    assert_eq!(channels.total(&annealed, 1), None);
    let right = channels.with(Channel::Success, 1.0);
    assert_eq!(right.total(&Weights::default(), 0), Some(1.0 + 0.1 - 0.02));
    assert_eq!(Channels::default().with(Channel::Success, 1.0).total(&Weights::default(), 7), Some(1.0));
}

#[test]
fn names_are_the_same_everywhere() {
    for (channel, term) in Channel::ALL.iter().zip(REWARD_TERMS) {
        assert_eq!(serde_json::to_value(channel).unwrap(), channel.as_str());
        assert_eq!((term.channel, term.name), (*channel, channel.as_str()));
    }
    let full = Channels::default().with(Channel::Success, 1.0).with(Channel::Split, 0.5);
    assert_eq!(serde_json::to_value(&full).unwrap(), serde_json::to_value(full.named()).unwrap());
    let weights = Weights::default();
    let text = serde_json::to_string(&weights).unwrap();
    assert_eq!(serde_json::from_str::<Weights>(&text).unwrap(), weights);
    assert_eq!(weights.get(Channel::Tool), Weight::fixed(0.0));
    assert!(serde_json::from_str::<Weights>(r#"{"sucess": {"start": 1, "end": 1, "steps": 0}}"#).is_err());
}

#[test]
fn a_term_of_the_user_is_measured_logged_and_counted() {
    let settings = RewardSettings::default()
        .with_term("agents", Weight::fixed(-0.5), |run| Some(run.summary().agents.len() as f64))
        .with_term("never", Weight::fixed(9.0), |_| None);
    let run = solve_and_check("1", "1");
    let graded = grades(Some(true), &[]);
    let (plain, own) = (measure(&run, &graded, &RewardSettings::default()), measure(&run, &graded, &settings));
    let total = |channels: &Channels| channels.total(&Weights::default(), 0).unwrap();
    assert_eq!(total(&own), total(&plain) - 1.0);
    assert_eq!((own.named_value("agents"), own.named_value("never")), (Some(2.0), None));
    assert_eq!(own.named().len(), plain.named().len() + 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the run and however it was cut off, every channel but the structure is a share.
    #[test]
    fn channels_are_shares(seed: u64, marks: u64, team: Option<bool>) {
        let trace = sample::random(seed);
        let agents = trace.summary().agents.into_iter().enumerate();
        let graded = agents.filter(|(place, _)| marks >> (2 * place % 64) & 1 == 1);
        let agents = graded.map(|(place, agent)| (agent.id, marks >> ((2 * place + 1) % 64) & 1 == 1)).collect();
        let channels = measure(&trace, &Grades { team, agents }, &RewardSettings::default());
        for channel in Channel::ALL.iter().filter(|channel| **channel != Channel::Structure) {
            prop_assert!(channels.get(*channel).is_none_or(|value| (0.0..=1.0).contains(&value)), "{channel}");
        }
        let success = channels.get(Channel::Success);
        prop_assert_eq!(success, channels.get(Channel::Team));
        prop_assert!(team.is_none() || success == team.map(|right| f64::from(u8::from(right))));
    }

    /// A channel without a weight is logged and does not count.
    #[test]
    fn channels_without_weight_never_count(seed: u64, right: bool) {
        let trace = sample::random(seed);
        let grades = Grades { team: Some(right), ..Grades::default() };
        let all = measure(&trace, &grades, &RewardSettings::default());
        let counted = [Channel::Success, Channel::Efficiency, Channel::Structure, Channel::Invalid];
        let few = counted.into_iter().fold(Channels::default(), |few, channel| few.with(channel, all.get(channel)));
        prop_assert_eq!(all.total(&Weights::default(), 0), few.total(&Weights::default(), 0));
    }
}
