//! One text, all its faults: every code of the language, with its place.

use lemon_spec::{
    AnswerRule, Code, Diagnostic, Field, Language, Limits, Next, Plan, Share, Span, explain, validate, validate_round,
};
use std::collections::BTreeSet;

/// Two sound agents, `solve` and `check`, to put faults next to.
const TEAM: &str = "\
agents:
  - {id: solve, base: solver, capacity: small}
  - {id: check, base: critic, capacity: large, after: [solve]}
";

/// Checks that a text has exactly the faults `codes`, each at a place marked with `«…»`, in order. Several codes for one
/// place are separated by spaces.
#[track_caller]
fn check_in(language: &Language, earlier: &[String], marked: &str, codes: &[&str]) {
    let (text, places) = unmark(marked);
    assert_eq!(places.len(), codes.len(), "one entry for each mark in {marked}");
    let expected: Vec<(&str, Span)> =
        codes.iter().zip(places).flat_map(|(codes, place)| codes.split(' ').map(move |code| (code, place))).collect();
    let diagnostics = match validate_round(&text, language, earlier) {
        Ok(plan) => plan.warnings().to_vec(),
        Err(rejection) => rejection.diagnostics,
    };
    let found: Vec<(&str, Span)> = diagnostics.iter().map(|it| (it.code.as_str(), it.span)).collect();
    assert_eq!(found, expected, "{}", explain(&diagnostics, &text, "team.yaml", false));
}

/// The text without its marks, and where they stood.
fn unmark(marked: &str) -> (String, Vec<Span>) {
    let mut text = String::new();
    let mut places = Vec::new();
    for character in marked.chars() {
        match character {
            '«' => places.push(Span { start: text.len(), end: text.len() }),
            '»' => places.last_mut().expect("« before »").end = text.len(),
            other => text.push(other),
        }
    }
    (text, places)
}

#[track_caller]
fn check(marked: &str, codes: &[&str]) {
    check_in(&Language::default(), &[], marked, codes);
}

/// One agent with the given fields.
#[track_caller]
fn check_agent(fields: &str, codes: &[&str]) {
    check(&format!("agents:\n  - {{{fields}}}\n"), codes);
}

/// The sound team plus one more agent.
#[track_caller]
fn check_third(fields: &str, codes: &[&str]) {
    check(&format!("{TEAM}  - {{{fields}, base: solver, capacity: small}}\n"), codes);
}

/// The sound team plus further top-level lines.
#[track_caller]
fn check_tail(tail: &str, codes: &[&str]) {
    check(&format!("{TEAM}{tail}\n"), codes);
}

#[track_caller]
fn plan(text: &str) -> Plan {
    validate(text, &Language::default()).unwrap_or_else(|rejection| panic!("{rejection}\n{text}"))
}

/// The only fault of a text.
#[track_caller]
fn only(text: &str) -> Diagnostic {
    let rejection = validate(text, &Language::default()).expect_err("a fault");
    assert_eq!(rejection.diagnostics.len(), 1, "{:#?}", rejection.diagnostics);
    rejection.diagnostics[0].clone()
}

#[track_caller]
fn check_hint(text: &str, message: &str, hint: &str) {
    let fault = only(text);
    assert_eq!((fault.message.as_str(), fault.hint.as_deref()), (message, Some(hint)));
}

#[test]
fn a_sound_team_has_no_faults() {
    check(TEAM, &[]);
    check_tail("answer: {from: [solve, check], by: judge}\nnext: review", &[]);
    check("{\"agents\":[{\"id\":\"a\",\"base\":\"solver\",\"capacity\":\"small\"}]}", &[]);
    check("\u{feff}agents: [{id: a, base: solver, capacity: small}]", &[]);
    check("# a comment\n---\nagents:\r\n- id: a\r\n  base: solver\r\n  capacity: small\r\n...\n", &[]);
}

