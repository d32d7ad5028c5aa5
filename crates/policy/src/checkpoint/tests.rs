use super::*;
use std::collections::BTreeMap;

type State = BTreeMap<String, u64>;

const BEGUN: [(&str, &str); 1] = [("settings", "s")];

fn open(folder: &Path) -> Result<Checkpoints, KeepError> {
    Checkpoints::new(folder, &BEGUN.map(|(name, part)| (name, part.to_owned())))
}

fn save(checkpoints: &Checkpoints, step: u64) {
    let policy = |folder: &Path| {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("model.safetensors"), format!("the weights of step {step}")).unwrap();
        Ok(())
    };
    checkpoints.record(METRICS, &State::from([("step".into(), step)])).unwrap();
    checkpoints.save(step, &State::from([("step".into(), step)]), policy).unwrap();
}

fn resume(folder: &Path) -> Result<Option<u64>, KeepError> {
    let found = open(folder)?.resume(|state: &State| state["step"])?;
    Ok(found.map(|(state, folder)| {
        let weights = fs::read_to_string(folder.join("model.safetensors")).unwrap();
        assert_eq!(weights, format!("the weights of step {}", state["step"]));
        state["step"]
    }))
}

/// A folder with the checkpoints of steps 1 to 4, of which two are kept.
fn trained() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = open(folder.path()).unwrap();
    (1..=4).for_each(|step| save(&checkpoints, step));
    folder
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_last_two_are_kept() {
    let folder = trained();
    assert_eq!(steps(folder.path()).unwrap(), [3, 4]);
    assert_eq!(damage(folder.path()).unwrap(), [""; 0]);
    assert_eq!(resume(folder.path()).unwrap(), Some(4));
}

/// Wherever a bit of a file of the newer checkpoint is another, it is not used, and the older one is.
#[test]
fn a_flipped_bit_is_found() {
    for name in ["model.safetensors", "state.json", "sums.json"] {
        let length = fs::metadata(trained().path().join("checkpoint-00000004").join(name)).unwrap().len() as usize;
        for at in (0..length).step_by(7) {
            let folder = trained();
            let newest = folder.path().join("checkpoint-00000004");
            flip(&newest.join(name), at);
            let facts = damage(folder.path()).unwrap();
            assert!(
                facts.len() == 1 && facts[0].contains("checkpoint-00000004 is damaged: "),
                "{name} {at}: {facts:?}"
            );
            assert_eq!(resume(folder.path()).unwrap(), Some(3), "{name} {at}");
            // What was recorded after it comes again, and so does the checkpoint.
            assert_eq!(fs::read_to_string(folder.path().join(METRICS)).unwrap().lines().count(), 3);
            save(&open(folder.path()).unwrap(), 4);
            assert_eq!(resume(folder.path()).unwrap(), Some(4));
        }
    }
}

#[test]
fn what_is_missing_is_found_too() {
    for name in ["model.safetensors", "state.json", "sums.json"] {
        let folder = trained();
        fs::remove_file(folder.path().join("checkpoint-00000004").join(name)).unwrap();
        assert_eq!(resume(folder.path()).unwrap(), Some(3), "{name}");
        assert!(folder.path().join("damaged-00000004").exists());
    }
}

#[test]
fn without_a_whole_checkpoint_nothing_is_begun_over() {
    let folder = trained();
    for step in [3, 4] {
        flip(&checkpoint(folder.path(), step).join("model.safetensors"), 0);
    }
    let error = resume(folder.path()).unwrap_err();
    assert!(matches!(error, KeepError::Damaged { .. }) && error.hint().is_some(), "{error}");
    assert!(error.to_string().contains("checkpoint-00000003: model.safetensors is not what was written"), "{error}");
    assert_eq!(steps(folder.path()).unwrap(), [3, 4]);
}

#[test]
fn one_at_a_time() {
    let folder = trained();
    let first = open(folder.path()).unwrap();
    let error = open(folder.path()).err().unwrap();
    assert!(matches!(error, KeepError::Busy { .. }) && error.hint().is_some(), "{error}");
    assert!(matches!(damage(folder.path()), Err(KeepError::Busy { .. })));
    drop(first);
    assert_eq!(resume(folder.path()).unwrap(), Some(4));
}

#[test]
fn a_folder_of_others_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
    let error = open(folder.path()).err().unwrap();
    assert!(matches!(error, KeepError::Foreign { .. }) && error.to_string().contains("it holds thesis.txt"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // Not even if it has a file of the same name.
    for record in ["{}", "[]", "nonsense", r#"{"name": "a package"}"#] {
        fs::write(folder.path().join(RUN), record).unwrap();
        assert!(matches!(open(folder.path()).err(), Some(KeepError::OtherRun { .. })), "{record}");
        assert_eq!(fs::read_to_string(folder.path().join(RUN)).unwrap(), record);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
    // What a training leaves before it begins is no obstacle.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("warm")).unwrap();
    fs::write(folder.path().join("replies.jsonl"), "").unwrap();
    open(folder.path()).unwrap();
    assert!(check_folder(&folder.path().join("new")).is_ok());
}

#[test]
fn a_damaged_line_is_reported_and_one_cut_short_is_not() {
    let folder = trained();
    let path = folder.path().join(METRICS);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"ste")).unwrap();
    assert_eq!(damage(folder.path()).unwrap(), [""; 0]);
    fs::write(&path, text.replacen("{\"step\":2}", "{\"ste", 1)).unwrap();
    let facts = damage(folder.path()).unwrap();
    assert!(facts.len() == 1 && facts[0].contains("metrics.jsonl line 2: "), "{facts:?}");
    assert_eq!(resume(folder.path()).unwrap(), Some(4));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
}

/// A state without a JSON form leaves the checkpoints as they are.
#[test]
fn a_state_that_cannot_be_written_replaces_nothing() {
    let folder = trained();
    let state = BTreeMap::from([(vec![1_u8], 0_u64)]);
    let policy = |folder: &Path| {
        fs::create_dir_all(folder).unwrap();
        Ok(())
    };
    let error = open(folder.path()).unwrap().save(5, &state, policy).unwrap_err();
    assert!(matches!(error, KeepError::Json(_)), "{error}");
    assert_eq!(resume(folder.path()).unwrap(), Some(4));
}
