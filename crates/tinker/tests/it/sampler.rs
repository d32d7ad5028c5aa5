//! A fake sampler beside the fake server: texts under a grammar, with the weights of the last step.

use crate::common::*;
use lemon_fakes::{FakeTinker, FakeVllm, TinkerFault, TinkerWorld, VllmWorld};
use lemon_model::{Grammar, Policy, SampleRequest, Sequence};
use lemon_policy::TrainablePolicy;
use lemon_tinker::{SamplerStart, TinkerPolicy, TinkerStart};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const LARK: &str = "start: \"one\" | \"two\"\n";

/// A sampler that writes `one` and `two`, each token drawn with its own probability.
fn vllm(change: impl FnOnce(&mut VllmWorld)) -> FakeVllm {
    let forced = ["~", "Q"].map(|text| (format!("start: \"{text}\"\n"), written(text))).to_vec();
    let texts = [("one", -0.5), ("two", -0.25)].map(|(text, each)| (written(text), vec![each; written(text).len()]));
    let mut world = VllmWorld { forced, texts: texts.to_vec(), ..VllmWorld::default() };
    change(&mut world);
    FakeVllm::start(world).unwrap()
}

/// A start with a sampler whose adapters go into a folder.
fn with(server: &FakeTinker, sampler: &FakeVllm, files: &Path, adapters: &Path) -> TinkerStart {
    let adapters = Some(adapters.to_owned());
    let sampler = SamplerStart { adapters, ..SamplerStart::new(sampler.url()) };
    TinkerStart { sampler: Some(sampler), ..start(&server.url(), files) }
}

fn both() -> (FakeTinker, FakeVllm, TempDir, TinkerPolicy) {
    let (fake, sampler, files, adapters) = (fake(), vllm(|_| ()), files(), tempfile::tempdir().unwrap());
    let policy = open_at(&with(&fake, &sampler, files.path(), adapters.path())).unwrap();
    (fake, sampler, adapters, policy)
}

fn held(seed: u64) -> SampleRequest {
    SampleRequest { grammar: Some(Grammar::new(LARK, &tokenizer()).unwrap()), ..request("Write.", seed) }
}

fn names(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn texts_are_drawn_under_the_grammar_and_say_by_which_probability() {
    let (fake, sampler, _adapters, policy) = both();
    let before = sampler.calls("completions").len();
    let samples = policy.sample(&[held(0), held(1), held(2)], &settings()).unwrap();
    let texts: Vec<&str> = samples.iter().map(|sample| sample.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "one"]);
    assert_eq!((samples[1].logprobs.clone(), samples[1].tokens.clone()), (vec![-0.25; 4], written("two")));
    assert_eq!((fake.calls("asample").len(), policy.most_ratio()), (0, Some(2.0)));
    // All that a server would take from the files of its model is named.
    let mut asked = sampler.calls("completions").split_off(before);
    asked.sort_by_key(|call| call["seed"].as_u64());
    let name = sampler.adapters().into_keys().next().unwrap();
    let salt = asked[1].as_object_mut().unwrap().remove("cache_salt").unwrap();
    let expected = json!({
        "model": name, "prompt": request("Write.", 1).prompt, "max_tokens": 16, "seed": 1, "temperature": 1.0, "top_p": 1.0,
        "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "stop_token_ids": [tokenizer().end()], "logprobs": 0, "return_token_ids": true, "add_special_tokens": false,
        "structured_outputs": {"grammar": LARK},
    });
    assert_eq!(asked[1], expected);
    // What is kept of a prompt at the start, without an adapter, is kept apart.
    assert!(salt.as_str().unwrap().ends_with("-1") && sampler.calls("completions")[0]["cache_salt"] != salt, "{salt}");
    // Without a grammar it samples too.
    assert_eq!(policy.sample(&[request("Write.", 1)], &settings()).unwrap()[0].text, "two");
    assert_eq!(sampler.calls("completions").pop().unwrap().get("structured_outputs"), None);
}

