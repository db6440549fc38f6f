"""A real API server of Kubernetes, kube-apiserver before an etcd of its own, on loopback, with the Role of docs/fleet.md. `WEIR_KUBE_APISERVER` is the
program: no registry has it, but `go build` makes it of the module k8s.io/kubernetes in some minutes. Without it tests have a double (kubernetes_double.py)."""

import itertools
import json
import os
import re
import signal
import ssl
import urllib.request

import pytest

import etcd
import host
import kubernetes_double

PROGRAM = os.environ.get("WEIR_KUBE_APISERVER")
ADMIN, WEIR = "token-of-the-admin", "token-of-weir"
DOCS = host.REPOSITORY / "docs/fleet.md"


def store(scratch, authority):
    """The real one, or the double."""
    return (ApiServer if PROGRAM else kubernetes_double.Double)(scratch, authority)


def role(namespace):
    """The Role and RoleBinding of the manual, for the user `weir`."""
    yaml = pytest.importorskip("yaml")
    text = re.search(r"```yaml\n(apiVersion: rbac.*?)```", DOCS.read_text(), re.DOTALL)[1]
    made, binding = yaml.safe_load_all(text)
    binding["subjects"] = [{"kind": "User", "name": "weir", "apiGroup": "rbac.authorization.k8s.io"}]
    for each in (made, binding):
        each["metadata"]["namespace"] = namespace
    return made, binding


class ApiServer:
    """As `kubernetes_double.Double`, without its faults."""

    members = ["api"]
    _namespaces = itertools.count(1)

    def __init__(self, scratch, authority):
        self.authority, self.ports = authority, [host.free_port()]
        self.directory = host.new_directory(scratch, "kube")
        self.etcd = etcd.Etcd(scratch)
        (self.directory / "tokens.csv").write_text(f"{ADMIN},admin,1,system:masters\n{WEIR},weir,2\n")
        self.token_file = self.directory / "token"
        self.token_file.write_text(WEIR)
        host.hand_over(self.token_file)
        self.settings = {"fleet_tls_ca_file": authority.cert, "fleet_token_file": self.token_file}
        self.namespace = f"n{next(self._namespaces)}"
        self.start()
        self.ask("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        for each in role(self.namespace):
            kind = each["kind"].lower() + "s"
            self.ask(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/{kind}", each)

    def start(self, *_):
        server = self.authority.server
        options = {
            "etcd-servers": f"http://127.0.0.1:{self.etcd.ports[0]}",
            "secure-port": self.ports[0],
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "tls-cert-file": server.cert,
            "tls-private-key-file": server.key,
            "token-auth-file": self.directory / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": server.key,
            "service-account-signing-key-file": server.key,
            "disable-admission-plugins": "ServiceAccount",
            "service-cluster-ip-range": "10.0.0.0/24",
        }
        command = [PROGRAM, *(f"--{name}={value}" for name, value in options.items())]
        with open(self.directory / "kube-apiserver.log", "ab") as log:
            self.process = host.start(command, as_user=False, cwd=self.directory, stdout=log, stderr=log)
        host.eventually(self.is_ready, timeout=90, interval=0.3)

    def stop(self, *_, mode=signal.SIGTERM):
        host.stop(self.process, mode)

    def close(self):
        self.stop()
        self.etcd.close()

    def is_ready(self):
        try:
            return self.get("/readyz") == "ok"
        except OSError:
            return False

    def get(self, path, what=None, method="GET"):
        context = ssl.create_default_context(cafile=self.authority.cert)
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        body = None if what is None else json.dumps(what).encode()
        request = urllib.request.Request(f"https://127.0.0.1:{self.ports[0]}{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.read().decode()

    def ask(self, path, what):
        return self.get(path, what, "POST")

    def _path(self, resource):
        group = "/apis/coordination.k8s.io/v1" if resource == "leases" else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{resource}"

    def names(self, resource):
        every = json.loads(self.get(f"{self._path(resource)}?labelSelector=weir/fleet"))["items"]
        return sorted(each["metadata"]["name"] for each in every)

    def delete(self, resource, name):
        self.get(f"{self._path(resource)}/{name}", method="DELETE")

    def holder(self, node):
        return json.loads(self.get(f"{self._path('leases')}/weir.{node}"))["spec"]["holderIdentity"]

    def under(self, _prefix):
        """The names of objects, as etcd has them."""
        return {f"/{name.replace('.', '/')}/": "" for name in self.names("configmaps")}

    def url(self, name="weir", ports=None):
        return f"kubernetes://127.0.0.1:{(ports or self.ports)[0]}/{self.namespace}/{name}"
