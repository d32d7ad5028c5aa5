//! The table of sources: whole, true where the public data is at hand, and safe to follow where it is a user's own.

use crate::common;
use std::path::{Component, Path};

use lemon_task::{Mismatch, SetName, SourceFile, parse_sources, sources};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn the_table_is_whole() {
    let files = sources();
    let count = |set| files.iter().filter(|file| file.set == set).count();
    assert_eq!(SetName::PUBLIC.map(count), [171, 2, 2, 1, 1, 1, 1]);
    // It keeps the rules for a table of one's own, and survives being written as one.
    assert_eq!(parse_sources(&serde_json::to_string(&files).unwrap()).unwrap(), files);
    for file in &files {
        let commit = file.url.split('/').nth(5).unwrap();
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", file.url);
    }
}

#[test]
fn the_table_is_true() {
    let Some(folder) = common::public_data() else { return };
    for file in sources() {
        let mut verifier = file.verifier();
        let checked = verifier.add(&std::fs::read(folder.join(&file.path)).unwrap()).and_then(|()| verifier.finish());
        assert_eq!(checked, Ok(()), "{}", file.path);
    }
}

#[test]
fn a_mirror_takes_the_place_of_scheme_and_host() {
    let check = |url: &str, mirror: &str, expected: &str| {
        let file = SourceFile { url: url.to_owned(), ..file_of("") };
        assert_eq!(file.url_at(mirror), expected, "{url} at {mirror}");
    };
    check("https://host/a/b.json", "http://127.0.0.1:80", "http://127.0.0.1:80/a/b.json");
    check("https://host/a/b.json", "https://mirror/data/", "https://mirror/data/a/b.json");
    check("http://host:99/a?b=c://d", "https://mirror", "https://mirror/a?b=c://d");
    check("https://host", "https://mirror", "https://mirror/");
}

/// Changes one field of a sound row.
fn check_row(field: &str, value: Value, expected: Result<(), &str>) {
    let mut row = json!({
        "set": "svamp", "path": "a/b.json", "url": "https://host/b", "sha256": "aB".repeat(32), "bytes": 3, "license": "MIT",
    });
    row[field] = value.clone();
    match (parse_sources(&json!([row]).to_string()), expected) {
        (Ok(files), Ok(())) => assert_eq!(files[0].sha256, "ab".repeat(32)),
        (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{field} {value}: {error}"),
        (found, _) => panic!("{field} {value}: {found:?}"),
    }
}

#[test]
fn a_table_of_ones_own() {
    check_row("status", json!("fetched"), Ok(()));
    check_row("path", json!("b.json"), Ok(()));
    for path in ["", "/etc/passwd", "..", "../b", "a/../b", "a//b", "a/", ".", ".b.part", "a\\b", "C:b", "a\0b"] {
        check_row("path", json!(path), Err("the path must be relative"));
    }
    check_row("url", json!("file:///etc/passwd"), Err("http://"));
    check_row("sha256", json!("ab"), Err("64 hexadecimal digits"));
    check_row("sha256", json!("xy".repeat(32)), Err("64 hexadecimal digits"));
    check_row("bytes", json!(u64::MAX), Err("1024 MiB"));
    check_row("bytes", json!(-1), Err("invalid value"));
    check_row("set", json!("nosuch"), Err("expected one of mmlu, gsm8k"));
    check_row("set", json!("custom"), Err("expected one of mmlu, gsm8k"));
    check_row("license", json!(null), Err("invalid type"));
    let twice = serde_json::to_string(&[file_of("a"), file_of("b")]).unwrap();
    assert_eq!(parse_sources(&twice).unwrap_err().to_string(), "`own/file`: it is listed twice");
    assert!(parse_sources("{}").unwrap_err().to_string().starts_with("not a list of {set, path"));
}

#[test]
fn a_content_differs_in_length_or_in_checksum() {
    let file = file_of("abc");
    let check = |content: &str, expected| assert_eq!(verify(&file, &[content.as_bytes()]), expected, "{content}");
    check("abc", Ok(()));
    check("", Err(Mismatch::Length { found: 0, expected: 3 }));
    check("ab", Err(Mismatch::Length { found: 2, expected: 3 }));
    check("abcd", Err(Mismatch::Long { expected: 3 }));
    let found = "cb8379ac2098aa165029e3938a51da0bcecfc008fd6795f401178647f96c5b34".to_owned(); // `sha256sum` says so
    check("def", Err(Mismatch::Checksum { found, expected: file.sha256.clone() }));
}

proptest! {
    #[test]
    fn only_the_right_content_is_accepted(content: Vec<u8>, other: Vec<u8>, cuts in prop::collection::vec(0usize..100, 0..5)) {
        let file = file_of(&content);
        prop_assert_eq!(verify(&file, &pieces(&content, &cuts)), Ok(()));
        prop_assert_eq!(verify(&file, &pieces(&other, &cuts)).is_ok(), content == other);
    }

    #[test]
    fn one_flipped_bit_is_noticed(content in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, bit in 0..8u32) {
        let file = file_of(&content);
        let mut flipped = content;
        let at = at.index(flipped.len());
        flipped[at] ^= 1u8 << bit;
        prop_assert!(verify(&file, &[&flipped]).is_err());
    }

    /// No table names a file outside the folder, or one that a download in progress might use.
    #[test]
    fn a_path_stays_in_the_folder(path in r"[a./\\:~ ]{0,12}") {
        let text = json!([SourceFile { path: path.clone(), ..file_of("") }]).to_string();
        if parse_sources(&text).is_ok() {
            prop_assert!(Path::new(&path).components().all(|part| matches!(part, Component::Normal(_))));
            prop_assert!(path.split('/').all(|name| !name.starts_with('.')));
        }
    }

    #[test]
    fn no_text_is_too_much(text in r#"\PC*|\[[{}\[\]":,a-z0-9]*\]"#) {
        prop_assert!(parse_sources(&text).map_or(true, |files| files.is_empty()));
    }
}

/// The row of a file with this content.
fn file_of(content: impl AsRef<[u8]>) -> SourceFile {
    let bytes = content.as_ref().len() as u64;
    let none = SourceFile {
        set: SetName::Svamp,
        path: "own/file".to_owned(),
        url: "https://host/file".to_owned(),
        sha256: "0".repeat(64),
        bytes,
        license: "MIT".to_owned(),
    };
    match verify(&none, &[content.as_ref()]) {
        Err(Mismatch::Checksum { found, .. }) => SourceFile { sha256: found, ..none },
        other => panic!("{other:?}"),
    }
}

fn verify(file: &SourceFile, pieces: &[&[u8]]) -> Result<(), Mismatch> {
    let mut verifier = file.verifier();
    pieces.iter().try_for_each(|piece| verifier.add(piece))?;
    verifier.finish()
}

fn pieces<'a>(mut content: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, rest) = content.split_at(*cut.min(&content.len()));
        pieces.push(piece);
        content = rest;
    }
    pieces.push(content);
    pieces
}
