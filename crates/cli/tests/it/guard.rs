//! Never worse than one plain call: what the guard lets through, what it replaces, and what a person reads.

use crate::common::Folder;
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply};
use serde_json::{Value, json};

/// Long enough, and with a number to vote on, for a team to be written.
const NUMBER: &str = "A farmer has 3 fields. On the first he grows 120 cabbages, on the second twice as many, and on the third 35 \
                      fewer than on the second. How many cabbages does he grow on all three fields?";
const PROMPTED: &str = "[orchestrator]\nkind = 'prompted'\n";
/// The same, where a team may cost up to five plain calls.
const GENEROUS: &str = "[orchestrator]\nkind = 'prompted'\nmax_cost = 5\n";

/// An endpoint that writes this team, and answers agents by their number: the first one differs from the others.
fn endpoint(team: &'static str) -> FakeEndpoint {
    let reply = move |request: &ChatRequest| {
        let system = request.last("system").to_owned();
        FakeReply::Text(match system.as_str() {
            "" => "Plain.\nAnswer: 1".to_owned(),
            text if text.starts_with("You write teams.") => team.to_owned(),
            _ => "Worked.\nAnswer: 2".to_owned(),
        })
    };
    FakeEndpoint::start(Behaviour::function(reply)).unwrap()
}

/// Runs the question; the bases of the agents in turn, and the result.
#[track_caller]
fn check(endpoint: &FakeEndpoint, more: &str, question: &str, bases: &[&str], answer: &str) -> Value {
    let folder = Folder::with_endpoint(endpoint, more);
    let result = folder.lemon(&["run", question, "--json"]).ok().json();
    let agents = result["agents"].as_array().unwrap();
    let found: Vec<&str> = agents.iter().map(|agent| agent["base"].as_str().unwrap()).collect();
    assert_eq!(found, bases, "{result}");
    assert_eq!(result["answer"], answer, "{result}");
    result
}

#[test]
fn the_default_is_one_plain_call_with_nothing_but_the_question() {
    for question in ["hi", "What is the capital of Peru?", "Write a Python function f(x) that returns x.", NUMBER] {
        let fake = endpoint("no team");
        let folder = Folder::with_endpoint(&fake, "");
        folder.lemon(&["run", question, "--quiet"]).ok();
        let requests = fake.requests();
        let [request] = requests.as_slice() else { panic!("{} requests for {question}", requests.len()) };
        assert_eq!(request.body["messages"], json!([{ "role": "user", "content": question }]));
    }
}

/// Some models have a temperature of their own and refuse another one.
#[test]
fn a_plain_call_asks_for_the_likeliest_reply_where_that_can_be_asked_for() {
    let body = "{\"error\":{\"message\":\"Unsupported value: 'temperature'\"}}".to_owned();
    let refusal = FakeReply::Status { code: 400, retry_after: None, body };
    let fake = FakeEndpoint::start(Behaviour::script([refusal, FakeReply::Text("Lima.".into())])).unwrap();
    let folder = Folder::with_endpoint(&fake, "");
    assert_eq!(folder.lemon(&["run", "What is the capital of Peru?"]).ok().stdout, "Lima.\n");
    let asked: Vec<Value> = fake.requests().iter().map(|request| request.body["temperature"].clone()).collect();
    assert_eq!(asked, [json!(0.0), Value::Null]);
}

#[test]
fn open_and_short_questions_have_no_team_written() {
    for question in
        ["Explain why ice floats.", "What is the capital of Peru?", "What is 3 + 4?", "Write a Python function f(x)."]
    {
        let fake = endpoint("agents: [{id: x, base: solver, capacity: large}]");
        let folder = Folder::with_endpoint(&fake, PROMPTED);
        let result = folder.lemon(&["run", question, "--json"]).ok().json();
        assert_eq!(result["response"], "Plain.\nAnswer: 1", "{question}");
        assert_eq!(fake.calls(), 1, "{question}");
    }
}

#[test]
fn a_team_overrules_the_plain_answer_only_where_two_agree() {
    let three = "agents:\n  - {id: a, base: solver, capacity: large}\n  - {id: b, base: solver, capacity: large}\n\
                 answer: {from: [a, b], by: vote}\n";
    let result = check(&endpoint(three), GENEROUS, NUMBER, &["plain", "solver", "solver"], "2");
    assert_eq!(result["response"], "Worked.\nAnswer: 2");
    // One agent, or a chain, is no majority: the plain call alone is asked.
    let one = "agents: [{id: a, base: solver, role: Farmer, duty: Guess., capacity: large}]";
    check(&endpoint(one), GENEROUS, NUMBER, &["plain"], "1");
    let chain = "agents: [{id: a, base: solver, capacity: small}, {id: b, base: critic, capacity: large, after: [a]}]";
    check(&endpoint(chain), GENEROUS, NUMBER, &["plain"], "1");
}

