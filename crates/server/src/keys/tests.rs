use super::*;

fn keys(folder: &tempfile::TempDir) -> Keys {
    Keys::open_to_spend(&folder.path().join("keys.db")).unwrap()
}

#[test]
fn a_key_is_seen_once_and_kept_as_a_hash() {
    let folder = tempfile::tempdir().unwrap();
    let keys = keys(&folder);
    let secret = keys.add("ann", &KeyLimits::default()).unwrap();
    assert!(secret.starts_with(PREFIX) && secret.len() == PREFIX.len() + LETTERS);
    assert_eq!(keys.find(&secret).unwrap().unwrap().name, "ann");
    assert!(keys.find(&secret[1..]).unwrap().is_none() && keys.find("").unwrap().is_none());
    drop(keys);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let bare = &secret.as_bytes()[PREFIX.len()..];
        assert!(!bytes.windows(bare.len()).any(|part| part == bare), "the key is in a file");
    }
}

#[test]
fn names_are_unique_and_plain() {
    let folder = tempfile::tempdir().unwrap();
    let keys = keys(&folder);
    keys.add("ann", &KeyLimits::default()).unwrap();
    assert!(matches!(keys.add("ann", &KeyLimits::default()), Err(KeyError::Taken(name)) if name == "ann"));
    for name in ["", "a b", "ä", &"x".repeat(61)] {
        assert!(matches!(keys.add(name, &KeyLimits::default()), Err(KeyError::Name(_))), "{name}");
    }
    keys.remove("ann").unwrap();
    assert!(matches!(keys.remove("ann"), Err(KeyError::Unknown(_))));
    assert!(!keys.exist().unwrap());
}

#[test]
fn one_server_spends_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = keys(&folder);
    let second = keys(&folder);
    assert!(first.are_ours() && !second.are_ours());
    let secret = second.add("ann", &KeyLimits::default()).unwrap();
    let caller = Caller::with_key(second.find(&secret).unwrap().unwrap());
    assert_eq!(second.admit(&caller, &[]).err().unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(first.admit(&caller, &[]).is_ok());
}

#[test]
fn requests_of_a_minute_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let keys = keys(&folder);
    let secret = keys.add("ann", &KeyLimits { rpm: Some(2), ..KeyLimits::default() }).unwrap();
    let caller = Caller::with_key(keys.find(&secret).unwrap().unwrap());
    assert!(keys.admit(&caller, &[]).is_ok() && keys.admit(&caller, &[]).is_ok());
    let refusal = keys.admit(&caller, &[]).err().unwrap();
    assert_eq!((refusal.status.as_u16(), refusal.code), (429, Some("rate_limit_exceeded")));
    assert!(refusal.retry_after.is_some_and(|wait| (1..=60).contains(&wait)));
}

#[test]
fn a_budget_outlives_the_process_that_spends_it() {
    let folder = tempfile::tempdir().unwrap();
    let limits = KeyLimits { budget_tokens: Some(1_000), ..KeyLimits::default() };
    let first = keys(&folder);
    let secret = first.add("ann", &limits).unwrap();
    let caller = Caller::with_key(first.find(&secret).unwrap().unwrap());
    let grant = first.admit(&caller, &[]).unwrap();
    grant.shared().unwrap().enter(990, 0.0);
    drop(grant);
    assert_eq!(first.list().unwrap()[0].spent_tokens, 990);
    drop(first);
    let second = keys(&folder);
    let grant = second.admit(&caller, &[]).unwrap();
    assert_eq!(grant.shared().unwrap().spent().0, 990);
    grant.shared().unwrap().enter(10, 0.0);
    drop(grant);
    let refusal = second.admit(&caller, &[]).err().unwrap();
    assert_eq!((refusal.status.as_u16(), refusal.code), (429, Some("insufficient_quota")));
    assert!(refusal.fact.contains("1000 tokens"), "{}", refusal.fact);
}
