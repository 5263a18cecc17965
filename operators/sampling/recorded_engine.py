"""The engine that samples nothing: it gives back what an earlier run sampled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import EngineError
from .protocol import Failure, Group, Prompt, Sample, Settings

_NEEDED = ("prompt", "response")
_KEPT = (
    "finish_reason", "prompt_token_ids", "response_token_ids", "response_logprobs", "policy",
    "policy_version", "sampling",
)  # fmt: skip
_Messages = tuple[tuple[str, str], ...]


class RecordedEngine:
    """Responses of a table that has one row for each: the export of an earlier run, or your own.

    The first n responses to a prompt are given, found by its messages, in the order of the rows.

    Args:
        path: a Parquet, Arrow or JSON Lines file, or a folder of them. Columns `prompt` and
            `response` must be there; of the other columns that sampling writes, those that are.
        exact: token ids and log-probabilities must be there too.

    Raises:
        EngineError: there is no such file, or a column is missing.
    """

    def __init__(self, path: str | Path, *, exact: bool) -> None:
        self._path = path
        table = _read(Path(path))
        self._check(table, [*_NEEDED, *(_KEPT[1:4] if exact else ())])
        self._table = table.select([n for n in (*_NEEDED, *_KEPT) if n in table.column_names])
        self._rows_of = defaultdict[_Messages, list[int]](list)
        for row, messages in enumerate(table["prompt"].to_pylist()):
            chat = tuple((each["role"], each["content"]) for each in messages or ())
            self._rows_of[chat].append(row)

    def sample(
        self, prompts: Sequence[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        """The responses that were recorded.

        Raises:
            EngineError: they were sampled with other settings.
        """
        for index, prompt in enumerate(prompts):
            rows = self._rows_of.get(prompt.messages, [])
            if not rows:
                yield index, Failure("not_recorded", f"{self._path} does not have the prompt")
            elif len(rows) < settings.n:
                said = f"{len(rows)} of {settings.n} responses were recorded"
                yield index, Failure("too_few_samples", said)
            else:
                yield index, self._group(rows[: settings.n], settings)

    def close(self) -> None:
        """Nothing is held."""

    def _check(self, table: pa.Table, names: Sequence[str]) -> None:
        for name in names:
            if name not in table.column_names:
                right = "name the export of a run that sampled"
                raise EngineError(f"{self._path} has no column '{name}'", right)

    def _group(self, numbers: Sequence[int], settings: Settings) -> Group:
        rows = self._table.take(pa.array(numbers)).to_pylist()
        for row in rows:
            self._same_settings(row.get("sampling"), settings)
        first = rows[0]
        return Group(
            policy=first.get("policy") or "recorded",
            version=first.get("policy_version") or 0,
            seed=(first.get("sampling") or {}).get("seed"),
            prompt_token_ids=_tuple(first.get("prompt_token_ids")),
            samples=tuple(_sample(row) for row in rows),
        )

    def _same_settings(self, sampled: dict[str, Any] | None, settings: Settings) -> None:
        for name in ("temperature", "top_p", "max_tokens") if sampled else ():
            was, wanted = (sampled or {}).get(name), getattr(settings, name)
            if was is not None and was != wanted:
                raise EngineError(
                    f"{self._path} was sampled with {name}: {was:g}", f"not with {wanted:g}"
                )


def _sample(row: dict[str, Any]) -> Sample:
    return Sample(
        text=row["response"] or "",
        token_ids=_tuple(row.get("response_token_ids")),
        logprobs=_tuple(row.get("response_logprobs")),
        finish_reason=row.get("finish_reason") or "stop",
    )


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _read(path: Path) -> pa.Table:
    from pyarrow import dataset  # It brings clients of object stores along: not for `check`.

    kinds = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json"}
    first = next((p for p in sorted(path.glob("*")) if p.suffix in kinds), path)
    kind = kinds.get(first.suffix)
    if kind is None:
        raise EngineError(f"{path} has no known format", f"end it in {', '.join(kinds)}")
    try:
        return dataset.dataset(path, format=kind).to_table()
    except FileNotFoundError:
        raise EngineError(f"{path} does not exist", "name the export of a run") from None
    except pa.ArrowInvalid as error:
        raise EngineError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