#[test]
fn no_team_costs_more_than_the_configuration_allows() {
    let two = "agents:\n  - {id: a, base: solver, capacity: large}\n  - {id: b, base: solver, capacity: large}\n\
               answer: {from: [a, b], by: vote}\n";
    // The writer, the plain agent and two voters are four calls.
    for (cost, calls) in [("", 1), ("max_cost = 3.9\n", 1), ("max_cost = 4\n", 4)] {
        let fake = endpoint(two);
        let folder = Folder::with_endpoint(&fake, &format!("{PROMPTED}{cost}"));
        folder.lemon(&["run", NUMBER, "--quiet"]).ok();
        assert_eq!(fake.calls(), calls, "{cost}");
    }
    // A team that turns out larger has been paid for, but is not run.
    let three = "agents:\n  - {id: a, base: solver, capacity: large}\n  - {id: b, base: solver, capacity: large}\n  \
                 - {id: c, base: solver, capacity: large}\nanswer: {from: [a, b, c], by: vote}\n";
    let fake = endpoint(three);
    check(&fake, &format!("{PROMPTED}max_cost = 4\n"), NUMBER, &["plain"], "1");
    assert_eq!(fake.calls(), 2);
    let folder = Folder::with_endpoint(&fake, &format!("{PROMPTED}max_cost = 0.5\n"));
    folder.lemon(&["run", NUMBER]).code(2).complains(&["orchestrator.max_cost", "must be at least 1, got 0.5"]);
}

#[test]
fn a_misspelt_team_is_mended_and_a_hopeless_one_costs_no_second_try() {
    let misspelt = "agents:\n  - {id: first, base: Solver, capacity: large}\n  - {id: second, base: solvr, capacity: large}\n\
                    answer: {from: [first, secnd], by: vote}\n";
    let fake = endpoint(misspelt);
    check(&fake, GENEROUS, NUMBER, &["plain", "solver", "solver"], "2");
    assert_eq!(fake.calls(), 4, "one call to write, three to answer");
    let fake = endpoint("I would rather not.");
    check(&fake, GENEROUS, NUMBER, &["plain"], "1");
    assert_eq!(fake.calls(), 2);
}

#[test]
fn a_tight_budget_lowers_the_number_of_agents_before_it_cuts_an_answer_short() {
    let three = "agents:\n  - {id: a, base: solver, capacity: large}\n  - {id: b, base: solver, capacity: large}\n\
                 answer: {from: [a, b], by: vote}\n";
    let fake = endpoint(three);
    let folder = Folder::with_endpoint(&fake, GENEROUS);
    let result = folder.lemon(&["run", NUMBER, "--json", "--budget-tokens", "3000"]).ok().json();
    assert_eq!(result["agents"].as_array().map(Vec::len), Some(1), "{result}");
    let last = fake.requests().pop().unwrap();
    assert_eq!(last.body["max_tokens"], 1024, "the one agent has a reply of full length");
}

