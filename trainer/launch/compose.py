"""Compose verl's configuration from a folder's `verl.yaml`, and have verl validate it.

Run as `python -m rejuice.trainer.launch.compose FOLDER`, with the environment of the run. The last
line of its output is JSON: `null`, or what verl refuses.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..run import GEO_MEAN
from .verl_config import NAME


def composed(folder: Path) -> Any:
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(folder.resolve()), version_base=None):
        return compose(NAME)


def problem(folder: Path) -> str | None:
    from hydra.errors import HydraException
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        config = composed(folder)
    except HydraException as error:
        return " ".join(str(error).split())
    name, known = (
        config.actor_rollout_ref.actor.policy_loss.loss_mode,
        {*POLICY_LOSS_REGISTRY} - {GEO_MEAN},
    )
    # Of a list, one library is the user's own: it may register a loss, and only workers import it.
    has_own = not isinstance(config.actor_rollout_ref.model.external_lib, str)
    if name not in known | {GEO_MEAN} and not has_own:  # verl reads it in the first update.
        return f"verl has no loss '{name}': it has {', '.join(sorted(known))}"
    reference, critic = need_reference_policy(config), need_critic(config)
    if find_spec("vllm") is None:
        # Else verl imports vLLM, to compare the rank of LoRA with vLLM's largest.
        config.actor_rollout_ref.model.lora.merge = True
    try:
        validate_config(config, reference, critic)
    except Exception as error:  # verl asserts and raises errors of many types.
        return f"verl refuses its configuration{_inner_error(str(error))}"
    return None


def _inner_error(message: str) -> str:
    """The key and the error itself, out of what Hydra makes of an error."""
    text = " ".join(message.split())
    inner = re.search(r"\w+\((['\"])(.*)\1\)", text)
    key = re.search(r"full_key: (\S+)", text)
    return (f" at {key[1]}" if key else "") + f": {inner[2] if inner else text}"


if __name__ == "__main__":
    print(f"\n{json.dumps(problem(Path(sys.argv[1])))}")
