"""The top-level keys of Data-Juicer's configuration, and what `rejuice run` does with each.

A key that is a field of `Head` is obeyed. Each other key is in exactly one of the tables below; a
test walks Data-Juicer's own parser, so that a new key of a later version is not ignored unseen.
"""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections import abc
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union

from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError
from pydantic_core import PydanticKnownError

from ...operators import RecipeError
from ...operators.errors import shown, suggest
from . import catalogue
from .catalogue import ForeignKind, find
from .static_checks import parsed

# --- Field types ----------------------------------------------------------------------
# Whether a value fits the type of a field, as Data-Juicer's own check has it, and more.
#
# Its check looks at `int`, `float`, `bool` and `str` and takes everything else as it is, so a list
# of numbers where texts are expected, or a number out of bounds, fails in the middle of a run. Here
# the type is given to pydantic. As in Data-Juicer, an integer may be written 5.0, no text is a
# number, True is no number, and null fits everywhere. A value is checked and never converted: it
# reaches the operator as `dj-process` hands it over.


def _no_text(value: Any) -> Any:
    if isinstance(value, bool | str | bytes):
        raise PydanticKnownError("int_type")
    return value


_STRICT: Mapping[Any, Any] = {
    int: Annotated[int, BeforeValidator(_no_text)],
    **{kind: Annotated[kind, Strict()] for kind in (bool, float, str)},
}
_CONTAINERS = (dict, list, tuple, abc.Sequence)


def check_type(name: str, hint: Any, value: Any) -> None:
    """Check the value of a field against the type of the field; None as a type is any.

    Raises:
        RecipeError: it does not fit.
    """
    if value is None or hint is None:
        return
    errors = []
    is_union = typing.get_origin(hint) in (Union, UnionType)
    for kind in typing.get_args(hint) if is_union else (hint,):
        if kind is NoneType:
            continue
        try:
            _adapter(kind).validate_python(value)
            return
        except ValidationError as error:
            errors.append(error.errors(include_url=False)[0])
    if len(errors) == 1:
        place = ".".join((name, *map(str, errors[0]["loc"])))
        found, message = errors[0]["input"], errors[0]["msg"]
    else:
        place, found = name, value
        either = dict.fromkeys(error["msg"].removeprefix("Input should be ") for error in errors)
        message = f"Input should be {' or '.join(either)}"
    message = message[0].lower() + message[1:].replace("valid tuple", "list")
    raise RecipeError(f"field '{place}' is {shown(found)}", message)


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(_strict(hint))
    except Exception:
        # Anybody's source: whatever is no type for pydantic says nothing about values.
        return TypeAdapter(Any)


def _strict(hint: Any) -> Any:
    """The type with strict ones in it; `Any` for one that is not to be written in a recipe."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return Annotated[(_strict(inner[0]), *inner[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_strict, inner))]  # noqa: UP007
    if origin in _CONTAINERS:
        return origin[tuple(each if each is ... else _strict(each) for each in inner)]
    # private: jsonargparse==4.53.0, tests/pipelines/data_juicer/test_field_types.py::test_a_value_of_another_type
    if limits := getattr(hint, "_restrictions", None):  # A number such as `ClosedUnitInterval`.
        bounds = {compare.__name__: bound for compare, bound in limits}
        return Annotated[_STRICT[hint._type], Field(**bounds)]
    if origin is Literal or hint in (*_CONTAINERS, NoneType):
        return hint
    return _STRICT.get(hint, Any)


# --- The fields of an operator of Data-Juicer's: checked, and as its class takes them ---

PROCESS_FIELDS = frozenset({"auto_op_parallelism", "num_proc"})
"""How many processes work: fields for `dj-process`, as `rejuice run` has workers of its own."""


def arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What Data-Juicer's class is made with: it works in this process, and hides no error."""
    given = {key: value for key, value in fields.items() if key not in PROCESS_FIELDS}
    return {**given, "skip_op_error": False, "auto_op_parallelism": False, "num_proc": None}


def check_fields(found: ForeignKind, fields: Mapping[str, Any]) -> None:
    """Check the fields that a recipe gives an operator.

    Raises:
        RecipeError: one is unknown or missing, or has a value that cannot work here.
    """
    types = {field.name: field.hint for field in found.fields}
    for name, value in fields.items():
        if name not in types:
            near = suggest(name, found.known) or f"its fields are: {', '.join(found.known)}"
            raise RecipeError(f"unknown field {shown(name)}", near)
        check_type(name, types[name], value)
        if name == "skip_op_error" and value:
            raise RecipeError(
                f"field 'skip_op_error' is {shown(value)}, which loses rows silently",
                "leave it out",
            )
    for name in found.required:
        if name not in fields:
            raise RecipeError(f"field '{name}' is missing", "it has no default")


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in the value of a field, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in (*value, *value.values()):
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


