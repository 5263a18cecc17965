"""Two recipes in words: what each field of the second is, where it differs, and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from ..recipe.recipe import Recipe
from .whatif import changed_fields, differences

_WIDEST = 100
_PLACES = ("project_name", "export_path", "process", "train")


def recipe_differences(a: Recipe, b: Recipe) -> list[str]:
    """Fields of the head, of the steps and of `train:` that differ, as `field old -> new`.

    Defaults are resolved: a field that one of them leaves out has its default. Where the recipes
    write to, and what their project is called, is no difference.

    Example:
        >>> recipe_differences(load("a.yaml"), load("b.yaml"))
        ['pass_rate_filter.max 0.9 -> 1.0   (Highest pass rate to keep)']
    """
    return [f"{line}{_meaning(line, a, b)}" for line in _lines(a, b)]


def _lines(a: Recipe, b: Recipe) -> Iterator[str]:
    heads = [_plain(each.head) for each in (a, b)]
    if a.head.dataset_spec != b.head.dataset_spec:  # How others are generated says nothing then.
        heads = [{**each, "generated_datasets": None} for each in heads]
    for name in sorted(heads[0].keys() | heads[1].keys()):
        if name not in _PLACES:
            yield from differences(name, heads[0].get(name), heads[1].get(name))
    yield from changed_fields(a.steps, b.steps)
    trains = [_plain(each.head.train) for each in (a, b)]
    if None in trains and trains[0] != trains[1]:
        yield "train added" if trains[0] is None else "train left out"
    else:
        yield from differences("train", *trains)


def _plain(model: BaseModel | None) -> Any:
    return None if model is None else model.model_dump(mode="json")


def _meaning(line: str, a: Recipe, b: Recipe) -> str:
    """The first sentence about a field, in brackets; empty where there is none."""
    name, _, field = line.split(" ")[0].partition(".")
    models: dict[str, Any] = {step.name: step.operator for step in (*a.steps, *b.steps)}
    model = models.get(name, b.head.train if name == "train" else b.head)
    wanted = field.partition(".")[0] or name
    if not isinstance(model, BaseModel):
        return ""
    described = type(model).model_json_schema()["properties"].get(wanted, {})
    text = " ".join(str(described.get("description", "")).split())
    sentence = text.partition(". ")[0].removesuffix(".")
    return f"   ({sentence})" if 0 < len(sentence) <= _WIDEST else ""
