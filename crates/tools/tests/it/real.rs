//! Published MCP servers. `LEMON_MCP_NPM` names a folder with `node_modules`, `LEMON_MCP_PYTHON` a virtual environment:
//! `cargo xtask mcp` says how to fill them.

use crate::set_of;
use lemon_tools::{ToolErrorKind, ToolSet};
use serde_json::{Value, json};
use std::path::PathBuf;

fn place(variable: &str) -> Option<PathBuf> {
    let place = std::env::var_os(variable).map(PathBuf::from);
    if place.is_none() {
        println!("skipped: {variable} is not set");
    }
    place
}

fn node(server: &str, arguments: &str) -> Option<ToolSet> {
    let entry = place("LEMON_MCP_NPM")?.join("node_modules/@modelcontextprotocol").join(server).join("dist/index.js");
    assert!(entry.exists(), "{} is not installed", entry.display());
    let command = format!("['node', {:?}{arguments}]", entry.display().to_string());
    Some(set_of(&format!("[it]\nmcp = {{ command = {command} }}\ntimeout_s = 20\n")))
}

async fn text(tools: &ToolSet, name: &str, arguments: Value) -> String {
    match tools.call(name, &arguments).await {
        Ok(result) => result.text,
        Err(error) => panic!("{name} {arguments}: {error:?}"),
    }
}

#[tokio::test]
async fn everything() {
    let Some(tools) = node("server-everything", "") else { return };
    let list = tools.list().await;
    assert!(list.tools.len() >= 5, "{list:?}");
    assert!(list.faults.is_empty(), "{:?}", list.faults);
    assert_eq!(text(&tools, "it.echo", json!({"message": "héllo"})).await, "Echo: héllo");
    assert!(text(&tools, "it.get-sum", json!({"a": 2, "b": 40})).await.contains("42"));
    assert!(text(&tools, "it.get-tiny-image", json!({})).await.contains("[image: image/png, "));
    let wrong = tools.call("it.get-sum", &json!({"a": "x", "b": 1})).await.unwrap_err();
    assert_eq!(wrong.kind, ToolErrorKind::InvalidArguments);
    // The server prints its whole environment on request: ours is not in it.
    let env = text(&tools, "it.get-env", json!({})).await;
    assert!(env.contains("PATH") && !env.contains("CARGO_MANIFEST_DIR"), "{env}");
    let all = futures::future::join_all((0..16).map(|n| text(&tools, "it.get-sum", json!({"a": n, "b": n})))).await;
    assert!(all.iter().enumerate().all(|(n, said)| said.contains(&(2 * n).to_string())), "{all:?}");
    tools.close().await;
}

#[tokio::test]
async fn filesystem() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join("note.txt"), "from the file\u{1b}[2J").unwrap();
    let Some(tools) = node("server-filesystem", &format!(", {:?}", root.display().to_string())) else { return };
    let path = |name: &str| root.join(name).display().to_string();
    let read = text(&tools, "it.read_text_file", json!({"path": path("note.txt")})).await;
    assert_eq!(read, "from the file\u{fffd}[2J");
    text(&tools, "it.write_file", json!({"path": path("new.txt"), "content": "written"})).await;
    assert_eq!(std::fs::read_to_string(root.join("new.txt")).unwrap(), "written");
    let outside = tools.call("it.read_text_file", &json!({"path": "/etc/passwd"})).await.unwrap_err();
    assert_eq!(outside.kind, ToolErrorKind::Failed, "{outside}");
    tools.close().await;
}

#[tokio::test]
async fn sqlite() {
    let Some(environment) = place("LEMON_MCP_PYTHON") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = environment.join("bin/mcp-server-sqlite").display().to_string();
    let base = folder.path().join("test.db").display().to_string();
    let tools = set_of(&format!("[db]\nmcp = {{ command = [{program:?}, '--db-path', {base:?}] }}\ntimeout_s = 20\n"));
    text(&tools, "db.create_table", json!({"query": "CREATE TABLE fruit (name TEXT, n INTEGER)"})).await;
    text(&tools, "db.write_query", json!({"query": "INSERT INTO fruit VALUES ('lemon', 3)"})).await;
    let read = text(&tools, "db.read_query", json!({"query": "SELECT * FROM fruit"})).await;
    assert!(read.contains("lemon") && read.contains('3'), "{read}");
    tools.close().await;
}