#[test]
fn each_step_has_an_adapter_of_its_own_and_the_one_before_goes() {
    let (fake, sampler, adapters, mut policy) = both();
    let mut before = String::new();
    for _ in 0..3 {
        policy.sample(&[held(0), held(1)], &settings()).unwrap();
        policy.sample(&[held(2)], &settings()).unwrap();
        let loaded = sampler.adapters();
        assert_eq!(
            loaded.values().cloned().collect::<Vec<_>>(),
            [theta(&fake).to_string()],
            "the weights of the last step"
        );
        let name = loaded.into_keys().next().unwrap();
        assert!(name != before && name.starts_with("lemon-"), "{name}");
        assert_eq!(names(adapters.path()), [name.as_str()]);
        policy.update(&[example("one", 1.0)], &step(0.1)).unwrap();
        before = name;
    }
    assert_eq!((sampler.calls("load_lora_adapter").len(), sampler.calls("unload_lora_adapter").len()), (3, 2));
    let told = &sampler.calls("load_lora_adapter")[0];
    let there = adapters.path().canonicalize().unwrap().join(told["lora_name"].as_str().unwrap());
    assert_eq!((&told["lora_path"], &told["load_inplace"]), (&json!(there), &json!(true)));
    drop(policy);
    assert_eq!((sampler.adapters().len(), names(adapters.path()).len()), (0, 0));
}

#[test]
fn a_folder_may_have_another_name_where_the_sampler_is() {
    let (fake, sampler, files, adapters) = (fake(), vllm(|_| ()), files(), tempfile::tempdir().unwrap());
    let mut start = with(&fake, &sampler, files.path(), adapters.path());
    start.sampler.as_mut().unwrap().adapters_there = Some("/mnt/adapters".to_owned());
    let (fact, hint) = fault(open_at(&start).unwrap().sample(&[held(0)], &settings()));
    let name = names(adapters.path()).remove(0);
    assert_eq!(
        fact,
        format!(
            "the sampler refused `load_lora_adapter` with status 404: Loading lora {name} failed: No adapter found for \
                 /mnt/adapters/{name}"
        )
    );
    assert!(hint.unwrap().contains("`adapters_there`"));
}

#[test]
fn a_server_that_hands_its_weights_on_needs_no_folder() {
    let (fake, files) = (fake(), files());
    let sampler = vllm(|world| world.others = vec!["model_1".to_owned()]);
    let start = TinkerStart { sampler: Some(SamplerStart::new(sampler.url())), ..start(&fake.url(), files.path()) };
    let mut policy = open_at(&start).unwrap();
    assert_eq!(policy.sample(&[held(1)], &settings()).unwrap()[0].text, "two");
    let asked = sampler.calls("completions").pop().unwrap();
    assert_eq!((&asked["model"], sampler.calls("load_lora_adapter").len()), (&json!("model_1"), 0));
    // The server is told to hand on; its weights are not kept.
    let saved = fake.calls("save_weights_for_sampler");
    assert!(saved.len() == 1 && saved[0]["path"] == Value::Null, "{saved:?}");
    // The name stays after a step, and what was computed of prompts may not.
    policy.update(&[example("one", 1.0)], &step(0.1)).unwrap();
    policy.sample(&[held(1)], &settings()).unwrap();
    let again = sampler.calls("completions").pop().unwrap();
    assert_eq!(again["model"], asked["model"]);
    assert_ne!(again["cache_salt"], asked["cache_salt"]);
}

#[test]
fn what_is_scored_and_learned_knows_no_grammar() {
    let (fake, _sampler, _adapters, mut policy) = both();
    let held = |text: &str| {
        let grammar = Some(Grammar::new(LARK, &tokenizer()).unwrap());
        Sequence { grammar, ..sequence("Say it.", text) }
    };
    assert_eq!(policy.score(&[held("one")], 1.0).unwrap(), [vec![-2.0; 4]]);
    let mut batch = example("one", 1.0);
    batch.sequence = held("one");
    let report = policy.update(&[batch], &step(0.1)).unwrap();
    assert!(report.gradient_norm > 1.0 && theta(&fake) > 0.0, "{report:?}");
    // Where the server itself samples, such a text is refused as before.
    assert!(fault(open(&fake).score(&[held("one")], 1.0)).0.contains("knows no grammars"));
    // A text cannot begin in the middle of a grammar.
    let (fact, _) = fault(policy.resume(&[(super::sampler::held(0), written("o"))], &settings()));
    assert_eq!(fact, "a sampler cannot continue a text that has begun under a grammar");
}

