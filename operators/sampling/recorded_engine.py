"""An engine that samples nothing: it returns the responses of an earlier run.

files ──> batches of rows, without their prompts ──> for each chat, the indices of its rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ..columns import MESSAGES, ROW_CONTRACT, is_list, is_text
from ..compute import pc
from ..errors import EngineError
from ..groups import Array
from .protocol import Failure, Group, Prompt, Sample, Settings

_NEEDED = ("prompt", "response")
_EXACT = ("prompt_token_ids", "response_token_ids", "response_logprobs")
_READ = (*_NEEDED, *_EXACT, "finish_reason", "policy", "policy_version", "sampling")
_SCHEMA = pa.schema([(name, ROW_CONTRACT[name]) for name in _READ])
_FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json"}
_BATCH_ROWS = 1 << 14
_JSON_BLOCK = 1 << 24  # bytes; no line may be longer than two blocks
_FIX_EXACT = "set on_policy: false, or record it with on_policy: true"


class RecordedEngine:
    """Returns responses from a table with one row each: the export of an earlier run, or your own.

    A prompt is found by its messages. The first n responses to it are returned, in the order of
    the rows; the files of a folder are read in the order of their names. Rows whose response is
    null were never sampled; they are skipped, as are rows whose prompt is null or has a message
    without role or content.

    Args:
        path: a Parquet, Arrow or JSON Lines file, or a folder of them. Columns `prompt` and
            `response` are required; the other columns that sampling writes are used if present.
        exact: require token ids and log-probabilities of each response that is returned.

    Raises:
        EngineError: there is no such file, or a column is missing or has another type.
    """

    def __init__(self, path: str | Path, *, exact: bool) -> None:
        self._path, self._exact = path, exact
        self._batches: list[pa.RecordBatch] = []
        self._numbers: dict[bytes, int] = {}  # of chats, by their 128-bit hashes
        numbers = [np.zeros(0, np.int64)]
        for batch in _batches(Path(path), exact):
            numbers.append(self._numbered(batch))
            self._batches.append(batch.drop_columns(["prompt"]))
        if not self._numbers:
            raise EngineError(f"{path} has no row with a prompt and a response")
        numbers_N = np.concatenate(numbers)
        self._rows = np.argsort(numbers_N, kind="stable")  # the rows of a chat are neighbours
        chats = np.arange(len(self._numbers) + 1)
        self._bounds = np.searchsorted(numbers_N, chats, sorter=self._rows)
        self._begins = np.cumsum([0, *(batch.num_rows for batch in self._batches)])[:-1]

    def sample(
        self, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        """The recorded responses.

        Raises:
            EngineError: they were sampled with other settings, come from several policies, or lack
                what `exact` requires.
        """
        for index, (prompt, key) in enumerate(zip(prompts, _keys(prompts), strict=True)):
            number = self._numbers.get(key)
            if number is None:
                yield index, Failure("not_recorded", f"{self._path} does not contain the prompt")
                continue
            rows = self._rows[self._bounds[number] : self._bounds[number + 1]]
            if len(rows) < settings.n:
                detail = f"{len(rows)} of {settings.n} responses were recorded"
                yield index, Failure("too_few_samples", detail)
            else:
                yield index, self._group(prompt, self._rows_at(rows[: settings.n]), settings)

    def close(self) -> None:
        """There is nothing to release."""

    def _numbered(self, batch: pa.RecordBatch) -> Array:
        """Number of each row's chat, int64[N]; -1 where the row is skipped."""
        chats = _chats(batch["prompt"])
        nothing = pa.scalar(None, chats.type)
        coded = pc.if_else(batch["response"].is_valid(), chats, nothing).dictionary_encode()
        keys = (xxhash.xxh3_128_digest(chat) for chat in coded.dictionary.to_pylist())
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        # A null has the index -1, which is the last of these numbers.
        numbers_N: Array = np.array([*numbers, -1])[np.asarray(pc.fill_null(coded.indices, -1))]
        return numbers_N

    def _rows_at(self, rows: Array) -> list[dict[str, Any]]:
        """These rows as Python values; their indices ascend."""
        batch_of = np.searchsorted(self._begins, rows, "right") - 1
        taken = []
        for number in np.unique(batch_of):
            own = rows[batch_of == number] - self._begins[number]
            taken += self._batches[number].take(pa.array(own)).to_pylist()
        return taken

    def _group(self, prompt: Prompt, rows: list[dict[str, Any]], settings: Settings) -> Group:
        for row in rows:
            self._check_settings(row["sampling"] or {}, settings)
            if self._exact:
                self._check_exact(row, prompt)
        origin = self._origin(rows)
        return Group(
            policy=origin.policy or "recorded",
            version=origin.version or 0,
            seed=origin.seed,
            prompt_token_ids=origin.prompt_token_ids,
            samples=tuple(_sample(row) for row in rows),
        )

    def _check_settings(self, sampled: dict[str, Any], settings: Settings) -> None:
        for name in ("temperature", "top_p", "max_tokens"):
            was, wanted = sampled.get(name), getattr(settings, name)
            if was is not None and was != wanted:
                raise EngineError(
                    f"{self._path} was sampled with {name}: {was:.10g}", f"not with {wanted:.10g}"
                )

    def _check_exact(self, row: dict[str, Any], prompt: Prompt) -> None:
        for name in _EXACT:
            if row[name] is None:
                found = f"{self._path} lacks {name} of a response to {_beginning(prompt)}"
                raise EngineError(found, _FIX_EXACT)
        tokens, logprobs = len(row["response_token_ids"]), len(row["response_logprobs"])
        if tokens != logprobs:
            sizes = f"{tokens} response_token_ids and {logprobs} response_logprobs"
            raise EngineError(
                f"{self._path} has {sizes} of a response to {_beginning(prompt)}", _FIX_EXACT
            )

    def _origin(self, rows: list[dict[str, Any]]) -> _Origin:
        """The origin that these rows have in common."""
        first, *others = dict.fromkeys(map(_origin, rows))
        if others:
            found = f"{self._path} contains responses {_mixed(first, others[0])} to one prompt"
            raise EngineError(found, "name a file of one run")
        return first


