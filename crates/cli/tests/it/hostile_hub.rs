//! `lemon models pull` against hubs that mean harm: nothing outside the cache is touched, nothing is kept unchecked, and the
//! token stays with the hub that was asked.

use crate::common::{Draws, Folder, Ran};
use crate::models::{CONFIG, ESCAPE, NAME, TOKENIZER, WEIGHTS, hub, hub_of, large, place, small};
use lemon_fakes::{FakeHub, HubFile, Lie, Trouble, fault_rounds};
use std::path::PathBuf;

/// From where a content, a snapshot or a reference lies to `outside`.
const WAYS_OUT: [&str; 7] = [
    "../../../../outside/config.json",
    "../../../outside",
    "..",
    "/etc/hostname",
    "..\\..\\outside",
    "a/b",
    "no-digits-but-forty-characters-in-length",
];

/// A folder with files beside the cache that must stay as they are.
fn guarded() -> Folder {
    Folder::new().file("outside/config.json", "precious").file("hf/hub/outside/config.json", "precious")
}

#[track_caller]
fn pull(folder: &Folder, hub: &FakeHub) -> Ran {
    let ran = folder.lemon(&["models", "pull", NAME, "--endpoint", &hub.url()]);
    let repository = folder.path("hf/hub/models--owner--name");
    let mut outside: Vec<(PathBuf, Vec<u8>)> =
        folder.all_bytes().into_iter().filter(|(path, _)| !path.starts_with(&repository)).collect();
    outside.sort();
    let guarded = ["hf/hub/outside/config.json", "outside/config.json"];
    assert_eq!(outside, guarded.map(|path| (folder.path(path), b"precious".to_vec())), "{}", ran.stderr);
    ran
}

fn etag(file: &str, etag: &str) -> Lie {
    Lie::Etag { file: file.into(), etag: etag.into() }
}

/// The files have the checksums of the list, whatever their headers say.
#[test]
fn a_checksum_in_a_header_becomes_no_path() {
    for way in WAYS_OUT {
        let (hub, folder) = (hub(), guarded());
        hub.lie(etag("config.json", way));
        hub.lie(etag(WEIGHTS, way));
        pull(&folder, &hub).ok();
        for file in [small(CONFIG), large(WEIGHTS)] {
            assert_eq!(std::fs::read(place(&folder, &file.name)).unwrap(), file.content, "{way}");
        }
    }
}

/// A text that a path, a header or a terminal may trip over.
fn odd_text(draws: &mut Draws) -> String {
    const PIECES: [&str; 14] = [
        "..",
        "/",
        "\\",
        "a",
        "0",
        ".",
        "outside",
        "config.json",
        "%2e%2e",
        "%2f",
        " ",
        "~",
        "models--owner--name",
        "\"",
    ];
    (0..1 + draws.below(12)).map(|_| PIECES[draws.below(PIECES.len() as u64) as usize]).collect()
}

/// Several lies and troubles at a time: whatever is pulled is what was listed, and [`pull`] sees that nothing else changes.
#[test]
fn lies_by_chance_touch_nothing() {
    for seed in 0..fault_rounds(8) {
        let draws = &mut Draws::new(seed);
        let mut files = [small(CONFIG), small(TOKENIZER), large(WEIGHTS)];
        for file in &mut files {
            if draws.below(4) == 0 {
                file.sum = odd_text(draws);
            }
        }
        let extra = (0..draws.below(4)).map(|_| HubFile { name: odd_text(draws), ..large(WEIGHTS) });
        let extra: Vec<HubFile> = extra.collect();
        let honest =
            files.iter().all(|file| !file.sum.contains(|c: char| !c.is_ascii_hexdigit()) && file.sum.len() >= 40);
        let hub = hub_of(&"a".repeat(40), files.iter().cloned().chain(extra).collect());
        let folder = guarded();
        for _ in 0..draws.below(4) {
            let name = ["config.json", "tokenizer.json", WEIGHTS][draws.below(3) as usize];
            match draws.below(4) {
                0 => hub.lie(etag(name, &odd_text(draws))),
                1 => hub.lie(Lie::Commit(odd_text(draws))),
                2 => hub.lie(Lie::Unlisted),
                _ => hub.trouble(name, Trouble::Corrupt),
            }
        }
        let ran = pull(&folder, &hub);
        assert!(matches!(ran.code, Some(0 | 1)), "seed {seed}: {}", ran.exchange());
        assert!(ran.code == Some(1) || honest, "seed {seed}: taken unchecked");
        for file in &files {
            if let Ok(kept) = std::fs::read(place(&folder, &file.name)) {
                assert_eq!(kept, file.content, "seed {seed}: {}", file.name);
            }
        }
    }
}

