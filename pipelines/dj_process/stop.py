"""How a failure of ours ends `dj-process`."""

from __future__ import annotations

from typing import NoReturn

from loguru import logger


def stop(error: Exception) -> NoReturn:
    """End the process with one line.

    Data-Juicer's executors stop on an exception of a `Pipeline` whatever `skip_op_error` says,
    but print three traces of it. `SystemExit` passes them, and nothing that skips errors of
    operators takes it for one.
    """
    logger.error(str(error))
    logger.disable("data_juicer")
    raise SystemExit(1)
