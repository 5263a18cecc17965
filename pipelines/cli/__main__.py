"""`rejuice`, and `python -m rejuice.pipelines.cli`: a signal may come during the imports."""

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress

_STOPPED = 130
_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def main() -> None:
    """Run the command, as `main` of `main.py` does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.set_threshold(100_000)  # Imports make many objects, which all stay.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # It is closed: the next file would take its number.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open)
    # Else pydantic reads the metadata of all installed distributions to look for its plugins.
    is_own = _PLUGINS not in os.environ
    os.environ.setdefault(_PLUGINS, "__all__")
    status = list[int]()
    # Registered first, it runs last. The interpreter would still take apart all that was imported;
    # and where Ctrl-C came while a text was executed, as dataclasses do, end itself by SIGINT.
    atexit.register(_exit, status)
    try:
        from .main import main as run_command

        if is_own:  # Processes that the command starts may have some.
            del os.environ[_PLUGINS]
        run_command()
    except KeyboardInterrupt:
        status.append(_STOPPED)
        sys.stderr.write("rejuice: stopped\n")
        sys.exit(_STOPPED)
    except SystemExit as end:
        status += [end.code or 0] if isinstance(end.code, int | None) else []
        raise


def _exit(status: list[int]) -> None:
    with suppress(OSError):  # Of a pipe that is closed, Python tells itself.
        sys.stdout.flush()
        sys.stderr.flush()
        for code in status:
            os._exit(code)


if __name__ == "__main__":
    main()
