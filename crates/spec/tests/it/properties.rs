//! What always holds, over thousands of random specifications.

use lemon_num::Random;
use lemon_spec::edit::{Change, Edit, Family, apply, edits, prefix_truncations};
use lemon_spec::generate;
use lemon_spec::{Field, Language, Limits, Plan, Spans, Spec, json_schema, render, validate_round};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SPECS: u64 = 3_000;

/// A specification, the round before it and the language it is valid in: every third time a tight one.
fn case(seed: u64) -> (Spec, Vec<String>, Language) {
    let tight =
        Limits { agents: 7, depth: 3, parents: 3, tools: 2, id_chars: 9, role_chars: 20, duty_chars: 30, bytes: 8_192 };
    let limits = if seed.is_multiple_of(3) { tight } else { Limits::default() };
    let tools = if seed.is_multiple_of(2) { tools() } else { Vec::new() };
    let language = Language { limits, tools, ..Language::default() };
    let rounds = ["first", "second", "third"].map(String::from);
    let earlier = rounds[..Random::new(!seed).below(4)].to_vec();
    (generate::spec_after(seed, &language, &earlier), earlier, language)
}

/// Names of tools, some with characters that a list gives a meaning to.
fn tools() -> Vec<String> {
    ["python", "calculator", "docs.search", "7.a, b", "s.[x]", "s.{y}: \"z\"", "null", "s.#", "s.é"]
        .map(String::from)
        .to_vec()
}

#[track_caller]
fn valid(text: &str, language: &Language, earlier: &[String]) -> Plan {
    validate_round(text, language, earlier).unwrap_or_else(|rejection| panic!("{rejection}\n{text}"))
}

fn fields(spec: &Spec) -> Vec<Field> {
    let of_agent =
        [Field::Agent, Field::Id, Field::Base, Field::Role, Field::Duty, Field::Capacity, Field::After, Field::Share];
    let agents = (0..spec.agents.len()).flat_map(|agent| of_agent.map(|field| field(agent)));
    let tools = (0..spec.agents.len()).filter(|at| !spec.agents[*at].tools.is_empty()).map(Field::Tools);
    agents.chain(tools).chain([Field::AnswerFrom, Field::AnswerBy, Field::Next]).collect()
}

#[test]
fn reading_a_rendered_specification_gives_it_back_with_its_spans() {
    for seed in 0..SPECS {
        let (spec, earlier, language) = case(seed);
        let rendered = render(&spec);
        let plan = valid(&rendered.text, &language, &earlier);
        assert_eq!(plan.spec(), &spec, "seed {seed}\n{}", rendered.text);
        assert_eq!(plan.spans(), &rendered.spans, "seed {seed}\n{}", rendered.text);
        for field in fields(&spec) {
            let span = rendered.spans.get(field).unwrap_or_else(|| panic!("{field:?} has no span"));
            assert!(!span.is_empty() && span.end <= rendered.text.len(), "{field:?} {span:?}");
        }
    }
}

#[test]
fn json_of_a_specification_is_a_specification() {
    for seed in 0..SPECS {
        let (spec, earlier, language) = case(seed);
        for json in [serde_json::to_string(&spec).unwrap(), serde_json::to_string_pretty(&spec).unwrap()] {
            assert_eq!(valid(&json, &language, &earlier).spec(), &spec, "seed {seed}\n{json}");
            assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
        }
    }
}