/// A mirror without checksums in its list: those of the headers count, and nothing is taken without.
#[test]
fn a_file_without_a_checksum_is_refused() {
    for (way, name) in WAYS_OUT.iter().flat_map(|way| [(*way, "config.json"), (*way, WEIGHTS)]) {
        let (hub, folder) = (hub(), guarded());
        hub.lie(Lie::Unlisted);
        hub.lie(etag(name, way));
        let ran = pull(&folder, &hub).code(1);
        let fact = format!("error: {name} cannot be checked: the hub names it by `");
        assert!(ran.stderr.contains(&fact) && ran.stderr.contains("hint: "), "{way}: {}", ran.stderr);
        assert!(place(&folder, name).symlink_metadata().is_err(), "{way}");
    }
    let (hub, folder) = (hub(), guarded());
    hub.lie(Lie::Unlisted);
    pull(&folder, &hub).ok();
    assert_eq!(std::fs::read(place(&folder, WEIGHTS)).unwrap(), large(WEIGHTS).content);
    let (hub, folder) = (crate::models::hub(), guarded());
    hub.lie(Lie::Unlisted);
    hub.trouble("tokenizer.json", Trouble::Corrupt);
    let ran = pull(&folder, &hub).code(1);
    assert!(ran.stderr.contains("the hub sent something else as tokenizer.json: its checksum is "), "{}", ran.stderr);
    assert!(place(&folder, "tokenizer.json").symlink_metadata().is_err());
}

#[test]
fn a_commit_in_a_header_becomes_no_path() {
    for way in WAYS_OUT {
        let (hub, folder) = (hub(), guarded());
        hub.lie(Lie::Commit(way.into()));
        let ran = pull(&folder, &hub).code(1);
        assert!(ran.stderr.contains("error: config.json of commit 0123"), "{way}: {}", ran.stderr);
        assert!(!folder.path("hf/hub/models--owner--name/refs/main").exists());
    }
}

/// An id in the list that no file can be checked against: it must not switch the check off.
#[test]
fn an_id_that_is_no_checksum_is_refused() {
    for id in WAYS_OUT.into_iter().chain(["", "Z3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85z"]) {
        let config = HubFile { sum: id.into(), ..small(CONFIG) };
        let (hub, folder) = (hub_of(&"a".repeat(40), vec![config, small(TOKENIZER), large(WEIGHTS)]), guarded());
        let ran = pull(&folder, &hub).code(1);
        assert!(ran.stderr.contains("error: config.json cannot be checked: "), "{id}: {}", ran.stderr);
        assert_eq!(hub.sent(), [], "{id}");
    }
}

#[test]
fn names_of_files_become_no_paths() {
    let names = ["../config.json", "/etc/hostname", "a\\b", "a\u{1b}[2J", "a\nb", "a\0b", "..", "x/../../y"];
    // Names that were not asked for do not matter.
    let odd = names.map(|name| HubFile { name: name.into(), ..large(name) });
    let files = [small(CONFIG), small(TOKENIZER), large(WEIGHTS)].into_iter().chain(odd);
    pull(&guarded(), &hub_of(&"a".repeat(40), files.collect())).ok();
    let (hub, folder) = (hub_of(&"a".repeat(40), vec![small(CONFIG), small(TOKENIZER), small(ESCAPE)]), guarded());
    let ran = pull(&folder, &hub).code(1);
    assert!(ran.stderr.contains("names \"../../../escaped.safetensors\""), "{}", ran.stderr);
}

#[test]
fn no_more_is_taken_than_was_stated() {
    let (folder, weights) = (guarded(), large(WEIGHTS));
    let mirror = hub_of(&"a".repeat(40), vec![HubFile { content: vec![7; 1 << 20], ..weights.clone() }]);
    let hub = hub_of(&"a".repeat(40), vec![small(CONFIG), small(TOKENIZER), weights]);
    hub.lie(Lie::Elsewhere(mirror.url()));
    let ran = pull(&folder, &hub).code(1);
    let fact = "error: the hub sent something else as model.safetensors: more than 300000 bytes";
    assert!(ran.stderr.contains(fact), "{}", ran.stderr);
}

