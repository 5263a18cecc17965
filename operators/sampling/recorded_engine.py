"""An engine that samples nothing: it returns the responses of an earlier run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import EngineError
from .protocol import Failure, Group, Prompt, Sample, Settings
from .recording import BLOCK, FIX_EXACT, Recording, as_tuple, beginning

_EXACT = ("prompt_token_ids", "response_token_ids", "response_logprobs")


class RecordedEngine:
    """Returns responses from a table with one row each: the export of an earlier run, or your own.

    Args:
        path: of the recording. Columns `prompt` and `response` are required; the other columns that
            sampling writes are used if present.
        exact: require token ids and log-probabilities of each response that is returned.

    Raises:
        EngineError: there is no such file, or a column is missing or has another type.
    """

    def __init__(self, path: str | Path, *, exact: bool) -> None:
        self._path, self._exact = path, exact
        self._recording = Recording(path, ["response"], _EXACT, wants_exact=exact)

    def sample(
        self, prompts: Iterable[Prompt | None], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        """The recorded responses.

        Raises:
            EngineError: they were sampled with other settings, come from several policies, or lack
                what `exact` requires.
        """
        for (index, prompt), found in self._recording.rows_of(prompts, settings):
            yield index, found if isinstance(found, Failure) else self._group(prompt, found)

    def capacity(self, settings: Settings) -> int:
        return BLOCK

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