#[test]
fn the_schema_takes_valid_specifications_and_no_broken_ones() {
    let language = Language { tools: tools(), ..Language::default() };
    let schema = json_schema(&language);
    let validator = jsonschema::validator_for(&schema).unwrap();
    for seed in 0..500 {
        let spec = generate::spec(seed, &language);
        let mut json = serde_json::to_value(&spec).unwrap();
        for (agent, written) in spec.agents.iter().zip(json["agents"].as_array_mut().unwrap()) {
            // Endpoints write every field.
            written["tools"] = serde_json::json!(agent.tools);
        }
        assert!(validator.is_valid(&json), "{json}");

        let broken = |pointer: &str, value: serde_json::Value| {
            let mut json = json.clone();
            *json.pointer_mut(pointer).unwrap() = value;
            assert!(!validator.is_valid(&json), "{pointer} in {json}");
        };
        broken("/agents/0/id", "5".into());
        broken("/agents/0/id", "x".repeat(99).into());
        broken("/agents/0/base", "absent".into());
        broken("/agents/0/role", 5.into());
        broken("/agents/0/duty", "d".repeat(2_001).into());
        broken("/agents/0/capacity", "huge".into());
        broken("/agents/0/after", vec!["a"; 17].into());
        broken("/agents/0/share", "all".into());
        broken("/agents/0/tools", vec!["hammer"].into());
        broken("/agents/0/tools", vec!["python"; 9].into());
        broken("/agents/0", serde_json::json!({"id": "a", "base": "solver", "capacity": "small"}));
        broken("/answer/by", "coin".into());
        broken("/answer", serde_json::json!({"from": ["a"], "by": "last", "extra": null}));
        broken("/next", "end".into());
    }
}

#[test]
fn every_enumerated_edit_applies_and_keeps_the_team_valid() {
    let mut families = BTreeSet::new();
    for seed in 0..SPECS / 3 {
        let (spec, earlier, language) = case(seed);
        // The original is read from JSON, so that its own spans differ from the canonical ones.
        let plan = valid(&serde_json::to_string(&spec).unwrap(), &language, &earlier);
        let original = render(&spec);
        let all = edits(&plan, &language);
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len(), "each edit once");
        // Of the thousands of edits of a large team, a part that begins elsewhere each time.
        let step = all.len() / 50 + 1;
        for edit in all.into_iter().skip(seed as usize % step).step_by(step) {
            families.insert((edit.family, edit.forward));
            assert_eq!(serde_json::from_str::<Edit>(&serde_json::to_string(&edit).unwrap()).unwrap(), edit);
            let edited = apply(&plan, &edit, &language).unwrap_or_else(|error| panic!("{error}\n{}", original.text));
            let text = edited.plan.source();
            let changed = edited.plan.spec() != &spec;
            assert_eq!(changed, edit.family != Family::Message, "{}\n{text}", edit.describe());
            assert_eq!(edited.withhold.is_some(), edit.family == Family::Message);

            let start = edited.before_canonical.start.min(edited.after.start);
            assert_eq!(&original.text[..start], &text[..start], "{}", edit.describe());
            let before = edited.before_canonical;
            assert_eq!((!before.is_empty()).then_some(before), original.spans.get(edited.field));
            assert_eq!(edited.before, plan.spans().get(edited.field));
            let untouched = &original.text[edited.before_canonical.end..];
            match edited.field {
                Field::Agent(_) => assert!(edited.after.is_empty()),
                field => {
                    // A list of tools that is left out is an empty place.
                    let there = edited.plan.spans().get(field);
                    assert_eq!(there, (!edited.after.is_empty()).then_some(edited.after));
                    assert!(there.is_some() || matches!(field, Field::Tools(_)));
                    assert_eq!(&text[edited.after.end..], untouched, "{}", edit.describe());
                }
            }
            check_also_changed(&plan, &edited.plan, edited.field, &edited.also_changed);
            if let Some(inverse) = edit.inverse(&plan) {
                let back = apply(&edited.plan, &inverse, &language).expect("the inverse applies");
                assert_eq!(back.plan.spec(), &spec, "{}", edit.describe());
                assert_eq!(back.plan.source(), original.text);
                assert_eq!((back.after, back.before_canonical), (edited.before_canonical, edited.after));
            }
        }
    }
    // Of the ten families, six have a reverse: all of them were met.
    assert_eq!(families.len(), 16, "{families:?}");
}

