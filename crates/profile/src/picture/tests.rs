use super::*;
use crate::profile::{Baseline, Effect, Reuse};
use lemon_credit::advice::{AdviceSettings, Finding, advice};
use lemon_credit::unit::{target_of, unit_of};
use lemon_num::Random;
use lemon_spec::edit::{Change, Edit, edits};
use lemon_spec::generate::{spec, spec_after};
use lemon_spec::{Language, render, validate, validate_round};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SEVEN: &str = "
agents:
  - {id: plan, base: planner, capacity: large}
  - {id: algebra, base: solver, role: Careful algebraist, duty: Solve it with equations., capacity: medium, after: [plan]}
  - {id: geometry, base: solver, role: Draws before it counts, duty: Solve it by a drawing., capacity: small, after: [plan]}
  - {id: code, base: programmer, capacity: medium, after: [plan], share: answer}
  - {id: tests, base: tester, capacity: small, after: [code]}
  - {id: check, base: verifier, capacity: large, after: [plan, algebra, geometry, tests]}
  - {id: sum, base: summariser, capacity: small, after: [algebra, check]}
answer: {from: [check, sum], by: vote}
";

fn plan(text: &str) -> Plan {
    validate(text, &Language::default()).unwrap()
}

/// An effect, measured as mean and half of its interval, and the tokens of the decision.
fn effect(plan: &Plan, change: Change, measured: Option<(f64, f64)>, tokens: Option<f64>) -> Effect {
    let edit = Edit::new(change, plan);
    let mean = measured.map(|(mean, _)| mean);
    let interval = measured.map(|(mean, half)| [mean - half, mean + half]);
    let finding = Finding { effect: mean, interval, n: 30, token_share: None, token_change: None };
    let advice = advice(&edit, &finding, &AdviceSettings::default());
    Effect {
        unit: unit_of(&edit),
        target: target_of(&edit),
        family: edit.family,
        change: edit.describe(),
        effect: mean,
        interval,
        standard_error: measured.map(|(_, half)| half / 2.0),
        n: 30,
        tokens,
        cost: tokens,
        reward: None,
        direct: None,
        descendants_changed: None,
        answer_changed: None,
        zeros: None,
        spent: 0,
        reused: None,
        verdict: advice.verdict,
        advice: advice.text,
        edit,
    }
}

fn profile(plan: &Plan, effects: Vec<Effect>) -> Profile {
    let count = plan.agents().len().max(1) as f64;
    let agents = plan.agents().iter().enumerate();
    let tokens = |place: usize| 24_800.0 * (place as f64 + 1.0) / (count * (count + 1.0));
    let baseline = Baseline {
        runs: 240,
        success: 0.625,
        interval: [0.521, 0.718],
        tokens: 12_400.0,
        cost: 30_000.0,
        agents: agents.map(|(place, agent)| (agent.id.clone(), tokens(place))).collect(),
        rewards: BTreeMap::new(),
    };
    let reuse = Reuse::default();
    Profile {
        baseline,
        effects,
        cascades: Vec::new(),
        reuse,
        accounts: BTreeMap::new(),
        complete: true,
        unknown: Vec::new(),
    }
}

/// Every edit of a plan measured at random, some not at all.
fn measured(plan: &Plan, seed: u64) -> Profile {
    let mut random = Random::new(seed);
    let mut unit = move || random.below(2001) as f64 / 1000.0 - 1.0;
    let one = |edit: Edit| {
        let measured = (unit() > -0.7).then(|| (0.08 * unit(), 0.04 * unit().abs()));
        effect(plan, edit.change, measured, (unit() > -0.8).then(|| 900.0 * unit()))
    };
    let effects = edits(plan, &Language::default()).into_iter().map(one).collect();
    profile(plan, effects)
}

/// Every tag closes the one that is open, every `&` begins an entity, and nothing is left open.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some((text, after)) = rest.split_once('<') {
        for entity in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|known| entity.starts_with(known));
            assert!(known, "`&{entity}`");
        }
        let (tag, next) = after.split_once('>').unwrap();
        assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "<{tag}>");
        let name = tag.split([' ', '\n', '/']).next().unwrap();
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed)),
            None if tag.ends_with('/') => {}
            None => open.push(name),
        }
        rest = next;
    }
    assert_eq!((open.as_slice(), rest.trim()), ([""; 0].as_slice(), ""));
}