#[test]
fn what_is_left_out_has_its_default() {
    let plan = plan(TEAM);
    let check = &plan.agents()[1];
    assert_eq!(check.role, check.base.title);
    assert_eq!(check.duty, check.base.duty);
    assert_eq!((check.level, check.capacity.as_str(), check.depth), (2, "large", 2));
    assert_eq!((check.share, &check.parents[..]), (Share::Reply, &[0][..]));
    assert_eq!(plan.answer_from(), [1]);
    assert_eq!((plan.answer_rule(), plan.next()), (AnswerRule::Last, Next::Stop));
    assert_eq!(plan.spans().get(Field::Role(0)), None);
    assert_eq!(plan.spans().get(Field::Next), None);
}

#[test]
fn several_sinks_vote_by_default() {
    let two = "agents: [{id: a, base: solver, capacity: small}, {id: b, base: solver, capacity: small}]\n";
    let sinks = plan(two);
    assert_eq!((sinks.spec().answer.from.join(" ").as_str(), sinks.answer_rule()), ("a b", AnswerRule::Vote));
    let named = plan(&format!("{two}answer: {{from: [b, a]}}"));
    assert_eq!((named.answer_from(), named.answer_rule()), (&[1, 0][..], AnswerRule::Vote));
    let one = plan(&format!("{two}answer: {{from: b}}"));
    assert_eq!((one.answer_from(), one.answer_rule()), (&[1][..], AnswerRule::Last));
    let rule = plan(&format!("{two}answer: {{by: judge}}"));
    assert_eq!((rule.answer_from(), rule.answer_rule()), (&[0, 1][..], AnswerRule::Judge));
    let nothing = plan(&format!("{two}answer: ~\nnext: ~"));
    assert_eq!((nothing.answer_from(), nothing.next()), (&[0, 1][..], Next::Stop));
}

#[test]
fn null_inherits_and_other_plain_words_are_text() {
    for null in ["~", "null", "Null", "NULL", ""] {
        let team =
            plan(&format!("agents:\n- id: a\n  base: solver\n  role: {null}\n  duty: {null}\n  capacity: small\n"));
        assert_eq!((&team.spec().agents[0].role, &team.spec().agents[0].duty), (&None, &None), "{null:?}");
    }
    let team = plan("agents: [{id: a, base: solver, role: true, duty: 12, capacity: small, after: ~, share: ~}]");
    assert_eq!(team.agents()[0].role, "true");
    assert_eq!(team.agents()[0].duty, "12");
    let quoted = plan("agents: [{id: a, base: solver, role: '~', duty: \"null\", capacity: small}]");
    assert_eq!((quoted.agents()[0].role.as_str(), quoted.agents()[0].duty.as_str()), ("~", "null"));
}

#[test]
fn spans_cover_the_text_of_their_field() {
    let text = "agents:   # the téam 🍋\n  -   id:   solve   # ünïcode\n      base: \"solver\"  \n      role: 'R: é 🍋'\n      \
                duty: >-  # folded | text\n        One\n        two.\n\n      capacity: small\n      after: [ ]\n      share:   answer\n  \
                - {id: b, base: critic, role: ~, duty: , capacity: small, after: solve}\nanswer:\n  from:\n    - solve\n    - b\n  by: vote\nnext: stop";
    let plan = plan(text);
    let shown = |field| plan.spans().get(field).map(|span| span.of(text));
    assert_eq!(shown(Field::Id(0)), Some("solve"));
    assert_eq!(shown(Field::Base(0)), Some("\"solver\""));
    assert_eq!(shown(Field::Role(0)), Some("'R: é 🍋'"));
    assert_eq!(shown(Field::Duty(0)), Some(">-  # folded | text\n        One\n        two."));
    assert_eq!(shown(Field::Capacity(0)), Some("small"));
    assert_eq!(shown(Field::After(0)), Some("[ ]"));
    assert_eq!(shown(Field::Share(0)), Some("answer"));
    assert_eq!(shown(Field::Role(1)), Some("~"));
    assert_eq!(shown(Field::Duty(1)), Some(""));
    assert_eq!(shown(Field::After(1)), Some("solve"));
    assert_eq!(shown(Field::Agent(1)), Some("id: b, base: critic, role: ~, duty: , capacity: small, after: solve"));
    assert_eq!(shown(Field::AnswerFrom), Some("- solve\n    - b"));
    assert_eq!(shown(Field::AnswerBy), Some("vote"));
    assert_eq!(shown(Field::Next), Some("stop"));
    let entry = shown(Field::Agent(0)).unwrap();
    assert!(entry.starts_with("id:   solve") && entry.ends_with("share:   answer"), "{entry}");
    assert_eq!(plan.spans().agents[1].parents[0].of(text), "solve");
    assert!(text[plan.spans().get(Field::Duty(1)).unwrap().start..].starts_with(" , capacity"));
}

