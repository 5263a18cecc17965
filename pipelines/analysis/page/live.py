"""Serve the page of a run while the run goes on: on loopback, read only, with a token."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Protocol

import orjson

from ....operators import RejuiceError

_POLL_S = 2.0
_FAREWELL_S = 10.0  # for open pages to fetch what was last written; they ask every 3 s


class LiveRun(Protocol):
    """A run that may still go on.

    Its page may raise a RejuiceError where it cannot be read, an OSError while it is replaced.
    """

    def version(self) -> str:
        """What changes whenever the page of the run does."""

    def page(self, version: str) -> bytes:
        """The page of the run as it is now; its script asks for later versions."""

    def status(self) -> str:
        """How far the run is, and why it has ended."""

    def is_running(self) -> bool:
        """Whether the run goes on; a run that was killed does not."""


class _PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, run: LiveRun, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = secrets.token_urlsafe(16)
        self.is_running = True
        self._run = run
        self._built = ("", b"")  # the version, and its page
        self._lock = Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def answer(self, name: str) -> tuple[str, bytes] | None:
        """The type and the content of `NAME` in the address after the token."""
        version = self._run.version()
        if name == "version":
            status = self._run.status()
            state = {"version": version, "running": self.is_running, "status": status}
            return "application/json", orjson.dumps(state)
        if name:
            return None
        with self._lock:  # Several tabs share what was built.
            if self._built[0] != version:
                self._built = version, self._run.page(version)
            return "text/html; charset=utf-8", self._built[1]


class _Handler(BaseHTTPRequestHandler):
    server: _PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        _, token, *rest = self.path.split("/")
        found = None
        try:
            if secrets.compare_digest(token.encode(), self.server.token.encode()):
                found = self.server.answer("/".join(rest))
        except (RejuiceError, OSError) as error:  # A step is being written: the page asks again.
            text = f"{error}\n".encode()
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", text)
            return
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")
        else:
            self._send(HTTPStatus.OK, *found)

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Refresh", "3")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing: the address has the token in it."""


def serve(
    run: LiveRun,
    port: int,
    tell: Callable[[str], object],
    *,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Serve the page of a run on 127.0.0.1 until the run has ended; `tell` gets its address."""
    try:
        server = _PageServer(run, port)
    except OSError as error:
        raise RejuiceError(f"port {port}: {error.strerror}", "give another --port") from None
    with server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            tell(server.address)
            while run.is_running():
                wait(_POLL_S)
            server.is_running = False
            wait(_FAREWELL_S)
        finally:
            server.shutdown()
            thread.join()
