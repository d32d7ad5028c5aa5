//! Tool sets against the fake MCP server, over standard input and output and over HTTP, and against real ones where they are
//! installed.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests are tests.

mod hostile;
mod python;
mod real;
mod servers;

use lemon_fakes::FakeMcp;
use lemon_tools::{ToolConfig, ToolSet, ToolsConfig};
use std::path::Path;

/// How the fake is reached.
#[derive(Debug, Clone, Copy)]
enum Way {
    Stdio,
    Http,
}

/// The fake as `[tools.fake]`, with more TOML.
fn set(fake: &FakeMcp, way: Way, more: &str) -> ToolSet {
    let mcp = match way {
        Way::Stdio => format!("{{ command = {:?} }}", fake.command()),
        Way::Http => format!("{{ url = {:?} }}", fake.url()),
    };
    set_of(&format!("[fake]\nmcp = {mcp}\n{more}"))
}

fn set_of(text: &str) -> ToolSet {
    let config: ToolsConfig = toml::from_str(text).unwrap();
    ToolSet::new(&config, Path::new("")).unwrap()
}

#[test]
fn a_table_has_the_documented_defaults() {
    let ToolConfig { timeout_s, max_result_bytes, price, .. } = ToolConfig::default();
    assert_eq!((timeout_s, max_result_bytes, price), (30.0, 32 << 10, 0.0));
}
