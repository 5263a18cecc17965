"""A Ray cluster whose head is a process of its own, so that the process of the tests can fork."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

_START_S = 60
_END_S = 20


class RayHead(NamedTuple):
    """A running cluster of one node.

    Attributes:
        address: `HOST:PORT`, for `--ray`.
        process: of which all processes of Ray are descendants.
    """

    address: str
    process: psutil.Process


@contextmanager
def ray_head(cpus: int = 4) -> Iterator[RayHead]:
    """Run a cluster with so many CPUs, in a folder of its own: no other run takes it for its own."""
    port, of_clients = _free_ports(2)
    # The name is short, because that of a socket in it must be.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        ray = Path(sys.executable).with_name("ray")
        options = [
            f"--port={port}", f"--ray-client-server-port={of_clients}", f"--num-cpus={cpus}",
            "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}",
        ]  # fmt: skip
        log = Path(folder) / "start.log"
        with log.open("wb") as output:
            head = psutil.Popen(
                [ray, "start", "--head", "--block", *options],
                # It would ask for a token where this user has one.
                env={**os.environ, "RAY_AUTH_MODE": "disabled"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_for(head, log)
            yield RayHead(f"127.0.0.1:{port}", head)
        finally:
            _end(head)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait_for(head: psutil.Popen, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while "Ray runtime started" not in log.read_text(errors="replace"):
        if head.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Ray does not start: {log.read_text(errors='replace')}")
        time.sleep(0.1)


def _end(head: psutil.Popen) -> None:
    if head.poll() is not None:
        return  # Its processes end with it.
    processes = [head, *head.children(recursive=True)]
    head.terminate()
    _, alive = psutil.wait_procs(processes, timeout=_END_S)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=_END_S)
