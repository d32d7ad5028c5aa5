//! `lemon tools`, with the built-in tools, the fake MCP server, and `lemon mcp` as a server.

use crate::common::Folder;
use lemon_fakes::FakeMcp;
use serde_json::json;

const BUILT_IN: &str = "[tools.calculator]\n";

#[test]
fn the_calculator_is_listed_and_called() {
    let folder = Folder::new().file("lemon.toml", BUILT_IN);
    let list = folder.lemon(&["tools", "list"]).ok().stdout;
    assert!(list.starts_with("calculator  (read-only, idempotent)\n") && list.contains("expression: string"), "{list}");
    let call = |arguments: &str| folder.lemon(&["tools", "call", "calculator", arguments]);
    assert_eq!(call(r#"{"expression": "1/3 + 1/6"}"#).ok().stdout, "0.5 (1/2)\n");
    let failed = call(r#"{"expression": "1/0"}"#).code(1);
    assert_eq!((failed.stdout.as_str(), failed.stderr.as_str()), ("", "error: division by zero\n"));
    call(r#"{"expression": 3}"#).code(2).complains(&["`expression` must be a string, found a number"]);
    call("{").code(2).complains(&["the arguments are not JSON", "hint: for example: lemon tools call"]);
    folder.lemon(&["tools", "call", "calculater"]).code(2).complains(&["did you mean `calculator`?"]);
    let json = folder.lemon(&["tools", "call", "calculator", r#"{"expression": "2^10"}"#, "--json"]).ok().json();
    assert_eq!((&json["text"], &json["cut"]), (&json!("1024"), &json!(false)));
    let json = folder.lemon(&["tools", "call", "calculator", "{}", "--json"]).code(2).json();
    assert_eq!(json["error"]["kind"], "invalid_arguments");
    let json = folder.lemon(&["tools", "doctor", "--json"]).ok().json();
    assert_eq!((&json["healthy"], &json["checks"][0]["tools"]), (&json!(true), &json!(["calculator"])));
}

#[test]
fn without_tools_there_is_a_hint() {
    let folder = Folder::new();
    let list = folder.lemon(&["tools", "list"]).ok();
    assert!(list.stdout.is_empty() && list.stderr.contains("[tools.calculator]"), "{}", list.exchange());
    folder.lemon(&["tools", "call", "python"]).code(2).complains(&["unknown tool `python`", "[tools.python]"]);
    assert_eq!(folder.lemon(&["tools", "list", "--json"]).ok().json(), json!({"tools": [], "faults": []}));
}

#[test]
fn tables_that_cannot_be_used_are_named() {
    let check = |text: &str, words: &[&str]| {
        Folder::new().file("lemon.toml", text).lemon(&["tools", "list"]).code(2).complains(words);
    };
    check("[tools.docs]\n", &["lemon.toml: tools.docs needs `mcp`", "hint: add `mcp = { command"]);
    check("[tools.python]\ntimeout_s = -1\n", &["tools.python.timeout_s must be above 0"]);
    check("[tools.python]\ntimeout = 1\n", &["unknown field `timeout`"]);
    let keyed = "[capacity.small]\nbase_url = 'http://a'\nmodel = 'm'\napi_key_env = 'THE_KEY'\n";
    check(
        &format!("{keyed}[tools.docs]\nmcp = {{ command = ['a'], pass_env = ['THE_KEY'] }}\n"),
        &["tools.docs.mcp hands THE_KEY to a server", "a key of its own"],
    );
}

#[test]
fn a_server_is_listed_called_and_checked() {
    let fake = FakeMcp::start().unwrap();
    let table = |name: &str, mcp: String| format!("[tools.{name}]\nallow = ['echo', 'ansi']\nmcp = {mcp}\n");
    let lines = table("lines", format!("{{ command = {:?} }}", fake.command()));
    let http = table("http", format!("{{ url = {:?} }}", fake.url()));
    let broken = "[tools.gone]\nmcp = { command = ['no-such-program-here'] }\n";
    let folder = Folder::new().file("lemon.toml", lines + &http);
    for name in ["lines", "http"] {
        let tool = |tool: &str| format!("{name}.{tool}");
        let said = folder.lemon(&["tools", "call", &tool("echo"), r#"{"text": "hé"}"#]).ok();
        assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("hé\n", ""));
        let said = folder.lemon(&["tools", "call", &tool("ansi"), "{}"]).ok().stdout;
        assert!(said.contains("owned") && !said.contains('\u{1b}') && !said.contains('\u{7}'), "{said:?}");
        folder.lemon(&["tools", "call", &tool("hang")]).code(2).complains(&["unknown tool"]);
    }
    let list = folder.lemon(&["tools", "list"]).ok().stdout;
    assert!(list.contains("http.echo") && list.contains("lines.ansi") && !list.contains('\u{1b}'), "{list}");
    let folder = folder.file("lemon.toml", broken);
    let doctor = folder.lemon(&["tools", "doctor"]).code(1).stdout;
    assert!(
        doctor.contains("works  no") && doctor.contains("`no-such-program-here` is not on the search path"),
        "{doctor}"
    );
}

#[test]
fn lemon_can_be_a_server_of_lemon() {
    let binary = env!("CARGO_BIN_EXE_lemon");
    let command = format!("mcp = {{ command = ['{binary}', 'mcp', '--workers', 'bundled'] }}\n");
    let folder = Folder::new().file("lemon.toml", format!("[tools.lemon]\n{command}"));
    let spec = json!({"spec": "agents: [{id: a, base: solver, capacity: huge}]"}).to_string();
    let said = folder.lemon(&["tools", "call", "lemon.validate_team", &spec]).ok().stdout;
    assert!(said.contains(r#""valid":false"#) && said.contains("huge"), "{said}");
    let said = folder.lemon(&["tools", "call", "lemon.list_runs", "{}"]).ok().stdout;
    assert_eq!(said.trim(), r#"{"runs":[]}"#);
}
