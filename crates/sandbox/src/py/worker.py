# Runs the untrusted program and answers calls to its functions. Whatever the program does to this process, all it can
# send is values; whether they are right is decided by the judge, in another process in other namespaces.
import types

handles = []


def offer(value):
    if callable(value):
        handles.append(value)
        return ["callable", len(handles) - 1]
    if hasattr(value, "__next__"):
        items = []
        for item in value:
            items.append(encode(item, offer))
            if len(items) > ITEM_LIMIT:
                return ["opaque", "an iterator without an end"]
        return ["iterator", items]
    return ["opaque", type(value).__name__]


def accept(tag, parts):
    if tag == "callable":
        return handles[parts[0]]
    raise Garbled(tag)


def fault(error):
    """What the judge is told of an exception: the built-in classes it is one of, its message and where it arose."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "program.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line = error.lineno
    try:
        message = str(error)[:2000]
    except Exception:
        message = "(its message cannot be shown)"
    return {"raised": names, "name": type(error).__name__, "message": message, "line": line}


def load(box):
    with open(box + "/program.py", encoding="utf-8", newline="") as file:
        source = file.read()
    module = types.ModuleType("program")
    sys.modules["program"] = module
    try:
        code = compile(source, "program.py", "exec")
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        return module, {"raised": ["SyntaxError"], **{k: v for k, v in fault(error).items() if k != "raised"}}
    try:
        exec(code, module.__dict__)
    except BaseException as error:
        return module, fault(error)
    return module, {"loaded": True}


def answer(module, request):
    try:
        target = request["target"]
        function = getattr(module, target) if isinstance(target, str) else handles[target]
        args = [decode(form, accept) for form in request["args"]]
        named = {name: decode(form, accept) for name, form in request["named"].items()}
        result = function(*args, **named)
        # A test may look at what became of an argument: those that were changed go back too.
        after = [None if form is None else encode(arg, offer) for form, arg in zip(request["args"], args)]
        changed = [[at, now] for at, (was, now) in enumerate(zip(request["args"], after)) if was != now]
        return {"result": encode(result, offer), "changed": changed}
    except BaseException as error:
        return fault(error)


def main():
    box = sys.argv[1]
    del sys.argv[1:]
    os.environ.clear()  # the interpreter itself may have added a locale
    module, greeting = load(box)
    while True:
        try:
            send(greeting)
        except Unsupported as error:
            send(fault(error))
        greeting = answer(module, receive())


if __name__ == "__main__":
    try:
        main()
    except Gone:
        os._exit(0)
