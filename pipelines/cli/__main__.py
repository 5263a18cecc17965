"""`rejuice`, and `python -m rejuice.pipelines.cli`: a signal may come during the imports."""

import signal
import sys


def main() -> None:
    """Run the command, as `main` of `main.py` does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from .main import main as run_command
    except KeyboardInterrupt:
        sys.stderr.write("rejuice: stopped\n")
        sys.exit(130)
    run_command()


if __name__ == "__main__":
    main()
