//! Methods that learn, with workers that cost money: what learning spends is bounded, and paid for once.

use crate::budgets::{behaviour, folder, served};
use crate::common::{Folder, Ran, reply_of};
use lemon_fakes::{Behaviour, ChatRequest, FakeEndpoint, FakeReply};
use serde_json::Value;

const EVAL: [&str; 8] = ["eval", "--set", "gsm8k", "--workers", "endpoints", "--limit", "4", "--json"];

/// The name that the hint goes on with.
#[track_caller]
fn id(ran: &Ran) -> String {
    let (_, rest) = ran.stderr.split_once("hint: go on with `lemon eval --resume ").expect("a hint");
    rest.split([' ', '`']).next().unwrap().to_owned()
}

fn learned(report: &Value) -> Vec<u64> {
    let methods = report["methods"].as_array().unwrap();
    methods.iter().map(|method| method["training_tokens"].as_u64().unwrap_or(0)).collect()
}

/// The budget ends a training, then the runs after it; each time the same budget allows nothing more, and in the end one model of
/// each method was trained whole and is reported.
#[test]
fn what_methods_learn_is_paid_for_once_however_often_an_evaluation_is_resumed() {
    let args = [&EVAL[..], &["--methods", "agentprune:3,cot", "--tiers", "small,chosen"]].concat();
    let whole = FakeEndpoint::start(behaviour()).unwrap();
    let expected = folder(&whole).lemon(&[&args[..], &["--budget-tokens", "10000000"]].concat()).ok().json();
    // A choice has its training at every capacity, the one at small with it.
    let [small, prune, 0, cot] = learned(&expected)[..] else { panic!("{expected}") };
    let training = prune + cot;
    let (all, _) = served(&whole);
    assert!(prune > 3 * small && small > 5_000 && all > training, "{small}, {training} of {all}");

    let endpoint = FakeEndpoint::start(behaviour()).unwrap();
    let folder = folder(&endpoint);
    let within = |ran: &Ran, budget: u64, undone: &str| {
        assert!(served(&endpoint).0 <= budget, "{} of {budget}", served(&endpoint).0);
        assert!(ran.stderr.contains("the budget is used up") && ran.stderr.contains(undone), "{}", ran.stderr);
    };
    // The first training is at small.
    let budget = (small / 2).to_string();
    let ran = folder.lemon(&[&args[..], &["--budget-tokens", &budget]].concat()).code(1);
    within(&ran, small / 2, "the methods have not learned yet");
    let name = id(&ran);
    let resume = |more: &[&str]| folder.lemon(&[&["eval", "--resume", &name, "--json"], more].concat());
    let calls = endpoint.calls();
    within(&resume(&[]).code(1), small / 2, "the methods have not learned yet");
    assert_eq!(endpoint.calls(), calls, "the budget is used up already");

    // What was cut short is begun again; the runs after it do not fit.
    let spent = served(&endpoint).0;
    let budget = spent + all - (all - training) / 2;
    let ran = resume(&["--budget-tokens", &budget.to_string()]).code(1);
    assert!(ran.stderr.contains("agentprune:3@small learns"), "{}", ran.stderr);
    within(&ran, budget, "of 16 runs are missing");
    let calls = endpoint.calls();
    let again = resume(&[]).code(1);
    within(&again, budget, "of 16 runs are missing");
    assert!(!again.stderr.contains("learns"), "{}", again.stderr);
    assert_eq!(endpoint.calls(), calls, "nothing is learned again");

    let done = resume(&["--budget-tokens", "10000000"]).ok();
    assert!(!done.stderr.contains("learns"), "{}", done.stderr);
    // Two methods may share a reply that is on record: how many do depends on timing.
    let paid = served(&endpoint).0;
    assert!(
        paid.abs_diff(spent + all) < small / 4,
        "only what was cut short is paid for twice: {paid}, {spent} + {all}"
    );
    assert_eq!(learned(&done.json()), learned(&expected));
    let accuracy = |report: &Value| -> Vec<Value> {
        report["methods"].as_array().unwrap().iter().map(|method| method["accuracy"].clone()).collect()
    };
    assert_eq!(accuracy(&done.json()), accuracy(&expected));
}

const PROPOSAL: &str = "You improve a workflow";

fn is_proposal(request: &ChatRequest) -> bool {
    request.text().contains(PROPOSAL)
}