#[test]
fn a_sampler_that_does_something_else_is_refused_at_the_start() {
    let (fake, files, adapters) = (fake(), files(), tempfile::tempdir().unwrap());
    let refused = |change: fn(&mut VllmWorld)| {
        let sampler = vllm(change);
        fault(open_at(&with(&fake, &sampler, files.path(), adapters.path())).map(drop))
    };
    let (fact, hint) = refused(|world| world.holds = false);
    assert_eq!(fact, "the sampler cannot be used: under a grammar that allows `~` alone it wrote \"on\"");
    assert!(hint.unwrap().contains("--structured-outputs-config.backend guidance"));
    let (fact, hint) = refused(|world| world.cut = false);
    assert_eq!(
        fact,
        "the sampler cannot be used: it tells log-probabilities from before the grammar: that of a forced token is -4.25, expected 0"
    );
    assert_eq!(hint, Some("start vLLM with --logprobs-mode processed_logprobs"));
    let (fact, hint) = refused(|world| world.model = "large".to_owned());
    assert_eq!(fact, "the sampler cannot be used: it serves `large`, not `tiny`");
    assert!(hint.unwrap().contains("[start.sampler]"));
    let (fact, hint) = refused(|world| world.key = Some("a-key".to_owned()));
    assert_eq!(fact, "the sampler refused `models` with status 401: Unauthorized");
    assert!(hint.unwrap().contains("api_key_env"));
    assert_eq!(fake.calls("create_session").len(), 0, "all of it before a model is made");

    let gone = vllm(|_| ()).url();
    let start = TinkerStart { sampler: Some(SamplerStart::new(&gone)), ..start(&fake.url(), files.path()) };
    let (fact, hint) = fault(open_at(&start).map(drop));
    assert!(fact.starts_with("no sampler answers at http://127.0.0.1:"), "{fact}");
    assert!(hint.unwrap().contains("[start.sampler]"));
    let with = |change: fn(&mut SamplerStart)| {
        let mut start = start.clone();
        change(start.sampler.as_mut().unwrap());
        fault(open_at(&start).map(drop)).0
    };
    assert_eq!(with(|it| it.most_ratio = 0.5), "`most_ratio` of the sampler must be a number of at least 1, got 0.5");
    assert!(
        with(|it| it.adapters_there = Some("/mnt".to_owned())).contains("the folder of `adapters`, which is missing")
    );
    assert!(
        with(|it| it.api_key_env = Some("LEMON_NO_SUCH_KEY".to_owned()))
            .contains("`LEMON_NO_SUCH_KEY`, which is not set")
    );
}

#[test]
fn weights_that_cannot_be_handed_on_are_explained() {
    let fake = FakeTinker::start(TinkerWorld { places: 9, ..world() }).unwrap();
    let (files, adapters) = (files(), tempfile::tempdir().unwrap());
    let sampler = vllm(|world| world.adapters = false);
    let sample = |sampler: &FakeVllm| {
        let policy = open_at(&with(&fake, sampler, files.path(), adapters.path())).unwrap();
        fault(policy.sample(&[held(0)], &settings()))
    };
    let (fact, hint) = sample(&sampler);
    assert_eq!(fact, "the sampler refused `load_lora_adapter` with status 404: Not Found");
    assert!(hint.unwrap().contains("VLLM_ALLOW_RUNTIME_LORA_UPDATING"));
    // What SkyRL's FSDP backend saves is a whole model.
    let sampler = vllm(|_| ());
    fake.fault("download", TinkerFault::Says(String::new()));
    let (fact, hint) = sample(&sampler);
    assert!(fact.contains("its archive has no `adapter_config.json`: it is not that of an adapter"), "{fact}");
    assert!(hint.unwrap().contains("has to hand its weights on by itself"));
    // A download that fails is made again.
    fake.fault("download", TinkerFault::Status(503));
    let policy = open_at(&with(&fake, &sampler, files.path(), adapters.path())).unwrap();
    assert_eq!(policy.sample(&[held(0)], &settings()).unwrap()[0].text, "one");
}
