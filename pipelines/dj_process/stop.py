"""How a failure of ours ends a run of Data-Juicer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from loguru import logger

from ...operators import RejuiceError

_COMMANDS = frozenset({"dj-process", "dj-analyze", "process_data", "analyze_data"})
"""The command line, also as a module or a script."""


def stop(error: RejuiceError) -> NoReturn:
    """Raise the error; from Data-Juicer's command line, end the process with its one line.

    Data-Juicer's executors stop on an exception of a `Pipeline` whatever `skip_op_error` says,
    but print three traces of it. `SystemExit` passes them, and nothing that skips errors of
    operators takes it for one. Who calls Data-Juicer from Python, as `dj-mcp` does, has handlers
    of exceptions.

    Raises:
        RejuiceError: outside of the command line.
        SystemExit: in it, with status 1.
    """
    if Path(sys.argv[0]).stem not in _COMMANDS:
        raise error
    logger.error(str(error))
    logger.disable("data_juicer")
    raise SystemExit(1)
