"""Train an embedded policy by supervised learning, in minutes on two processor cores."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rejuice.operators import RejuiceError
from rejuice.pipelines.engine.progress import Progress

from .build import CURRICULA, build


def main(words: Sequence[str] | None = None) -> int:
    """Build a policy; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.embedded_policy",
        description=__doc__,
        epilog="A folder that contains this policy already is left as it is.",
    )
    parser.add_argument("path", metavar="DIR", type=Path, help="the folder to write")
    parser.add_argument(
        "--policy",
        choices=CURRICULA,
        default="embedded",
        help="which one: it solves problems, or searches and calculates",
    )
    parser.add_argument("--seed", type=int, default=0, help="each seed gives another policy")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace another policy in that folder"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    given = parser.parse_args(words)
    if given.seed < 0:
        parser.error(f"seed {given.seed} is negative")
    curriculum, progress = CURRICULA[given.policy], Progress(quiet=given.quiet)
    try:
        with progress.task("demonstrations", curriculum.steps * curriculum.batch) as advance:
            built = build(
                given.path,
                given.seed,
                overwrite=given.overwrite,
                curriculum=curriculum,
                advance=advance,
            )
    except RejuiceError as error:
        print(error, file=sys.stderr)
        return 2
    if not given.quiet:
        already = "" if built else " (already built)"
        print(f"{given.path}: the policy {given.policy}, seed {given.seed}{already}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
