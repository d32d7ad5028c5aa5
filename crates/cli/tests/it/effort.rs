//! Effort through the binary: a capacity that writes programs, and programs that are compared by examples.

use crate::common::*;

const CONFIG: &str = "[capacity.q]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\nefforts = ['brief', 'program', 'reasoned']\n\
                      [orchestrator]\nkind = 'fixed'\nspec = 'team.yaml'\n";
const TEAM: &str = "agents:\n  - {id: p, base: plain, capacity: q-program}\n  - {id: b, base: plain, capacity: q-brief}\n  \
                    - {id: r, base: solver, capacity: q-reasoned}\nanswer: {from: [p, b, r], by: vote}\n";
const SCRIPT: &str = "[[reply]]\nagent = 'p'\ncontains = 'short Python program'\ntext = \"\"\"```python\nprint(80 - 80 * 15 / 100)\n```\"\"\"\n\
                      [[reply]]\nagent = 'b'\ncontains = 'holds the final number and nothing else'\ntext = '70'\n\
                      [[reply]]\nagent = 'r'\ntext = '''It is 80 - 12.\nAnswer: $68'''\n";
const QUESTION: &str = "A jacket costs 80 dollars and is 15 % off. What does it cost?";

/// Whether this machine can contain programs; where it cannot, the test says so and checks nothing.
fn has_sandbox(ran: &Ran) -> bool {
    let missing = ran.stderr.contains("untrusted code cannot be run here") || ran.stderr.contains("Python interpreter");
    if missing {
        assert_eq!(ran.code, Some(2), "a run that needs a sandbox does not begin without: {}", ran.stderr);
        assert!(ran.stderr.contains("hint:") && ran.stderr.contains("unsafe_no_sandbox"), "{}", ran.stderr);
        assert!(std::env::var_os("LEMON_REQUIRE_SANDBOX").is_none(), "{}", ran.stderr);
        eprintln!("skipped: no sandbox here");
    }
    !missing
}

#[test]
fn one_model_replies_in_three_ways_and_a_cassette_replays_it() {
    let folder = Folder::new().file("lemon.toml", CONFIG).file("team.yaml", TEAM).file("script.toml", SCRIPT);
    let args = ["run", "--workers", "scripted", "--script", "script.toml", "--json", QUESTION];
    let ran = folder.lemon(&[&args[..], &["--record", "tape.jsonl"]].concat());
    if !has_sandbox(&ran) {
        return;
    }
    let answer = ran.ok().json();
    assert!(answer.to_string().contains("68"), "{answer}");
    assert!(folder.read("tape.jsonl").contains("\"printed\":\"68.0\\n\""), "the program's output is on the cassette");
    let replay = ["run", "--workers", "replay", "--cassette", "tape.jsonl", "--json", QUESTION];
    // Without Python on the search path nothing can be run: the replay needs none.
    let again = folder.lemon_with(&[("PATH", "")], &replay).ok().json();
    assert_eq!(again["answer"], answer["answer"]);
}

#[test]
fn programs_are_compared_by_their_examples() {
    let team = "agents:\n  - {id: a, base: programmer, capacity: small}\n  - {id: b, base: programmer, capacity: small}\n\
                answer: {from: [a, b], by: test}\n";
    let script = "[[reply]]\nagent = 'a'\ntext = \"\"\"```python\ndef half(x):\n    return x\n```\"\"\"\n\
                  [[reply]]\nagent = 'b'\ntext = \"\"\"```python\ndef half(x):\n    return x // 2\n```\"\"\"\n";
    let question = "def half(x):\n    \"\"\"Half of x.\n    >>> half(4)\n    2\n    >>> half(0)\n    0\n    \"\"\"\n";
    let folder = Folder::new().file("team.yaml", team).file("script.toml", script);
    let ran =
        folder.lemon(&["run", "--workers", "scripted", "--script", "script.toml", "--spec", "team.yaml", question]);
    if has_sandbox(&ran) {
        let told = ran.ok().stdout;
        assert!(told.contains("x // 2"), "{told}");
    }
}

#[test]
fn faults_of_efforts_are_explained() {
    let folder = Folder::new().file("lemon.toml", "[capacity.q]\nlocal = 'x'\nefforts = ['terse']\n");
    let ran = folder.lemon(&["run", QUESTION]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("terse") && ran.stderr.contains("brief"), "{}", ran.stderr);
}
