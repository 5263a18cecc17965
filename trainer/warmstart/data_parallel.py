"""Two processes that work as a pair, and the vectors that they average.

Threads do not help so small a model: its matrices are done before a second thread wakes up. Two
processes with one thread each, and half of every batch, do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np

from ...operators import RejuiceError
from ...operators.groups import Array

# By command line, never by `multiprocessing`, so that `__main__` may be a notebook.
_START = f"import sys; sys.path[:] = sys.argv[2:]; from {__name__} import main; main()"


class Link:
    """To the other one of the pair.

    Args:
        connection: what leads there.
        first: whether this one speaks first; if both did, neither would listen.
    """

    def __init__(self, connection: Connection, *, first: bool) -> None:
        self._connection, self._first = connection, first

    def average(self, vector: Array) -> None:
        """Replace a vector by the mean of both vectors; both get the same bits.

        Raises:
            RejuiceError: the other one is gone.
        """
        theirs = np.empty_like(vector)
        try:
            if self._first:
                self._connection.send_bytes(vector.data)
            self._connection.recv_bytes_into(theirs.data)
            if not self._first:
                self._connection.send_bytes(vector.data)
        except (OSError, EOFError) as error:
            raise RejuiceError(
                "the second process of the warm start died", "what it said is above"
            ) from error
        vector += theirs
        vector *= 0.5


@contextmanager
def partner(work: Callable[..., object], *arguments: object) -> Iterator[Link]:
    """A process that does `work(link, *arguments)`; it ends with this block, or this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs.fileno()), *sys.path],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    try:
        with Connection(ours.detach()) as connection:
            connection.send((work, arguments))
            yield Link(connection, first=True)
    finally:
        child.kill()  # it has nothing to lose
        child.wait()


def main() -> None:
    """Be the partner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other one's to handle
    with Connection(int(sys.argv[1])) as connection:
        work, arguments = connection.recv()
        # Where the other one is gone, nobody waits for an answer.
        with contextlib.suppress(RejuiceError):
            work(Link(connection, first=False), *arguments)
