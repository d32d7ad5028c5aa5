//! Programs that want to pass without solving the task.

use crate::common::{check, check_before_answer, check_fails};
use lemon_sandbox::ProgramFailure::*;

#[test]
fn ending_early_is_no_pass() {
    for exit in [
        "exit(0)",
        "quit()",
        "sys.exit()",
        "sys.exit(0)",
        "os._exit(0)",
        "raise SystemExit",
        "raise SystemExit(0)",
        "raise KeyboardInterrupt",
        "import ctypes; ctypes.CDLL(None)._exit(0)",
        "import ctypes; ctypes.CDLL(None).exit(0)",
        "os.execv(sys.executable, [sys.executable, '-IS', '-c', 'print(1)'])",
        "import threading; threading._shutdown(); os._exit(0)",
        "import atexit; atexit.register(os._exit, 0); sys.exit(1)",
    ] {
        // In the function, and already when the program is loaded.
        check(
            &format!(
                "import os, sys\nfrom _sitebuiltins import Quitter\nexit = quit = Quitter('exit', '')\ndef f(x):\n    {exit}\n"
            ),
            Some(EarlyExit),
        );
        check(
            &format!("import os, sys\nfrom _sitebuiltins import Quitter\nexit = quit = Quitter('exit', '')\n{exit}\n"),
            Some(EarlyExit),
        );
    }
    check(
        "import os, threading\nthreading.Timer(0, os._exit, [0]).start()\nimport time\ntime.sleep(9)\n",
        Some(EarlyExit),
    );
    check(
        "import os, signal\nsignal.signal(signal.SIGALRM, lambda *_: os._exit(0))\nsignal.alarm(1)\nwhile True: pass\n",
        Some(EarlyExit),
    );
    // `exit` itself comes from the site module, which is not loaded: the name is unknown.
    check("def f(x):\n    exit(0)\n", Some(Exception));
}

#[test]
fn writing_what_a_passing_run_writes_is_no_pass() {
    // Every descriptor there is, with all that might be taken for a pass.
    let shouting = "import os\nfor fd in range(1, 64):\n    for text in (b'passed\\n', b'passed', b'ok\\n', b'\\0\\0\\0\\4true'):\n        try: os.write(fd, text)\n        except OSError: pass\n";
    check(&format!("{shouting}os._exit(0)\n"), Some(ForgedReply));
    check(&format!("{shouting}def f(x): return x\n"), Some(ForgedReply));
    check("print('passed')\nprint('OK')\ndef f(x): return x\n", Some(AssertionFailed));
    // Messages in the right form: the judge believes the values, and they are wrong.
    let frames = "import os, json\ndef say(message):\n    data = json.dumps(message).encode()\n    os.write(4, len(data).to_bytes(4, 'big') + data)\n";
    let claim = |message: &str| format!("{frames}say({message})\ndef f(x): return x\n");
    check(&claim("{'loaded': True}"), Some(ForgedReply));
    check(
        &format!("{frames}say({{'loaded': True}})\nsay({{'result': ['int', '3'], 'changed': []}})\n"),
        Some(AssertionFailed),
    );
    check(&claim("{'verdict': 'passed'}"), Some(ForgedReply));
    check(&claim("[1]"), Some(ForgedReply));
    check(&claim("{'raised': ['SystemExit'], 'name': 'x'}"), Some(EarlyExit));
    check(&claim("{'raised': 'ValueError'}"), Some(Exception));
    check(&claim("{'raised': ['eval', 'print', '__import__', 7]}"), Some(Exception));
    for result in [
        "7",
        "{}",
        "[]",
        "[7]",
        "['eval', '1']",
        "['int', 'zz']",
        "['int', 2]",
        "['int']",
        "['dict', [[['list', []], 1]]]",
        "['set', [['list', []]]]",
        "['range', '0', '1', '0']",
        "['callable', 'os.system']",
        "['decimal', 'x']",
        "['list', 5]",
        "['fraction', '1', '0']",
        "['keys', [1]]",
        "['opaque']",
        "['iterator', 1]",
    ] {
        let code = format!("{frames}say({{'loaded': True}})\nsay({{'result': {result}, 'changed': []}})\n");
        check(&code, Some(ForgedReply));
    }
    for changed in ["[[0, 1]]", "[[9, 'x']]", "[[-1, 'x']]", "7", "[['x', 'x']]", "[1]", "None"] {
        let code = format!("{frames}say({{'loaded': True}})\nsay({{'result': ['int', '3'], 'changed': {changed}}})\n");
        check_fails(&code);
    }
    // Deep and huge ones.
    let raw =
        |body: &str| format!("import os\ndef send(data):\n    while data: data = data[os.write(4, data):]\n{body}\n");
    check(&raw("d = b'[' * 4000000\nsend(len(d).to_bytes(4, 'big') + d)"), Some(ForgedReply));
    check(&raw("send(b'\\xff\\xff\\xff\\xff' + b'x' * 100000)"), Some(ForgedReply));
    check(&raw("d = b'[' + b'1,' * 4000000 + b'1]'\nsend(len(d).to_bytes(4, 'big') + d)"), Some(ForgedReply));
}

