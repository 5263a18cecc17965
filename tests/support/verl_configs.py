"""verl's configuration of a run, composed by Hydra as `main_ppo` does."""

import tempfile
from pathlib import Path

from rejuice.operators import RecipeError
from rejuice.trainer.launch import compose
from rejuice.trainer.launch.verl_config import check_keys, overrides, write_config


def config_of(run, *, resume=False):
    """The configuration of a run."""
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), overrides(run, resume))
        return compose.composed(Path(folder))


def problem_of(run, *, resume):
    """What is wrong with it, and what would be right, in a line; None if verl validates it."""
    values = overrides(run, resume)
    try:
        check_keys(values)
    except RecipeError as error:
        return str(error)
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), values)
        return compose.problem(Path(folder))
