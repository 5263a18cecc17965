"""A recipe: Data-Juicer's YAML, read into operators, with every error said in one line."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from ...operators import Operator, RecipeError, build, installed
from ...operators.errors import suggest
from ...operators.registry import find, load_files
from ..data_juicer import catalogue, steps
from .train import Train

DATA_JUICER_ONLY = (
    "auto_install", "debug", "ds_cache_dir", "export_in_parallel", "export_shard_size",
    "keep_hashes_in_res_ds", "keep_stats_in_res_ds", "load_dataset_kwargs", "op_fusion",
    "open_monitor", "open_tracer", "ray_address", "skip_op_error", "strict_preflight",
    "suffixes", "temp_dir", "trace_num", "use_cache", "use_checkpoint", "work_dir",
)  # fmt: skip
"""Top-level keys that `dj-process` obeys and `rejuice run` has no use for."""


class Step(NamedTuple):
    """One step of a recipe.

    Attributes:
        number: its place, from 1.
        name: the operator's name; a second use of it is `name_2`, a third `name_3`.
        operator: the operator.
    """

    number: int
    name: str
    operator: Operator

    @property
    def label(self) -> str:
        """`03_pass_rate_filter`: the step's folder, which sorts by place."""
        return f"{self.number:02d}_{self.name}"


class Head(BaseModel):
    """The top of a recipe: everything but its steps."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    project_name: str = "rejuice"
    """Name of the project, for reports."""
    dataset_path: Path
    """A .jsonl, .json, .parquet or .arrow file, or a folder of such files."""
    export_path: Path
    """Where the curated dataset goes: .parquet (exact), .arrow or .jsonl."""
    np: int = Field(1, ge=1)
    """Workers: threads, and processes for steps that work in Python."""
    text_keys: str | tuple[str, ...] = Field("text", min_length=1)
    """The column that Data-Juicer's operators take for the text; of several, the first.
    `dj-process` drops rows without a text as it reads them, `rejuice run` never does."""
    executor_type: Literal["default", "ray"] = "default"
    """How `dj-process` runs the recipe. `rejuice run` uses its own engine either way."""
    custom_operator_paths: tuple[Path, ...] = ()
    """Python files, or folders of them, that define operators."""
    train: Train | None = None
    """How `rejuice train` trains; nothing else reads it."""

    @property
    def text_key(self) -> str:
        """The first of `text_keys`."""
        return self.text_keys if isinstance(self.text_keys, str) else self.text_keys[0]


class Recipe(NamedTuple):
    """A recipe that was read, checked and built.

    Attributes:
        path: the file it came from.
        head: its settings.
        steps: its operators, in order.
        for_data_juicer: settings that only `dj-process` obeys.
    """

    path: Path
    head: Head
    steps: tuple[Step, ...]
    for_data_juicer: Mapping[str, Any]

    def resolved(self) -> dict[str, Any]:
        """The recipe with every default written out, ready for YAML."""
        head = self.head.model_dump(mode="json")
        return {**head, **self.for_data_juicer, "process": _process(self.steps)}

    def part(self, steps: Sequence[Step], head: Mapping[str, Any]) -> dict[str, Any]:
        """Steps of the recipe as one of their own, ready for YAML.

        Args:
            steps: some of the recipe's, or what became of them.
            head: keys of its top; those that decide what the steps are need not be among them.
        """
        top = {**self.head.model_dump(mode="json"), **head}
        kept = {"text_keys", "custom_operator_paths", *head}
        said = {key: value for key, value in top.items() if key in kept}
        return {**said, "process": _process(steps)}


def _process(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [{step.operator.name(): step.operator.model_dump(mode="json")} for step in steps]


def load(path: Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe and build its operators.

    Args:
        path: the YAML file.
        overrides: `KEY` or `STEP.FIELD` to a value in YAML, as on the command line.

    Raises:
        RecipeError: anything wrong with the file, an operator's name or a field; one line.
    """
    document = _read(path)
    process = document.pop("process", None)
    if not isinstance(process, list) or not process:
        found = "empty" if process == [] else f"{process!r}" if process is not None else "missing"
        raise RecipeError(f"'process' is {found}", "make it a list of operators", where=str(path))
    parts = [_split(path, number, entry) for number, entry in enumerate(process, 1)]
    names = step_names([name for name, _ in parts])
    fields = {name: values for name, (_, values) in zip(names, parts, strict=True)}
    _override(document, fields, overrides or {})
    head = _head(path, document)
    custom = load_files(head.custom_operator_paths)
    steps = []
    for number, (name, (kind, _)) in enumerate(zip(names, parts, strict=True), 1):
        try:
            steps.append(Step(number, name, _build(kind, fields[name], custom, head)))
        except RecipeError as error:
            raise error.at(f"{path}, step {number} {kind}") from None
    for_data_juicer = {key: document[key] for key in document if key in DATA_JUICER_ONLY}
    return Recipe(path, head, tuple(steps), for_data_juicer)


