"""The drivers that applications use, and applications: how each one's program in tests/clients is built, and how it is run.
`python tests/e2e/drivers.py` builds them all (scripts/prepare-tests does), so that no test waits for a download."""

import contextlib
import fcntl
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys

import host

SOURCES = host.REPOSITORY / "tests/clients"
BUILT = host.REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "clients"
SCENARIOS = "simple prepared transactions failures copy cancel crowd large notices parameters console".split()


class Driver:
    """One library, one program. `needs` are the tools without which it cannot be built."""

    needs = ()
    scenarios = SCENARIOS

    def __init__(self, name):
        self.name = name
        self.source = SOURCES / name
        self.built = BUILT / name

    def lacking(self):
        """What this machine does not have, or None."""
        return next((tool for tool in self.needs if shutil.which(tool) is None), None)

    def ensure_built(self):
        """Builds what is not built or is older than its source; one process at a time."""
        with self._lock():
            self.build()

    @contextlib.contextmanager
    def _lock(self):
        self.built.mkdir(parents=True, exist_ok=True)
        with open(self.built / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def is_older(self, made, *sources):
        """Whether what was made of these files is not there, or older than one of them."""
        path = self.built / made
        return not path.exists() or any((self.source / name).stat().st_mtime > path.stat().st_mtime for name in sources)

    def make(self, *command, **environment):
        words = [str(word) for word in command]
        options = {"capture_output": True, "text": True, "check": False, "timeout": 600}
        done = subprocess.run(words, cwd=self.source, env={**os.environ, **environment}, **options)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    def run(self, *arguments, timeout=300, **options):
        return host.run([*self.command(), *arguments], as_user=False, timeout=timeout, **options)

    def build(self):
        raise NotImplementedError

    def command(self):
        raise NotImplementedError


class Python(Driver):
    """A program of the tests' own Python; `module` is what it needs."""

    def __init__(self, name, module=None):
        super().__init__(name)
        self.module = module or name

    def lacking(self):
        return None if importlib.util.find_spec(self.module) else self.module

    def build(self):
        pass

    def command(self):
        return [sys.executable, self.source / "check.py"]


class Ruby(Driver):
    needs = ("ruby",)

    def lacking(self):
        return super().lacking() or (None if self._has_libraries() else "activerecord or pg")

    def _has_libraries(self):
        asked = host.run(["ruby", "-e", "require 'logger'; require 'active_record'; require 'pg'"], as_user=False, check=False)
        return asked.returncode == 0

    def build(self):
        pass

    def command(self):
        return ["ruby", self.source / "check.rb"]


class Go(Driver):
    needs = ("go",)

    def build(self):
        if self.is_older("check", "main.go", "go.mod", "go.sum"):
            self.make("go", "build", "-o", self.built / "check", ".", CGO_ENABLED="0")

    def command(self):
        return [self.built / "check"]


class Tool(Go):
    """No driver: what others have made for Weir's panel and metrics to be used by."""

    scenarios = ()


class Program(Tool):
    """A program of others that is a Go module: built as it is, in the version that go.mod names."""

    def __init__(self, name, package):
        super().__init__(name)
        self.package = package

    def build(self):
        if self.is_older("check", "go.mod", "go.sum"):
            self.make("go", "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", self.built / "check", self.package, CGO_ENABLED="0")


    def version(self):
        """The one that go.mod names, without its v."""
        module = re.search(r"^require (\S+) v(\S+)$", (self.source / "go.mod").read_text(), re.MULTILINE)
        assert self.package.startswith(module[1]), module[0]
        return module[2]


class Java(Driver):
    needs = ("java", "javac", "mvn")
    scenarios = [*SCENARIOS, "replication", "reads"]

    def build(self):
        fetch = ["mvn", "-q", "-B", "-ntp", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        if self.is_older("fetched", "pom.xml"):
            self.make(*fetch, f"-DoutputDirectory={self.built}")
            (self.built / "fetched").touch()
        if self.is_older("Check.class", "Check.java"):
            self.make("javac", "-encoding", "UTF-8", "-d", self.built, "-cp", self.built / "*", "Check.java")

    def command(self):
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return ["java", *quick, "-cp", f"{self.built}:{self.built}/*", "Check"]


class Node(Driver):
    needs = ("node", "npm")

    def build(self):
        if self.is_older("node_modules/.package-lock.json", "package.json", "package-lock.json"):
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(self.source / name, self.built)
            self.make("npm", "ci", "--no-audit", "--no-fund", "--prefix", self.built)
        if self.is_older("check.js", "check.js"):
            shutil.copy(self.source / "check.js", self.built)

    def command(self):
        return ["node", self.built / "check.js"]



def terraform():
    """The machine's own Terraform, or the one that is built where there is none (the last version under the MPL)."""
    if found := shutil.which("terraform"):
        return found
    TERRAFORM.ensure_built()
    return TERRAFORM.command()[0]


def go_platform():
    """This machine as Go and Terraform call it."""
    return f"linux_{({'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()))}"


DRIVERS = [Python("asyncpg"), Go("go"), Java("java"), Node("node")]
APPLICATIONS = [
    Python("django"),
    Python("sqlalchemy"),
    Java("hibernate"),
    Ruby("activerecord"),
    Python("jobs", "asyncpg"),
    Python("election", "psycopg"),
    Python("tenants", "psycopg"),
]
GODO = Tool("godo")  # DigitalOcean's client
DOCTL = Program("doctl", "github.com/digitalocean/doctl/cmd/doctl")
PROVIDER = Program("terraform-provider", "github.com/digitalocean/terraform-provider-digitalocean")
TERRAFORM = Program("terraform", "github.com/hashicorp/terraform")
COLLECTOR = Tool("collector")  # the OpenTelemetry Collector's receiver


def main():
    """Builds all that can be built; what cannot is named, and its tests are skipped."""
    missing = 0
    for driver in [*DRIVERS, *APPLICATIONS, GODO, DOCTL, PROVIDER, *([] if shutil.which("terraform") else [TERRAFORM]), COLLECTOR]:
        lacking = driver.lacking()
        try:
            if lacking is None:
                driver.ensure_built()
        except (AssertionError, OSError, subprocess.SubprocessError) as failure:
            lacking = f"what it is built of: {str(failure).strip().splitlines()[-1]}"
        if lacking:
            missing += 1
            print(f"the client tests/clients/{driver.name} lacks {lacking}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
