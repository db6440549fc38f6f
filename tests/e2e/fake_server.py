"""A PostgreSQL that misbehaves on purpose: it lets everyone log in, and then does what the test says."""

import socket
import struct
import threading

import wire

PARAMETERS = {
    "server_version": "15.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "application_name": "",
    "IntervalStyle": "postgres",
}
READY = wire.message(b"Z", b"I")


def parameter(name, value):
    return wire.message(b"S", wire.cstring(name) + wire.cstring(value))


GREETING = (
    wire.message(b"R", b"\0\0\0\0")
    + b"".join(parameter(name, value) for name, value in PARAMETERS.items())
    + wire.message(b"K", b"\0\0\0\1\0\0\0\2")
    + READY
)


def error(text, **fields):
    """An ErrorResponse; fields by their letter."""
    body = b"".join(letter.encode() + wire.cstring(value) for letter, value in {"S": "ERROR", "M": text, **fields}.items())
    return wire.message(b"E", body + b"\0")


def one_row(text):
    """The answer to a simple query: one row of one column, and ReadyForQuery."""
    column = wire.cstring("answer") + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0)
    return (
        wire.message(b"T", struct.pack("!h", 1) + column)
        + wire.message(b"D", struct.pack("!hi", 1, len(text)) + text.encode())
        + wire.message(b"C", wire.cstring("SELECT 1"))
        + READY
    )


class FakeServer:
    """Calls `answer(connection, statement)` for each simple query; `greeting` ends the login.

    `connections` counts the logins; what `answer` raises ends its connection."""

    def __init__(self, answer, greeting=GREETING):
        self.answer, self.greeting = answer, greeting
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def drop(self, number):
        """Ends a connection as a server that dies does."""
        try:
            self.connections[number].shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended already

    def close(self):
        self.listener.close()
        for number in range(len(self.connections)):
            self.drop(number)

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            while True:
                (length,) = struct.unpack("!i", _exactly(connection, 4))
                (code,) = struct.unpack_from("!i", _exactly(connection, length - 4))
                if code not in (wire.SSL_REQUEST, wire.GSSENC_REQUEST):
                    break
                connection.sendall(b"N")
            if code == wire.CANCEL_REQUEST:
                return
            self.connections.append(connection)
            connection.sendall(self.greeting)
            while True:
                kind = _exactly(connection, 1)
                (length,) = struct.unpack("!i", _exactly(connection, 4))
                body = _exactly(connection, length - 4)
                if kind == b"X":
                    return
                if kind == b"Q":
                    self.answer(connection, body[:-1].decode())
        except (OSError, EOFError):
            pass
        finally:
            connection.close()


def _exactly(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data
