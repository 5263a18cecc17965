"""What verl's workers have of ours on any hardware: verl imports it as `external_lib`.

A checkpoint of verl brings back the settings of the optimizer and of its schedule with their state.
Here a resume takes them from the recipe.

verl's `geo_mean` returns the mean over the rows of a micro-batch, and verl adds up the losses of
micro-batches: in k of them the loss and its gradient are about k times as large as in one, and rows
in a small micro-batch weigh more (https://github.com/verl-project/verl/issues/7913, open). Here it
is the mean over the rows of the update, as verl's other means over responses are.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from ..run import GEO_MEAN

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


def geo_mean_loss(
    old_log_prob: Any,
    log_prob: Any,
    advantages: Any,
    response_mask: Any,
    loss_agg_mode: str = "seq-mean-token-mean",
    config: Any = None,
    rollout_is_weights: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """verl's `geo_mean` of a micro-batch, as its part of the update, and its figures.

    verl takes the mean of the advantages of each row. Rows of padding have no token, and add
    nothing. The sizes of the update are in `global_batch_info` of verl's config of the actor.
    """
    mean, figures = get_policy_loss_fn("geo_mean")(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=response_mask,
        loss_agg_mode=loss_agg_mode,
        config=config,
        rollout_is_weights=rollout_is_weights,
    )
    update = config.global_batch_info
    # Ranks average their gradients.
    share = len(advantages) * update["dp_size"] / update["global_batch_size"]
    return mean * share, figures


register_policy_loss(GEO_MEAN)(geo_mean_loss)
