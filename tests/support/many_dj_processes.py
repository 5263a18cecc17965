"""`dj-process` for one recipe after the other: Data-Juicer is imported, and Ray started, once.

    python many_dj_processes.py EXECUTOR NAME.yaml ...

It writes NAME.status: empty, or why the recipe failed.
"""

import sys
import traceback
from pathlib import Path

from data_juicer.tools.process_data import main
from loguru import logger


def run(executor, *names):
    """What the command does, with each of the recipes in turn."""
    for name in names:
        words = ("--executor_type", executor, "--ray_address", "local")
        sys.argv = ["dj-process", "--config", name, *words]
        status = ""
        try:
            main()
        except SystemExit as end:
            status = f"status {end.code}" if end.code else ""
        except Exception:
            status = traceback.format_exc()
        logger.enable("data_juicer")  # Where a step of ours has ended a run, it is off.
        Path(name).with_suffix(".status").write_text(status, "utf-8")


if __name__ == "__main__":
    run(*sys.argv[1:])
