import os


def open_walls():
    """The walls that let something through; none, it is hoped."""

    def lets(action, *args):
        try:
            action(*args)
        except OSError:
            return False
        return True

    walls = {
        "pid namespace": os.getpid() != 2 or os.getppid() != 1,
        "user namespace": os.getuid() == 0 or os.geteuid() == 0,
        "mount namespace": os.path.exists("/proc/self") or os.path.exists("/etc/passwd"),
        "read-only root": lets(os.mkdir, "/x"),
        "landlock": lets(os.listdir, "/"),
        "seccomp": lets(os.chown, "/tmp", os.getuid(), os.getgid()),
        "environment": bool(os.environ),
        "open files": any(lets(os.fstat, number) for number in range(5, 64)),
    }
    return [name for name, is_open in walls.items() if is_open]
