"""A training run as `rejuice view --live` shows it: its curves so far, and its last whole step."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from threading import Lock, Thread

import orjson

from ...operators import RejuiceError
from ...pipelines.analysis.page.build import page_bytes
from ...pipelines.analysis.page.rows import page_of_stored
from ..metrics import read
from ..run import TrainingRun
from .stored import open_so_far
from .watch import RECENT, spell

_QUIET_S = 60.0
"""How long a run whose processes are not seen, as on another machine, may write nothing."""


class RunSoFar:
    """A training run that may still go on.

    `processes` returns those of a run on this machine, `failure` why one has ended too early, and
    `now` the seconds since the epoch; above `most_bytes`, texts are left out of a page.
    """

    def __init__(
        self,
        folder: Path,
        processes: Callable[[Path], Sequence[object]],
        failure: Callable[[Path], str],
        *,
        most_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._processes, self._failure = folder.resolve(), processes, failure
        self._most_bytes, self._now = most_bytes, now

    def version(self) -> str:
        """What was written last: the size of the metrics, and the last whole step."""
        whole = sorted((self._folder / "steps").glob("*/recipe.yaml"))
        metrics = self._folder / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        return f"{whole[-1].parent.name if whole else 'start'}-{size}"

    def page(self, version: str) -> bytes:
        data = page_of_stored(self._folder, open_so_far(self._folder))
        return page_bytes(data, version, most_bytes=self._most_bytes)

    def status(self) -> str:
        steps = TrainingRun.open(self._folder).config.steps
        trained = [point for point in read(self._folder) if point.trained]
        last = trained[-1].step if trained else 0
        written = f"last update {datetime.fromtimestamp(self._written(), UTC):%H:%M:%S} UTC"
        found = f"step {last} of {steps}"
        if last >= steps:
            return f"{found}, all trained; {written}"
        if not self.is_running():
            return f"{found}; it has ended: {self._failure(self._folder)}; {written}"
        if not trained:
            return f"{found}; {written}"
        seconds = fmean(point.seconds for point in trained[1:][-RECENT:] or trained)
        return f"{found}, {spell((steps - last) * seconds)} left; {written}"

    def is_running(self) -> bool:
        """It has processes here, or has written within the last minute."""
        return bool(self._processes(self._folder)) or self._now() - self._written() < _QUIET_S

    def _written(self) -> float:
        names = ("metrics.jsonl", "verl.log", "recipe.yaml", "steps")
        there = [path for name in names if (path := self._folder / name).exists()]
        return max((path.stat().st_mtime for path in there), default=0.0)


# --- The server: on loopback, read only, with a token ---------------------------------

_POLL_S = 2.0
_FAREWELL_S = 10.0  # for open pages to fetch what was last written; they ask every 3 s


class _PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, run: RunSoFar, port: int) -> None:
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
    run: RunSoFar,
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
