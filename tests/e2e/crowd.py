"""Thousands of clients in one process: they log in side by side, each a socket and no more. Reads what comes in large pieces."""

import base64
import hashlib
import hmac
import select
import socket
import struct
import time

import wire

READY = wire.message(b"Z", b"I")


class Scram:
    """One client's side of SCRAM-SHA-256 (RFC 5802); what costs time is computed once for all of the same salt."""

    salted = {}

    def __init__(self, password):
        self.password, self.first = password.encode(), "n=,r=" + base64.b64encode(hashlib.sha256(str(id(self)).encode()).digest()).decode()

    def answer(self, kind, data):
        """What is sent for this AuthenticationRequest; None where nothing is."""
        if kind == 10:
            first = b"n,," + self.first.encode()
            return wire.message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
        if kind == 11:
            return wire.message(b"p", self.last(data.decode()).encode())
        return None

    def last(self, challenge):
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        key = (self.password, fields["s"], fields["i"])
        if key not in self.salted:
            self.salted[key] = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(fields["s"]), int(fields["i"]))
        client = hmac.digest(self.salted[key], b"Client Key", "sha256")
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{self.first},{challenge},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client).digest(), signed, "sha256")
        proof = bytes(one ^ other for one, other in zip(client, signature))
        return f"{without_proof},p={base64.b64encode(proof).decode()}"


class Client:
    """A socket, and what has come on it since it was last looked at."""

    def __init__(self, port, user, database, password=None):
        self.scram = Scram(password) if password else None
        self.socket, self.buffer = socket.create_connection(("127.0.0.1", port), timeout=60), b""
        self.socket.sendall(wire.startup(user=user, database=database))

    def take(self):
        """Reads what is there, answers what the login asks; True when ReadyForQuery has come."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise wire.Closed(f"after {self.buffer!r}")
        self.buffer += data
        while self.buffer[:1] == b"R" and len(self.buffer) > 8:
            length, kind = struct.unpack_from("!ii", self.buffer, 1)
            if len(self.buffer) < length + 1:
                return False
            body, self.buffer = self.buffer[9 : length + 1], self.buffer[length + 1 :]
            if self.scram and (answer := self.scram.answer(kind, body)):
                self.socket.sendall(answer)
        if self.buffer[:1] == b"E":
            raise AssertionError(self.buffer)
        return self.buffer.endswith(READY)

    def simple(self, statement):
        """The whole answer to a simple query, as bytes."""
        self.buffer = b""
        self.socket.sendall(wire.query(statement))
        while not self.take():
            pass
        return self.buffer

    def close(self):
        self.socket.close()


def wait_for(clients, arrived=lambda client: None, refused=None):
    """Until each of them has had its ReadyForQuery, in the order in which they come; or an error, if `refused` is there to take it."""
    poll = select.epoll()
    waiting = {client.socket.fileno(): client for client in clients}
    for number in waiting:
        poll.register(number, select.EPOLLIN)
    while waiting:
        events = poll.poll(60)
        assert events, f"{len(waiting)} clients hear nothing"
        for number, _ in events:
            try:
                if not waiting[number].take():
                    continue
                arrived(waiting[number])
            except (AssertionError, wire.Closed, ConnectionError):
                if refused is None:
                    raise
                refused(waiting[number])
            poll.unregister(number)
            del waiting[number]
    poll.close()


def log_in(port, count, user="alice", database="app", password=None, at_once=500):
    """So many clients, `at_once` of them side by side; (clients, seconds)."""
    started, clients = time.monotonic(), []
    for first in range(0, count, at_once):
        some = [Client(port, user, database, password) for _ in range(min(at_once, count - first))]
        wait_for(some)
        clients += some
    return clients, time.monotonic() - started
