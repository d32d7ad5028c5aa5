# Runs the test. The functions under test are stand-ins that ask the worker for plain values, so no code of the program
# ever runs here and nothing it does to its own interpreter can change what an assertion means.
import builtins

calls = 0
ended = None


class Ended(BaseException):
    """The worker cannot answer any more. Remembered, so that a test that swallows it changes nothing."""

    def __init__(self, kind, detail=""):
        global ended
        self.kind, self.detail = kind, detail
        ended = ended or self


class ProgramError(Exception):
    """An exception of the program that is none of the built-in ones."""


class Opaque:
    """A result that is no plain value. It equals nothing but itself, whatever its own class would claim."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "<%s object>" % self.name


class Remote:
    """A function of the program."""

    def __init__(self, target):
        self.target = target

    def __call__(self, *args, **named):
        global calls
        calls += 1
        forms = [outgoing(arg) for arg in args]
        try:
            send({"target": self.target, "args": forms, "named": {name: outgoing(arg) for name, arg in named.items()}})
        except Gone:
            raise Ended("gone") from None
        reply = incoming()
        try:
            changed = [(args[at], decode(form, special)) for at, form in reply["changed"]]
            result = decode(reply["result"], special)
        except (Garbled, RecursionError, LookupError, TypeError, ValueError) as error:
            raise Ended("reply", str(error)) from None
        for arg, now in changed:
            if isinstance(arg, (list, bytearray)) and type(arg) is type(now):
                arg[:] = now
            elif isinstance(arg, (dict, set)) and type(arg) is type(now):
                arg.clear()
                arg.update(now)
        return result


def outgoing(arg):
    return encode(arg, lambda value: ["callable", value.target] if isinstance(value, Remote) else encode(value))


def special(tag, parts):
    if tag == "callable" and type(parts[0]) is int:
        return Remote(parts[0])
    if tag == "iterator":
        return iter([decode(item, special) for item in parts[0]])
    if tag == "opaque":
        return Opaque(str(parts[0]))
    raise Garbled("the tag %r" % tag)


def incoming():
    """The worker's next message, or the exception it tells of."""
    try:
        reply = receive()
    except Gone:
        raise Ended("gone") from None
    except Garbled as error:
        raise Ended("reply", str(error)) from None
    if not isinstance(reply, dict):
        raise Ended("reply", "a message that is no object")
    if "raised" not in reply:
        return reply
    name, line = str(reply.get("name")), reply.get("line")
    where = " (line %d)" % line if type(line) is int else ""
    text = "%s: %s%s" % (name, reply.get("message"), where)
    raised = reply["raised"] if isinstance(reply["raised"], list) else []
    kinds = [getattr(builtins, str(kind), None) for kind in raised]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    if kinds and not issubclass(kinds[0], Exception):
        raise Ended("exit", text)
    raise remote_error(kinds, name, str(reply.get("message")), text)


def remote_error(kinds, name, message, text):
    """The exception as the test would have seen it, marked as the program's own."""
    error = ProgramError(message)
    for kind in kinds:
        try:
            error = kind(message)
            break
        except TypeError:
            continue
    error.from_program = (name, text)
    return error


def verdict(box):
    """(kind, detail) of the whole run."""
    try:
        try:
            incoming()
        except Exception as error:
            name, text = error.from_program
            return {"SyntaxError": "syntax", "MemoryError": "memory"}.get(type(error).__name__, "exception"), text
        with open(box + "/entry", encoding="utf-8") as file:
            entry = file.read()
        try:
            check, source = prepare(box, entry)
        except Exception as error:
            return "test", "%s: %s" % (type(error).__name__, error)
        return grade(check, Remote(entry), source)
    except Ended as end:
        return end.kind, end.detail
    except MemoryError:
        return "memory", "in the judge"


def prepare(box, entry):
    """The test's `check`, in a namespace with the helpers of the task's own prompt."""
    space = {"__name__": "test"}
    with open(box + "/prompt.py", encoding="utf-8", newline="") as file:
        prompt = file.read()
    try:
        exec(compile(prompt, "prompt.py", "exec"), space)
    except SyntaxError:
        pass  # a prompt that breaks off in mid-function defines no helpers
    space[entry] = Remote(entry)
    with open(box + "/test.py", encoding="utf-8", newline="") as file:
        source = file.read()
    exec(compile(source, "test.py", "exec"), space)
    if not callable(space.get("check")):
        raise TypeError("the test defines no function check(candidate)")
    return space["check"], source.splitlines()


def grade(check, candidate, source):
    try:
        check(candidate)
    except Unsupported as error:
        return "test", str(error)
    except Exception as error:
        if hasattr(error, "from_program"):
            name, text = error.from_program
            return ("memory" if isinstance(error, MemoryError) else "exception"), text + at(error, source)
        if isinstance(error, MemoryError):
            return "memory", "in the judge"
        # The test itself fell over the value it got, as by comparing None with a number.
        kind = "assertion" if isinstance(error, AssertionError) else "exception"
        return kind, "%s: %s%s" % (type(error).__name__, error, at(error, source))
    except SystemExit:
        return "test", "the test ended itself"
    if ended is not None:
        raise ended
    if calls == 0:
        return "test", "the test never called the program"
    return "passed", ""


def at(error, source):
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "test.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    if line is None or line > len(source):
        return ""
    return "\nin the test, line %d: %s" % (line, source[line - 1].strip())


if __name__ == "__main__":
    kind, detail = verdict(sys.argv[1])
    os.write(5, (kind + "\n" + detail[:8000]).encode("utf-8", "replace"))
    os._exit(0)
