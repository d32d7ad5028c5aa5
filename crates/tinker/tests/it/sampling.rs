//! Texts from a server: their bytes, their seeds, their order, and always the current weights.

use crate::common::*;
use lemon_fakes::{FakeTinker, TinkerFault, TinkerWorld};
use lemon_model::{Finish, Policy, SampleRequest, SampleSettings};
use serde_json::json;

#[test]
fn texts_come_in_the_order_of_their_requests() {
    let fake = fake();
    let policy = open(&fake);
    // The fake writes the text with the number of the seed.
    let requests: Vec<SampleRequest> = (0..150).map(|seed| request("Count.", seed)).collect();
    // One of them takes longer than the others.
    fake.fault("asample", TinkerFault::Slow(20));
    let texts: Vec<String> = policy.sample(&requests, &settings()).unwrap().into_iter().map(|it| it.text).collect();
    let expected: Vec<&str> = ["one", "two", "three"].into_iter().cycle().take(150).collect();
    assert_eq!(texts, expected);
    assert_eq!(fake.calls("save_weights_for_sampler").len(), 1);
    let asked = fake.calls("asample");
    assert!(asked.iter().all(|call| call["num_samples"] == 1 && call["prompt"]["chunks"][0]["type"] == "encoded_text"));
    let params = json!({"max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "seed": 0, "stop": [tokenizer().end()]});
    assert!(asked.iter().any(|call| call["sampling_params"] == params), "{}", asked[0]);
}

#[test]
fn a_text_has_its_bytes_and_says_how_it_ended() {
    let fake = FakeTinker::start(TinkerWorld {
        texts: vec![written("Größe"), tokenizer().encode_plain("cut"), vec![258, tokenizer().end()], vec![]],
        ..world()
    })
    .unwrap();
    let policy = open(&fake);
    let sample = |seed| policy.sample(&[request("Write.", seed)], &settings()).unwrap().remove(0);
    let whole = sample(0);
    assert_eq!((whole.text.as_str(), whole.finish), ("Größe", Finish::Stop));
    assert_eq!(whole.ends, [1, 2, 3, 4, 5, 6, 7, 7]);
    assert_eq!((whole.forced, whole.logprobs), (vec![false; 8], vec![-2.0; 8]));
    assert_eq!((sample(1).text.as_str(), sample(1).finish), ("cut", Finish::Length));
    // A row of the model that no token has.
    assert_eq!((sample(2).text.as_str(), sample(2).tokens.len()), ("", 2));
    assert_eq!((sample(3).tokens.len(), sample(3).finish), (0, Finish::Length));
}

#[test]
fn what_stands_around_a_specification_is_no_part_of_it() {
    let text = "Sure:\n```yaml\nagents: []\n```\n";
    let fake = FakeTinker::start(TinkerWorld { texts: vec![written(text)], ..world() }).unwrap();
    let settings = SampleSettings { most_tokens: 40, ..settings() };
    let sample = open(&fake).sample(&[request("Write.", 0)], &settings).unwrap().remove(0);
    assert_eq!((sample.text.as_str(), sample.tokens.len()), ("agents: []", text.len() + 1));
    let before = text.find("agents").unwrap();
    assert_eq!((sample.ends[before - 1], sample.ends[before], sample.ends.last()), (0, 1, Some(&10)));
}

#[test]
fn a_text_that_has_begun_is_continued() {
    let fake = FakeTinker::start(TinkerWorld { texts: vec![written(" and on")], ..world() }).unwrap();
    let policy = open(&fake);
    let begun = tokenizer().encode_plain("on");
    let settings = SampleSettings { most_tokens: 12, ..settings() };
    let sample = policy.resume(&[(request("Go.", 0), begun.clone())], &settings).unwrap().remove(0);
    assert_eq!((sample.text.as_str(), sample.tokens.len(), sample.logprobs.len()), ("on and on", 10, 10));
    let call = &fake.calls("asample")[0];
    assert_eq!(call["prompt"]["chunks"][0]["tokens"], json!([request("Go.", 0).prompt, begun].concat()));
    assert_eq!(call["sampling_params"]["max_tokens"], 10);
}

#[test]
fn any_seed_is_one_that_servers_take() {
    let fake = fake();
    let policy = open(&fake);
    let requests: Vec<_> = [u64::MAX, 1 << 63, 1 << 40, 0x7fff_ffff, 0].map(|seed| request("Seed.", seed)).to_vec();
    assert_eq!(policy.sample(&requests, &settings()).unwrap().len(), 5);
    let mut seeds: Vec<u64> =
        fake.calls("asample").iter().map(|call| call["sampling_params"]["seed"].as_u64().unwrap()).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert!(seeds.len() == 5 && seeds.iter().all(|seed| *seed < 1 << 31), "{seeds:?}");
}

#[test]
fn a_text_never_leaves_the_positions_of_the_model() {
    let fake = fake();
    let policy = open(&fake);
    let long = request(&"x".repeat(POSITIONS - 2), 0);
    policy.sample(&[long], &settings()).unwrap();
    assert_eq!(fake.calls("asample")[0]["sampling_params"]["max_tokens"], 2);
}

#[test]
fn sampling_never_brings_older_weights_back() {
    let fake = fake();
    let mut policy = open(&fake);
    let mut expected = 0.0;
    for number in 1..=4 {
        policy.sample(&[request("Write.", 0), request("Write.", 1)], &settings()).unwrap();
        assert_eq!(theta(&fake), expected, "sampling has changed the weights");
        policy.update(&[example("one", 1.0)], &step(0.1)).unwrap();
        expected = theta(&fake);
        assert_eq!(fake.calls("save_weights_for_sampler").len(), number);
    }
    // The names are never the same: the server would keep the older weights under them.
    let mut names: Vec<String> =
        fake.calls("save_weights_for_sampler").iter().map(|call| call["seq_id"].to_string()).collect();
    names.dedup();
    assert_eq!(names, ["1", "2", "3", "4"]);
    let scores = policy.score(&[sequence("Say it.", "one")], 1.0).unwrap();
    assert!((f64::from(scores[0][0]) - (expected - 2.0)).abs() < 1e-6);
}

#[test]
fn nothing_is_asked_for_nothing() {
    let fake = fake();
    let policy = open(&fake);
    let before = fake.operations().len();
    assert!(policy.sample(&[], &settings()).unwrap().is_empty());
    assert!(policy.score(&[], 1.0).unwrap().is_empty());
    let mut empty = sequence("Say it.", "");
    empty.tokens.clear();
    assert_eq!(policy.score(&[empty], 1.0).unwrap(), [Vec::<f32>::new()]);
    assert_eq!(fake.operations().len(), before);
}

#[test]
fn a_policy_works_where_another_runtime_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fake = fake();
    runtime.block_on(async {
        let policy = open(&fake);
        assert_eq!(policy.sample(&[request("Write.", 1)], &settings()).unwrap()[0].text, "two");
    });
    assert_eq!(fake.weights().into_iter().flatten().count(), 0, "it is gone");
}