class _Origin(NamedTuple):
    """What all responses to a prompt that were sampled together have in common."""

    policy: str | None
    version: int | None
    seed: int | None
    prompt_token_ids: tuple[int, ...] | None


def _origin(row: dict[str, Any]) -> _Origin:
    seed = (row["sampling"] or {}).get("seed")
    return _Origin(row["policy"], row["policy_version"], seed, _tuple(row["prompt_token_ids"]))


def _mixed(first: _Origin, other: _Origin) -> str:
    """How two origins differ."""
    named = zip(("policies", "policy versions", "seeds"), first, other, strict=False)
    for what, *values in named:
        if values[0] != values[1]:
            one, two = ("an unknown one" if value is None else value for value in values)
            return f"of {what} {one} and {two}"
    return "with different prompt_token_ids"


def _sample(row: dict[str, Any]) -> Sample:
    return Sample(
        text=row["response"],
        token_ids=_tuple(row["response_token_ids"]),
        logprobs=_tuple(row["response_logprobs"]),
        finish_reason=row["finish_reason"] or "stop",
    )


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _beginning(prompt: Prompt) -> str:
    text = " ".join(prompt.messages[-1][1].split())
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _keys(prompts: Sequence[Prompt]) -> list[bytes]:
    """A hash of each prompt's chat; that of empty bytes if it is none."""
    chats = [[{"role": role, "content": text} for role, text in p.messages] for p in prompts]
    return [xxhash.xxh3_128_digest(c or b"") for c in _chats(pa.array(chats, MESSAGES)).to_pylist()]


