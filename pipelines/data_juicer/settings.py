"""The keys of Data-Juicer's in a recipe: fields of its operators, and top-level keys.

A top-level key that is a field of `Head` is obeyed. Each other one is in exactly one of the tables
below; a test walks Data-Juicer's own parser, so that a new key of a later version is not ignored
unseen.
"""

from __future__ import annotations

import re
import typing
from collections import abc
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Union

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import to_json

from ...operators import RecipeError
from ...operators.errors import shown, suggest
from ...operators.logs import SHORTEST
from .catalogue import ForeignField, ForeignKind

# --- Fields of an operator ------------------------------------------------------------


def check_fields(found: ForeignKind, fields: Mapping[str, Any]) -> None:
    """Check the fields that a recipe gives an operator; values are never converted."""
    for name, value in fields.items():
        if name not in found.fields:
            near = suggest(name, found.fields) or f"its fields are: {', '.join(found.fields)}"
            raise RecipeError(f"unknown field {shown(name)}", near)
        check_type(found.fields[name], value)
    if fields.get("skip_op_error"):
        loses = "field 'skip_op_error' is True, which loses rows silently"
        raise RecipeError(loses, "leave it out")
    for name, field in found.fields.items():
        if field.is_required and name not in fields:
            raise RecipeError(f"field '{name}' is missing", "it has no default")
    refuse_credentials(fields)


def check_type(field: ForeignField, value: Any) -> None:
    """Check the value of a field; null fits everywhere."""
    if value is None or field.hint is None:
        return
    try:
        adapter = TypeAdapter(_checkable(field.hint))
    except Exception:
        return  # Anybody's source: whatever is no type for pydantic says nothing about values.
    try:
        # As JSON, in which a list may be a tuple.
        adapter.validate_json(to_json(value, fallback=str), strict=True)
    except ValidationError as error:
        prefix = "Input should be "
        every = [each["msg"].removeprefix("Value error, ") for each in error.errors()]
        either = dict.fromkeys(message.removeprefix(prefix) for message in every)
        right = (prefix * every[0].startswith(prefix) + " or ".join(either)).replace(
            "array", "list"
        )
        found = f"field '{field.name}' is {shown(value)}"
        raise RecipeError(found, right[0].lower() + right[1:]) from None


def _checkable(hint: Any) -> Any:
    """The type as pydantic checks it; `Any` for one that is not to be written in a recipe."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return Annotated[(_checkable(inner[0]), *inner[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_checkable, inner))]  # noqa: UP007
    if origin in (dict, list, tuple, abc.Sequence):
        return origin[tuple(each if each is ... else _checkable(each) for each in inner)]
    if hint is int:
        return Annotated[int, BeforeValidator(_whole)]
    if isinstance(hint, type) and hint not in (bool, float) and issubclass(hint, (int, float)):
        # A number with limits, such as jsonargparse's `ClosedUnitInterval`.
        base = int if issubclass(hint, int) else float
        return Annotated[_checkable(base), AfterValidator(hint)]
    known = (bool, float, str, dict, list, tuple, type(None))
    return hint if origin is typing.Literal or hint in known else Any


def _whole(value: Any) -> Any:
    """Data-Juicer takes 5.0 for an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_SECRETS = frozenset(
    {"access_key", "access_token", "api_key", "auth_token", "authorization", "hf_token"}
    | {"password", "secret", "secret_key", "x_api_key"}
)
_WITH_PASSWORD = re.compile(r"https?://[^/?#]*:[^/?#]*@")


def refuse_credentials(fields: Any, where: str = "") -> None:
    """Refuse a key in fields; one too short for a secret is for a server of one's own."""
    for name, value in fields.items() if isinstance(fields, dict) else ():
        place = f"{where}.{name}" if where else str(name)
        is_named = str(name).lower().replace("-", "_") in _SECRETS
        is_key = is_named and isinstance(value, str) and len(value) >= SHORTEST
        if is_key or (isinstance(value, str) and _WITH_PASSWORD.match(value)):
            right = "take it out, and set OPENAI_API_KEY or the variable that the library reads"
            raise RecipeError(f"{place} has a key in it, and a run stores its recipe", right)
        refuse_credentials(value, place)


