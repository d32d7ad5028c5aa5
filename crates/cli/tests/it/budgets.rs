//! Budgets over all runs of a command: reserved before each call, never overrun by the endpoint's own count, and a way on.

use crate::common::{Folder, Ran, reply_of};
use crate::train::TABLE;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::Value;

const EVAL: [&str; 10] =
    ["eval", "--set", "gsm8k", "--workers", "endpoints", "--methods", "vanilla,chain:2", "--limit", "6", "--json"];

/// Replies of a hundred words and an answer.
pub fn behaviour() -> Behaviour {
    Behaviour::function(|request| FakeReply::Text("word ".repeat(100) + &reply_of(request)))
}

fn endpoint() -> FakeEndpoint {
    FakeEndpoint::start(behaviour()).unwrap()
}

/// Every level answers here with 200 tokens at most, and costs something.
pub fn folder(endpoint: &FakeEndpoint) -> Folder {
    let level = |name: &str| {
        let url = endpoint.base_url();
        format!(
            "[capacity.{name}]\nbase_url = '{url}'\nmodel = 'fake'\nmax_tokens = 200\nprice = {{ input = 10, output = 20 }}\n"
        )
    };
    Folder::with_pair().file("lemon.toml", ["small", "medium", "large"].map(level).concat())
}

/// What the endpoint has served, by its own count: as it reports usage.
pub fn served(endpoint: &FakeEndpoint) -> (u64, f64) {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let mut sum = (0, 0.0);
    for request in endpoint.requests() {
        let messages = request.body["messages"].as_array().unwrap().clone();
        let prompt: u64 = messages.iter().map(|message| words(message["content"].as_str().unwrap())).sum();
        // A hundred words, "I have read it." and the answer.
        let reply = 100 + 4 + 2;
        sum = (sum.0 + prompt + reply, sum.1 + (10 * prompt + 20 * reply) as f64 / 1e6);
    }
    sum
}

fn runs(report: &Value) -> Vec<u64> {
    report["methods"].as_array().unwrap().iter().map(|method| method["runs"].as_u64().unwrap()).collect()
}

#[track_caller]
fn id(ran: &Ran) -> String {
    ran.json()["set_up"]["eval_id"].as_str().unwrap().to_owned()
}

