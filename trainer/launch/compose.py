"""Compose verl's configuration from overrides, and have verl validate it.

Run as `python -m rejuice.trainer.launch.compose KEY=VALUE ...`, with the environment of the run.
The last line of its output is JSON: `null`, or what is wrong and what would be right.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ...operators.errors import suggest

_UNKNOWN = re.compile(r"Could not override '([^']+)'")
_IS_THERE = re.compile(r"Could not append to config\. An item is already at '([^']+)'")


def problem(words: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong with verl's configuration under these overrides, and what would be right."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with initialize_config_module("verl.trainer.config", version_base=None):
        try:
            config = compose("ppo_trainer", overrides=list(words))
        except HydraException as error:
            known = set(_keys(compose("ppo_trainer")))
            return wrong_key(str(error), known) or (" ".join(str(error).split()), "")
    try:
        validate_config(config, need_reference_policy(config), need_critic(config))
    except Exception as error:  # Of many kinds: verl asserts and raises what it likes.
        return f"verl refuses its configuration{_of_verl(str(error))}", ""
    return None


def wrong_key(said: str, known: Collection[str] = ()) -> tuple[str, str] | None:
    """Which key Hydra has something against, and what would be right.

    Args:
        said: Hydra's error, or a log with it.
        known: keys that there are.
    """
    if match := _UNKNOWN.search(said):
        near = suggest(match[1], known)
        return f"verl has no key '{match[1]}'", near or f"to add it all the same write +{match[1]}"
    if match := _IS_THERE.search(said):
        return f"verl has the key '{match[1]}' already", "write it without +"
    return None


def _of_verl(said: str) -> str:
    """Where Hydra met the error, and the error itself, out of what Hydra makes of it."""
    text = " ".join(said.split())
    inner = re.search(r"\w+\((['\"])(.*)\1\)", text)
    key = re.search(r"full_key: (\S+)", text)
    return (f" at {key[1]}" if key else "") + f": {inner[2] if inner else text}"


def _keys(config: Any, path: str = "") -> Iterator[str]:
    from omegaconf import DictConfig

    for name in config:
        yield f"{path}{name}"
        inner = config._get_node(name)
        if isinstance(inner, DictConfig) and not inner._is_none() and not inner._is_missing():
            yield from _keys(inner, f"{path}{name}.")


if __name__ == "__main__":
    found = problem(sys.argv[1:])
    print(f"\n{json.dumps(found)}")
