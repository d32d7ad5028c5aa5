# Asked of the interpreter once, outside the sandbox: which files it needs. One path a line.
import os
import sys

print(os.path.realpath(sys.executable))
for path in sys.path:
    if os.path.isdir(path):
        print(os.path.realpath(path))
        if os.path.basename(path) == "lib-dynload":
            for name in os.listdir(path):
                try:
                    __import__(name.split(".")[0])
                except BaseException:
                    pass  # an optional extension whose library is not installed
with open("/proc/self/maps") as maps:
    for line in maps:
        path = line.rstrip("\n").partition("/")
        if ".so" in path[2]:
            print(os.path.dirname("/" + path[2]))
