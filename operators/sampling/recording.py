"""What an earlier run has sampled, found by its prompts.

files ──> batches of rows, without their prompts ──> for each chat, the indices of its rows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from ..arrow_compute import pc
from ..columns import ROW_CONTRACT, is_list, is_text
from ..errors import EngineError
from ..groups import Array
from ..json_text import is_very_deep
from .protocol import Failure, Group, Prompt, Sample, Settings

_OPTIONAL = ("finish_reason", "policy", "policy_version", "sampling")
_FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json"}
_BATCH_ROWS = 1 << 14
_JSON_BLOCK = 1 << 24  # bytes; no line may be longer than two blocks
FIX_EXACT = "set on_policy: false, or record it with on_policy: true"


class Recording:
    """The rows of a table that has one for each response, found by the messages of their prompts.

    The first n responses to a prompt are taken, in the order of the rows; the files of a folder are
    read in the order of their names. Rows whose prompt is null or has a message without role or
    content are skipped, and those where the first of the `needed` columns is null: they were never
    sampled. The `exact` columns must be there if it `wants_exact`.
    """

    def __init__(
        self, path: str | Path, needed: Sequence[str], exact: Sequence[str], *, wants_exact: bool
    ) -> None:
        self.path = path
        self._batches: list[pa.RecordBatch] = []
        self._numbers: dict[bytes, int] = {}  # of chats, by their 128-bit hashes
        numbers = [np.zeros(0, np.int64)]
        fixes = dict.fromkeys(("prompt", *needed), "name the export of a run that sampled")
        fixes |= dict.fromkeys(exact if wants_exact else (), FIX_EXACT)
        names = dict.fromkeys(("prompt", *needed, *exact, *_OPTIONAL))
        for batch in _batches(Path(path), list(names), exact, fixes):
            numbers.append(self._numbered(batch, needed[0]))
            self._batches.append(batch.drop_columns(["prompt"]))
        if not self._numbers:
            what = "turns" if needed[0] == "turns" else f"a {needed[0]}"
            raise EngineError(f"{path} has no row with a prompt and {what}")
        numbers_N = np.concatenate(numbers)
        self._rows = np.argsort(numbers_N, kind="stable")  # the rows of a chat are neighbours
        chats = np.arange(len(self._numbers) + 1)
        self._bounds = np.searchsorted(numbers_N, chats, sorter=self._rows)
        self._begins = np.cumsum([0, *(batch.num_rows for batch in self._batches)])[:-1]

    def rows_of(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[tuple[int, Prompt], list[dict[str, Any]] | Failure]]:
        for number, prompt in enumerate(prompts):
            yield (number, prompt), self._found(_key(prompt), settings)

    def origin(self, rows: list[dict[str, Any]]) -> Origin:
        first, *others = dict.fromkeys(map(_origin, rows))
        if others:
            found = f"{self.path} contains responses {_mixed(first, others[0])} to one prompt"
            raise EngineError(found, "name a file of one run")
        return first

    def _found(self, key: bytes, settings: Settings) -> list[dict[str, Any]] | Failure:
        number = self._numbers.get(key)
        if number is None:
            return Failure("not_recorded", f"{self.path} does not contain the prompt")
        places = self._rows[self._bounds[number] : self._bounds[number + 1]]
        if len(places) < settings.n:
            detail = f"{len(places)} of {settings.n} responses were recorded"
            return Failure("too_few_samples", detail)
        rows = self._rows_at(places[: settings.n])
        for row in rows:
            self._check_settings(row["sampling"] or {}, settings)
        return rows

    def _numbered(self, batch: pa.RecordBatch, marks_sampled: str) -> Array:
        """Number of each row's chat, int64[N]; -1 where the row is skipped."""
        chats = _chats(batch["prompt"])
        nothing = pa.scalar(None, chats.type)
        sampled = batch[marks_sampled].is_valid()
        coded = pc.if_else(sampled, chats, nothing).dictionary_encode()
        keys = (xxhash.xxh3_128_digest(chat) for chat in coded.dictionary.to_pylist())
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        # A null has the index -1, which is the last of these numbers.
        numbers_N: Array = np.array([*numbers, -1])[np.asarray(pc.fill_null(coded.indices, -1))]
        return numbers_N

    def _rows_at(self, rows: Array) -> list[dict[str, Any]]:
        batch_of = np.searchsorted(self._begins, rows, "right") - 1
        taken = []
        for number in np.unique(batch_of):
            own = rows[batch_of == number] - self._begins[number]
            taken += self._batches[number].take(pa.array(own)).to_pylist()
        return taken

    def _check_settings(self, sampled: dict[str, Any], settings: Settings) -> None:
        for name in ("temperature", "top_p", "max_tokens"):
            was, wanted = sampled.get(name), getattr(settings, name)
            if was is not None and was != wanted:
                raise EngineError(
                    f"{self.path} was sampled with {name}: {was:.10g}", f"not with {wanted:.10g}"
                )


class Origin(NamedTuple):
    policy: str | None
    version: int | None
    seed: int | None
    prompt_token_ids: tuple[int, ...] | None


def _origin(row: dict[str, Any]) -> Origin:
    seed = (row["sampling"] or {}).get("seed")
    return Origin(row["policy"], row["policy_version"], seed, as_tuple(row.get("prompt_token_ids")))


def _mixed(first: Origin, other: Origin) -> str:
    named = zip(("policies", "policy versions", "seeds"), first, other, strict=False)
    for what, *values in named:
        if values[0] != values[1]:
            one, two = ("an unknown one" if value is None else value for value in values)
            return f"of {what} {one} and {two}"
    return "with different prompt_token_ids"


