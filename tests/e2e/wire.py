"""PostgreSQL's protocol by hand, for what no client library will send. Bytes in, bytes out; no retries, no cleverness.
(PostgreSQL documentation, "Message Formats".)"""

import socket
import struct
from dataclasses import dataclass

SSL_REQUEST = 80877103
GSSENC_REQUEST = 80877104
CANCEL_REQUEST = 80877102
V3_0 = 3 << 16
V3_2 = (3 << 16) | 2


# --- what a client sends --------------------------------------------------------------------------------------
def packet(body):
    """A message without a type byte: length and body."""
    return struct.pack("!i", len(body) + 4) + body


def message(kind, body=b""):
    return kind + packet(body)


def cstring(text):
    return text.encode() + b"\0"


def startup(version=V3_0, **parameters):
    pairs = b"".join(cstring(name) + cstring(value) for name, value in parameters.items())
    return packet(struct.pack("!i", version) + pairs + b"\0")


def request(code):
    """SSLRequest or GSSENCRequest."""
    return packet(struct.pack("!i", code))


def cancel(pid, secret):
    return packet(struct.pack("!ii", CANCEL_REQUEST, pid) + secret)


def query(statement):
    return message(b"Q", cstring(statement))


def parse(name, statement, types=()):
    """`types` are the OIDs of the first parameters; 0 leaves one to the server."""
    return message(b"P", cstring(name) + cstring(statement) + struct.pack("!h", len(types)) + struct.pack(f"!{len(types)}I", *types))


def bind(statement="", portal="", values=(), formats=(), results=()):
    """None is NULL. All values and results are text unless `formats` and `results` say otherwise (1: binary)."""
    encoded = b"".join(struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values)
    codes = [struct.pack(f"!h{len(chosen)}h", len(chosen), *chosen) for chosen in (formats, results)]
    body = cstring(portal) + cstring(statement) + codes[0] + struct.pack("!h", len(values)) + encoded + codes[1]
    return message(b"B", body)


def function_call(oid, values):
    """The fast path: arguments and result as text."""
    encoded = b"".join(struct.pack("!i", len(value)) + value for value in values)
    return message(b"F", struct.pack("!Ihh", oid, 0, len(values)) + encoded + struct.pack("!h", 0))


def copy_data(data):
    return message(b"d", data)


def copy_fail(text):
    return message(b"f", cstring(text))


def describe(kind, name=""):
    return message(b"D", kind + cstring(name))


def execute(portal="", rows=0):
    return message(b"E", cstring(portal) + struct.pack("!i", rows))


def close(kind, name=""):
    return message(b"C", kind + cstring(name))


COPY_DONE = message(b"c")
SYNC = message(b"S")
FLUSH = message(b"H")
TERMINATE = message(b"X")


# --- what a server sends --------------------------------------------------------------------------------------
@dataclass
class Message:
    kind: str
    body: bytes

    def fields(self):
        """The fields of an ErrorResponse or NoticeResponse: letter to text."""
        parts = self.body.rstrip(b"\0").split(b"\0")
        return {chr(part[0]): part[1:].decode(errors="replace") for part in parts}

    def row(self):
        """The values of a DataRow, as bytes; None is NULL."""
        (count,), at, values = struct.unpack_from("!h", self.body), 2, []
        for _ in range(count):
            (length,) = struct.unpack_from("!i", self.body, at)
            at += 4
            values.append(None if length < 0 else self.body[at : at + length])
            at += max(length, 0)
        return values


class Closed(Exception):
    """The other side has closed the connection."""


class Raw:
    """A socket that speaks frames. Every read has a deadline, so that a silent peer fails the test and does not hang it."""

    def __init__(self, port, host="127.0.0.1", path=None, timeout=30):
        if path:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(timeout)
            self.socket.connect(str(path))
        else:
            self.socket = socket.create_connection((host, port), timeout=timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pid, self.secret, self.parameters, self.negotiated = None, None, {}, None

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.socket.close()

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def read_bytes(self, count):
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed(f"after {data!r}")
            data += more
        return data

    def read(self):
        kind = self.read_bytes(1)
        (length,) = struct.unpack("!i", self.read_bytes(4))
        return Message(kind.decode("latin1"), self.read_bytes(length - 4))

    def read_until(self, kinds):
        """All messages up to and with the first of one of these kinds."""
        messages = []
        while not messages or messages[-1].kind not in kinds:
            messages.append(self.read())
        return messages

    def read_to_end(self):
        """All messages until the other side closes."""
        messages = []
        while True:
            try:
                messages.append(self.read())
            except Closed:
                return messages

    def read_everything(self):
        """All bytes until the other side closes."""
        data = b""
        while True:
            try:
                data += self.read_bytes(1)
            except Closed:
                return data

    def is_silent(self, seconds):
        """Nothing arrives, not even the end."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)

    # --- the usual exchanges ----------------------------------------------------------------------------------
    def login(self, user="alice", database="app", version=V3_0, **parameters):
        """Starts a session without a password; ErrorResponse raises its text."""
        self.send(startup(version, user=user, database=database, **parameters))
        for reply in self.read_until("ZE"):
            if reply.kind == "E":
                raise AssertionError(reply.fields())
            if reply.kind == "K":
                (self.pid,), self.secret = struct.unpack_from("!i", reply.body), reply.body[4:]
            if reply.kind == "S":
                name, value = reply.body[:-1].decode().split("\0")
                self.parameters[name] = value
            if reply.kind == "v":
                self.negotiated = reply.body
        return self

    def ask(self, *parts):
        """Sends, and reads up to ReadyForQuery."""
        self.send(*parts)
        return self.read_until("Z")

    def read_until_ready(self, times):
        """All messages up to the ReadyForQuery that ends that many requests."""
        return [message for _ in range(times) for message in self.read_until("Z")]

    def simple(self, statement):
        """Runs a simple query; its rows as lists of text."""
        replies = self.ask(query(statement))
        failed = [reply for reply in replies if reply.kind == "E"]
        assert not failed, failed[0].fields()
        return rows(replies)


def kinds(messages):
    """The type letters, as one string."""
    return "".join(message.kind for message in messages)


def rows(messages):
    """Every DataRow as a list of text."""
    return [[value.decode() for value in message.row()] for message in messages if message.kind == "D"]


def errors(messages):
    """(SQLSTATE, text) of every ErrorResponse."""
    found = [message.fields() for message in messages if message.kind == "E"]
    return [(fields["C"], fields["M"]) for fields in found]
