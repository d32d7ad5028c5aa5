use super::*;
use lemon_spec::{AnswerRule, Plan, validate, validate_round};

fn plan(method: &str, capacity: Option<&str>, seed: u64) -> Plan {
    let language = Language::default();
    let Language { capacities, efforts, .. } = &language;
    let ask = Ask { capacities, efforts, capacity, code: false, seed };
    let text = method.parse::<Method>().unwrap().spec(&ask).unwrap();
    validate(&text, &language).unwrap_or_else(|rejection| panic!("{method}: {rejection:?}\n{text}"))
}

fn check(method: &str, agents: usize, edges: usize, rule: AnswerRule) {
    let plan = plan(method, Some("small"), 1);
    assert_eq!(plan.agents().len(), agents, "{method}");
    assert_eq!(plan.agents().iter().map(|agent| agent.parents.len()).sum::<usize>(), edges, "{method}");
    assert_eq!(plan.answer_rule(), rule, "{method}");
    assert!(plan.agents().iter().all(|agent| agent.capacity == "small"), "{method}");
}

#[test]
fn methods_write_the_graphs_they_are_named_after() {
    check("vanilla", 1, 0, AnswerRule::Last);
    check("cot", 1, 0, AnswerRule::Last);
    check("sc-cot", 5, 0, AnswerRule::Vote);
    check("sc-cot:10", 10, 0, AnswerRule::Vote);
    check("chain", 4, 3, AnswerRule::Last);
    check("star:5", 5, 4, AnswerRule::Last);
    check("star:1", 1, 0, AnswerRule::Last);
    check("tree", 7, 6, AnswerRule::Last);
    check("tree:5", 11, 10, AnswerRule::Last);
    check("complete", 4, 6, AnswerRule::Last);
    check("plain", 1, 0, AnswerRule::Last);
    check("brief", 1, 0, AnswerRule::Last);
    check("critic", 2, 1, AnswerRule::Last);
    check("judge", 3, 0, AnswerRule::Judge);
    check("debate", 6, 9, AnswerRule::Vote);
    check("debate:3", 9, 18, AnswerRule::Vote);
}

/// A model with three efforts, and a weaker one.
fn with_efforts() -> Language {
    let names = ["tiny", "qwen-brief", "qwen-program", "qwen-reasoned"].map(String::from).to_vec();
    let efforts = [None, Some(Style::Brief), Some(Style::Program), Some(Style::Reasoned)];
    let efforts = efforts.map(|style| Effort { style, price: None }).to_vec();
    Language { capacities: names, efforts, tests: true, ..Language::default() }
}

fn written(method: &str, code: bool, language: &Language) -> (Plan, Option<Plan>) {
    let Language { capacities, efforts, .. } = language;
    let ask = Ask { capacities, efforts, capacity: None, code, seed: 1 };
    let method = method.parse::<Method>().unwrap();
    let first = validate(&method.spec(&ask).unwrap(), language).unwrap();
    let ids: Vec<String> = first.agents().iter().map(|agent| agent.id.clone()).collect();
    let second = method.second_spec(&ask).map(|text| validate_round(&text, language, &ids).unwrap());
    (first, second)
}

#[test]
fn methods_choose_the_effort_they_are_named_after() {
    let language = with_efforts();
    let capacities = |plan: &Plan| plan.agents().iter().map(|agent| agent.capacity.clone()).collect::<Vec<_>>();
    let check = |method: &str, expected: &[&str]| {
        assert_eq!(capacities(&written(method, false, &language).0), expected, "{method}");
    };
    check("brief", &["qwen-brief"]);
    check("program", &["qwen-program"]);
    check("cot", &["tiny"]);
    check("mixed:1", &["qwen-program", "qwen-reasoned", "tiny"]);
    check("agree", &["qwen-program", "qwen-reasoned"]);
    let (first, second) = written("agree", false, &language);
    let second = second.unwrap();
    assert_eq!((first.next(), second.next()), (Next::Review, Next::Stop));
    assert_eq!((second.agents().len(), second.answer_from().len()), (5, 7));
}

#[test]
fn programs_are_compared_by_tests_and_not_by_votes() {
    let language = with_efforts();
    for method in ["sc-cot", "mixed", "agree", "debate"] {
        let (first, second) = written(method, true, &language);
        assert_eq!((first.answer_rule(), first.next()), (AnswerRule::Test, Next::Stop), "{method}");
        assert!(second.is_none(), "{method}");
        assert!(first.agents().iter().all(|agent| agent.base.name == "programmer"), "{method}");
    }
}

#[test]
fn a_method_says_which_style_it_needs() {
    let program: Method = "program".parse().unwrap();
    assert_eq!(program.check(&with_efforts().efforts), Ok(()));
    let error = program.check(&[]).unwrap_err().to_string();
    assert!(error.starts_with("`program` needs a capacity with `style = \"program\"`"), "{error}");
    assert!("brief".parse::<Method>().unwrap().check(&[]).is_ok(), "a duty says it too");
}

#[test]
fn every_rule_writes_valid_teams_of_any_size_and_seed() {
    for kind in METHODS.iter().filter(|kind| matches!(kind.writes, Writes::Team(_))) {
        let most = kind.number.map_or(1, |(_, _, most)| most.min(12));
        for number in 1..=most {
            let name = if kind.number.is_some() { format!("{}:{number}", kind.name) } else { kind.name.to_owned() };
            for seed in 0..20 {
                plan(&name, None, seed);
            }
        }
    }
}

#[test]
fn random_teams_follow_the_seed() {
    let edges = |seed| plan("random:8", None, seed).agents().iter().map(|a| a.parents.clone()).collect::<Vec<_>>();
    assert_eq!(edges(1), edges(1));
    assert_ne!(edges(1), edges(2));
}

#[test]
fn mixed_teams_take_turns() {
    let plan = plan("sc-cot:4", None, 0);
    let levels: Vec<_> = plan.agents().iter().map(|agent| agent.capacity.as_str()).collect();
    assert_eq!(levels, ["small", "medium", "large", "small"]);
}
