//! What a server is asked before the first text, and what is said where it cannot be used.

use crate::common::*;
use lemon_fakes::{FakeTinker, TinkerFault, TinkerWorld};
use lemon_model::Policy;
use lemon_tinker::{Reduction, TinkerKey, TinkerPolicy, TinkerStart};

#[test]
fn how_a_loss_is_divided_is_measured_and_nothing_of_it_stays() {
    for (averages, expected) in [(true, Reduction::Mean), (false, Reduction::Sum)] {
        // Another client left a gradient in the place.
        let fake = FakeTinker::start(TinkerWorld { averages, left_gradient: 5.0, ..world() }).unwrap();
        let mut policy = open(&fake);
        assert_eq!((policy.reduction(), policy.steps(), theta(&fake)), (expected, 0, 0.0));
        let asked = ["get_server_capabilities", "create_session", "create_model", "save_weights", "optim_step"];
        let measured = ["forward_backward", "optim_step", "forward_backward", "optim_step", "load_weights"];
        assert_eq!(fake.operations(), [&asked[..], &measured].concat());
        assert_eq!(fake.calls("create_model")[0]["lora_config"], serde_json::json!({"rank": 4, "seed": 7}));
        // The first step is that of its own gradient alone: 4 tokens of weight 1/2. The optimiser keeps a tenth of it.
        policy.update(&[example("one", 1.0)], &step(1.0)).unwrap();
        assert!((theta(&fake) - 0.2).abs() < 1e-6, "{}", theta(&fake));
    }
}

#[test]
fn a_recipe_may_say_how_a_loss_is_divided() {
    let (fake, folder) = (fake(), files());
    let known = TinkerStart { reduction: Some(Reduction::Mean), ..start(&fake.url(), folder.path()) };
    assert_eq!(open_at(&known).unwrap().reduction(), Reduction::Mean);
    assert_eq!(fake.calls("forward_backward").len(), 0);
    // A server that says nothing of its gradients has to be told about.
    for says in ["{}", r#"{"metrics": {"loss": 1.0}}"#, r#"{"metrics": {"grad_norm": 0.0}}"#] {
        let silent = crate::common::fake();
        (0..3).for_each(|_| silent.fault("optim_step", TinkerFault::Says(says.to_owned())));
        let (fact, hint) = fault(open_at(&start(&silent.url(), folder.path())).map(drop));
        assert!(fact.starts_with("it cannot be measured whether the Tinker server sums or averages"), "{fact}");
        assert!(hint.unwrap().contains("reduction"));
        assert_eq!(silent.weights().into_iter().flatten().count(), 0, "its place is free again");
    }
}

#[test]
fn a_server_that_cannot_be_used_is_named_with_a_hint() {
    let folder = files();
    let refused = |start: &TinkerStart| fault(open_at(start).map(drop));
    let gone = fake().url();
    let (fact, hint) = refused(&start(&gone, folder.path()));
    assert!(fact.starts_with(&format!("no Tinker server answers at {gone}: ")), "{fact}");
    assert!(hint.unwrap().contains("TINKER_BASE_URL"));
    let (fact, hint) = refused(&start("localhost", folder.path()));
    assert!(fact.contains("the address of the Tinker server, `localhost`, cannot be used"), "{fact}");
    assert!(hint.unwrap().contains("http://HOST:PORT"));

    let fake = fake();
    let other = TinkerStart { base_model: "large".to_owned(), ..start(&fake.url(), folder.path()) };
    assert_eq!(refused(&other).0, "the Tinker server serves `tiny`; the recipe names `large`");
    assert_eq!(fake.calls("create_session").len(), 0, "it is refused before anything is made");
}

#[test]
fn what_the_folder_lacks_is_said_before_a_server_is_asked() {
    let fake = fake();
    let empty = tempfile::tempdir().unwrap();
    let (fact, _) = fault(open_at(&start(&fake.url(), empty.path())).map(drop));
    assert!(fact.contains("tokenizer.json"), "{fact}");
    let folder = files();
    let with = |change: fn(&mut TinkerStart)| {
        let mut start = start(&fake.url(), folder.path());
        change(&mut start);
        fault(open_at(&start).map(drop)).0
    };
    assert!(with(|it| it.positions = Some(65)).starts_with("`positions` must be 2 to 64, as in "));
    assert!(with(|it| it.positions = Some(1)).contains("got 1"));
    assert_eq!(with(|it| it.in_flight = 0), "`in_flight` and `timeout_s` must be at least 1, got 0");
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    assert!(with(|_| ()).ends_with("config.json: it has no `vocab_size`"));
    assert_eq!(fake.operations(), Vec::<String>::new());
}

#[test]
fn a_key_is_shown_to_the_server_and_to_no_one_else() {
    let secret = "tml-secret-of-the-test";
    let fake = FakeTinker::start(TinkerWorld { key: Some(secret.to_owned()), ..world() }).unwrap();
    let folder = files();
    let start = start(&fake.url(), folder.path());
    let open = |key: TinkerKey| TinkerPolicy::open(&start, (4, 7), &key, patience()).map(drop);
    open(TinkerKey::new(format!(" {secret}\n"))).unwrap();
    for key in [TinkerKey::default(), TinkerKey::new("another")] {
        let (fact, hint) = fault(open(key));
        assert!(fact.contains("refused `get_server_capabilities` with status 401"), "{fact}");
        assert_eq!(hint, Some("TINKER_API_KEY holds the key of the server"));
    }
    // A server that repeats the key does not get it into a message.
    fake.fault("create_model", TinkerFault::Fails(format!("no place for {secret}")));
    let (fact, _) = fault(open(TinkerKey::new(secret)));
    assert!(fact.contains("no place for ***") && !fact.contains(secret), "{fact}");
}

#[test]
fn places_are_freed_and_where_none_is_left_it_says_when_one_will_be() {
    let fake = FakeTinker::start(TinkerWorld { places: 1, ..world() }).unwrap();
    let first = open(&fake);
    let folder = files();
    let (fact, hint) = fault(open_at(&start(&fake.url(), folder.path())).map(drop));
    assert_eq!(fact, "`create_model` failed on the Tinker server: Maximum number of LoRA adapters (2) reached");
    assert!(hint.unwrap().contains("five minutes"));
    drop(first);
    assert_eq!(fake.weights(), [None]);
    open(&fake);
}
