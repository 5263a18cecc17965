"""Read a recipe: YAML into operators. Each mistake is reported in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...operators import RecipeError
from ...operators.errors import shown, suggest
from ...operators.logs import know_named
from ...operators.registry import load_files
from ..data_juicer.steps import MissingPackageError
from .head import check_keys, checked_head, data_juicer_only, position
from .recipe import Recipe
from .steps import (
    MissingPackages,
    Step,
    build_operator,
    in_order,
    operator_on_file,
    split_entry,
    step_names,
)
from .yaml_text import Document, YAMLError, describe, line_of, parse, parse_document

RECIPES = (".yaml", ".yml")
"""The suffixes of recipes."""


def load(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe and build its operators. This imports the files of operators that it names.

    Raises:
        RecipeError: anything wrong with the file, an operator's name or a field; one line.
        MissingPackageError: all of it is right, and packages that it needs are not installed.
    """
    return _load(path, overrides or {}, with_code=True)


def load_without_code(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe as `load` does, but import no file that it names, to look at a stored run.

    Operators of such files are `StoredOperator`s: their names and fields, which are not checked.

    Raises:
        RecipeError, MissingPackageError: as `load`.
    """
    return _load(path, overrides or {}, with_code=False)


def _load(path: Path, overrides: Mapping[str, str], *, with_code: bool) -> Recipe:
    read = read_document(path)
    document: dict[str, Any] = dict(read.value)
    check_keys(path, document, read.key_lines)
    process = document.pop("process", None)
    if not isinstance(process, list) or not process:
        found = "empty" if process == [] else shown(process) if process is not None else "missing"
        where = position(path, read.key_lines.get("process"))
        raise RecipeError(f"'process' is {found}", "make it a list of operators", where=where)
    lines = read.item_lines["process"]
    places = [position(path, line, f"step {number}") for number, line in enumerate(lines, 1)]
    parts = [split_entry(entry, place) for place, entry in zip(places, process, strict=True)]
    names = step_names([kind for kind, _ in parts])
    fields = {name: values for name, (_, values) in zip(names, parts, strict=True)}
    _override(document, fields, overrides)
    know_named([document, fields])
    head = checked_head(path, document, read.key_lines, overrides)
    custom = load_files(head.custom_operator_paths) if with_code else {}
    steps, missing = list[Step](), MissingPackages()
    for number, (place, name, (kind, _)) in enumerate(zip(places, names, parts, strict=True), 1):
        try:
            if with_code:
                operator = build_operator(kind, fields[name], custom, head, document)
            else:
                operator = operator_on_file(kind, fields[name], head, document)
            steps.append(Step(number, name, operator))
        except MissingPackageError as error:
            missing.add(f"{place} {kind}", error)
        except RecipeError as error:
            raise error.at(f"{place} {kind}") from None
    missing.check()
    theirs = data_juicer_only()
    for_data_juicer = {key: value for key, value in document.items() if key in theirs}
    return Recipe.of(path, head, in_order(steps), for_data_juicer, lines)


def read_document(path: Path) -> Document:
    """The YAML of a recipe, of which nothing is checked but that it is a mapping.

    Raises:
        RecipeError: it cannot be read, or is no mapping.
    """
    if path.exists() and not path.is_file():
        raise RecipeError(f"{path} cannot be read: it is not a file", "give a YAML file")
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{path} does not exist", "give the path of a recipe") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}", "give a YAML file") from None
    try:
        document = parse_document(text)
    except YAMLError as error:
        raise RecipeError(*describe(error), where=position(path, line_of(error))) from None
    if not isinstance(document.value, dict):
        kinds = {"NoneType": "empty", "list": "a list", "str": "a text"}
        found = kinds.get(type(document.value).__name__, "a number")
        raise RecipeError(
            f"a recipe is a mapping, this is {found}", "start with dataset_path:", where=str(path)
        )
    return document


def _override(
    document: dict[str, Any], fields: Mapping[str, dict[str, Any]], overrides: Mapping[str, str]
) -> None:
    for key, text in overrides.items():
        value = option_value(key, text)
        step, *path = key.split(".")
        if not path:
            document[key] = value
        elif step == "train":
            set_field(document, [step, *path], value)
        elif step in fields:
            set_field(fields[step], path, value)
        else:
            near = suggest(step, fields) or f"its steps are: {', '.join(fields)}"
            raise RecipeError(f"no step '{step}' in the recipe", near, where=f"--{key}")


def option_value(key: str, text: str) -> Any:
    """The value of an option of the command line, which is YAML.

    Raises:
        RecipeError: it is not.
    """
    try:
        return parse(text) if text else text
    except YAMLError:
        raise RecipeError(
            f"{shown(text)} is not YAML", "quote the value", where=f"--{key}"
        ) from None


def set_field(fields: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a field, or a field of a field; what an anchor shares with other steps stays as it is."""
    field, *rest = path
    if rest:
        inner = fields.get(field)
        fields[field] = dict(inner) if isinstance(inner, Mapping) else {}
        set_field(fields[field], rest, value)
    else:
        fields[field] = value