def as_tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def beginning(prompt: Prompt) -> str:
    text = " ".join(prompt.messages[-1][1].split())
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def _key(prompt: Prompt) -> bytes:
    """A hash of the prompt's chat, as `_chats` writes it."""
    texts = (
        text.encode("utf-8", "surrogatepass") for message in prompt.messages for text in message
    )
    parts = (b"%d:%s" % (len(text), text) for text in texts)
    return xxhash.xxh3_128_digest(b":".join(parts))


def _chats(prompts: pa.Array) -> pa.Array:
    """Each chat as unique bytes, large_binary[N]; null where there is none. Parts are preceded by
    their lengths, so that no content looks like another message: `4:user:2:hi`."""
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


def _batches(
    path: Path, names: Sequence[str], lists: Sequence[str], fixes: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    from pyarrow import dataset  # It loads clients of object stores, which `check` does not need.
    from pyarrow.json import ReadOptions

    files, kind = _files(path)
    options = ReadOptions(block_size=_JSON_BLOCK)
    form = dataset.JsonFileFormat(read_options=options) if kind == "json" else kind
    schema = pa.schema([(name, ROW_CONTRACT[name]) for name in names])
    for file in files:
        _check_file(file, is_json=kind == "json")
    try:
        data = dataset.dataset([str(file) for file in files], format=form, schema=schema)
        for fragment in data.get_fragments():
            _check_names(fragment.path, fragment.physical_schema, fixes)
            if kind != "json":  # JSON is read with the schema, so the types are right.
                _check_types(fragment.path, fragment.physical_schema, names)
        for batch in data.to_batches(batch_size=_BATCH_ROWS):
            for name in lists:
                if batch[name].flatten().null_count:
                    raise EngineError(f"{path} has nulls within lists of column '{name}'")
            yield batch
    except FileNotFoundError:
        raise EngineError(f"{path} does not exist", "name the export of a run") from None
    except (pa.ArrowException, OSError) as error:
        raise EngineError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _check_file(file: Path, *, is_json: bool) -> None:
    """Check that reading a file neither waits for ever nor overflows a stack."""
    if file.exists() and not file.is_file():
        raise EngineError(f"{file} is not a file", "name the export of a run")
    if is_json and file.exists():
        with file.open("rb") as lines:
            while block := lines.read(_JSON_BLOCK):
                if is_very_deep(block + lines.readline()):
                    raise EngineError(f"{file} has values that are nested too deeply")


def _files(path: Path) -> tuple[list[Path], str]:
    inside = sorted(file for file in path.glob("*") if file.suffix in _FORMATS)
    suffixes = sorted({file.suffix for file in inside or [path]})
    if len(suffixes) > 1:
        raise EngineError(f"{path} contains files of {' and '.join(suffixes)}", "name one file")
    if path.is_dir() and not inside:
        raise EngineError(f"{path} contains no file of {', '.join(_FORMATS)}", "name one")
    if suffixes[0] not in _FORMATS:
        raise EngineError(f"{path} has an unknown format", f"use {', '.join(_FORMATS)}")
    return inside or [path], _FORMATS[suffixes[0]]


def _check_names(path: str, schema: pa.Schema, fixes: Mapping[str, str]) -> None:
    for name, right in fixes.items():
        if name not in schema.names:
            raise EngineError(f"{path} has no column '{name}'", right)


def _check_types(path: str, schema: pa.Schema, names: Sequence[str]) -> None:
    for field in schema:
        if field.name in names and not _fits(field.type, ROW_CONTRACT[field.name]):
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


# --- The engine -----------------------------------------------------------------------

_EXACT = ("prompt_token_ids", "response_token_ids", "response_logprobs")


class RecordedEngine:
    """Responses from a table with one row each: the export of an earlier run, or your own.

    `exact` requires token ids and log-probabilities of each response that is returned.
    """

    def __init__(self, path: str | Path, *, exact: bool) -> None:
        self._path, self._exact = path, exact
        self._recording = Recording(path, ["response"], _EXACT, wants_exact=exact)

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        for (index, prompt), found in self._recording.rows_of(prompts, settings):
            yield index, found if isinstance(found, Failure) else self._group(prompt, found)

    def capacity(self, settings: Settings) -> int:
        return 1

    def close(self) -> None:
        """There is nothing to release."""

    def _group(self, prompt: Prompt, rows: list[dict[str, Any]]) -> Group:
        for row in rows:
            if self._exact:
                self._check_exact(row, prompt)
        origin = self._recording.origin(rows)
        return Group(
            policy=origin.policy or "recorded",
            version=origin.version or 0,
            seed=origin.seed,
            prompt_token_ids=origin.prompt_token_ids,
            samples=tuple(_sample(row) for row in rows),
        )

    def _check_exact(self, row: dict[str, Any], prompt: Prompt) -> None:
        for name in _EXACT:
            if row[name] is None:
                found = f"{self._path} lacks {name} of a response to {beginning(prompt)}"
                raise EngineError(found, FIX_EXACT)
        tokens, logprobs = len(row["response_token_ids"]), len(row["response_logprobs"])
        if tokens != logprobs:
            sizes = f"{tokens} response_token_ids and {logprobs} response_logprobs"
            raise EngineError(
                f"{self._path} has {sizes} of a response to {beginning(prompt)}", FIX_EXACT
            )


def _sample(row: dict[str, Any]) -> Sample:
    return Sample(
        text=row["response"],
        token_ids=as_tuple(row["response_token_ids"]),
        logprobs=as_tuple(row["response_logprobs"]),
        finish_reason=row["finish_reason"] or "stop",
    )
