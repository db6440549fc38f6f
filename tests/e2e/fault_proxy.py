"""A TCP proxy that breaks connections on purpose: cut after any byte, silent, in segments of one byte, late. Knows nothing of the protocol.

`Proxy(port)` stands before a server (or before the pooler). Its faults hold for the bytes that come from then on:
`cut_after(direction, count)`, `silent` (an Event), `segment` (bytes), `delay` (seconds), `refuses`. `heal()` ends them all."""

import collections
import socket
import struct
import threading
import time

TO_SERVER, TO_CLIENT = "to server", "to client"


class Proxy:
    def __init__(self, target_port):
        self.target_port = target_port
        self.silent = threading.Event()
        self.lock = threading.Lock()
        self.pairs = []
        self.heal()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    # --- faults -----------------------------------------------------------------------------------------------
    def heal(self):
        """No fault any more; what was silent stays so, as after packets were lost for good."""
        self.segment, self.delay, self.refuses = 0, 0.0, False
        self.left = {TO_SERVER: None, TO_CLIENT: None}
        if self.silent.is_set():
            for pair in self.pairs:
                pair.deaf = True
        self.silent.clear()

    def cut_after(self, direction, count):
        """After this many more bytes in that direction, over all connections, the one that they are on is reset on both sides."""
        with self.lock:
            self.left[direction] = count
        if count == 0:
            self.reset_all()

    def reset_all(self):
        for pair in list(self.pairs):
            pair.reset()

    def close(self):
        self.listener.close()
        self.reset_all()

    # --- work -------------------------------------------------------------------------------------------------
    def take(self, direction, data):
        """What of these bytes is passed on, and whether the connection is cut behind them."""
        with self.lock:
            left = self.left[direction]
            if left is None:
                return data, False
            self.left[direction] = max(0, left - len(data))
            return data[:left], left <= len(data)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.refuses:
                reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port), timeout=10)
            except OSError:
                reset(client)
                continue
            server.settimeout(None)
            self.pairs = [pair for pair in self.pairs if not pair.over] + [Pair(self, client, server)]


class Pair:
    """One connection through the proxy."""

    def __init__(self, proxy, client, server):
        self.proxy, self.over, self.deaf = proxy, False, False
        self.sockets = (client, server)
        for end in self.sockets:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for direction, source, sink in ((TO_SERVER, client, server), (TO_CLIENT, server, client)):
            late = collections.deque()
            there = threading.Semaphore(0)
            threading.Thread(target=self._read, args=(direction, source, late, there), daemon=True).start()
            threading.Thread(target=self._write, args=(sink, late, there), daemon=True).start()

    def reset(self):
        self.over = True
        for end in self.sockets:
            reset(end)

    def _read(self, direction, source, late, there):
        try:
            while True:
                data = source.recv(65536)
                if self.deaf or self.proxy.silent.is_set():
                    self.deaf = True  # and stays so: what was lost is never sent again
                    if not data:
                        return self.reset()  # as keepalives do, so that no server stays in a transaction for ever
                    continue
                data, cut = self.proxy.take(direction, data)
                late.append((time.monotonic() + self.proxy.delay, data, cut))
                there.release()
                if not data or cut:
                    return
        except OSError:
            late.append((0, b"", True))
            there.release()

    def _write(self, sink, late, there):
        try:
            while True:
                there.acquire()
                due, data, cut = late.popleft()
                time.sleep(max(0.0, due - time.monotonic()))
                size = self.proxy.segment or len(data) or 1
                for at in range(0, len(data), size):
                    sink.sendall(data[at : at + size])
                if cut:
                    return self.reset()
                if not data:
                    return sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.reset()


def reset(end):
    """Ends it by RST."""
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)  # wakes a thread that reads from it
        end.close()
    except OSError:
        pass