#[test]
fn shapes() {
    check("«»", &["empty_team"]);
    check("«»# nothing\n", &["empty_team"]);
    check("«»~", &["empty_team"]);
    check("«agents»: []", &["empty_team"]);
    check("«»next: stop", &["empty_team"]);
    check("«- a\n- b»", &["wrong_type"]);
    check("«Here is the team you asked for.»", &["wrong_type"]);
    check("agents: «solver»", &["wrong_type"]);
    check("agents:\n  «solve: {base: solver}»", &["wrong_type"]);
    check("agents:\n  - «solve»\n  - «[a]»\n  -«»", &["wrong_type"; 3]);
    check_agent("id: «[a]», base: solver, capacity: small", &["wrong_type"]);
    check_agent("id: a, base: «{}», capacity: small, role: «[x]», duty: «{}»", &["wrong_type"; 3]);
    check_agent("id: a, base: solver, capacity: small, after: «{b: c}», share: «[]»", &["wrong_type"; 2]);
    check_third("id: c, after: [«[solve]», «~»]", &["wrong_type"; 2]);
    check_tail("answer: «check»", &["wrong_type"]);
    check_tail("answer: {from: «{a: b}», by: «[vote]»}\nnext: «{}»", &["wrong_type"; 3]);
}

#[test]
fn keys() {
    check_agent("id: a, base: solver, capacity: small, «rol»: x", &["unknown_key"]);
    check_agent("id: a, base: solver, capacity: small, «capacity»: large", &["duplicate_key"]);
    check_tail("«agent»: []\nanswer: {«form»: check}", &["unknown_key", "unknown_key"]);
    check_tail("next: stop\n«next»: stop", &["duplicate_key"]);
    check_agent("«base»: solver", &["missing_field missing_field"]);
    check_agent("id:«» , base: «~», capacity: «null»", &["missing_field"; 3]);
    check("agents: [«{}»]", &["missing_field missing_field missing_field"]);
    check("? «{a: b}»\n: c\nagents: [{id: a, base: solver, capacity: small}]", &["complex_key"]);
    check("«[a]»: b\nagents: [{id: a, base: solver, capacity: small}]", &["complex_key"]);
}

#[test]
fn ids() {
    for malformed in ["5", "my agent", "é", "-a", "_a", "a.b", "''", "a\u{200b}"] {
        check_agent(&format!("id: «{malformed}», base: solver, capacity: small"), &["malformed_id"]);
    }
    for reserved in ["orchestrator", "task", "system", "user", "assistant"] {
        check_agent(&format!("id: «{reserved}», base: solver, capacity: small"), &["reserved_id"]);
    }
    let long = "x".repeat(49);
    check_agent(&format!("id: «{long}», base: solver, capacity: small"), &["id_too_long"]);
    check_agent(&format!("id: {}, base: solver, capacity: small", &long[1..]), &[]);
    check_third("id: «solve»", &["duplicate_id"]);
    check_third("id: «7», after: [check]", &["malformed_id"]);
}