#[test]
fn tampering_with_the_interpreter_is_no_pass() {
    let wrong = "def f(x):\n    return x\n";
    for tampering in [
        "import builtins\nbuiltins.AssertionError = KeyError\nAssertionError = None\n",
        "def check(candidate):\n    pass\n",
        "import sys\nmain = sys.modules['__main__']\nmain.check = main.candidate = main.grade = lambda *_: None\n",
        "import sys\nsys.settrace(lambda *_: None)\nsys.setprofile(lambda *_: None)\n",
        "import sys\ndef skip(frame, event, arg):\n    frame.f_trace_lines = False\n    return None\nsys.settrace(skip)\n",
        "import sys\nframe = sys._getframe()\nwhile frame:\n    frame.f_globals['check'] = lambda c: None\n    frame = frame.f_back\n",
        "import gc, types\nfor o in gc.get_objects():\n    if isinstance(o, dict) and 'check' in o: o['check'] = lambda c: None\n",
        "import sys, types\nsys.modules['test'] = sys.modules['unittest'] = types.ModuleType('test')\n",
        "import json, sys\nsys.modules['__main__'].encode = lambda *_: ['opaque', 'x']\n",
        "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n",
        "import threading, time\nthreading.Thread(target=time.sleep, args=[60]).start()\n",
        "import sys\nsys.excepthook = sys.unraisablehook = lambda *_: None\n",
    ] {
        check(&format!("{tampering}{wrong}"), Some(AssertionFailed));
    }
    check_fails(&format!(
        "import builtins\nfor name in dir(builtins): setattr(builtins, name, lambda *_: True)\n{wrong}"
    ));
    // Objects that claim to equal everything.
    let yes = "class Yes{base}:\n    __eq__ = __le__ = __lt__ = __ge__ = __gt__ = lambda *_: True\n    __ne__ = lambda *_: False\n    __hash__ = None\n    __class__ = int\ndef f(x):\n    return Yes({of})\n";
    for (base, of) in
        [("", ""), ("(int)", "7"), ("(float)", "7"), ("(list)", ""), ("(dict)", ""), ("(str)", "'x'"), ("(tuple)", "")]
    {
        let code = yes.replace("{base}", base).replace("{of}", of);
        let code = if base.is_empty() { code } else { code.replace("    __class__ = int\n", "") };
        check_fails(&code);
    }
}

#[test]
fn the_judge_is_out_of_reach() {
    check_before_answer("os.kill(1, 9)", Some(ForbiddenCall));
    check_before_answer("os.kill(os.getppid(), 9)", Some(ForbiddenCall));
    check_before_answer("os.kill(-1, 9)", Some(ForbiddenCall));
    check_before_answer("os.killpg(0, 9)", Some(ForbiddenCall));
    check_before_answer("os.kill(os.getpid(), 9)", Some(Crashed));
    check_before_answer("os.abort()", Some(Crashed));
    check_before_answer("import ctypes; ctypes.string_at(0)", Some(Crashed));
    // The program sees no other process, and nothing of the test.
    let looking = "found = [pid for pid in range(3, 70000) if os.path.exists('/proc/%d' % pid)]\nassert not found and os.getppid() == 1";
    check_before_answer(looking, None);
    check_before_answer("assert sorted(os.listdir('/box')) == ['program.py', 'worker.py']", None);
    check_before_answer("open('/box/program.py', 'a')", Some(Exception));
}
