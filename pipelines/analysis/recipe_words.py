"""Two recipes in words: the fields that differ, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ..console import path_text
from ..recipe.recipe import Recipe
from ..recipe.steps import Step

_WIDEST_FIELD = 100
_PLACES = ("project_name", "export_path", "process")


def recipe_differences(a: Recipe, b: Recipe) -> list[str]:
    """Fields that differ, as `field old -> new`, defaults included.

    Where the recipes write to, and what their project is called, is no difference.
    """
    lines = [*_differences("", _head(a), _head(b)), *changed_fields(a.steps, b.steps)]
    return [f"{line}{_meaning(line, a, b)}" for line in lines]


def changed_fields(old: Sequence[Step], new: Sequence[Step]) -> list[str]:
    """The steps and fields that differ, as `step.field old -> new`, sorted."""
    fields = [{step.name: step.operator.model_dump(mode="json") for step in x} for x in (old, new)]
    lines = list(_differences("", *fields))
    common = [[name for name in each if name in fields[0] and name in fields[1]] for each in fields]
    return [*lines, "the order of steps"] if common[0] != common[1] else lines


def _differences(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys(), key=str):
        name = f"{path}.{key}" if path else str(key)
        was, now = old.get(key), new.get(key)
        if key not in old:
            yield f"{name} added" if isinstance(now, dict) else f"{name} added: {now}"
        elif key not in new:
            yield f"{name} left out"
        elif isinstance(was, dict) and isinstance(now, dict):
            yield from _differences(name, was, now)
        elif was != now:
            yield f"{name} {was} -> {now}"


def _head(recipe: Recipe) -> dict[str, Any]:
    """Paths are as commands print them, as that of a run has absolute ones."""
    head: dict[str, Any] = recipe.head.model_dump(mode="json", exclude={*_PLACES})
    if head["train"] is None:
        del head["train"]
    path = head.get("dataset_path")
    if isinstance(path, str) and "://" not in path:
        head["dataset_path"] = path_text(Path(path).absolute())
    generated = head["generated_datasets"].items()
    head["generated_datasets"] = {path_text(Path(x).absolute()): each for x, each in generated}
    return head


def _meaning(line: str, a: Recipe, b: Recipe) -> str:
    """The first sentence about a field, in brackets; empty where there is none."""
    name, _, field = line.split(" ")[0].partition(".")
    models: dict[str, Any] = {step.name: step.operator for step in (*a.steps, *b.steps)}
    model = models.get(name, b.head.train if name == "train" else b.head)
    if not isinstance(model, BaseModel):
        return ""
    wanted = field.partition(".")[0] or name
    described = type(model).model_json_schema()["properties"].get(wanted, {})
    text = " ".join(str(described.get("description", "")).split())
    sentence = text.partition(". ")[0].removesuffix(".")
    return f"   ({sentence})" if 0 < len(sentence) <= _WIDEST_FIELD else ""