#[test]
fn words() {
    check_agent("id: a, base: «solvr», capacity: «tiny»", &["unknown_base", "unknown_capacity"]);
    check_agent("id: a, base: solver, capacity: «Small»", &["unknown_capacity"]);
    check_agent("id: a, base: solver, capacity: small, share: «all»", &["unknown_share"]);
    check_tail("answer: {by: «majority»}\nnext: «end»", &["unknown_rule", "unknown_next"]);
    let (role, duty) = ("r".repeat(121), "d".repeat(2001));
    let agent = |role: &str, duty: &str| format!("id: a, base: solver, capacity: small, role: {role}, duty: {duty}");
    check_agent(&agent(&format!("«{role}»"), &format!("«{duty}»")), &["role_too_long", "duty_too_long"]);
    check_agent(&agent(&role[1..], &duty[1..]), &[]);
    check_agent(&agent(r#"«"\x1b[31m"»"#, r#"«"a\0b"»"#), &["control_character"; 2]);
    check_agent(&agent(r#""\t""#, r#""a\nb\u2028""#), &[]);
}

#[test]
fn references() {
    check_third("id: c, after: [solve, check]", &[]);
    check_third("id: c, after: [«solv»]", &["missing_reference"]);
    check_third("id: c, after: [solve, check, «solve»]", &["duplicate_reference"]);
    check_third("id: c, after: «c»", &["cycle"]);
    check_tail("answer: {from: [check, «check»]}", &["duplicate_reference"]);
    check_tail("answer: {from: «[]»}", &["empty_answer"]);
    check_tail("answer: {from: [«chek»]}", &["missing_reference"]);
    check(&format!("{}answer: {{from: [solve]}}", TEAM.replace("check", "«check»")), &["unread_agent"]);
}

/// Agents `a`, `b`, … of the given lists of parents.
fn graph(parents: &[&str]) -> String {
    let agent = |(after, id)| format!("  - {{id: {id}, base: solver, capacity: small, after: [{after}]}}\n");
    format!("agents:\n{}", parents.iter().zip('a'..).map(agent).collect::<String>())
}

#[test]
fn order_and_cycles() {
    check(&graph(&["«b»", ""]), &["later_reference"]);
    check(&graph(&["«a»"]), &["cycle"]);
    check(&graph(&["«b»", "a"]), &["cycle"]);
    check(&graph(&["«b»", "c", "a"]), &["cycle"]);
    check(&graph(&["«b»", "«c»", "d", "b"]), &["later_reference", "cycle"]);
    check(&graph(&["«b», «c»", "a", "a"]), &["cycle", "cycle"]);
    check(&graph(&["«a», «b»", "«b»"]), &["cycle", "later_reference", "cycle"]);
    let fault = only(&graph(&["b", "c", "a"]));
    assert_eq!(fault.message, "agents wait for each other: `a` → `b` → `c` → `a`");
    assert_eq!(only(&graph(&["a"])).message, "`a` reads itself: `a` → `a`");
}

#[test]
fn tools() {
    let mut language = Language { tools: ["python", "docs.search"].map(String::from).to_vec(), ..Language::default() };
    let team = |tools: &str| format!("agents:\n  - {{id: a, base: solver, capacity: small, tools: {tools}}}\n");
    let check = |tools: &str, codes: &[&str]| check_in(&language, &[], &team(tools), codes);
    check("[python, docs.search]", &[]);
    check("python", &[]);
    check("[]", &[]);
    check("~", &[]);
    check("[«pyton»]", &["unknown_tool"]);
    check("[python, «python»]", &["duplicate_tool"]);
    check("[«a», «a»]", &["unknown_tool", "duplicate_tool"]);
    check("[«docs»]", &["unknown_tool"]);
    check("«{python: 1}»", &["wrong_type"]);
    check("[«[python]»]", &["wrong_type"]);
    let plan = validate(&team("[docs.search, python]"), &language).unwrap();
    assert_eq!(plan.agents()[0].tools, ["docs.search", "python"]);
    assert_eq!(plan.spans().get(Field::Tools(0)).unwrap().of(plan.source()), "[docs.search, python]");
    let hint = |language: &Language, tools: &str| {
        validate(&team(tools), language).unwrap_err().diagnostics[0].hint.clone().unwrap()
    };
    assert_eq!(hint(&language, "[pyton]"), "did you mean `python`?");
    assert_eq!(hint(&language, "[hammer]"), "known here: `python`, `docs.search`");
    assert_eq!(
        hint(&Language::default(), "[python]"),
        "no tool is configured: add `[tools.python]` to lemon.toml, say"
    );
    assert!(!plan.is_for(&Language::default(), &[]), "its tools are not there");
    language.limits.tools = 1;
    check_in(&language, &[], &team("[python, «docs.search»]"), &["too_many_tools"]);
}

#[test]
fn limits() {
    let limits = Limits { agents: 3, depth: 2, parents: 2, bytes: 250, ..Limits::default() };
    let language = Language { limits, ..Language::default() };
    let check = |marked: &str, codes: &[&str]| check_in(&language, &[], marked, codes);
    check(&graph(&["", "", "a, b"]), &[]);
    check(&graph(&["", "a", "b"]).replace("[b]", "«[b]»"), &["too_deep"]);
    check(&graph(&["", "", ""]).replace("agents", "«agents»"), &["too_many_parents"]);
    let agent = "base: solver, capacity: small";
    let team = format!(
        "[{{id: a, {agent}}}, {{id: b, {agent}}}, {{id: c, {agent}, after: [a, b, «d»]}}, {{id: «d», {agent}}}]"
    );
    check(&format!("agents: {team}"), &["too_many_parents later_reference", "too_many_agents"]);
    check(&format!("«»{}", "x".repeat(251)), &["text_too_long"]);
    check(&format!("«{}»", "x".repeat(250)), &["wrong_type"]);
}

#[test]
fn what_yaml_has_and_the_language_has_not() {
    check("agents: «&x [»{id: «&y a», base: solver, capacity: small}]", &["anchor"; 2]);
    check(
        "agents: [{id: a, base: solver, capacity: «&b small»}, {id: c, base: solver, capacity: «*b»}]",
        &["anchor"; 2],
    );
    check("agents: [{id: «*»a, base: solver, capacity: small}]", &["anchor"]);
    check("agents: [{id: «!!str a», base: «!x solver», capacity: small}]", &["tag"; 2]);
    check("agents: [{id: «!»u!x a, base: solver, capacity: small}]", &["tag"]);
    check(&format!("{TEAM}«---»\nmore: text"), &["second_document"]);
    check("«x»: [[[[[[[«[»[[]]]]]]]]]]", &["unknown_key", "nested_too_deep"]);
    check(&format!("agents: {}«[»{}", "[".repeat(255), "[".repeat(100_000)), &["nested_too_deep"]);
    let wide = format!("agents: [{}]", "a, ".repeat(6_000));
    let faults = validate(&wide, &Language::default()).unwrap_err().diagnostics;
    assert_eq!(faults.last().map(|fault| fault.code), Some(Code::TooManyValues));
    assert!(faults.len() < 5_600, "{}", faults.len());
}

/// Nothing is said of what the cut may have taken away.
#[test]
fn after_a_syntax_error_the_part_before_it_is_still_judged() {
    check("agents:\n  - id: a\n    base: «solvr»\n    duty: «\"»open\n    capacity: x\n", &["unknown_base", "syntax"]);
    check("agents:\n  - {id: a, base: solver, after: [zz], capacity: small}\n  - «{»id: b", &["syntax"]);
    check("agents:\n  - id: a\n   «b»ase: solver\n    capacity: small\n", &["syntax"]);
    check("agents:\n  - id: a\n    capacity: small\n     role«:» x\n    base: solver\n", &["syntax"]);
    check("agents:\n  - id: «5»\n    duty: a«:» b\n", &["malformed_id", "syntax"]);
    check("agents:\n\t«-» id: a\n", &["syntax"]);
    check("agents: [«}»", &["syntax"]);
    check("«\"»", &["syntax"]);
    check("agents: «@»x", &["syntax"]);
}

#[test]
fn hints_say_what_to_do() {
    let agent = |fields: &str| format!("agents: [{{{fields}}}]");
    check_hint(&agent("id: a, base: critc, capacity: small"), "unknown base role `critc`", "did you mean `critic`?");
    check_hint(
        &agent("id: a, base: solver, capacity: xxl"),
        "unknown capacity `xxl`",
        "known here: `small`, `medium`, `large`",
    );
    check_hint(&agent("id: a, base: solver, capacity: small, ater: []"), "unknown key `ater`", "did you mean `after`?");
    check_hint(
        &agent("id: my agent, base: solver, capacity: small"),
        "`my agent` is not an id: a letter, then letters, digits, `_` or `-`",
        "for example `my_agent`",
    );
    check_hint(
        &agent("id: task, base: solver, capacity: small"),
        "the id `task` has a meaning of its own",
        "for example `agent-task`",
    );
    check_hint(&graph(&["", "a", ""]).replace("id: c", "id: a"), "the id `a` is given twice", "the first is in line 2");
    check_hint(&graph(&["b", ""]), "`a` reads `b`, which comes later", "move `b` before `a`");
    check_hint(&graph(&["task"]), "there is no agent `task`", "every agent sees the task; leave it out");
    check_hint(&graph(&["", "x"]), "there is no agent `x`", "known here: `a`");
    check_hint(&agent("id: a, base: solver"), "agent `a` has no `capacity`", "one of `small`, `medium`, `large`");
    let control = only(&agent("id: \"a\\e[2J\", base: solver, capacity: small"));
    assert!(control.message.starts_with("`a\\u{1b}[2J` is not an id"), "{}", control.message);
}

#[test]
fn later_rounds() {
    let language = Language::default();
    let earlier = ["solve".to_owned(), "check".to_owned()];
    let check = |marked: &str, codes: &[&str]| check_in(&language, &earlier, marked, codes);
    let agent = "agents: [{id: c, base: solver, capacity: small, after: [check]}]";
    let plan = validate_round(agent, &language, &earlier).unwrap();
    assert_eq!((plan.agents()[0].parents.as_slice(), plan.agents()[0].depth), (&[1][..], 1));
    assert_eq!((plan.answer_from(), plan.earlier(), plan.earlier_ids()), (&[2][..], 2, &earlier[..]));
    assert_eq!([plan.id(0), plan.id(2), plan.id(3)], [Some("solve"), Some("c"), None]);

    for text in ["answer: {from: [solve]}", "agents: []\nanswer: {from: solve}", "agents:\nanswer: {from: solve}"] {
        let plan = validate_round(text, &language, &earlier).unwrap();
        assert_eq!(plan.answer_from(), [0]);
    }
    check("«agents»: []", &["empty_team"]);
    check("answer: {from: «[]»}", &["empty_answer"]);
    check(&agent.replace("id: c", "id: «solve»"), &["earlier_id"]);
    check(&agent.replace("[check]", "[«chekc»]"), &["missing_reference"]);
}

#[test]
fn lines_and_columns_count_from_one_in_characters() {
    let fault = only("agents:\r\n  - {role: é🍋, id: 5, base: solver, capacity: small}");
    assert_eq!((fault.line, fault.column), (2, 20));
}

#[test]
fn every_code_is_named_once_and_serialised_by_its_name() {
    let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(names.len(), Code::ALL.len());
    for code in Code::ALL {
        let written = serde_json::to_string(code).unwrap();
        assert_eq!(written, format!("\"{code}\""));
        assert_eq!(serde_json::from_str::<Code>(&written).unwrap(), *code);
    }
}

#[test]
fn a_plan_is_for_the_language_and_the_agents_it_was_checked_with() {
    let (language, earlier) = (Language::default(), ["first".to_owned()]);
    let text = "agents: [{id: a, base: solver, capacity: small, after: [first]}]";
    let plan = validate_round(text, &language, &earlier).unwrap();
    assert!(plan.is_for(&language, &earlier));
    assert!(!plan.is_for(&language, &[]), "it reads an agent that is not there");
    let reversed = language.capacities.iter().rev().cloned().collect();
    assert!(!plan.is_for(&Language { capacities: reversed, ..language.clone() }, &earlier), "another model serves it");
    assert!(!plan.is_for(&Language { roles: language.roles.without("solver"), ..language.clone() }, &earlier));
    let limits = Limits { agents: 0, ..language.limits.clone() };
    assert!(!plan.is_for(&Language { limits, ..language }, &earlier), "it would be too large");
}
