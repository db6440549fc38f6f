"""A double of the API server of Kubernetes, on loopback: Leases and ConfigMaps, as far as a fleet uses them. TLS, bearer tokens, certificates of clients,
resourceVersion, preconditions, label selectors, pages, watches with bookmarks and 410. What it does was compared with kube-apiserver 1.34; tests/e2e/kubernetes.py runs the tests against a real one.

Test controls: `tokens`, `forbidden`, `late` (a resource of which watches show nothing for now), `expire_watches()`, `stop()`, `start()`, `delete()`, `names()`."""

import copy
import datetime
import http.server
import itertools
import json
import re
import socket
import ssl
import threading
import time
import urllib.parse
import uuid

import host

TOKEN = "token-of-the-double"
KINDS = {"leases": ("coordination.k8s.io/v1", "Lease"), "configmaps": ("v1", "ConfigMap")}
PATH = re.compile(r"/(?:api/v1|apis/coordination\.k8s\.io/v1)/namespaces/([a-z0-9-]+)/(leases|configmaps)(?:/([^/]+))?$")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
BOOKMARKS = 1.0


class Refused(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.status = code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code}


class State:
    """What etcd has behind an API server."""

    def __init__(self):
        self.changed = threading.Condition()
        self.revision, self.compacted, self.expiries = 1000, 0, 0
        self.objects = {}  # (namespace, resource, name) -> object
        self.history = []  # (revision, namespace, resource, type, object, labels before)

    def write(self, key, kind, found, before=None):
        self.revision += 1
        found["metadata"]["resourceVersion"] = str(self.revision)
        if kind == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = found
        self.history.append((self.revision, *key[:2], kind, copy.deepcopy(found), labels(before or found)))
        self.changed.notify_all()
        return found


def labels(found):
    return found["metadata"].get("labels") or {}