#[test]
fn an_evaluation_keeps_its_budget_and_goes_on_with_more() {
    let whole = endpoint();
    let expected = folder(&whole).lemon(&EVAL).ok();
    assert!(
        expected.stderr.contains("estimate: about ") && expected.stderr.contains("(12 runs × "),
        "{}",
        expected.stderr
    );
    assert!(expected.stderr.contains("budget: none"), "{}", expected.stderr);
    let all = served(&whole).0;
    for (width, share) in [(&[][..], 3), (&["--width", "1"], 2), (&["--width", "8"], 2)] {
        let endpoint = endpoint();
        let folder = folder(&endpoint);
        let budget = (all / share).to_string();
        let ran = folder.lemon(&[&EVAL[..], &["--budget-tokens", &budget], width].concat()).code(1);
        assert!(served(&endpoint).0 <= all / share, "{} of {budget}", served(&endpoint).0);
        assert!(endpoint.calls() > 1 && endpoint.calls() < whole.calls());
        for words in [
            "error: the budget is used up: ",
            "of 12 runs are missing",
            &format!("budget: {budget} tokens"),
            &format!("hint: go on with `lemon eval --resume {} --budget-tokens N`", id(&ran)),
        ] {
            assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
        }
        let partial = &ran.json()["partial"];
        let compared = partial["compared"].as_u64().unwrap();
        assert_eq!(partial["of"], 12, "{partial}");
        // Many runs at a time may leave none of one method; a few leave pairs.
        if !width.contains(&"8") {
            assert!(compared > 0, "{partial}");
            assert_eq!(runs(&ran.json()), vec![compared; 2]);
        }
        // The same budget is used up already; a larger one ends it as if nothing had been.
        let id = id(&ran);
        let again = folder.lemon(&["eval", "--resume", &id, "--json"]).code(1);
        assert!(
            again.stderr.contains("tokens are spent so far") && again.stderr.contains("used up"),
            "{}",
            again.stderr
        );
        assert!(served(&endpoint).0 <= all / share, "{}", again.stderr);
        let done = folder.lemon(&["eval", "--resume", &id, "--json", "--budget-tokens", "1000000"]).ok().json();
        assert_eq!((runs(&done), endpoint.calls()), (vec![6, 6], whole.calls()), "nothing is asked twice");
        assert!(done.get("partial").is_none());
        let accuracies = |report: &Value| {
            let methods = report["methods"].as_array().unwrap();
            methods.iter().map(|method| (method["accuracy"].clone(), method["tokens"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(accuracies(&done), accuracies(&expected.json()));
    }
}

#[test]
fn an_evaluation_keeps_a_budget_in_dollars() {
    let endpoint = endpoint();
    let folder = folder(&endpoint);
    let ran = folder.lemon(&[&EVAL[..], &["--budget-usd", "0.03"]].concat()).code(1);
    assert!(endpoint.calls() > 0 && served(&endpoint).1 <= 0.03, "{}", served(&endpoint).1);
    for words in ["budget: 0.03 USD", "USD are spent", "--budget-usd X`"] {
        assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
    }
    // Without prices the budget cannot be kept.
    let cheap =
        folder.file("lemon.toml", format!("[capacity.small]\nbase_url = '{}'\nmodel = 'm'\n", endpoint.base_url()));
    cheap.lemon(&[&EVAL[..], &["--budget-usd", "1"]].concat()).code(2).complains(&["capacity `small` has no price"]);
    Folder::new()
        .lemon(&["eval", "--set", "gsm8k", "--budget-usd", "1"])
        .code(2)
        .complains(&["a budget in US dollars needs the price of every capacity"]);
}

/// Simulated workers keep a budget as others do, without an estimate.
#[test]
fn a_simulated_evaluation_keeps_its_budget() {
    let folder = Folder::new();
    let args = ["eval", "--set", "gsm8k", "--methods", "cot,debate", "--budget-tokens", "20000", "--json"];
    let ran = folder.lemon(&args).code(1);
    assert!(!ran.stderr.contains("estimate: "), "{}", ran.stderr);
    let eval: Value = serde_json::from_str(&folder.read(&format!(".lemon/evals/{}/eval.json", id(&ran)))).unwrap();
    let tokens: u64 = eval["rows"].as_array().unwrap().iter().map(|row| row["tokens"]["total"].as_u64().unwrap()).sum();
    assert!(tokens > 0 && tokens <= 20_000, "{tokens}");
    let counts = runs(&ran.json());
    let [cot, debate] = counts[..] else { panic!("two methods") };
    assert!(cot == debate && cot > 0, "pairs are left: {cot} and {debate}");
}

#[test]
fn a_profile_keeps_a_budget_in_dollars() {
    for usd in ["0.15", "0.5"] {
        let endpoint = endpoint();
        let folder = folder(&endpoint);
        let profile =
            ["credit", "--spec", "pair.yaml", "--set", "gsm8k", "--limit", "3", "--workers", "endpoints", "--json"];
        let ran = folder.lemon(&[&profile[..], &["--budget-usd", usd]].concat()).ok();
        let spent = served(&endpoint).1;
        assert!(spent > 0.0 && spent <= usd.parse().unwrap(), "{spent} of {usd}");
        for words in ["estimate: about ", &format!("budget: {usd} USD"), &format!("at most {usd} USD will be spent")] {
            assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
        }
    }
}

#[test]
fn training_keeps_its_budget_and_goes_on_with_more() {
    let train = ["train", "--recipe", "table.toml", "--workers", "endpoints"];
    let whole = endpoint();
    let expected_folder = folder(&whole).file("table.toml", TABLE);
    let expected = expected_folder.lemon(&[&train[..], &["--json"]].concat()).ok();
    assert!(expected.stderr.contains("estimate: about "), "{}", expected.stderr);
    let all = served(&whole).0;
    let endpoint = endpoint();
    let folder = folder(&endpoint).file("table.toml", TABLE);
    let mut budget = 0;
    let mut steps = Vec::new();
    // Little by little: in the first look, between steps, in the last look.
    let done = loop {
        budget += all / 6;
        let words = budget.to_string();
        let resume: &[&str] = if folder.path("train/run.json").exists() { &["--resume"] } else { &[] };
        let ran = folder.lemon(&[&train[..], &["--json", "--budget-tokens", &words], resume].concat());
        assert!(served(&endpoint).0 <= budget, "{} of {budget}", served(&endpoint).0);
        if ran.code == Some(0) {
            break ran.json();
        }
        for words in ["error: the budget is used up: ", "of 3 steps are taken", "--resume --budget-tokens N`"] {
            assert!(ran.stderr.contains(words), "no {words:?} in {}", ran.stderr);
        }
        steps.push(ran.json()["steps"].as_u64().unwrap());
        // Without a budget of its own it keeps to the one it had.
        let again = folder.lemon(&[&train[..], &["--json", "--resume"]].concat()).code(1);
        assert!(again.stderr.contains("used up") && served(&endpoint).0 <= budget, "{}", again.stderr);
        assert!(budget < 3 * all, "it never ends");
    };
    assert!(steps.len() > 1, "it was ended early more than once: {steps:?}");
    // What was paid for before is not paid for again, and not counted again.
    for what in ["steps", "end", "before", "after", "teams"] {
        assert_eq!(done[what], expected.json()[what], "it ends as if it had never been interrupted: {what}");
    }
    let metrics = |folder: &Folder| folder.read("train/metrics.jsonl").lines().count();
    assert_eq!(metrics(&folder), metrics(&expected_folder));
}
