"""The control panel as a program meets it: plain http.client, so that every header is ours."""

import http.client
import json
import re
from pathlib import Path

import host


class Panel:
    """Requests to the panel of a running pooler; bearer tokens by default the start token."""

    def __init__(self, pooler, port, token=None, tls=None):
        self.pooler, self.port, self.tls = pooler, port, tls
        self.first = token

    @property
    def token(self):
        """The start token, from the file that the log names."""
        self.first = self.first or self.token_path().read_text().strip()
        return self.first

    def token_path(self, count=1):
        """The file of the start token of the process that was started last."""
        return Path(self.pooler.wait_log(r'panel: start token in "([^"]+)"', count=count)[-1])

    def ask(self, method, path, body=None, headers=None, token="first", timeout=60):
        """(status, JSON or text, headers) of one request on a connection of its own."""
        headers = dict(headers or {})
        if token:
            headers["Authorization"] = f"Bearer {self.token if token == 'first' else token}"
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        if self.tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(data) if is_json and data else data.decode(errors="replace"), answer.headers

    def get(self, path, **options):
        """The JSON of an answer that must be good."""
        status, body, _ = self.ask("GET", path, **options)
        assert status == 200, (status, body)
        return body

    def is_up(self):
        try:
            return self.ask("GET", "/healthz", token=None)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_up(self):
        host.eventually(self.is_up, timeout=60)
        return self


def start(weir, **settings):
    """A pooler with its panel; both are up."""
    port = settings.pop("http_port", None) or host.free_port()
    pooler = weir(http_port=port, **settings)
    return pooler, Panel(pooler, port).wait_up()


def start_for_pools(weir):
    """One whose pools may be made and changed, for a user whose password a URI has to quote."""
    return start(weir, pools_file="pools.ini", auth_type="plain", userlist={"alice": "a secret/@", "admin": "x"})


def is_refused(answer, status, error, pattern=""):
    """The answer has the API's error shape."""
    got, body, _ = answer
    assert got == status, (got, body)
    assert body["id"] == error and re.search(pattern, body["message"]), body
    assert re.fullmatch(r"[0-9a-f-]{36}", body["request_id"]), body
    return body
