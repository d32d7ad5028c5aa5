//! What passes, what fails, and how it is called.

use crate::common::{check, doubling, limits, run};
use lemon_sandbox::{
    Containment, ProgramFailure::*, Sandbox, SandboxError, SandboxLimits, SandboxVerdict, TestedProgram,
};

#[test]
fn programs_are_judged_by_their_answers() {
    check("def f(x):\n    return 2 * x\n", None);
    check("import math, re, collections, decimal, hashlib, heapq\ndef f(x):\n    return x + x\n", None);
    check("f = lambda x: x << 1", None);
    check("def f(x):\n    print('noise')\n    return 2 * x\nif __name__ == '__main__':\n    exit(1)\n", None);
    check("def f(x):\n    return x\n", Some(AssertionFailed));
    check("def f(x):\n    return None\n", Some(AssertionFailed));
    check("def f(x):\n    return str(2 * x)\n", Some(AssertionFailed));
    check("def f(x):\n    return [2 * x]\n", Some(AssertionFailed));
    check("def f(x):\n    return 1 / 0\n", Some(Exception));
    check("def f():\n    return 2\n", Some(Exception));
    check("def g(x):\n    return 2 * x\n", Some(Exception));
    check("f = 7\n", Some(Exception));
    check("import nothing_of_that_name\n", Some(Exception));
    check("raise ValueError('at import')\n", Some(Exception));
    check("def f(x):\n    raise AssertionError\n", Some(Exception));
    check("def f(x)\n    return 2 * x\n", Some(SyntaxError));
    check("def f(x):\nreturn 2 * x\n", Some(SyntaxError));
    check("\0", Some(SyntaxError));
    check("```python\ndef f(x):\n    return 2 * x\n```\n", Some(SyntaxError));
    check("", Some(Exception));
    check("def f(x):\n    '\u{feff}ü𝕏\u{2028}'\n    return 2 * x\n", None);
}

/// A test of one expression on the result of `f()`, in which `value` is what it returns.
fn check_value(value: &str, test: &str, passes: bool) {
    let program = TestedProgram {
        prompt_and_code: format!("from collections import *\nfrom enum import *\n{value}\n"),
        test: format!("def check(candidate):\n    value = candidate()\n    assert {test}\n"),
        entry_point: "f".into(),
        prompt: String::new(),
    };
    let Some(verdict) = run(&program, &limits()) else { return };
    assert_eq!(verdict.passed(), passes, "{value}: {test}\n{verdict:?}");
}

#[test]
fn values_arrive_as_they_are() {
    for value in [
        "None",
        "True",
        "0",
        "-1",
        "10**40",
        "-(1 << 5000)",
        "1.5",
        "0.1 + 0.2",
        "-0.0",
        "float('inf')",
        "2 + 3j",
        "''",
        "'a\\n\\0ü𝕏'",
        "'\\ud800'",
        "b'\\x00\\xff'",
        "[]",
        "[1, [2.0, 'x', None]]",
        "()",
        "(1,)",
        "{1, 2}",
        "frozenset({1, 2})",
        "{'a': [1], 2: (3,), None: {}}",
        "{(1, 2): 3}",
        "range(1, 10, 3)",
        "bytearray(b'x')",
    ] {
        check_value(
            &format!("f = lambda: {value}"),
            &format!("value == {value} and type(value) is type({value}) and repr(value) == repr({value})"),
            true,
        );
    }
    check_value("f = lambda: float('nan')", "value != value", true);
    check_value("f = lambda: {'b': 1, 'a': 2}", "list(value) == ['b', 'a']", true);
    check_value("f = lambda: Counter('aab')", "value == {'a': 2, 'b': 1}", true);
    check_value("P = namedtuple('P', 'x y')\nf = lambda: P(1, 2)", "value == (1, 2)", true);
    check_value("class E(IntEnum):\n    A = 3\nf = lambda: E.A", "value == 3", true);
    check_value("f = lambda: (i * i for i in range(4))", "list(value) == [0, 1, 4, 9]", true);
    check_value("f = lambda: map(str, [1, 2])", "value != ['1', '2'] and next(value) == '1'", true);
    check_value("f = lambda: {'a': 1}.keys()", "value == {'a'}", true);
    check_value("f = lambda: lambda x: x + 1", "value(2) == 3", true);
    check_value("from decimal import Decimal\nf = lambda: Decimal('1.10')", "str(value) == '1.10'", true);
    check_value("from fractions import Fraction\nf = lambda: Fraction(1, 2)", "value == 0.5", true);
    check_value("f = lambda: object()", "value == 1 or value == value and value is None", false);
}

