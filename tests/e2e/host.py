"""The machine the tests run on: the user that processes run as, a directory that user can reach, free ports,
and processes that never outlive the test run. Knows nothing of PostgreSQL or of Weir."""

import contextlib
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def unprivileged_user():
    """The user for PostgreSQL and Weir, which both refuse to be root; None where we are not root anyway."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("running as root, and there is neither a user postgres nor nobody to run the servers as")


USER = unprivileged_user()
USER_NAME = (USER or pwd.getpwuid(os.geteuid())).pw_name
CREDENTIALS = {"user": USER.pw_uid, "group": USER.pw_gid, "extra_groups": []} if USER else {}


def hand_over(path):
    """Gives a file or directory that the harness made to the user the servers run as."""
    if USER:
        os.chown(path, USER.pw_uid, USER.pw_gid)
    return path


def make_scratch():
    """A directory in /tmp (short: a unix socket path holds 107 bytes) that the unprivileged user owns."""
    path = Path(tempfile.mkdtemp(prefix="weir-e2e-", dir="/tmp"))
    path.chmod(0o755)
    return hand_over(path)


def new_directory(parent, name):
    """A new directory in there, handed over; numbered, because the first words of a path must be short."""
    path = parent / f"{name}-{next(_numbers)}"
    path.mkdir()
    return hand_over(path)


_numbers = itertools.count(1)


def reachable_copy(program, scratch):
    """The program itself, or, where root's umask or home may hide it, a copy that the unprivileged user can run, with weir-bench beside it."""
    if not USER:
        return Path(program)
    beside = Path(program).with_name("weir-bench")
    for source in (Path(program), *([beside] if beside.exists() else [])):
        target = scratch / source.name
        if not target.exists():
            shutil.copy(source, target)
            target.chmod(0o755)
    return scratch / Path(program).name


def free_port():
    """A free TCP port, below the range the kernel takes outgoing ports from; each xdist worker has its own part."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    first = 20000 + worker * 1000
    for offset in range(1000):
        free_port.next = (free_port.next + 1) % 1000
        port = first + free_port.next
        if all(_can_bind(family, host, port) for family, host in _LOOPBACKS):
            return port
    raise RuntimeError("no free port")


free_port.next = os.getpid() % 1000
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def _can_bind(family, host, port):
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return True
        except OSError as error:
            # A machine without IPv6 refuses the address, not the port.
            return family == socket.AF_INET6 and error.errno != 98


def is_listening(port, socket_path):
    """Whether anyone listens on the port or on the unix socket, without connecting (which the listener would notice)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = (line.split() for line in Path(table).read_text().splitlines()[1:])
        if any(row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows):
            return True
    listening = "00010000"  # the flag __SO_ACCEPTCON
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return any(row[-1] == str(socket_path) and row[3] == listening for row in rows)


@contextlib.contextmanager
def as_the_user():
    """This process itself, for a moment, as the kernel tells others who it is."""
    if USER:
        os.seteuid(USER.pw_uid)
    try:
        yield
    finally:
        if USER:
            os.seteuid(0)


def start(command, as_user=True, die_with=signal.SIGKILL, **options):
    """Starts a process that dies when the test run does, however that ends."""
    credentials = CREDENTIALS if as_user else {}
    return subprocess.Popen(
        [str(word) for word in command],
        start_new_session=True,  # Ctrl-C is for the harness, which then stops everything in order
        preexec_fn=lambda: begin(die_with),
        **credentials,
        **options,
    )


def begin(die_with):
    """What a process does before its program begins: it dies with the run, and hears the signals that a shell has its
    background jobs ignore. A program that keeps them as it finds them would not end when it is told to."""
    libc.prctl(PR_SET_PDEATHSIG, die_with)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def run(command, as_user=True, timeout=120, check=True, **options):
    """Runs a program to its end and returns what it said; its exit status is checked unless asked not to."""
    credentials = CREDENTIALS if as_user else {}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=options.pop("cwd", "/"),
        **credentials,
        **options,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{command[0]} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def stop(process, *signals, timeout=30):
    """Sends the signals one after another until the process has ended; the last resort is always SIGKILL."""
    for number in (*signals, signal.SIGKILL):
        if process.poll() is not None:
            break
        process.send_signal(number)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            continue
    return process.wait()


def children(pid):
    """The ids of a process's children, whichever thread has started them, from /proc."""
    found = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, listing.read_text().split())
    return found


def lives(pid):
    """Whether there is such a process, and it is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(question, timeout=30.0, interval=0.03):
    """Asks until the answer is true, and returns it; the last answer decides when the time is up. The time is for a machine
    that is busy with all the other tests, and costs nothing where the answer comes."""
    deadline = time.monotonic() + timeout
    while True:
        answer = question()
        if answer or time.monotonic() > deadline:
            assert answer, f"still {answer!r} after {timeout} s"
            return answer
        time.sleep(interval)


def sockets_of(pid):
    """Copies of a process's sockets, to look at their options; close them. By pidfd_getfd, which a parent (or root) may."""
    pidfd = os.pidfd_open(pid)
    copies = []
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if not os.readlink(entry).startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue
            copy = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(entry.name), 0)
            if copy >= 0:
                copies.append(socket.socket(fileno=copy))
    finally:
        os.close(pidfd)
    return copies


SYS_PIDFD_GETFD = 438