/// The cache holds a foreign link where a file is to be written.
#[cfg(unix)]
#[test]
fn links_in_the_cache_are_not_followed() {
    for (link, to) in [
        (format!("blobs/{}.part", CONFIG[2]), "outside/config.json"),
        (format!("blobs/{}.lock", CONFIG[2]), "outside/config.json"),
        ("blobs".into(), "outside"),
        ("snapshots".into(), "outside"),
    ] {
        let (hub, folder) = (hub(), guarded());
        let link = folder.path("hf/hub/models--owner--name").join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(folder.path(to), &link).unwrap();
        let ran = pull(&folder, &hub);
        assert!(ran.code.is_some_and(|code| code > 0) && ran.stderr.contains("error: "), "{}", ran.stderr);
    }
}

#[cfg(unix)]
#[test]
fn other_names_of_a_part_keep_their_content() {
    let (hub, folder) = (hub(), guarded());
    let part = folder.path(&format!("hf/hub/models--owner--name/blobs/{}.part", CONFIG[2]));
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::hard_link(folder.path("outside/config.json"), &part).unwrap();
    pull(&folder, &hub).ok();
}

#[cfg(unix)]
#[test]
fn content_of_another_repository_stays() {
    let (hub, folder) = (hub(), Folder::new().file("hf/hub/models--other--name/blobs/ee", "theirs"));
    let pull = || folder.lemon(&["models", "pull", NAME, "--endpoint", &hub.url()]).ok();
    pull();
    let link = place(&folder, "config.json");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(folder.path("hf/hub/models--other--name/blobs/ee"), &link).unwrap();
    let ran = pull();
    assert!(ran.stderr.contains("config.json is damaged"), "{}", ran.stderr);
    assert_eq!(folder.read("hf/hub/models--other--name/blobs/ee"), "theirs");
    assert_eq!(std::fs::read(&link).unwrap(), small(CONFIG).content);
}

/// Two servers that note what they are shown. The second is another origin by its port.
#[test]
fn the_token_stays_with_the_hub() {
    let token = [("HF_TOKEN", "hf_secret")];
    let shown = |hub: &FakeHub| -> Vec<bool> {
        let is_shown = |authorization: Option<String>| authorization.is_some_and(|it| it.contains("hf_secret"));
        hub.asked().into_iter().map(|asked| is_shown(asked.authorization)).collect()
    };
    let run = |hub: &FakeHub| {
        let folder = guarded();
        folder.lemon_with(&token, &["models", "pull", NAME, "--endpoint", &hub.url()]).ok();
        assert_eq!(std::fs::read(place(&folder, WEIGHTS)).unwrap(), large(WEIGHTS).content);
    };
    // Large files lie elsewhere.
    let (home, store) = (hub(), hub());
    home.require_token("hf_secret");
    home.lie(Lie::Elsewhere(store.url()));
    run(&home);
    assert!(shown(&home).iter().all(|shown| *shown), "{:?}", home.asked());
    assert_eq!(shown(&store), [false], "{:?}", store.asked());
    // The list of files, and small files.
    for path in ["/api/models", "/resolve"] {
        let (home, other) = (hub(), hub());
        home.lie(Lie::Away { path: path.into(), to: other.url() });
        run(&home);
        assert!(!shown(&other).is_empty() && shown(&other).iter().all(|shown| !shown), "{:?}", other.asked());
    }
    // Away and back again: who sends us back may have chosen the path.
    let (home, other) = (hub(), hub());
    home.lie(Lie::Elsewhere(other.url()));
    other.lie(Lie::Away { path: "/elsewhere".into(), to: home.url() });
    run(&home);
    let back: Vec<_> = home.asked().into_iter().filter(|asked| asked.path.starts_with("/elsewhere")).collect();
    assert!(!back.is_empty() && back.iter().all(|asked| asked.authorization.is_none()), "{back:?}");
}

/// A host by another name is another origin, though it is the same machine and port.
#[test]
fn another_name_is_another_origin() {
    let (home, folder) = (hub(), guarded());
    home.lie(Lie::Elsewhere(home.url().replace("127.0.0.1", "localhost")));
    let token = [("HF_TOKEN", "hf_secret")];
    folder.lemon_with(&token, &["models", "pull", NAME, "--endpoint", &home.url()]).ok();
    let (elsewhere, here): (Vec<_>, Vec<_>) =
        home.asked().into_iter().partition(|asked| asked.path.starts_with("/elsewhere"));
    assert!(elsewhere.iter().all(|asked| asked.authorization.is_none()), "{elsewhere:?}");
    assert!(here.iter().all(|asked| asked.authorization.is_some()), "{here:?}");
    assert_eq!(elsewhere.len(), 1);
}
