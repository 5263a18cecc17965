"""What has changed since a run began, and does not take effect, or only in part, at its resume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_LINES = {
    "dataset_path": "the prompts stay those of the first start",
    "train.validation_path": "the validation prompts stay those of the first start",
    "train.validation": "prompts of sets that were there stay those of the first start",
    "train.max_prompt_tokens": "the prompts stay those that were short enough at the first start",
    "train.seed": "responses are sampled by the new one; the order of prompts stays",
    "train.policy": "weights come from the checkpoint; tokenizer and reference from the new one",
    "prompt_template_mapper": "the prompts stay those of the first start",
}
_OF_SAMPLER = {
    "model": _LINES["train.policy"],
    "n": "groups have the new size from the next step",
    "chat_template_kwargs": "prompts have the new form from the next step",
}
_SAMPLERS = ("policy_rollout_mapper", "agent_rollout_mapper")
_OF_MEGATRON = ("learning_rate", "warmup_steps", "weight_decay")


def changed_lines(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A line for each field of two resolved recipes that differs and needs a word."""
    lines = _LINES | {f"{s}.{name}": x for s in _SAMPLERS for name, x in _OF_SAMPLER.items()}
    if now["train"]["gpu"]["strategy"] == "megatron" and now["train"]["profile"] == "gpu":
        stays = "Megatron may go on with what its checkpoint has"
        lines |= {f"train.{name}": stays for name in _OF_MEGATRON}
    old, new = _fields(before), _fields(now)
    for name, line in lines.items():
        if old.get(name) != new.get(name):
            yield f"{name} has changed since the run began: {line}"


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    found = {"dataset_path": document["dataset_path"]}
    found |= {f"train.{name}": value for name, value in document["train"].items()}
    for entry in document["process"]:
        for step, fields in entry.items():
            found.setdefault(step, fields)  # Of several, those of answers come first.
            if step in _SAMPLERS:
                for name, value in fields.items():
                    found.setdefault(f"{step}.{name}", value)
    return found
