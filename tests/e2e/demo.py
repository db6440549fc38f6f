"""A demo that runs: `weir-harness demo` or another of its programs, made short, with what it has said so far."""

import os
import pty
import re
import signal
import subprocess
import threading

import host
import panel
from weir import PROGRAM

LAB = PROGRAM.with_name("weir-harness")
PATIENCE = 240  # for a demo on a machine that has all other tests to run


class Demo:
    """At a terminal it stays until Ctrl-C, elsewhere it comes to its own end."""

    def __init__(self, directory, at_terminal, program=None):
        mine, theirs = pty.openpty() if at_terminal else os.pipe()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEMO_")}
        command = [LAB, *(program or ["demo", "--seconds", 1, "--scale", 1, "--out", directory / "result"])]
        streams = {"stdin": theirs if at_terminal else subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
        self.process = host.start(command, as_user=False, die_with=signal.SIGTERM, cwd=directory, env=environment, **streams)
        os.close(theirs)
        self.said = ""
        self.reader = threading.Thread(target=self.read, args=[mine], daemon=True)
        self.reader.start()

    def read(self, stream):
        with open(stream, errors="replace", newline="") as text:
            try:
                while some := text.read(1):
                    self.said += some.replace("\r", "")
            except OSError:
                pass  # the other end of a terminal is closed

    def line(self, pattern):
        """What a line of its own says, once it is there."""

        def found():
            ended = not self.reader.is_alive()
            line = re.search(rf"^{pattern}\n", self.said, re.M)
            assert line or not ended, self.said
            return line

        return host.eventually(found, timeout=PATIENCE)[1]

    def panel(self):
        """Its control panel, to which the token that it told opens."""
        port, token = self.line(r" *panel: http://127\.0\.0\.1:(\d+)"), self.line(r" *api token: (\S+)")
        return panel.Panel(None, int(port), token)

    def family(self):
        """Every process that it has started, and those have."""
        found = [self.process.pid]
        for pid in found:
            found += host.children(pid)
        return found[1:]