#[test]
fn a_team_that_was_measured_to_help_is_used_as_it_is() {
    let fake = endpoint("no team");
    let entry = |wins: u64, losses: u64| {
        json!({"entries": [{
            "model": "fake", "identity": format!("{} fake", fake.base_url()), "form": "number", "method": "sc-cot:3",
            "items": 100,
            "wins": wins, "losses": losses, "tokens": 300, "plain_tokens": 100
        }]})
        .to_string()
    };
    let run = |evidence: String| {
        let folder = Folder::with_endpoint(&fake, "").file(".lemon/evidence.json", evidence);
        let result = folder.lemon(&["run", NUMBER, "--json"]).ok().json();
        result["agents"].as_array().map(Vec::len)
    };
    assert_eq!(run(entry(15, 2)), Some(3));
    assert_eq!(run(entry(5, 4)), Some(1), "what may be chance is no evidence");
    let elsewhere = entry(15, 2).replace(&fake.base_url(), "http://elsewhere/v1");
    assert_eq!(run(elsewhere), Some(1), "a model of that name at another endpoint is another model");
    // It lies beside the store in use.
    let folder = Folder::with_endpoint(&fake, "").file("other/evidence.json", entry(15, 2));
    let agents = |args: &[&str]| folder.lemon(args).ok().json()["agents"].as_array().map(Vec::len);
    assert_eq!(agents(&["run", NUMBER, "--json"]), Some(1));
    assert_eq!(agents(&["run", NUMBER, "--json", "--store", "other/lemon.db"]), Some(3));
    let folder = Folder::with_endpoint(&fake, "").file(".lemon/evidence.json", "{");
    let ran = folder.lemon(&["run", NUMBER, "--json"]).ok();
    assert!(ran.stderr.contains("cannot be read as evidence"), "{}", ran.stderr);
    assert_eq!(ran.json()["agents"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_person_gets_the_whole_reply() {
    let plan = "Here is the plan:\n\n#### Day 1\nThe museum.\n\n#### Day 2\nA walk.";
    let fake = FakeEndpoint::start(Behaviour::text(plan)).unwrap();
    let folder = Folder::with_endpoint(&fake, "");
    assert_eq!(folder.lemon(&["run", "Plan a weekend in Oslo."]).ok().stdout, format!("{plan}\n"));
    let code = "```python\ndef f(x):\n    return x\n\n\nprint(f(1))\n```";
    let fake = FakeEndpoint::start(Behaviour::text(format!("Answer: {code}"))).unwrap();
    let folder = Folder::with_endpoint(&fake, "");
    assert_eq!(folder.lemon(&["run", "Write a Python function f(x)."]).ok().stdout, format!("{code}\n"));
}

#[test]
fn a_form_can_be_given_and_a_wrong_one_is_named() {
    let fake = endpoint("agents: [{id: x, base: solver, capacity: large}]");
    let folder = Folder::with_endpoint(&fake, "[orchestrator]\nguard = false\nkind = 'prompted'\n");
    let ends = |form: &str| {
        let before = fake.requests().len();
        folder.lemon(&["run", "Something odd", "--form", form, "--no-reuse"]).ok();
        let asked = fake.requests().split_off(before).pop().unwrap();
        asked.body["messages"][0]["content"].as_str().unwrap().to_owned()
    };
    assert!(ends("choice").contains("`Answer: X`"));
    assert!(ends("json").contains("JSON alone"));
    assert!(!ends("open").contains("Answer:"));
    folder.lemon(&["run", "Q", "--form", "essay"]).code(2).complains(&["unknown form `essay`", "open, short, choice"]);
}

#[test]
fn answers_are_compared_with_plain_ones() {
    let fake = endpoint("agents: [{id: x, base: solver, capacity: large}]");
    let questions = concat!(
        "{\"id\": \"q1\", \"question\": \"What is 3 + 4?\", \"check\": {\"kind\": \"number\", \"value\": 1}}\n",
        "{\"id\": \"q2\", \"question\": \"Explain rain.\", \"check\": {\"kind\": \"text\", \"min_words\": 50}}\n",
    );
    let folder = Folder::with_endpoint(&fake, "").file("q.jsonl", questions);
    let ran = folder
        .lemon(&["bench", "answers", "--questions", "q.jsonl", "--methods", "lemon,prompted,sc-cot:3", "--out", "t.md"])
        .ok();
    assert!(
        ran.stdout.contains("| q | plain | 1 | 2 |") && ran.stdout.contains("| q | sc-cot:3 | 0 | 2 |"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("| 1.00 | 0 : 0 |"), "the default asks what plain asks: {}", ran.stdout);
    assert_eq!(folder.read("t.md").trim(), ran.stdout.trim());
    assert!(folder.read(".lemon/evidence.json").contains("sc-cot:3"));
    let identity = format!("\"identity\": \"{} fake\"", fake.base_url());
    assert!(folder.read(".lemon/evidence.json").contains(&identity));
    // Plain, lemon and prompted send the same request: it is made once for each question.
    assert_eq!(fake.calls(), 2 + 2 * 3);
}

#[test]
fn a_call_made_again_does_not_make_plain_look_dear() {
    let behaviour = Behaviour::text("The answer is 7.").fault_at(1, FakeReply::DropMidStream);
    let fake = FakeEndpoint::start(behaviour).unwrap();
    let question =
        "{\"id\": \"q1\", \"question\": \"What is 3 + 4?\", \"check\": {\"kind\": \"number\", \"value\": 7}}\n";
    let folder = Folder::with_endpoint(&fake, "").file("q.jsonl", question);
    let ran = folder.lemon(&["bench", "answers", "--questions", "q.jsonl", "--methods", "lemon"]).ok();
    assert_eq!(fake.calls(), 2, "the failed call and the one that answered");
    let tokens = |method: &str| {
        let start = format!("| q | {method} | 1 | 1 | ");
        let line = ran.stdout.lines().find_map(|line| line.strip_prefix(start.as_str())).unwrap();
        line.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(tokens("plain"), tokens("lemon"), "{}", ran.stdout);
    assert!(ran.stdout.contains("q, plain: failed calls that were made again cost "), "{}", ran.stdout);
    assert!(ran.stderr.contains("q q1: plain: a call failed and is made again:"), "{}", ran.stderr);
}
