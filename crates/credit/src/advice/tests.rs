use super::*;
use lemon_spec::AnswerRule;
use lemon_spec::edit::{Decision, Family};
use proptest::prelude::*;

fn edit(change: Change, forward: bool) -> Edit {
    Edit { family: Family::Agent, decision: Decision::Spawn, forward, change }
}

fn remove() -> Edit {
    edit(Change::RemoveAgent { agent: "check2".into() }, true)
}

fn raise() -> Edit {
    edit(Change::RaiseCapacity { agent: "solve".into() }, false)
}

/// `worth ± half` points of a hundred over 200 tasks, and the change of tokens in percent.
fn finding(worth: f64, half: f64, tokens: f64) -> Finding {
    let (effect, half) = (worth / 100.0, half / 100.0);
    Finding {
        effect: Some(effect),
        interval: Some([effect - half, effect + half]),
        n: 200,
        token_share: Some(0.31),
        token_change: Some(tokens / 100.0),
    }
}

fn check(edit: &Edit, finding: &Finding, verdict: Recommendation, text: &str) {
    let got = advice(edit, finding, &AdviceSettings::default());
    assert_eq!((got.verdict, got.text.as_str()), (verdict, text));
}

#[test]
fn an_agent_that_earns_nothing_is_left_out() {
    let costs = "`check2` costs 31 % of the tokens; removing it changes success by";
    let text = |rest: &str| format!("{costs} {rest}");
    check(&remove(), &finding(0.2, 0.8, -31.0), Recommendation::Remove, &text("−0.2 ± 0.8 points: leave it out"));
    check(&remove(), &finding(-3.0, 1.0, -31.0), Recommendation::Remove, &text("+3.0 ± 1.0 points: leave it out"));
    check(&remove(), &finding(8.0, 2.5, -31.0), Recommendation::Keep, &text("−8.0 ± 2.5 points: keep it as it is"));
    check(
        &remove(),
        &finding(0.2, 4.0, -31.0),
        Recommendation::Unclear,
        &text("−0.2 ± 4.0 points: the data do not decide it"),
    );
    check(&remove(), &finding(0.02, 0.8, -31.0), Recommendation::Remove, &text("0.0 ± 0.8 points: leave it out"));
}

#[test]
fn what_costs_more_has_to_gain_something() {
    let costs = "running `solve` one level higher costs 40 % more tokens and changes success by";
    let text = |rest: &str| format!("{costs} {rest}");
    check(&raise(), &finding(-4.0, 1.5, 40.0), Recommendation::Raise, &text("+4.0 ± 1.5 points: raise it"));
    check(&raise(), &finding(0.0, 0.8, 40.0), Recommendation::Keep, &text("0.0 ± 0.8 points: keep it as it is"));
    check(&raise(), &finding(3.0, 1.0, 40.0), Recommendation::Keep, &text("−3.0 ± 1.0 points: keep it as it is"));
    check(
        &raise(),
        &finding(-1.0, 3.0, 40.0),
        Recommendation::Unclear,
        &text("+1.0 ± 3.0 points: the data do not decide it"),
    );
}

#[test]
fn little_data_and_none_are_said_so() {
    let few = Finding { n: 12, ..finding(0.0, 0.1, -31.0) };
    let text = "`check2` costs 31 % of the tokens; removing it changes success by 0.0 ± 0.1 points: too little data \
                (12 tasks of at least 20)";
    check(&remove(), &few, Recommendation::TooLittleData, text);
    let one = Finding { n: 1, interval: None, token_share: None, token_change: None, ..few };
    let text = "removing `check2` changes success by 0.0 points: too little data (1 task of at least 20)";
    check(&remove(), &one, Recommendation::TooLittleData, text);
    let none = Finding { effect: None, ..few };
    let text = "`check2` costs 31 % of the tokens; the effect of removing it: not measured";
    check(&remove(), &none, Recommendation::NotMeasured, text);
    check(&raise(), &none, Recommendation::NotMeasured, "the effect of running `solve` one level higher: not measured");
}

#[test]
fn a_lopsided_interval_shows_its_longer_side() {
    let lopsided = Finding { effect: Some(0.0), interval: Some([-0.01, 0.03]), ..finding(0.0, 0.0, -31.0) };
    assert!(advice(&remove(), &lopsided, &AdviceSettings::default()).text.contains("0.0 ± 3.0 points"));
}