def selected(selector, having):
    return all(having.get(name) == value for name, value in selector)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, what):
        body = json.dumps(what).encode() + b"\n"
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_any(self):
        double = self.server.double
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        try:
            self.dispatch(double, body)
        except Refused as refused:
            self.answer(refused.code, refused.status)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any

    def dispatch(self, double, body):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if bearer not in double.tokens and not self.connection.getpeercert():
            raise Refused(401, "Unauthorized", "Unauthorized")
        match = PATH.match(url.path)
        if not match:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        namespace, resource, name = match.groups()
        verb = {"POST": "create", "PUT": "update", "DELETE": "delete"}.get(self.command)
        verb = verb or ("get" if name else "watch" if query.get("watch") == "true" else "list")
        if (verb, resource) in double.forbidden:
            message = f'{resource} is forbidden: User "weir" cannot {verb} resource "{resource}" in the namespace "{namespace}"'
            raise Refused(403, "Forbidden", message)
        double.requests.append((verb, resource))
        state, key = double.state, (namespace, resource, name)
        if verb == "watch":
            return self.watch(double, key, query)
        with state.changed:
            code, what = getattr(self, verb)(state, key, query, body)
            what = copy.deepcopy(what)
        self.answer(code, what)

    # --- with the state's lock ------------------------------------------------------------------------------------
    def found(self, state, key):
        if key not in state.objects:
            raise Refused(404, "NotFound", f'{key[1]} "{key[2]}" not found')
        return state.objects[key]

    def get(self, state, key, _query, _body):
        return 200, self.found(state, key)

    def list(self, state, key, query, _body):
        selector = parse_selector(query)
        every = sorted((k, found) for k, found in state.objects.items() if k[:2] == key[:2] and selected(selector, labels(found)))
        first, revision = (int(number) for number in query.get("continue", f"0,{state.revision}").split(","))
        limit = int(query.get("limit") or len(every) or 1)
        page = [found for _, found in every[first : first + limit]]
        metadata = {"resourceVersion": str(revision)}
        if first + limit < len(every):
            metadata["continue"] = f"{first + limit},{revision}"
        version, kind = KINDS[key[1]]
        return 200, {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": page}

    def validate(self, resource, body):
        metadata, version = body.get("metadata", {}), KINDS[resource]
        fine = (body.get("apiVersion"), body.get("kind")) == version
        fine = fine and len(metadata["name"]) <= 253 and SUBDOMAIN.match(metadata["name"])
        fine = fine and all(LABEL_VALUE.match(value) for value in labels(body).values())
        fine = fine and all(isinstance(value, str) for value in metadata.get("annotations", {}).values())
        if resource == "leases":
            spec = body["spec"]
            fine = fine and spec["leaseDurationSeconds"] > 0 and MICRO_TIME.match(spec["renewTime"]) and spec["holderIdentity"]
        if not fine:
            raise Refused(422, "Invalid", f'{resource} "{metadata.get("name")}" is invalid: {body}')

    def create(self, state, key, _query, body):
        self.validate(key[1], body)
        key = (*key[:2], body["metadata"]["name"])
        if body["metadata"].get("resourceVersion"):
            raise Refused(500, "InternalError", "resourceVersion should not be set on objects to be created")
        if key in state.objects:
            raise Refused(409, "AlreadyExists", f'{key[1]} "{key[2]}" already exists')
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body["metadata"] |= {"namespace": key[0], "uid": str(uuid.uuid4()), "creationTimestamp": now}
        return 201, state.write(key, "ADDED", body)

    def update(self, state, key, query, body):
        self.validate(key[1], body)
        metadata = body["metadata"]
        if key not in state.objects and key[1] == "leases" and not metadata.get("uid"):
            metadata.pop("resourceVersion", None)  # the API server creates Leases by PUT
            return self.create(state, key, query, body)
        if key not in state.objects and key[1] == "leases":
            raise Refused(409, "Conflict", "Precondition failed: UID in precondition")
        found = self.found(state, key)
        wanted, uid = metadata.get("resourceVersion"), metadata.get("uid")
        if (wanted and wanted != found["metadata"]["resourceVersion"]) or (uid and uid != found["metadata"]["uid"]):
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {key[1]} "{key[2]}": the object has been modified')
        body["metadata"] = {**metadata, **{name: found["metadata"][name] for name in ("namespace", "uid", "creationTimestamp", "resourceVersion")}}
        if body == found:
            return 200, found  # nothing is written
        return 200, state.write(key, "MODIFIED", body, before=found)

    def delete(self, state, key, _query, body):
        found = self.found(state, key)
        for name, wanted in ((body or {}).get("preconditions") or {}).items():
            if found["metadata"][name] != wanted:
                raise Refused(409, "Conflict", f"the {name} in the precondition ({wanted}) does not match ({found['metadata'][name]})")
        state.write(key, "DELETED", copy.deepcopy(found))
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {"name": key[2], "kind": key[1]}}

    # --- watches --------------------------------------------------------------------------------------------------
    def watch(self, double, key, query):
        state, selector, since = double.state, parse_selector(query), int(query["resourceVersion"])
        until = time.monotonic() + float(query.get("timeoutSeconds", 1800))
        with state.changed:
            expiries = state.expiries
            if since < state.compacted:
                raise Refused(410, "Expired", f"too old resource version: {since} ({state.compacted})")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        version, kind = KINDS[key[1]]
        bookmark = time.monotonic() + BOOKMARKS
        while time.monotonic() < until and not double.over.is_set():
            with state.changed:
                new = self.news(double, key[1], since)
                if not new and state.expiries == expiries:
                    state.changed.wait(max(0.0, min(bookmark, until) - time.monotonic()))
                    new = self.news(double, key[1], since)
                lines = [event(entry, selector) for entry in new if entry[1:3] == key[:2]]
                since = max([since, *(entry[0] for entry in new)])
                if state.expiries != expiries:
                    lines = [{"type": "ERROR", "object": Refused(410, "Expired", "too old resource version").status}]
            for line in filter(None, lines):
                self.chunk(json.dumps(line).encode() + b"\n")
                if line["type"] == "ERROR":
                    return self.chunk(b"")
            if time.monotonic() >= bookmark and query.get("allowWatchBookmarks") == "true":
                bookmark = time.monotonic() + BOOKMARKS
                mark = {"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": str(since)}}
                self.chunk(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
        self.chunk(b"")

    def news(self, double, resource, since):
        return [entry for entry in double.state.history if entry[0] > since and resource != double.late]

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def parse_selector(query):
    return [tuple(each.split("=", 1)) for each in query.get("labelSelector", "").split(",") if each]


def event(entry, selector):
    """A change as a watch with this selector shows it."""
    _, _, _, kind, found, before = entry
    if selected(selector, labels(found)):
        return {"type": kind, "object": found}
    return {"type": "DELETED", "object": found} if selected(selector, before) and kind == "MODIFIED" else None


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 200

    def __init__(self, double, port):
        self.double, self.connections = double, set()
        super().__init__(("127.0.0.1", port), Handler)

    def get_request(self):
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def finish_request(self, request, client_address):
        secure = self.double.context.wrap_socket(request, server_side=True)
        self.connections.add(secure)
        self.RequestHandlerClass(secure, client_address, self)

    def handle_error(self, *_):
        pass  # a client has gone


class Double:
    """`settings` are those of a node."""

    members = ["api"]
    _namespaces = itertools.count(1)

    def __init__(self, scratch, authority):
        self.authority, self.state, self.ports = authority, State(), [host.free_port()]
        self.tokens, self.forbidden, self.requests, self.late = {TOKEN}, set(), [], None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(authority.server.cert, authority.server.key)
        self.context.load_verify_locations(authority.cert)
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.set_alpn_protocols(["http/1.1"])
        self.namespace = f"n{next(self._namespaces)}"
        self.token_file = host.new_directory(scratch, "kube") / "token"
        self.write_token(TOKEN)
        self.settings = {"fleet_tls_ca_file": authority.cert, "fleet_token_file": self.token_file}
        self.start()

    def write_token(self, token):
        self.token_file.write_text(token + "\n")
        host.hand_over(self.token_file)

    def start(self, *_):
        self.over = threading.Event()
        self.server = Server(self, self.ports[0])
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def stop(self, *_, mode=None):  # noqa: ARG002 (a double has no process)
        """Connections are reset; what is stored stays."""
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.server.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.stop()

    def expire_watches(self):
        """Watches end with 410, and none may begin at a revision that they know."""
        with self.state.changed:
            self.state.revision += 1
            self.state.compacted = self.state.revision
            self.state.expiries += 1
            self.state.history.clear()
            self.state.changed.notify_all()

    def holder(self, node):
        """The session that has the node's Lease."""
        with self.state.changed:
            return self.state.objects[self.namespace, "leases", f"weir.{node}"]["spec"]["holderIdentity"]

    def under(self, _prefix):
        """The names of objects, as etcd has them."""
        return {f"/{name.replace('.', '/')}/": "" for name in self.names("configmaps")}

    def url(self, name="weir", ports=None):
        return f"kubernetes://127.0.0.1:{(ports or self.ports)[0]}/{self.namespace}/{name}"

    def names(self, resource):
        with self.state.changed:
            return sorted(name for namespace, kind, name in self.state.objects if (namespace, kind) == (self.namespace, resource))

    def delete(self, resource, name):
        with self.state.changed:
            key = (self.namespace, resource, name)
            self.state.write(key, "DELETED", copy.deepcopy(self.state.objects[key]))
