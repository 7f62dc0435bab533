"""A tiny engine for tests: tells which arm it is, which headers came, and streams chunk by chunk on command."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Upstream(ThreadingHTTPServer):
    """One arm. `gate` lets a streaming answer send one more chunk each time it is released."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = name
        self.gate = threading.Semaphore(0)
        self._accepted: list[socket.socket] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Keep what is accepted, so that `leave` can close it."""
        connection, address = super().get_request()
        self._accepted.append(connection)
        return connection, address

    def leave(self) -> None:
        """What a pod's end means to its callers: no listener, no connection."""
        self.shutdown()
        self.server_close()
        for connection in self._accepted:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes
    server: Upstream

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/v1/stream":
            self._stream()
            return
        headers = [[key.lower(), value] for key, value in self.headers.items()]
        body = json.dumps({"arm": self.server.name, "path": self.path, "headers": headers}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(3):
            assert self.server.gate.acquire(timeout=30)
            text = f"data: {number}\n\n".encode()
            self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@contextmanager
def upstream(name: str) -> Iterator[Upstream]:
    """A running Upstream, ended afterwards."""
    with Upstream(name) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(timeout=10)
