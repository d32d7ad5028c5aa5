//! Which workers answer where the user named none.

use crate::common::{Folder, endpoint, wait_until};

#[test]
fn a_server_that_runs_here_answers_and_the_run_says_so() {
    let server = endpoint();
    let folder = Folder::with_pair();
    let ports = server.port().to_string();
    let args = ["run", "What is it?", "--spec", "pair.yaml"];
    let answered = |args: &[&str]| {
        let mut ran = None;
        // A machine that is very busy may not find it in time.
        wait_until("an answer", || {
            ran.insert(folder.lemon_with(&[("LEMON_LOCAL_PORTS", &ports)], args)).code == Some(0)
        });
        ran.unwrap()
    };
    let ran = answered(&args);
    assert!(ran.stderr.contains(&format!("at {} answers; nothing else is configured", server.base_url())));
    assert!(ran.stderr.contains("page: ") && !ran.stdout.trim().is_empty(), "{}", ran.exchange());
    let quiet = [&args[..], &["--quiet"]].concat();
    assert_eq!(answered(&quiet).stderr, "");
}

/// A bare container trusts no authority; what needs none works there.
#[test]
fn no_certificates_are_needed_without_encryption() {
    let server = endpoint();
    let folder = Folder::with_endpoint(&server, "");
    let no_authorities = [("SSL_CERT_FILE", "/nonexistent"), ("SSL_CERT_DIR", "/nonexistent")];
    let args = ["run", "What is it?", "--spec", "pair.yaml"];
    folder.lemon_with(&no_authorities, &args).ok();
    assert_eq!(server.calls(), 2);
    // Nor is it needed to find a server that runs here.
    let (folder, ports) = (Folder::with_pair(), server.port().to_string());
    let environment = [&no_authorities[..], &[("LEMON_LOCAL_PORTS", ports.as_str())]].concat();
    wait_until("an answer", || folder.lemon_with(&environment, &args).code == Some(0));
}

#[test]
fn half_an_address_is_not_completed_by_what_is_found() {
    let server = endpoint();
    let ports = server.port().to_string();
    let check = |half: [&str; 2]| {
        let args = ["run", "What is it?", half[0], half[1]];
        let ran = Folder::new().lemon_with(&[("LEMON_LOCAL_PORTS", &ports)], &args).code(2);
        ran.complains(&["--base-url and --model belong together", "hint: give both"]);
    };
    check(["--base-url", "http://127.0.0.1:9/v1"]);
    check(["--model", "other"]);
    assert_eq!(server.calls(), 0);
    let teach = ["teach", "--teacher", "endpoint", "--out", "pairs.jsonl"];
    let ran = Folder::new().lemon(&teach).code(2);
    assert!(ran.stderr.contains("error: no endpoint is configured"), "{}", ran.stderr);
}

#[test]
fn an_answer_is_told_where_there_is_no_room_for_a_page() {
    let folder = Folder::with_pair().file(".lemon/pages", "in the way");
    let args = ["run", "What is it?", "--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml"];
    let ran = folder.lemon(&args).ok();
    assert_eq!(ran.stdout, "Scripted.\nAnswer: 68\n");
    assert!(ran.stderr.contains("warning: there is no page: "), "{}", ran.stderr);
}