def _build(
    kind: str, fields: Mapping[str, Any], custom: Mapping[str, type[Operator]], head: Head
) -> Operator:
    operator = find(kind, custom)
    if operator is not None:
        return build(operator, fields)
    if catalogue.exists(kind):
        return steps.step(kind, fields, text_key=head.text_key)
    near = suggest(kind, [*installed(), *custom, *catalogue.names()])
    raise RecipeError("unknown operator", near or "`rejuice ops` lists them")


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise RecipeError(f"{path} does not exist", "give the path of a recipe") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}", "give a YAML file") from None
    try:
        document = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise RecipeError(*_yaml_problem(error), where=where) from None
    except yaml.YAMLError as error:
        found = str(error).splitlines()[0]
        raise RecipeError(f"not YAML ({found})", "mend the line", where=str(path)) from None
    if not isinstance(document, dict):
        kinds = {"NoneType": "empty", "list": "a list", "str": "a text"}
        found = kinds.get(type(document).__name__, "a number")
        raise RecipeError(
            f"a recipe is a mapping, this is {found}", "start with dataset_path:", where=str(path)
        )
    return document


def _yaml_problem(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    problem = str(error.problem)
    tag = re.search(r"constructor for the tag '([^']+)'", problem)
    if tag:
        return f"tag '{tag[1]}' is not allowed", "a recipe holds names and values, never code"
    return f"not YAML ({problem})", "mend the line"


def _split(path: Path, number: int, entry: object) -> tuple[str, dict[str, Any]]:
    where = f"{path}, step {number}"
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


def step_names(kinds: list[str]) -> list[str]:
    """Names of steps from their operators: a second use of `x` is `x_2`."""
    return [
        kind if (nth := kinds[: at + 1].count(kind)) == 1 else f"{kind}_{nth}"
        for at, kind in enumerate(kinds)
    ]


def _override(
    document: dict[str, Any], fields: Mapping[str, dict[str, Any]], overrides: Mapping[str, str]
) -> None:
    for key, text in overrides.items():
        try:
            value = yaml.load(text, _Loader) if text else text
        except yaml.YAMLError:
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
    """Set a field, or a field of a field, without a change to what the recipe's anchors share."""
    field, *rest = path
    if rest:
        inner = fields.get(field)
        fields[field] = dict(inner) if isinstance(inner, Mapping) else {}
        _set(fields[field], rest, value)
    else:
        fields[field] = value


def _head(path: Path, document: Mapping[str, Any]) -> Head:
    ours = {key: value for key, value in document.items() if key not in DATA_JUICER_ONLY}
    try:
        return Head.model_validate(ours)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _plain(str(path), first["loc"], first["type"], first["msg"], first["input"]) from None


def _plain(
    where: str, place: tuple[int | str, ...], kind: str, message: str, found: Any
) -> RecipeError:
    """What pydantic has against a key of the top, or of a section of it."""
    names, section = _named(place)
    key = ".".join(names)
    if kind == "missing":
        return RecipeError(f"'{key}' is missing", f"add `{key}: …`", where=where)
    if kind == "extra_forbidden":
        more = DATA_JUICER_ONLY if section is Head else ()
        near = suggest(names[-1], [*section.model_fields, *more])
        return RecipeError(f"unknown key '{key}'", near, where=where)
    if kind == "value_error":  # Of a section: its keys do not go together.
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
    """What a field holds, where that has fields itself."""
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type(BaseModel))), None)


class _Loader(yaml.SafeLoader):
    """YAML of names and literals, in which a key given twice is an error."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue  # `<<: *anchor`: its keys may be given again.
        key: Hashable = loader.construct_object(key_node)
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is a list or a mapping", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key '{key}' is given twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