/// The lists that changed with the removal of an agent are exactly those reported.
fn check_also_changed(plan: &Plan, edited: &Plan, field: Field, also_changed: &[Field]) {
    let Field::Agent(removed) = field else {
        return assert_eq!(also_changed, []);
    };
    let mut remaining = plan.spec().agents.clone();
    remaining.remove(removed);
    let lists = remaining.iter().zip(&edited.spec().agents).enumerate();
    let mut changed: Vec<Field> =
        lists.filter(|(_, (before, now))| before.after != now.after).map(|(at, _)| Field::After(at)).collect();
    if plan.spec().answer.from != edited.spec().answer.from {
        changed.push(Field::AnswerFrom);
    }
    assert_eq!(also_changed, changed);
}

/// A team that ends earlier is valid, is the beginning of the whole team, byte for byte, and every agent in it is read.
#[test]
fn prefix_truncations_are_beginnings() {
    let language = Language::default();
    let mut longest = 0;
    for seed in 0..1_000 {
        let plan = valid(&render(&generate::spec(seed, &language)).text, &language, &[]);
        let original = render(plan.spec());
        let prefixes = prefix_truncations(&plan, &language);
        assert!(prefixes.len() < plan.agents().len());
        longest = longest.max(prefixes.len());
        for edit in &prefixes {
            let edited = apply(&plan, edit, &language).expect("a prefix truncation applies");
            let kept = edited.plan.spec().agents.len();
            assert_eq!(edited.field, Field::Agent(kept));
            assert_eq!(edited.plan.spec().agents, plan.spec().agents[..kept]);
            assert_eq!(edited.plan.source()[..edited.after.start], original.text[..edited.after.start]);
            assert!(edited.after.is_empty() && edited.plan.source()[edited.after.end..].starts_with("answer:"));
            let spec = edited.plan.spec();
            for agent in &spec.agents {
                let is_read = spec.agents.iter().any(|reader| reader.after.contains(&agent.id));
                assert_ne!(is_read, spec.answer.from.contains(&agent.id), "{}", edit.describe());
            }
            assert_eq!(edited.also_changed.is_empty(), spec.answer.from == plan.spec().answer.from);
            assert_eq!((edit.family, edit.forward, edit.inverse(&plan)), (Family::Agent, true, None));
        }
    }
    assert!(longest > 5);
    let plan = valid(&render(&generate::spec(1, &language)).text, &language, &[]);
    for agent in [plan.agents()[0].id.clone(), "absent".into()] {
        assert!(apply(&plan, &Edit::new(Change::PrefixTruncation { agent }, &plan), &language).is_err());
    }
}

/// In a later round the agents of earlier rounds keep their part in the answer, so that the round may have no agents.
#[test]
fn a_later_round_may_end_before_its_first_agent() {
    let language = Language::default();
    let entry = |id: &str| {
        let rest = "role: ~\n    duty: ~\n    capacity: large\n    after: []\n    share: reply";
        format!("  - id: {id}\n    base: solver\n    {rest}\n")
    };
    let earlier = ["a1", "a2"].map(str::to_owned);
    let round = |from: &str| {
        let text = format!("agents:\n{}{}answer: {{from: [{from}], by: vote}}\nnext: stop\n", entry("a3"), entry("a4"));
        valid(&text, &language, &earlier)
    };
    let ended = |from: &str| -> Vec<String> {
        let plan = round(from);
        let apply = |edit: &Edit| apply(&plan, edit, &language).expect("a prefix truncation applies");
        let edited: Vec<_> = prefix_truncations(&plan, &language).iter().map(apply).collect();
        for edited in &edited {
            assert!(edited.after.is_empty());
            assert_eq!(edited.plan.source()[..edited.after.start], plan.source()[..edited.after.start]);
        }
        edited.into_iter().map(|edited| edited.plan.source().to_owned()).collect()
    };
    let none = "agents: []\nanswer: {from: [a1, a2], by: vote}\nnext: stop\n";
    let one = format!("agents:\n{}answer: {{from: [a1, a2, a3], by: vote}}\nnext: stop\n", entry("a3"));
    assert_eq!(ended("a1, a2, a3, a4"), [none.to_owned(), one]);
    // Where the answer is of this round alone, the round must keep an agent.
    let one = format!("agents:\n{}answer: {{from: [a3], by: vote}}\nnext: stop\n", entry("a3"));
    assert_eq!(ended("a3, a4"), [one]);
}

