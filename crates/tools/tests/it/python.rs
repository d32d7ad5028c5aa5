//! The built-in tool `python`, where this machine can isolate programs.

use crate::set_of;
use lemon_tools::{ToolErrorKind, ToolSet};
use serde_json::json;

async fn check(tools: &ToolSet, code: &str, expected: Result<&str, &str>) {
    let found = tools.call("python", &json!({"code": code})).await;
    match (&found, expected) {
        (Ok(result), Ok(text)) => assert_eq!(result.text, text, "{code}"),
        (Err(error), Err(text)) => {
            assert_eq!(error.kind, ToolErrorKind::Failed, "{code}: {error}");
            assert!(error.message.contains(text), "{code}: {error}");
        }
        _ => panic!("{code}: {found:?}"),
    }
}

#[tokio::test]
async fn programs_run_for_what_they_print() {
    let tools = set_of("[python]\ntimeout_s = 2\nmax_result_bytes = 2000\n");
    if let Err(error) = tools.call("python", &json!({"code": "pass"})).await
        && error.kind == ToolErrorKind::Unavailable
    {
        println!("skipped: {error}");
        return;
    }
    check(&tools, "print(6 * 7)", Ok("42\n")).await;
    check(&tools, "x = 6\nx * 7", Ok("42\n")).await;
    check(&tools, "'a' + 'b'", Ok("ab\n")).await;
    check(&tools, "print(1)\nNone", Ok("1\n")).await;
    check(&tools, "x = 1", Ok("(the program ended without printing anything; print the result)")).await;
    check(&tools, "from fractions import Fraction\nFraction(1, 3) + Fraction(1, 6)", Ok("Fraction(1, 2)\n")).await;
    check(&tools, "print('\\x1b[2J')", Ok("\u{fffd}[2J\n")).await;
    check(&tools, "print('so far')\n1 / 0", Err("ZeroDivisionError: division by zero\nso far")).await;
    check(&tools, "x = (", Err("SyntaxError")).await;
    check(&tools, "import sys; sys.exit(3)", Err("the program ended with status 3")).await;
    check(&tools, "while True: pass", Err("the program took longer than 2 s")).await;
    check(&tools, "while True: print('x' * 1000)", Err("the program printed more than 2000 bytes")).await;
    check(&tools, "import socket; socket.socket()", Err("the program did something that the sandbox forbids")).await;
    check(&tools, "open('/etc/passwd').read()", Err("FileNotFoundError")).await;
    check(&tools, "import os; print(dict(os.environ))", Ok("{}\n")).await;
    check(&tools, "x = 'x' * (1 << 31)", Err("MemoryError")).await;
}
