//! A model writes the team: valid at once, repaired, or replaced.

use crate::common::{Folder, reply_of};
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply};
use serde_json::Value;

const TASK: &str = "A jacket of 80 dollars is 15 % off. What does it cost?";
const GOOD: &str = "Here it is:\n```yaml\nagents:\n  - {id: think, base: solver, capacity: small}\n  \
                    - {id: look, base: critic, capacity: large, after: [think]}\n```\n";
const BAD: &str = "agents:\n  - {id: think, base: genius, capacity: small}\n";

/// A model behind the endpoint writes the teams.
const PROMPTED: &str = "[orchestrator]\nkind = 'prompted'\nguard = false\nstructured = true\n";

fn is_orchestrator(request: &ChatRequest) -> bool {
    request.last("system").starts_with("You write teams.")
}

/// Says these to the orchestrator's questions in turn, the last one from then on, and something to every other call.
fn endpoint(teams: &'static [&'static str]) -> FakeEndpoint {
    FakeEndpoint::start(behaviour(teams)).unwrap()
}

fn behaviour(teams: &'static [&'static str]) -> Behaviour {
    Behaviour::function(move |request| {
        if !is_orchestrator(request) {
            return FakeReply::Text(reply_of(request));
        }
        // A conversation of four messages is the second try.
        let turn = usize::from(request.messages.len() > 2);
        FakeReply::Text((*teams.get(turn).or(teams.last()).unwrap()).to_owned())
    })
}

#[track_caller]
fn check(endpoint: &FakeEndpoint, more: &str, by: &str, agents: &[&str]) -> Value {
    let more = if more.is_empty() { PROMPTED } else { more };
    let folder = Folder::with_endpoint(endpoint, more)
        .file("fallback.yaml", "agents: [{id: spare, base: solver, capacity: small}]");
    let ran = folder.lemon(&["run", TASK, "--json"]).ok();
    let result = ran.json();
    assert!(ran.stderr.contains(&format!("the team is written ({by})")), "{}", ran.stderr);
    let ids: Vec<_> = result["agents"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap()).collect();
    assert_eq!(ids, agents);
    let tokens = |who: &str| result["tokens"][who].as_u64().unwrap();
    assert!(tokens("orchestrator") > 0 && tokens("workers") > 0);
    assert_eq!(tokens("total"), tokens("orchestrator") + tokens("workers"));
    assert_eq!(result["calls"].as_u64().unwrap(), endpoint.calls());
    result
}

#[test]
fn valid_at_once() {
    let endpoint = endpoint(&[GOOD]);
    let result = check(&endpoint, "", "prompted", &["think", "look"]);
    assert_eq!(result["spec"]["agents"][1]["after"], serde_json::json!(["think"]));
    assert!(result.get("diagnostics").is_none());
    let first = &endpoint.requests()[0].body;
    assert_eq!(first["response_format"]["type"], "json_schema");
    assert!(first["messages"][1]["content"].as_str().unwrap().contains(TASK));
}

#[test]
fn repaired() {
    let endpoint = endpoint(&[BAD, GOOD]);
    let result = check(&endpoint, "", "repair", &["think", "look"]);
    assert_eq!(result["diagnostics"][0]["code"], "unknown_base");
    let second = &endpoint.requests()[1].body["messages"];
    assert_eq!(second[2]["content"], BAD.trim());
    let correction = second[3]["content"].as_str().unwrap();
    assert!(correction.contains("unknown base role `genius`"), "it is told what is wrong: {correction}");
}

#[test]
fn replaced_by_one_solver() {
    let result = check(&endpoint(&[BAD, BAD]), "", "fallback", &["solve"]);
    assert_eq!(result["agents"][0]["capacity"], "large");
}

#[test]
fn replaced_by_a_file() {
    let more = "[orchestrator]\nguard = false\nfallback = 'fallback.yaml'\ncapacity = 'small'\n";
    check(&endpoint(&["I would rather not."]), more, "fallback", &["spare"]);
}

#[test]
fn an_endpoint_that_knows_no_schemas_is_asked_without() {
    let endpoint = FakeEndpoint::start(behaviour(&[GOOD]).without_schema()).unwrap();
    let folder = Folder::with_endpoint(&endpoint, PROMPTED);
    let result = folder.lemon(&["run", TASK, "--json"]).ok().json();
    assert_eq!(result["agents"].as_array().map(Vec::len), Some(2));
    assert!(endpoint.requests()[1].body.get("response_format").is_none());
    let plain = crate::common::endpoint();
    let folder = Folder::with_endpoint(&plain, "[orchestrator]\nguard = false\nstructured = false\n");
    folder.lemon(&["run", TASK, "--json"]).ok();
    assert!(plain.requests().iter().all(|request| request.body.get("response_format").is_none()));
}

/// The level that writes the team costs something too.
#[test]
fn the_cost_is_known_only_if_every_price_is() {
    let endpoint = endpoint(&["agents: [{id: think, base: solver, capacity: small}]"]);
    let level = |name: &str, price: &str| {
        format!("[capacity.{name}]\nbase_url = '{}'\nmodel = 'm'\n{price}", endpoint.base_url())
    };
    let price = "price = { input = 1, output = 1 }\n";
    let cost = |large: &str| {
        let folder = Folder::with_pair().file("lemon.toml", level("small", price) + &level("large", large) + PROMPTED);
        folder.lemon(&["run", TASK, "--json"]).ok().json()["cost_usd"].clone()
    };
    assert!(cost(price).is_number());
    assert_eq!(cost(""), Value::Null);
}

#[test]
fn a_second_round() {
    let behaviour = Behaviour::function(|request| {
        let round = if request.last("user").contains("This is round 2.") { 2 } else { 1 };
        FakeReply::Text(match (is_orchestrator(request), round) {
            (true, 1) => "agents: [{id: try1, base: solver, capacity: small}]\nnext: review".to_owned(),
            (true, _) => "agents: [{id: try2, base: critic, capacity: large, after: [try1]}]".to_owned(),
            (false, _) => reply_of(request),
        })
    });
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = Folder::with_endpoint(&endpoint, PROMPTED);
    let result = folder.lemon(&["run", TASK, "--json"]).ok().json();
    assert_eq!(result["rounds"].as_array().map(Vec::len), Some(2), "{result}");
    assert_eq!(result["spec"], result["rounds"][0]);
    let rounds: Vec<_> = result["agents"].as_array().unwrap().iter().map(|agent| agent["round"].as_u64()).collect();
    assert_eq!(rounds, [Some(1), Some(2)]);
    assert_eq!(result["answer"], result["agents"][1]["answer"]);
    let shown = folder.lemon(&["trace", "show"]).ok().stdout;
    assert!(shown.contains("round 2"), "{shown}");
}

#[test]
fn an_orchestrator_that_cannot_be_reached() {
    let behaviour = Behaviour::function(|request| match is_orchestrator(request) {
        true => FakeReply::status(400),
        false => FakeReply::Text("Answer: 68".into()),
    });
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = Folder::with_endpoint(&endpoint, PROMPTED);
    let ran = folder.lemon(&["run", TASK]).ok();
    assert_eq!(ran.stdout, "68\n");
    assert!(ran.stderr.contains("no specification: ") && ran.stderr.contains("(fallback)"), "{}", ran.stderr);
}
