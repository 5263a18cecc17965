"""verl's own validation of what a run would launch, without a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ...operators.errors import RecipeError
from ..run import TrainingRun
from .failure import last_error
from .overrides import environment, overrides
from .verl_config import check_keys, write_config


def validate(run: TrainingRun, *, resume: bool = False) -> None:
    """Compose verl's configuration and have verl validate it; takes some seconds.

    Raises:
        RecipeError: verl does not know a key, or refuses the configuration.
    """
    values = overrides(run, resume)
    check_keys(values)
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), values)
        done = subprocess.run(
            [sys.executable, "-m", "rejuice.trainer.launch.compose", folder],
            env={**os.environ, **environment(run)},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode:
        found = last_error(done.stderr) or f"exit status {done.returncode}"
        raise RecipeError(f"verl could not validate its configuration: {found}")
    problem = json.loads(done.stdout.splitlines()[-1])
    if problem is not None:
        raise RecipeError(problem)