# --- Settings -------------------------------------------------------------------------

PASSED_ON = ("image_key", "image_bytes_key", "audio_key", "video_key")
"""Each operator of Data-Juicer's has a field of that name; a step's own value goes first."""

SILENT = frozenset({"ds_cache_dir", "skip_op_error", "strict_preflight"})
"""How `dj-process` is set up to run a recipe: nobody expects them of another runner."""

WITHOUT_EFFECT = frozenset(
    (
        # How fast `dj-process` is.
        "adaptive_batch_size",
        "auto_op_parallelism",
        "cache_compress",
        "conflict_resolve_strategy",
        "elastic_juicer_adaptive_batching",
        "elastic_juicer_profile_seed",
        "export_in_parallel",
        "fusion_strategy",
        "mapper_fusion",
        "mapper_fusion_vram_limit",
        "min_common_dep_num_to_combine",
        "op_fusion",
        "override_num_blocks",
        "partition",
        "partition_dir",
        "partition_size",
        "read_options",
        "temp_dir",
        "turbo",
        "use_cache",
        "use_dag",
        # What it logs, and keeps of a run.
        "checkpoint",
        "checkpoint_dir",
        "debug",
        "event_log_dir",
        "event_logging",
        "job_id",
        "op_list_to_mine",
        "op_list_to_trace",
        "open_insight_mining",
        "open_monitor",
        "open_tracer",
        "resume",
        "trace_keys",
        "trace_num",
        "use_checkpoint",
        "work_dir",
        # Of its other tools, such as `dj-analyze`.
        "auto",
        "auto_num",
        "data_probe_algo",
        "data_probe_ratio",
        "export_original_dataset",
        "hpo_config",
        "percentiles",
        "save_stats_in_one_file",
        # Of nothing by themselves: what they belong to is refused.
        "encryption_key_path",
        "export_aws_credentials",
    )
)
"""They change no row; a recipe that sets one of them is reported in a line."""

REFUSED: Mapping[str, str] = {
    "decrypt_after_reading": "decrypts the dataset",
    "encrypt_before_export": "encrypts the export",
    "export_extra_args": "changes how the export is written",
    "export_shard_size": "cuts the export into several files",
    "load_dataset_kwargs": "changes how the dataset is read",
    "load_jsonl_lenient": "skips lines that are not JSON",
}
"""They change which rows are read, or what is written, and are not obeyed."""

NOT_YET: Mapping[str, tuple[str, str]] = {
    "generated_dataset_config": ("'generated_dataset_config' is", "give dataset_path"),
    "validators": ("'validators' are", "leave them out"),
}
"""They are about the dataset, and are to be supported; with what would be right until then."""

SPECIAL_TOKENS: Mapping[str, str] = {
    "image_special_token": "<__dj__image>",
    "audio_special_token": "<__dj__audio>",
    "video_special_token": "<__dj__video>",
    "eoc_special_token": "<|__dj__eoc|>",
}
"""What marks an image in a text, with the defaults; refused where a step looks for them."""

EXPORT_TYPE = "export_type"
"""Obeyed where it is the suffix of the export, else refused."""
KEYS = frozenset(
    {*PASSED_ON, *SILENT, *WITHOUT_EFFECT, *REFUSED, *NOT_YET, *SPECIAL_TOKENS, EXPORT_TYPE}
)

_PATHS = ("dataset_path", "export_path")
_NO_STORE = re.compile(r"(oss|https?):/", re.IGNORECASE)
"""Places that Arrow, which reads datasets and writes exports, does not open."""
_TOKENS = re.compile(r"\bSpecialTokens\b|\bremove_(?:non_)?special_tokens\b")
_ELSEWHERE = "run this recipe with dj-process"


class Refusal(NamedTuple):
    """A key of a recipe that `rejuice run` cannot obey."""

    key: str  # its name
    found: str  # what is wrong with it
    right: str  # what would be right


