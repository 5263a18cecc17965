"""Two processes that each compute half of every batch and average their gradients over gloo.

Threads do not help so small a model: its matrices are done before a second thread wakes up. Two
processes with one thread each, and half of every batch, do.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rejuice.operators import RejuiceError

if TYPE_CHECKING:
    from torch import Tensor

# By command line, never by `multiprocessing`, so that `__main__` may be a notebook.
_START = f"import sys; sys.path[:] = sys.argv[2:]; from {__name__} import main; main()"
_READY = "ready"
_POLL_S = 0.02
_MEET = timedelta(seconds=30)
"""How long the ranks look for one another, once both are there."""
_PATIENCE = timedelta(days=1)
"""How long a rank waits for the other's gradients: it may be suspended. A death shows at once."""


class Link:
    """One of two ranks.

    It has a process group of its own, so that one that the caller may have stays as it is.

    Args:
        store: a `torch.distributed.Store` that both ranks use.
        rank: 0 or 1.
    """

    def __init__(self, store: Any, rank: int) -> None:
        from torch.distributed import ProcessGroupGloo

        with _death_of_the_other():
            self._group = ProcessGroupGloo(store, rank, 2, _MEET)
            # private: torch==2.13.0, tests/embedded_policy/test_data_parallel.py::test_a_rank_waits_for_gradients_longer_than_for_the_other_rank
            self._group._set_default_timeout(_PATIENCE)

    def average(self, vector: Tensor) -> None:
        """Replace a vector by the mean of both ranks' vectors; both get the same bits.

        Raises:
            RejuiceError: the other process is gone.
        """
        with _death_of_the_other():
            self._group.allreduce([vector]).wait()
        vector.mul_(0.5)


@contextmanager
def partner(work: Callable[..., object], *arguments: object) -> Iterator[Link]:
    """Rank 0 of two; rank 1 is a process that does `work(link, *arguments)`.

    The process ends with this block, or with this process.

    Raises:
        RejuiceError: it died before it was ready.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    child = subprocess.Popen(
        [sys.executable, "-c", _START, str(store.port), *sys.path],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
    )
    try:
        assert child.stdin
        with _death_of_the_other():
            pickle.dump((work, arguments), child.stdin)
            child.stdin.close()
            while not store.check([_READY]):
                if child.poll() is not None:
                    raise EOFError
                time.sleep(_POLL_S)
        yield Link(store, 0)
    finally:
        child.kill()  # It has nothing to lose.
        child.wait()


def main() -> None:
    """Be rank 1."""
    from torch.distributed import TCPStore

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0 to handle.
    work, arguments = pickle.load(sys.stdin.buffer)
    try:
        store = TCPStore("127.0.0.1", int(sys.argv[1]), timeout=_MEET)
        store.set(_READY, "")
        link = Link(store, 1)
    except RuntimeError:  # Rank 0 is gone: nobody waits for an answer.
        return
    try:
        work(link, *arguments)
    except RejuiceError:
        return


@contextmanager
def _death_of_the_other() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError, EOFError) as error:  # Gloo's are RuntimeErrors.
        raise RejuiceError(
            "the second process of the warm start died", "its own message is above"
        ) from error