/// AFlow's proposals are calls like any other: within the budget, and on record.
#[test]
fn proposed_workflows_are_within_the_budget() {
    // 300 words that are no workflow: the search asks again and again.
    let behaviour = Behaviour::function(|request| match is_proposal(request) {
        true => FakeReply::Text("word ".repeat(300)),
        false => FakeReply::Text(reply_of(request)),
    });
    let endpoint = FakeEndpoint::start(behaviour).unwrap();
    let folder = folder(&endpoint);
    let spent = || -> u64 {
        let words = |text: &str| text.split_whitespace().count() as u64;
        let prompt = |body: &Value| -> u64 {
            let messages = body["messages"].as_array().unwrap();
            messages.iter().map(|message| words(message["content"].as_str().unwrap())).sum()
        };
        let asks = |body: &Value| body["messages"][0]["content"].as_str().unwrap().starts_with(PROPOSAL);
        let reply = |body: &Value| if asks(body) { 300 } else { 6 };
        endpoint.requests().iter().map(|request| prompt(&request.body) + reply(&request.body)).sum()
    };
    let args = [&EVAL[..], &["--methods", "aflow", "--capacity", "small", "--budget-tokens", "20000"]].concat();
    let ran = folder.lemon(&args).code(1);
    assert!(ran.stderr.contains("the budget is used up"), "{}", ran.stderr);
    let proposals = endpoint.requests().iter().filter(|seen| seen.body.to_string().contains(PROPOSAL)).count();
    assert!(proposals > 2 && spent() <= 20_000, "{proposals} proposals, {} tokens", spent());
    let listed = folder.runs();
    let of_aflow = listed.iter().filter(|run| run["task_id"] == "aflow").count();
    assert!(of_aflow >= proposals, "{of_aflow} of {proposals} proposals are on record: {listed:?}");
    // A search that gets no workflow ends, and the account has what it asked.
    let args = [&EVAL[..], &["--methods", "aflow", "--capacity", "small", "--budget-tokens", "10000000"]].concat();
    let done = Folder::new().file("lemon.toml", folder.read("lemon.toml")).lemon(&args).ok().json();
    assert!(learned(&done)[0] > 20_000, "{done}");
}

/// With simulated workers and without a budget, AFlow learns with all seeds at a time, and each learns what it learns alone.
#[test]
fn seeds_of_aflow_learn_side_by_side() {
    let behaviour = Behaviour::function(|request| {
        let change = reply_of(request).rsplit(' ').next().unwrap().to_owned();
        let agents = format!(
            "agents:\n  - {{id: a1, base: solver, capacity: small}}\n  - {{id: a2, base: verifier, duty: Check {change}., capacity: small, \
             after: [a1]}}\nanswer: {{from: [a2], by: last}}\n"
        );
        FakeReply::Text(format!("<modification>{change}</modification>\n<graph>\n{agents}</graph>"))
    });
    let endpoint = FakeEndpoint::start(behaviour.latency_ms(30)).unwrap();
    let folder = folder(&endpoint);
    let train = |seeds: &str, out: &str| -> Vec<Value> {
        let args = ["baseline", "train", "aflow@small", "--set", "gsm8k", "--seeds", seeds, "--out", out, "--json"];
        let mut made = folder.lemon(&args).ok().json().as_array().unwrap().clone();
        made.iter_mut().for_each(|made| made["account"]["seconds"] = Value::Null);
        made.into_iter().map(|made| made["account"].clone()).collect()
    };
    let all = train("1,2,3", "all");
    assert_eq!(endpoint.peak_in_flight(), 3);
    assert!(all.iter().all(|account| account["optimiser_tokens"].as_u64().unwrap() > 0), "{all:?}");
    assert_eq!(train("2", "one"), all[1..2]);
    // What was trained needs no model.
    let fresh = Folder::new();
    let trained = folder.path("all").display().to_string();
    let args = [
        "eval",
        "--set",
        "gsm8k",
        "--methods",
        "aflow",
        "--tiers",
        "small",
        "--seeds",
        "1,3",
        "--limit",
        "2",
        "--json",
    ];
    let report = fresh.lemon(&[&args[..], &["--baselines", &trained]].concat()).ok().json();
    assert!(learned(&report)[0] > 0, "{report}");
}

/// An evaluation without a budget that is resumed with one has spent its trainings, its choices and its runs, each once.
#[test]
fn what_was_learned_without_a_budget_counts_once_there_is_one() {
    let folder = Folder::new();
    let args =
        ["eval", "--set", "gsm8k", "--methods", "agentprune:3,cot", "--tiers", "chosen", "--limit", "2", "--json"];
    let first = folder.lemon(&args).ok().json();
    let name = first["set_up"]["eval_id"].as_str().unwrap();
    let again = folder.lemon(&["eval", "--resume", name, "--json", "--budget-tokens", "1000"]).ok();
    assert_eq!(again.json(), first);
    assert!(!again.stderr.contains("learns"), "{}", again.stderr);
    let read =
        |file: &str| -> Value { serde_json::from_str(&folder.read(&format!(".lemon/evals/{name}/{file}"))).unwrap() };
    let rows = read("eval.json")["rows"].as_array().unwrap().clone();
    let ran: u64 = rows.iter().map(|row| row["tokens"]["total"].as_u64().unwrap()).sum();
    assert_eq!(read("spending.json")["tokens"].as_u64().unwrap(), ran + learned(&first).iter().sum::<u64>());
}

/// What is missing among methods that were trained before is not trained without a budget.
#[test]
fn nothing_is_learned_with_models_without_a_budget() {
    let endpoint = FakeEndpoint::start(behaviour()).unwrap();
    let folder = folder(&endpoint).file("trained/readme", "");
    let args = [&EVAL[..], &["--methods", "agentprune:3", "--baselines", "trained"]].concat();
    let ran = folder.lemon(&args).code(2);
    for words in ["error: trained has no `agentprune:3` of seed 0", "--budget-tokens N"] {
        assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
    }
    assert_eq!(endpoint.calls(), 0);
}
