"""In front of an S3 server, a network that breaks off."""

from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

_OF_ONE_CONNECTION = ("connection", "content-length", "transfer-encoding")


class _PassesOn(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Else each answer waits for 40 ms.

    def answer(self):
        breaks = self.server.breaks()
        body = b"".join(self.parts())
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _OF_ONE_CONNECTION}
        upstream = HTTPConnection(self.server.upstream)
        upstream.request(self.command, self.path, body, headers)
        found = upstream.getresponse()
        content = found.read()
        upstream.close()
        self.send_response(found.status)
        for name, value in found.getheaders():
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        self.send_header("Content-Length", found.getheader("Content-Length") or str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if breaks else content)
        self.close_connection = breaks

    def parts(self):
        """What the request sends, which has a size or is in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


class BreakingProxy(ThreadingHTTPServer):
    """Passes requests on to a server on this machine.

    Attributes:
        requests: how many were answered since `break_after`.
    """

    def __init__(self, upstream):
        super().__init__(("127.0.0.1", 0), _PassesOn)
        self.upstream = upstream.removeprefix("http://")
        self.requests = 0
        self._lock, self._whole = Lock(), None

    def break_after(self, whole):
        """Answer so many requests, and of every later one only half; None: answer all."""
        with self._lock:
            self.requests, self._whole = 0, whole

    def breaks(self):
        """Whether the next answer breaks off."""
        with self._lock:
            self.requests += 1
            return self._whole is not None and self.requests > self._whole


@contextmanager
def breaking_proxy(upstream):
    """A proxy, while it runs."""
    with BreakingProxy(upstream) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