def _chats(prompts: pa.Array) -> pa.Array:
    """Each chat as unique bytes, large_binary[N]; null where there is none.

    Parts are preceded by their lengths, so that no content looks like another message:
    `4:user:2:hi`.
    """
    messages, parts = prompts.flatten(), []
    for name in ("role", "content"):
        text = pc.struct_field(messages, name).cast(pa.large_string())
        parts += [pc.binary_length(text).cast(pa.large_string()), text]
    colon = pa.scalar(":", pa.large_string())
    sizes_N = np.asarray(pc.fill_null(pc.list_value_length(prompts), 0), np.int64)
    texts = pa.LargeListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(sizes_N)]), pa.int64()),
        pc.binary_join_element_wise(*parts, colon),
        mask=pa.array(sizes_N == 0),
    )
    return pc.binary_join(texts, colon).cast(pa.large_binary())


def _batches(path: Path, exact: bool) -> Iterator[pa.RecordBatch]:
    """All rows, with the types of the row contract; a missing column is null.

    Raises:
        EngineError: the files do not exist, or are not a recording.
    """
    from pyarrow import dataset  # It loads clients of object stores, which `check` does not need.
    from pyarrow.json import ReadOptions

    files, kind = _files(path)
    options = ReadOptions(block_size=_JSON_BLOCK)
    form = dataset.JsonFileFormat(read_options=options) if kind == "json" else kind
    try:
        data = dataset.dataset([str(file) for file in files], format=form, schema=_SCHEMA)
        for fragment in data.get_fragments():
            _check_names(fragment.path, fragment.physical_schema, exact)
            if kind != "json":  # JSON is read with the schema, so the types are right.
                _check_types(fragment.path, fragment.physical_schema)
        for batch in data.to_batches(batch_size=_BATCH_ROWS):
            for name in _EXACT:
                if batch[name].flatten().null_count:
                    raise EngineError(f"{path} has nulls within lists of column '{name}'")
            yield batch
    except FileNotFoundError:
        raise EngineError(f"{path} does not exist", "name the export of a run") from None
    except (pa.ArrowException, OSError) as error:
        raise EngineError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _files(path: Path) -> tuple[list[Path], str]:
    """The files to read, in order, and their format."""
    inside = sorted(file for file in path.glob("*") if file.suffix in _FORMATS)
    suffixes = sorted({file.suffix for file in inside or [path]})
    if len(suffixes) > 1:
        raise EngineError(f"{path} contains files of {' and '.join(suffixes)}", "name one file")
    if path.is_dir() and not inside:
        raise EngineError(f"{path} contains no file of {', '.join(_FORMATS)}", "name one")
    if suffixes[0] not in _FORMATS:
        raise EngineError(f"{path} has an unknown format", f"use {', '.join(_FORMATS)}")
    return inside or [path], _FORMATS[suffixes[0]]


def _check_names(path: str, schema: pa.Schema, exact: bool) -> None:
    fixes = dict.fromkeys(_NEEDED, "name the export of a run that sampled")
    fixes |= dict.fromkeys(_EXACT if exact else (), _FIX_EXACT)
    for name, right in fixes.items():
        if name not in schema.names:
            raise EngineError(f"{path} has no column '{name}'", right)


def _check_types(path: str, schema: pa.Schema) -> None:
    for field in schema:
        if field.name in _READ and not _fits(field.type, ROW_CONTRACT[field.name]):
            found = f"column '{field.name}' of {path} is {field.type}"
            raise EngineError(found, f"it must be {ROW_CONTRACT[field.name]}")


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of this type can be read as the wanted type without changing meaning."""
    types = pa.types
    if types.is_dictionary(kind):
        return _fits(kind.value_type, wanted)
    if types.is_null(kind):
        return True
    if types.is_list(wanted):
        return is_list(kind) and _fits(kind.value_type, wanted.value_type)
    if types.is_struct(wanted):
        return types.is_struct(kind) and all(
            _fits(field.type, wanted.field(field.name).type)
            for field in kind
            if wanted.get_field_index(field.name) >= 0
        )
    if types.is_string(wanted):
        return is_text(kind)
    return bool(types.is_integer(kind) or (types.is_floating(wanted) and types.is_floating(kind)))
