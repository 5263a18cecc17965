"""What a spawned child runs: it finds this by name, and no test file, since verl installs a `tests`."""

import runpy
from multiprocessing import Queue
from typing import Any


def call(path: str, name: str, queue: "Queue[Any]") -> None:
    """Call the function of that name in a file, with the queue for what it finds."""
    runpy.run_path(path)[name](queue)