#[test]
fn edits_of_one_team_do_not_break_another() {
    let language = Language { tools: tools(), ..Language::default() };
    let mut applied = 0;
    for seed in 0..300 {
        let (donor, other) = (generate::spec(seed, &language), generate::spec(seed + 1_000, &language));
        let donor = valid(&render(&donor).text, &language, &[]);
        let other = valid(&render(&other).text, &language, &[]);
        for edit in edits(&donor, &language) {
            applied += usize::from(apply(&other, &edit, &language).is_ok());
        }
        for change in [
            Change::RemoveAgent { agent: "absent".into() },
            Change::AddReference { agent: other.agents()[0].id.clone(), parent: "absent".into(), at: usize::MAX },
            Change::AddReference { agent: other.agents()[0].id.clone(), parent: "absent".into(), at: 0 },
            Change::AddReference { agent: other.agents()[0].id.clone(), parent: other.agents()[0].id.clone(), at: 0 },
            Change::WithholdMessage { from: "absent".into(), to: other.agents()[0].id.clone() },
            Change::AnswerBy { rule: other.answer_rule() },
            Change::RemoveTool { agent: other.agents()[0].id.clone(), tool: "absent".into() },
            Change::AddTool { agent: other.agents()[0].id.clone(), tool: "python".into(), at: usize::MAX },
            Change::AddTool { agent: other.agents()[0].id.clone(), tool: "absent".into(), at: 0 },
        ] {
            let edit = Edit::new(change, &other);
            assert!(apply(&other, &edit, &language).is_err(), "{}", edit.describe());
        }
    }
    assert!(applied > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any text without control characters can be a role and a duty.
    #[test]
    fn any_prose_survives_rendering(role in "[^\\p{Cc}]{0,60}", duty in "([^\\p{Cc}]|\n|\t){0,60}") {
        let language = Language::default();
        let mut spec = generate::spec(7, &language);
        spec.agents[0].role = Some(role);
        spec.agents[0].duty = Some(duty);
        let rendered = render(&spec);
        prop_assert_eq!(rendered.text.lines().count(), 7 * spec.agents.len() + 3);
        let plan = valid(&rendered.text, &language, &[]);
        prop_assert_eq!(plan.spec(), &spec);
        prop_assert_eq!(plan.spans(), &rendered.spans);
    }

    /// Whatever the text: faults are in order, within the text, and their lines and columns agree with their spans.
    #[test]
    fn faults_have_true_places(text in "(agents|answer|next|id|base|é|: |[-\\[\\]{},\"'|>&*!?#~ \n\t]|solver|\r\n){0,40}") {
        let language = Language::default();
        let Err(rejection) = validate_round(&text, &language, &[]) else { return Ok(()) };
        prop_assert!(!rejection.diagnostics.is_empty());
        prop_assert!(rejection.diagnostics.is_sorted_by_key(|fault| fault.span.start));
        for fault in &rejection.diagnostics {
            prop_assert!(fault.span.start <= fault.span.end && fault.span.end <= text.len());
            let before = &text[..fault.span.start];
            prop_assert_eq!(fault.line, before.matches('\n').count() + 1);
            prop_assert_eq!(fault.column, before.rsplit('\n').next().unwrap().chars().count() + 1);
            prop_assert!(text.is_char_boundary(fault.span.end));
            let explained = lemon_spec::explain(std::slice::from_ref(fault), &text, "team.yaml", false);
            let place = format!("team.yaml:{}:{}\n", fault.line, fault.column);
            prop_assert!(explained.contains(&place), "{} in {}", place, explained);
        }
    }
}

#[test]
fn spans_are_serialised_and_read_back() {
    let spans = render(&generate::spec(11, &Language::default())).spans;
    let json = serde_json::to_string(&spans).unwrap();
    assert_eq!(serde_json::from_str::<Spans>(&json).unwrap(), spans);
}
