"""Read a recipe: YAML into operators. Each mistake is reported in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ...operators import Operator, RecipeError, installed
from ...operators.errors import suggest
from ...operators.fields import build
from ...operators.registry import find, load_files
from ..data_juicer import catalogue
from ..data_juicer.steps import step as foreign_step
from .recipe import DATA_JUICER_ONLY, Head, Recipe, Step, position, step_names
from .yaml_text import Document, YAMLError, describe, line_of, parse, parse_document


def load(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe and build its operators.

    Args:
        path: the YAML file.
        overrides: `KEY` or `STEP.FIELD` to a value in YAML, as on the command line.

    Raises:
        RecipeError: anything wrong with the file, an operator's name or a field; one line.
    """
    read = _read(path)
    document: dict[str, Any] = dict(read.value)
    process = document.pop("process", None)
    if not isinstance(process, list) or not process:
        found = "empty" if process == [] else f"{process!r}" if process is not None else "missing"
        where = position(path, read.key_lines.get("process"))
        raise RecipeError(f"'process' is {found}", "make it a list of operators", where=where)
    lines = read.item_lines["process"]
    places = [position(path, line, f"step {number}") for number, line in enumerate(lines, 1)]
    parts = [_split(place, entry) for place, entry in zip(places, process, strict=True)]
    names = step_names([kind for kind, _ in parts])
    fields = {name: values for name, (_, values) in zip(names, parts, strict=True)}
    _override(document, fields, overrides or {})
    head = _head(path, document, read.key_lines, overrides or {})
    custom = load_files(head.custom_operator_paths)
    steps = list[Step]()
    for place, name, (kind, _) in zip(places, names, parts, strict=True):
        try:
            steps.append(Step(len(steps) + 1, name, _build(kind, fields[name], custom, head)))
        except RecipeError as error:
            raise error.at(f"{place} {kind}") from None
    for_data_juicer = {key: document[key] for key in document if key in DATA_JUICER_ONLY}
    return Recipe(path, head, tuple(steps), for_data_juicer, lines)


def _build(
    kind: str, fields: Mapping[str, Any], custom: Mapping[str, type[Operator]], head: Head
) -> Operator:
    operator = find(kind, custom)
    if operator is not None:
        return build(operator, fields)
    if catalogue.exists(kind):
        return foreign_step(kind, fields, text_key=head.text_key)
    near = suggest(kind, [*installed(), *custom, *catalogue.names()])
    raise RecipeError("unknown operator", near or "`rejuice ops` lists them")


def _read(path: Path) -> Document:
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


def _split(where: str, entry: object) -> tuple[str, dict[str, Any]]:
    """The operator of a step and its fields."""
    if isinstance(entry, str):
        return entry, {}
    if not isinstance(entry, dict) or len(entry) != 1:
        raise RecipeError(
            "a step is one operator and its fields", "write `- name: {…}`", where=where
        )
    ((name, fields),) = entry.items()
    if fields is not None and not isinstance(fields, dict):
        raise RecipeError(f"{name} has {fields!r} for fields", "write `field: value`", where=where)
    return str(name), dict(fields or {})


def _override(
    document: dict[str, Any], fields: Mapping[str, dict[str, Any]], overrides: Mapping[str, str]
) -> None:
    for key, text in overrides.items():
        try:
            value = parse(text) if text else text
        except YAMLError:
            raise RecipeError(
                f"{text!r} is not YAML", "quote the value", where=f"--{key}"
            ) from None
        step, *path = key.split(".")
        if not path:
            document[key] = value
        elif step == "train":
            _set(document, [step, *path], value)
        elif step in fields:
            _set(fields[step], path, value)
        else:
            near = suggest(step, fields) or f"its steps are: {', '.join(fields)}"
            raise RecipeError(f"no step '{step}' in the recipe", near, where=f"--{key}")


def _set(fields: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a field, or a field of a field; what an anchor shares with other steps stays as it is."""
    field, *rest = path
    if rest:
        inner = fields.get(field)
        fields[field] = dict(inner) if isinstance(inner, Mapping) else {}
        _set(fields[field], rest, value)
    else:
        fields[field] = value


def _head(
    path: Path,
    document: Mapping[str, Any],
    lines: Mapping[str, int],
    overrides: Mapping[str, str],
) -> Head:
    ours = {key: value for key, value in document.items() if key not in DATA_JUICER_ONLY}
    try:
        return Head.model_validate(ours)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = first["loc"]
        keys = [".".join(map(str, place[:depth])) for depth in range(len(place), 0, -1)]
        # A value of the command line is on no line of the file.
        given = any(key in overrides for key in keys)
        line = None if given else next((lines[key] for key in keys if key in lines), None)
        where = position(path, line)
        raise _head_error(where, place, first["type"], first["msg"], first["input"]) from None


def _head_error(
    where: str, place: tuple[int | str, ...], kind: str, message: str, found: Any
) -> RecipeError:
    """One line from what pydantic reports of a key of the head, or of a section of it."""
    names, section = _named(place)
    key = ".".join(names)
    if kind == "missing":
        return RecipeError(f"'{key}' is missing", f"add `{key}: …`", where=where)
    if kind == "extra_forbidden":
        more = DATA_JUICER_ONLY if section is Head else ()
        near = suggest(names[-1], [*section.model_fields, *more])
        return RecipeError(f"unknown key '{key}'", near, where=where)
    if kind == "value_error":  # The keys of a section contradict each other.
        return RecipeError(message.removeprefix("Value error, "), where=f"{where}, {key}")
    return RecipeError(f"'{key}' is {found!r}", message.lower(), where=where)


def _named(place: tuple[int | str, ...]) -> tuple[list[str], type[BaseModel]]:
    """The names of a key and of the sections around it, and the innermost of these."""
    names = list[str]()
    section: type[BaseModel] = Head
    for at, name in enumerate(place):
        names.append(str(name))
        inner = _section(section.model_fields.get(names[-1]))
        if inner is None or at == len(place) - 1:
            break
        section = inner
    return names, section


def _section(field: FieldInfo | None) -> type[BaseModel] | None:
    """The model that a field holds; None where its value has no fields of its own."""
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type(BaseModel))), None)