def texts(value: Any) -> Iterator[str]:
    """All texts in the value of a field, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in (*value, *value.values()):
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


# --- Top-level keys -------------------------------------------------------------------

PASSED_ON = ("image_key", "image_bytes_key", "audio_key", "video_key")
"""Each operator of Data-Juicer's has a field of that name; a step's own value goes first."""
SILENT = ("ds_cache_dir", "skip_op_error", "strict_preflight")
"""How `dj-process` is set up to run a recipe: nobody expects them of another runner."""
REFUSED: Mapping[str, str] = {
    "decrypt_after_reading": "decrypts the dataset",
    "encrypt_before_export": "encrypts the export",
    "export_extra_args": "changes how the export is written",
    "export_shard_size": "cuts the export into several files",
    "generated_dataset_config": "makes a dataset",
    "load_dataset_kwargs": "changes how the dataset is read",
    "load_jsonl_lenient": "skips lines that are not JSON",
    "validators": "check the dataset",
}
"""They change which rows are read, or what is written, and are not obeyed."""
SPECIAL_TOKENS: Mapping[str, str] = {
    "image_special_token": "<__dj__image>",
    "audio_special_token": "<__dj__audio>",
    "video_special_token": "<__dj__video>",
    "eoc_special_token": "<|__dj__eoc|>",
}
"""What marks an image in a text, with the defaults: no other is obeyed."""
_HOW_FAST = (
    "adaptive_batch_size auto_op_parallelism cache_compress conflict_resolve_strategy "
    "elastic_juicer_adaptive_batching elastic_juicer_profile_seed export_in_parallel "
    "fusion_strategy mapper_fusion mapper_fusion_vram_limit min_common_dep_num_to_combine "
    "op_fusion override_num_blocks partition partition_dir partition_size read_options temp_dir "
    "turbo use_cache use_dag"
)
_LOGGED_AND_KEPT = (
    "checkpoint checkpoint_dir debug event_log_dir event_logging job_id op_list_to_mine "
    "op_list_to_trace open_insight_mining open_monitor open_tracer resume trace_keys trace_num "
    "use_checkpoint work_dir"
)
_OF_OTHER_TOOLS = (
    "auto auto_num data_probe_algo data_probe_ratio export_original_dataset hpo_config percentiles "
    "save_stats_in_one_file"
)
_OF_WHAT_IS_REFUSED = "encryption_key_path export_aws_credentials"
WITHOUT_EFFECT = frozenset(
    f"{_HOW_FAST} {_LOGGED_AND_KEPT} {_OF_OTHER_TOOLS} {_OF_WHAT_IS_REFUSED}".split()
)
"""They change no row; a recipe that sets one of them is reported in a line."""
KEYS = frozenset({*PASSED_ON, *SILENT, *REFUSED, *SPECIAL_TOKENS, *WITHOUT_EFFECT, "export_type"})
"""All keys that are not those of `Head`."""

_ELSEWHERE = "run this recipe with dj-process"


def refusals(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Keys that would change rows or the export and are not obeyed; what is wrong; what right."""
    for key, value in document.items():
        if key in REFUSED and value:
            if key == "load_dataset_kwargs" and list(value) == ["num_proc"]:
                continue  # It says how fast.
            found = f"'{key}' {REFUSED[key]}, which rejuice does not do"
            yield key, found, f"leave it out, or {_ELSEWHERE}"
        elif key in SPECIAL_TOKENS and value not in (None, SPECIAL_TOKENS[key]):
            found = f"'{key}' is {shown(value)}, and rejuice knows {SPECIAL_TOKENS[key]!r}"
            yield key, found, f"leave it out, or {_ELSEWHERE}"
        elif key == "export_type" and value is not None:
            suffix = PurePath(str(document.get("export_path", ""))).suffix
            if value != (suffix.removeprefix(".") or "parquet"):
                found = f"'{key}' is {shown(value)}, and export_path ends in '{suffix}'"
                yield key, found, f"leave it out, or end export_path in .{value}"


def setting_warnings(document: Mapping[str, Any]) -> list[str]:
    """One line, or none: the keys of a recipe that change no row, and that are not obeyed."""
    keys = sorted(key for key in WITHOUT_EFFECT & document.keys() if document[key])
    return [f"these keys have an effect in dj-process only: {', '.join(keys)}"] if keys else []


def passed_on(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: document[key] for key in PASSED_ON if document.get(key)}


def description(key: str) -> str:
    if key in PASSED_ON:
        return "For Data-Juicer's operators."
    if key in REFUSED:
        return "For dj-process only: where it is set, the recipe is refused here."
    return "For dj-process only."
