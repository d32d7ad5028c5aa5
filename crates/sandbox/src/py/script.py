# Runs an untrusted program for what it prints. The value of a last line that is an expression is printed, too, as in an
# interactive session.
import ast
import os
import sys


def main():
    box = sys.argv[1]
    del sys.argv[1:]
    os.environ.clear()  # the interpreter itself may have added a locale
    with open(box + "/program.py", encoding="utf-8", newline="") as file:
        source = file.read()
    tree = ast.parse(source, "program.py")
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    names = {"__name__": "__main__"}
    exec(compile(tree, "program.py", "exec"), names)
    if last is not None:
        value = eval(compile(last, "program.py", "eval"), names)
        if value is not None:
            print(value if isinstance(value, str) else repr(value))


def tell(error):
    """The fault on standard error: its place in the program, and nothing of this script."""
    import traceback

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "program.py"]
    lines = traceback.format_list(frames) + traceback.format_exception_only(type(error), error)
    sys.stderr.write("".join(lines))


try:
    main()
    sys.stdout.flush()
except SystemExit as end:
    sys.stdout.flush()
    raise end
except BaseException as error:
    sys.stdout.flush()
    tell(error)
    sys.exit(1)
