"""What verl's workers have of ours on any hardware: verl imports it as `external_lib`.

A checkpoint of verl brings back the settings of the optimizer and of its schedule with their state.
Here a resume takes them from the recipe.
"""

from __future__ import annotations

from typing import Any

from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from . import losses as _losses  # noqa: F401  # It is registered where it is imported.

# private: verl==0.9.1, tests/trainer/cpu/test_engine.py::test_a_resume_takes_the_optimizers_settings_from_the_recipe
_load = FSDPCheckpointManager.load_checkpoint


def load_checkpoint(manager: Any, local_path: str, *rest: Any, **more: Any) -> None:
    """verl's, but for the settings of the optimizer and its schedule, which stay those given."""
    groups, schedule = manager.optimizer.param_groups, manager.lr_scheduler
    given = [{name: of[name] for name in of if name != "params"} for of in groups]
    _load(manager, local_path, *rest, **more)
    groups = manager.optimizer.param_groups  # Torch makes them anew.
    schedule.base_lrs = [of["initial_lr"] for of in given]
    for group, settings, share in zip(groups, given, schedule.lr_lambdas, strict=True):
        group.update(settings, lr=settings["initial_lr"] * share(schedule.last_epoch))


FSDPCheckpointManager.load_checkpoint = load_checkpoint