#[test]
fn a_test_sees_changed_arguments_and_exceptions() {
    let case = |code: &str, body: &str, expected| {
        let program = TestedProgram {
            prompt_and_code: code.into(),
            test: format!("def check(candidate):\n{body}"),
            entry_point: "f".into(),
            prompt: "def helper(x):\n    return x + 1\n\ndef f(x):\n    ''' '''\n".into(),
        };
        let Some(verdict) = run(&program, &limits()) else { return };
        assert_eq!(verdict.failure(), expected, "{code}\n{body}\n{verdict:?}");
    };
    let sort = "def f(x):\n    x.sort()\n";
    case(sort, "    x = [3, 1, 2]\n    assert candidate(x) is None and x == [1, 2, 3]\n", None);
    case(
        "def f(x):\n    pass\n",
        "    x = [3, 1, 2]\n    candidate(x)\n    assert x == [1, 2, 3]\n",
        Some(AssertionFailed),
    );
    case("def f(x):\n    x['a'] = 1\n", "    x = {}\n    candidate(x)\n    assert x == {'a': 1}\n", None);
    case("def f(x, y=1):\n    return x - y\n", "    assert candidate(y=2, x=5) == 3 and f(1) == 0\n", None);
    let expects_error = "    try:\n        candidate(1)\n    except ValueError as error:\n        assert str(error) == 'no'\n    else:\n        assert False\n";
    case("def f(x):\n    raise ValueError('no')\n", expects_error, None);
    case("class E(ValueError):\n    pass\ndef f(x):\n    raise E('no')\n", expects_error, None);
    case("def f(x):\n    raise KeyError('no')\n", expects_error, Some(Exception));
    case("def f(x):\n    return 1\n", expects_error, Some(AssertionFailed));
    // The prompt's helper decides, not the program's.
    case(
        "def helper(x):\n    return 0\ndef f(x):\n    return 0\n",
        "    assert candidate(1) == helper(1)\n",
        Some(AssertionFailed),
    );
    case("def f(x):\n    return x + 1\n", "    assert candidate(1) == helper(1)\n", None);
    // Tests that are no tests.
    case(sort, "    pass\n", Some(TestFault));
    case(sort, "    candidate(lambda: 1)\n", Some(TestFault));
    case(sort, "   (\n", Some(TestFault));
    // A test that swallows everything cannot hide that the program is gone.
    case(
        "import os\ndef f(x):\n    os._exit(0)\n",
        "    try:\n        candidate(1)\n    except BaseException:\n        pass\n",
        Some(EarlyExit),
    );
}

#[test]
fn a_failure_says_what_and_where() {
    let code = "import sys\ndef f(x):\n    print('hello\\x1b[31m', file=sys.stderr, flush=True)\n    return x\n";
    let Some(verdict) = run(&doubling(code), &limits()) else { return };
    let SandboxVerdict::Failed { kind, detail, stderr } = &verdict else { panic!("{verdict:?}") };
    assert_eq!(*kind, AssertionFailed);
    assert_eq!(detail, "AssertionError: \nin the test, line 3: assert candidate(1) == 2");
    assert_eq!(stderr, "hello\u{fffd}[31m\n");
    let Some(verdict) = run(&doubling("def f(x):\n    return {}[x]\n"), &limits()) else { return };
    let SandboxVerdict::Failed { detail, .. } = &verdict else { panic!("{verdict:?}") };
    assert_eq!(detail, "KeyError: 1 (line 2)\nin the test, line 3: assert candidate(1) == 2");
}

#[test]
fn verdicts_and_limits_are_data() {
    let failed = SandboxVerdict::Failed { kind: EarlyExit, detail: "d".into(), stderr: "e".into() };
    let json = serde_json::to_string(&failed).unwrap();
    assert_eq!(json, r#"{"verdict":"failed","kind":"early_exit","detail":"d","stderr":"e"}"#);
    assert_eq!(serde_json::from_str::<SandboxVerdict>(&json).unwrap(), failed);
    assert_eq!(serde_json::from_str::<SandboxLimits>("{}").unwrap(), SandboxLimits::default());
}

#[test]
fn a_missing_interpreter_is_named() {
    for policy in [Containment::Isolated, Containment::UnsafeNoSandbox] {
        let error = Sandbox::with_python(policy, "/no/such/python".as_ref()).unwrap_err();
        assert!(matches!(&error, SandboxError::Python { .. }), "{error}");
        assert!(error.to_string().contains("/no/such/python"), "{error}");
    }
}
