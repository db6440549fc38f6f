"""The machine the tests run on: the user that processes run as, a directory that user can reach, free ports,
and processes that never outlive the test run. Knows nothing of PostgreSQL or of Weir."""

import contextlib
import ctypes
import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import struct
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


# Where a run's files go if they fit: some 3 GB. ext4 looks at every inode that was freed in the last seconds when it makes a file, and tests remove
# thousands of files at a time.
MEMORY = Path("/dev/shm")
MEMORY_GIB, AVAILABLE_GIB = 8, 12


def fits_in_memory():
    if not MEMORY.is_dir():
        return False
    found = os.statvfs(MEMORY)
    available = int(re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())[1]) >> 20
    fits = found.f_bavail * found.f_frsize >= MEMORY_GIB << 30 and available >= AVAILABLE_GIB
    return fits and not found.f_flag & os.ST_NOEXEC and os.access(MEMORY, os.W_OK)


def make_scratch():
    """A directory of a short path (that of a unix socket holds 107 bytes) that the unprivileged user owns; in /tmp where it is to be kept."""
    if fits_in_memory() and not os.environ.get("WEIR_KEEP"):
        path = _in_memory()
    else:
        path = Path(tempfile.mkdtemp(prefix="weir-e2e-", dir="/tmp"))
    path.chmod(0o755)
    return hand_over(path)


def _in_memory():
    """Named by this process, so that the next run removes what one has left that was killed."""
    for left in MEMORY.glob("weir-e2e-*"):
        process = left.name.rpartition("-")[2]
        if process.isdigit() and not lives(process):
            shutil.rmtree(left, ignore_errors=True)
    path = MEMORY / f"weir-e2e-{os.getpid()}"
    path.mkdir()
    return path


def new_directory(parent, name):
    """A new directory in there, handed over; numbered, because the first words of a path must be short."""
    path = parent / f"{name}-{next(_numbers)}"
    path.mkdir()
    return hand_over(path)


def discard(*paths):
    """Removes large directories before the end of the run; WEIR_KEEP=1 leaves them."""
    if not os.environ.get("WEIR_KEEP"):
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)


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
    if any(_listens_on(family, port) for family, _ in _LOOPBACKS):
        return True
    listening = "00010000"  # the flag __SO_ACCEPTCON
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return any(row[-1] == str(socket_path) and row[3] == listening for row in rows)


NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20  # linux/netlink.h, linux/sock_diag.h
NLMSG_ERROR = 2
NLM_F_REQUEST_DUMP = 0x301
TCP_LISTEN = 10


def _listens_on(family, port):
    """Asks the kernel for that one listening socket (sock_diag(7)): /proc/net/tcp has a row for each connection of the last minute."""
    # struct inet_diag_req_v2: family, protocol, two unused bytes, states as bits, and of the socket its port alone.
    wanted = struct.pack("=BBxxI", family, socket.IPPROTO_TCP, 1 << TCP_LISTEN) + struct.pack("!H46x", port)
    header = struct.pack("=IHHII", 16 + len(wanted), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
            kernel.send(header + wanted)
            (kind,) = struct.unpack_from("=4xH", kernel.recv(65536))
    except OSError:
        kind = NLMSG_ERROR
    return kind == SOCK_DIAG_BY_FAMILY if kind != NLMSG_ERROR else _stands_in_proc(family, port)


def _stands_in_proc(family, port):
    """The same where sock_diag is not to be had."""
    table = "/proc/net/tcp" if family == socket.AF_INET else "/proc/net/tcp6"
    rows = (line.split() for line in Path(table).read_text().splitlines()[1:])
    return any(row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows)


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
    """Asks until the answer is true, and returns it; the last answer decides when the time is up, and so does a row or a key that
    is not there. The time is for a machine that is busy with all the other tests, and costs nothing where the answer comes."""
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() > deadline
        try:
            answer = question()
        except (LookupError, StopIteration):
            if late:
                raise
            answer = None
        if answer or late:
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
