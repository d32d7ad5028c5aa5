//! What servers get, and what becomes of those that fail.

use crate::{Way, set, set_of};
use lemon_fakes::FakeMcp;
use lemon_tools::ToolErrorKind;
use serde_json::json;

#[tokio::test]
async fn tools_are_listed_with_schemas_and_faults() {
    let fake = FakeMcp::start().unwrap();
    for way in [Way::Stdio, Way::Http] {
        let tools =
            set(&fake, way, "allow = ['echo', 'ansi', 'broken_schema', 'remote_schema', 'missing']\nprice = 0.01\n");
        let list = tools.list().await;
        let names: Vec<_> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["fake.echo", "fake.ansi"], "{way:?}");
        assert_eq!(list.tools[0].schema["required"], json!(["text"]));
        assert_eq!(list.tools[1].description, "Replies badly.\u{fffd}[31m");
        assert_eq!((list.tools[0].price, list.tools[0].idempotent, list.tools[0].read_only), (0.01, false, false));
        let faults: Vec<_> = list.faults.iter().map(|(name, error)| format!("{name}: {error}")).collect();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(
            faults[0].starts_with("fake.broken_schema: the tool `fake.broken_schema` cannot be called: its schema")
        );
        assert!(faults[1].contains("remote_schema") && faults[1].contains("http://127.0.0.1:1/x"), "{faults:?}");
        assert!(faults[2].contains("`allow` names it, and the server has no such tool"), "{faults:?}");
        tools.close().await;
    }
}

#[tokio::test]
async fn only_valid_calls_of_allowed_tools_reach_the_server() {
    let fake = FakeMcp::start().unwrap();
    let tools = set(&fake, Way::Stdio, "allow = ['echo', 'broken_schema']\n");
    let kind = async |name: &str, arguments| tools.call(name, &arguments).await.map(|it| it.text).map_err(|it| it.kind);
    assert_eq!(kind("fake.echo", json!({"text": "a"})).await, Ok("a".to_owned()));
    assert_eq!(kind("fake.echo", json!({})).await, Err(ToolErrorKind::InvalidArguments));
    assert_eq!(kind("fake.echo", json!({"text": 3})).await, Err(ToolErrorKind::InvalidArguments));
    assert_eq!(kind("fake.ansi", json!({})).await, Err(ToolErrorKind::UnknownTool));
    assert_eq!(kind("fake.broken_schema", json!({})).await, Err(ToolErrorKind::UnknownTool));
    assert_eq!(kind("fake.ecko", json!({})).await, Err(ToolErrorKind::UnknownTool));
    let error = tools.call("fake.ecko", &json!({})).await.unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("did you mean `fake.echo`?"));
    assert_eq!(fake.calls(), ["echo"]);
}

#[tokio::test]
async fn a_server_inherits_no_secret_and_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (env, pid) = (folder.path().join("env"), folder.path().join("pid"));
    // A child of the server, in its group, that would outlive it.
    let script = format!("env > {}; sleep 1000 & echo $! > {}; exit 7", env.display(), pid.display());
    let tools = set_of(&format!("[it]\nmcp = {{ command = ['sh', '-c', '{script}'], env = {{ EXTRA = 'given' }} }}\n"));
    let error = tools.call("it.x", &json!({})).await.unwrap_err();
    assert_eq!(error.kind, ToolErrorKind::Unavailable);
    assert!(error.message.contains("the program ended with status 7"), "{error}");
    let env = std::fs::read_to_string(env).unwrap();
    const INHERITED: [&str; 10] =
        ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"];
    // The shell itself sets these.
    const OF_THE_SHELL: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];
    let others = |name: &&str| !INHERITED.contains(name) && !OF_THE_SHELL.contains(name);
    assert!(std::env::vars().any(|(name, _)| others(&name.as_str())), "there is something to keep from it");
    let mut names: Vec<_> = env.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(others);
    assert_eq!(names, ["EXTRA"], "{env}");
    let child = std::fs::read_to_string(pid).unwrap();
    let status = format!("/proc/{}/status", child.trim());
    // Killed with its group; until its new parent has reaped it, it is a zombie.
    let gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        std::fs::read_to_string(&status).map_or(true, |status| status.contains("State:\tZ"))
    });
    assert!(gone, "the child of the server still runs");
}

#[tokio::test]
async fn servers_that_do_not_start_cost_one_failed_call() {
    let check = async |mcp: &str, expected: &str| {
        let tools = set_of(&format!("[it]\nmcp = {mcp}\n"));
        let error = tools.call("it.x", &json!({})).await.unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::Unavailable, "{mcp}: {error}");
        assert!(error.message.contains(expected), "{mcp}: {error}");
        assert!(error.message.starts_with("the MCP server `it` cannot be used: "), "{error}");
        assert!(error.hint.is_some());
    };
    check("{ command = ['no-such-program-here'] }", "`no-such-program-here` is not on the search path").await;
    check("{ command = ['sh', '-c', 'echo broken >&2; exit 3'] }", "status 3; it wrote: broken").await;
    check("{ command = ['sleep', '1000'], start_timeout_s = 0.2 }", "it did not start within 0.2 s").await;
    check("{ command = ['yes'] }", "it sent more than").await;
    check("{ command = ['true'], pass_env = ['LEMON_NOT_SET_ANYWHERE'] }", "LEMON_NOT_SET_ANYWHERE, which is not set")
        .await;
    check("{ command = ['true'], folder = '/no/such/folder' }", "").await;
    check("{ url = 'http://127.0.0.1:1/mcp' }", "").await;
    check("{ url = 'http://127.0.0.1:1/mcp', token_env = 'LEMON_NOT_SET_ANYWHERE' }", "LEMON_NOT_SET_ANYWHERE").await;
}

#[tokio::test]
async fn those_that_wait_for_a_failed_start_share_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let script = format!("echo x >> {}; sleep 0.3; exit 1", starts.display());
    let tools = set_of(&format!("[it]\nmcp = {{ command = ['sh', '-c', '{script}'] }}\n"));
    let calls = (0..32).map(|_| tools.call("it.x", &serde_json::Value::Null));
    let results = futures::future::join_all(calls).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(std::fs::read_to_string(&starts).unwrap().lines().count(), 1);
    tools.call("it.x", &json!({})).await.unwrap_err();
    assert_eq!(std::fs::read_to_string(&starts).unwrap().lines().count(), 2, "the next call tries once more");
}

#[tokio::test]
async fn many_calls_share_one_server() {
    let fake = FakeMcp::start().unwrap();
    for way in [Way::Stdio, Way::Http] {
        let tools = set(&fake, way, "");
        let call = async |n: usize| tools.call("fake.echo", &json!({"text": n.to_string()})).await.unwrap().text;
        let replies = futures::future::join_all((0..64).map(call)).await;
        assert_eq!(replies, (0..64).map(|n: usize| n.to_string()).collect::<Vec<_>>(), "{way:?}");
        tools.close().await;
    }
    let initialized = fake.seen().iter().filter(|message| message["method"] == "initialize").count();
    assert_eq!(initialized, 2);
}
