"""`rejuice`, and `python -m rejuice.pipelines.cli`: a signal may come during the imports."""

import atexit
import gc
import os
import signal
import sys

_STOPPED = 130


def main() -> None:
    """Run the command, as `main` of `main.py` does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.set_threshold(100_000)  # Imports make many objects, which all stay.
    # Else pydantic reads the metadata of all installed distributions to look for its plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    stopped = list[bool]()
    # Registered first, it runs last. Where Ctrl-C came while a text was executed, as dataclasses
    # do, the interpreter would end itself by SIGINT, whatever status the command has.
    atexit.register(_exit_as_stopped, stopped)
    try:
        from .main import main as run_command

        run_command()
    except KeyboardInterrupt:
        stopped.append(True)
        sys.stderr.write("rejuice: stopped\n")
        sys.exit(_STOPPED)
    except SystemExit as end:
        stopped += [True] * (end.code == _STOPPED)
        raise


def _exit_as_stopped(stopped: list[bool]) -> None:
    if stopped:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_STOPPED)


if __name__ == "__main__":
    main()