def refusals(document: Mapping[str, Any]) -> Iterator[Refusal]:
    """Yield the keys of a recipe that would change rows or the export, and that are not obeyed."""
    for key, value in document.items():
        if key in _PATHS:
            yield from _refused_path(key, value)
        elif key in REFUSED and _is_set(key, value):
            found = f"'{key}' {REFUSED[key]}, which rejuice does not do"
            yield Refusal(key, found, f"leave it out, or {_ELSEWHERE}")
        elif key in NOT_YET and _is_set(key, value):
            what, right = NOT_YET[key]
            found = f"{what} not supported yet by rejuice"
            yield Refusal(key, found, f"{right}, or {_ELSEWHERE}")
        elif key == EXPORT_TYPE and value is not None:
            suffix = PurePath(str(document.get("export_path", ""))).suffix
            if not suffix and value != "parquet":
                found = f"'{key}' is {shown(value)}, and a folder is written as parquet"
                yield Refusal(key, found, f"leave it out, or end export_path in .{value}")
            elif suffix and f".{value}" != suffix:
                found = f"'{key}' is {shown(value)}, and export_path ends in '{suffix}'"
                yield Refusal(key, found, f"end export_path in .{value}")


def refused_tokens(document: Mapping[str, Any], operator: str) -> Iterator[Refusal]:
    """Yield the special tokens that a recipe changes, and that one of its operators looks for."""
    for key, default in SPECIAL_TOKENS.items():
        if document.get(key) not in (None, default) and _looks_for_tokens(operator):
            found = f"it looks for {default!r}, and '{key}' is {shown(document[key])}"
            yield Refusal(key, found, _ELSEWHERE)


def setting_warnings(document: Mapping[str, Any]) -> list[str]:
    """One line, or none: the keys of a recipe that change no row, and that are not obeyed."""
    keys = sorted(key for key in WITHOUT_EFFECT & document.keys() if _is_set(key, document[key]))
    return [f"these keys have an effect in dj-process only: {', '.join(keys)}"] if keys else []


def passed_on(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a recipe sets for all operators of Data-Juicer's, where it is not the default."""
    return {key: document[key] for key in PASSED_ON if _is_set(key, document.get(key))}


def description(key: str) -> str:
    """Return what `rejuice run` does with a key that is not a field of `Head`."""
    if key in PASSED_ON:
        return "For Data-Juicer's operators."
    if key in REFUSED or key in NOT_YET:
        return "For dj-process only: where it is set, the recipe is refused here."
    return "For dj-process only."


@cache
def defaults() -> Mapping[str, Any]:
    """The defaults of Data-Juicer's keys that are literals; those of `KEY.KEY` in one mapping."""
    file = catalogue.package() / "config" / "config.py"
    found = dict[str, Any]()
    for node in ast.walk(parsed(file.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=name)]):
                key, _, inner = str(name).removeprefix("--").replace("-", "_").partition(".")
                given = {each.arg: each.value for each in node.keywords}
                default = None
                if "default" in given:
                    try:
                        default = ast.literal_eval(given["default"])
                    except ValueError:
                        continue
                elif isinstance(given.get("action"), ast.Constant):
                    default = False  # A flag.
                if inner:
                    found.setdefault(key, {})[inner] = default
                else:
                    found[key] = default
    return found


def _is_set(key: str, value: Any) -> bool:
    """Whether a key has a value that does something: not null, not empty, not the default."""
    if value is None:
        return False
    default = defaults().get(key)
    if key == "load_dataset_kwargs" and isinstance(value, Mapping):
        value = {name: each for name, each in value.items() if name != "num_proc"}  # No row's.
    if isinstance(default, dict) and default and isinstance(value, Mapping):
        return any(value[name] != default.get(name) for name in value)
    return bool(value or default) and value != default


def _refused_path(key: str, value: Any) -> Iterator[Refusal]:
    text = str(value)
    if value in ("", None):
        yield Refusal(key, f"'{key}' is empty", "give a path")
    elif _NO_STORE.match(text):
        verb = "read" if key == "dataset_path" else "write"
        found = f"'{key}' is {shown(text)}, which rejuice does not {verb}"
        yield Refusal(key, found, f"give a path on disk, or s3://BUCKET/..., or {_ELSEWHERE}")


@cache
def _looks_for_tokens(operator: str) -> bool:
    """Return whether the source of an operator of Data-Juicer's names the special tokens."""
    found = find(operator)
    file = None if found is None else inspect.getsourcefile(found.cls)
    return file is not None and bool(_TOKENS.search(Path(file).read_text("utf-8")))