#[test]
fn every_change_has_words_and_a_verdict() {
    let (a, b) = (|| "a".to_owned(), || "b".to_owned());
    let check = |change: Change, verdict: Recommendation, words: &str| {
        check(
            &edit(change, true),
            &finding(-5.0, 1.0, -0.7),
            verdict,
            &format!(
                "{words} saves 0.7 % of the tokens and changes success by +5.0 ± 1.0 points: {}",
                match verdict {
                    Recommendation::Remove => "leave it out",
                    Recommendation::Add => "add it",
                    Recommendation::Lower => "lower it",
                    Recommendation::Raise => "raise it",
                    _ => "change it",
                }
            ),
        );
    };
    check(Change::DeleteReference { agent: a(), parent: b() }, Recommendation::Remove, "not letting `a` read `b`");
    check(Change::AddReference { agent: a(), parent: b(), at: 0 }, Recommendation::Add, "letting `a` read `b` too");
    check(Change::ResetDuty { agent: a() }, Recommendation::Remove, "giving `a` the duty of its base role");
    check(Change::LowerCapacity { agent: a() }, Recommendation::Lower, "running `a` one level lower");
    check(Change::RaiseCapacity { agent: a() }, Recommendation::Raise, "running `a` one level higher");
    check(Change::ShareAnswer { agent: a() }, Recommendation::Change, "sharing only the answer of `a`");
    check(Change::ShareReply { agent: a() }, Recommendation::Change, "sharing the whole reply of `a`");
    check(Change::AnswerBy { rule: AnswerRule::Vote }, Recommendation::Change, "making the answer by vote");
    check(Change::Stop, Recommendation::Change, "stopping after this round");
    check(Change::Review, Recommendation::Change, "reviewing this round");
    let add = Change::AddTool { agent: a(), tool: "python".into(), at: 0 };
    check(add, Recommendation::Add, "giving `a` `python` too");
    let withhold = Change::WithholdMessage { from: a(), to: b() };
    check(withhold, Recommendation::Remove, "withholding the message of `a` from `b`");
}

#[test]
fn a_tool_is_told_by_what_it_is_worth() {
    let told = |worth: f64, tokens: f64| {
        let change = Change::RemoveTool { agent: "solve".into(), tool: "python".into() };
        let edit = Edit { family: Family::Tool, decision: Decision::Delegate, forward: true, change };
        advice(&edit, &finding(worth, 3.0, tokens), &AdviceSettings::default()).text
    };
    let kept = "`python` for `solve` is worth +11.0 ± 3.0 points for +9 % tokens: keep it as it is";
    assert_eq!(told(11.0, -9.0), kept);
    let left = "`python` for `solve` is worth −5.0 ± 3.0 points for −9 % tokens: leave it out";
    assert_eq!(told(-5.0, 9.0), left);
    let change = Change::WithholdResult { agent: "solve".into(), tool: "python".into() };
    let edit = Edit { family: Family::Message, decision: Decision::Delegate, forward: true, change };
    let result = advice(&edit, &finding(11.0, 3.0, 9.0), &AdviceSettings::default()).text;
    let expected =
        "the first result of `python` for `solve` is worth +11.0 ± 3.0 points for −9 % tokens: keep it as it is";
    assert_eq!(result, expected);
}

#[test]
fn names_are_the_same_everywhere() {
    for verdict in
        [Recommendation::Remove, Recommendation::Keep, Recommendation::TooLittleData, Recommendation::NotMeasured]
    {
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What might cost more than the tolerance is never recommended, and what surely helps is always recommended.
    #[test]
    fn no_advice_beyond_the_data(worth in -30.0..30.0, half in 0.0..20.0, tokens in -60.0..60.0, n in 0_u64..60) {
        let settings = AdviceSettings::default();
        let finding = Finding { n, ..finding(worth, half, tokens) };
        for edit in [remove(), raise()] {
            let verdict = advice(&edit, &finding, &settings).verdict;
            let applied = matches!(verdict, Recommendation::Remove | Recommendation::Raise);
            let [low, high] = finding.interval.unwrap();
            prop_assert!(!applied || high <= settings.tolerance);
            prop_assert!(!applied || n >= settings.least_tasks);
            prop_assert!(applied || n < settings.least_tasks || high >= 0.0);
            prop_assert!(verdict != Recommendation::Keep || low >= -settings.tolerance);
        }
    }
}