/// The drawing of one agent.
fn card<'a>(svg: &'a str, id: &str) -> &'a str {
    let at = svg.find(&format!("data-agent=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    let start = svg[..at].rfind("<g").unwrap();
    &svg[start..at + svg[at..].find("</g>").unwrap()]
}

/// The drawing of one reference.
fn line<'a>(svg: &'a str, parent: &str, agent: &str) -> &'a str {
    let at = svg.find(&format!("<title>{agent} reads {parent}: ")).unwrap_or_else(|| panic!("no {parent} → {agent}"));
    &svg[at..at + svg[at..].find("</g>").unwrap()]
}

fn remove(agent: &str) -> Change {
    Change::RemoveAgent { agent: agent.to_owned() }
}

fn cut(agent: &str, parent: &str) -> Change {
    Change::DeleteReference { agent: agent.to_owned(), parent: parent.to_owned() }
}

#[test]
fn agents_show_their_worth_and_cost() {
    let plan = plan(SEVEN);
    let effects = vec![
        effect(&plan, remove("plan"), Some((0.042, 0.011)), Some(400.0)),
        effect(&plan, remove("algebra"), Some((-0.031, 0.02)), Some(400.0)),
        effect(&plan, remove("geometry"), Some((0.004, 0.02)), Some(400.0)),
        effect(&plan, remove("code"), Some((0.0, 0.0)), Some(400.0)),
        effect(&plan, remove("tests"), None, None),
        effect(&plan, Change::LowerCapacity { agent: "check".into() }, Some((0.003, 0.009)), None),
        effect(&plan, Change::RaiseCapacity { agent: "sum".into() }, Some((-0.02, 0.009)), None),
        effect(&plan, Change::ResetDuty { agent: "algebra".into() }, Some((0.05, 0.01)), None),
        effect(&plan, Change::ShareReply { agent: "code".into() }, None, None),
    ];
    let svg = picture(&plan, &profile(&plan, effects));
    assert_well_formed(&svg);
    let check = |id: &str, expected: &[&str]| {
        let card = card(&svg, id);
        expected.iter().for_each(|part| assert!(card.contains(part), "{part} in {card}"));
    };
    check("plan", &["class=\"agent above\"", ">+4.2 ± 1.1 points<", ">4 % of tokens<", ">planner<", ">large<"]);
    check("algebra", &["class=\"agent below\"", ">−3.1 ± 2.0 points<", ">solver · Careful algebraist<"]);
    check("algebra", &[">duty of its own</text><text class=\"number above\"", ">+5.0 ± 1.0<"]);
    check("geometry", &["class=\"agent unclear\"", ">+0.4 ± 2.0 points<", ">11 % of tokens<"]);
    // Nothing measured and nothing found are not the same.
    check("code", &["class=\"agent unclear\"", ">0.0 ± 0.0 points<", ">its whole reply<", "\"number unmeasured\""]);
    check("tests", &["class=\"agent unmeasured\"", ">not measured<"]);
    // What was not even asked is not measured either.
    check("check", &["class=\"agent unmeasured\"", ">▼ one level lower<", "\"number unclear\"", ">−0.3 ± 0.9<"]);
    // A change that would add to success is drawn as one that does.
    check("sum", &[">▲ one level higher<", "\"number above\"", ">+2.0 ± 0.9<"]);
}

#[test]
fn lines_show_their_worth_and_cost() {
    let plan = plan(SEVEN);
    let effects = vec![
        effect(&plan, cut("algebra", "plan"), Some((0.02, 0.01)), Some(100.0)),
        effect(&plan, cut("check", "plan"), Some((-0.02, 0.01)), Some(400.0)),
        effect(&plan, cut("check", "tests"), Some((0.0, 0.01)), Some(-50.0)),
        effect(&plan, cut("tests", "code"), None, None),
    ];
    let svg = picture(&plan, &profile(&plan, effects));
    let check = |parent: &str, agent: &str, expected: &[&str]| {
        let line = line(&svg, parent, agent);
        expected.iter().for_each(|part| assert!(line.contains(part), "{part} in {line}"));
    };
    check("plan", "algebra", &["\"edge above\" stroke-width=\"3.6\"", ">+2.0 ± 1.0</text>", ", 100 tokens\n"]);
    check("plan", "check", &["\"edge below\" stroke-width=\"6.0\"", ">−2.0 ± 1.0</text>"]);
    check("tests", "check", &["\"edge unclear\" stroke-width=\"1.2\"", ">0.0 ± 1.0</text>", ", −50 tokens\n"]);
    check("code", "tests", &["\"edge unmeasured\" stroke-width=\"1.2\"", ": not measured\n"]);
    check("check", "sum", &["\"edge unmeasured\"", ": not measured</title>"]);
    assert!(!line(&svg, "code", "tests").contains("<text"));
    assert_eq!(svg.matches("class=\"edge chosen\"").count(), 2);
}

#[test]
fn the_answer_and_the_title_show_the_team() {
    let plan = plan(SEVEN);
    let by = |rule| Change::AnswerBy { rule };
    let effects = vec![
        effect(&plan, by(lemon_spec::AnswerRule::Judge), Some((0.03, 0.01)), Some(-900.0)),
        effect(&plan, by(lemon_spec::AnswerRule::Last), Some((-0.02, 0.01)), None),
        effect(&plan, Change::Review, None, None),
    ];
    let mut profile = profile(&plan, effects);
    let check = |profile: &Profile, expected: &[&str]| {
        let svg = picture(&plan, profile);
        assert_well_formed(&svg);
        expected.iter().for_each(|part| assert!(svg.contains(part), "{part} in {svg}"));
    };
    check(&profile, &["62.5 % right (95 % interval 52.1 % to 71.8 %) · 12,400 tokens a run · 240 runs", ">by a vote<"]);
    check(
        &profile,
        &[">by a judge instead<", ">−3.0 ± 1.0<", ">by the last instead<", ">+2.0 ± 1.0<", ">review this round<"],
    );
    check(&profile, &["plan: not measured, 4 % of tokens. algebra:", "Answer: 62.5 % right."]);
    assert!(!picture(&plan, &profile).contains("The budget ended"));
    profile.complete = false;
    profile.baseline.agents.insert("judge-1".into(), 1_240.0);
    check(&profile, &["The budget ended before everything was measured.", "Answer: 62.5 % right, 10 % of tokens."]);
    profile.baseline = Baseline { success: f64::NAN, tokens: 0.0, runs: 0, ..profile.baseline };
    check(&profile, &["plan: not measured. algebra:", "Answer: – right."]);
    profile.baseline.tokens = f64::NAN;
    check(&profile, &[">– right (95 % interval 52.1 % to 71.8 %) · – tokens a run · 0 runs<"]);
}

#[test]
fn hostile_texts_stay_texts() {
    let role = "</text><script>alert(1)</script> & \\\"quoted\\\" 'single' \\u202e";
    let text = format!("agents: [{{id: a, base: solver, capacity: small, role: \"{role}\"}}]");
    let plan = plan(&text);
    let mut effects = vec![effect(&plan, remove("a"), Some((0.1, 0.01)), None)];
    effects[0].advice = "<b>\0]]>".to_owned();
    let svg = picture(&plan, &profile(&plan, effects));
    assert_well_formed(&svg);
    assert!(!svg.contains("<script") && !svg.contains("<b>") && !svg.contains(['\0', '\u{202e}']));
    assert!(svg.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot; &#39;single&#39;"));
    assert!(!svg.replace("http://www.w3.org/2000/svg", "").contains("http"), "no resources from elsewhere");
}

/// Any number, also those that are none.
fn any_number() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![Just(None), (-1.0..1.0).prop_map(Some), (-1e5..1e5).prop_map(Some), any::<f64>().prop_map(Some)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_team_has_a_picture(
        seed: u64,
        numbers in prop::collection::vec([any_number(), any_number(), any_number()], 1..20),
    ) {
        let language = Language::default();
        let first = validate(&render(&spec(seed, &language)).text, &language).unwrap();
        let ids: Vec<String> = first.agents().iter().map(|agent| agent.id.clone()).collect();
        let second = validate_round(&render(&spec_after(seed, &language, &ids)).text, &language, &ids).unwrap();
        for plan in [first, second] {
            let mut profile = measured(&plan, seed);
            for (effect, [mean, end, tokens]) in profile.effects.iter_mut().zip(numbers.iter().cycle()) {
                (effect.effect, effect.tokens) = (*mean, *tokens);
                effect.interval = end.map(|end| [mean.unwrap_or(end), end]);
            }
            let svg = picture(&plan, &profile);
            assert_well_formed(&svg);
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf\"") && !svg.contains("inf "));
            prop_assert_eq!(&svg, &picture(&plan, &profile.clone()));
            for agent in plan.agents() {
                card(&svg, &agent.id);
                for parent in &agent.parents {
                    line(&svg, plan.id(*parent).unwrap(), &agent.id);
                }
            }
        }
    }
}
