"""Sample responses from a policy: one row per prompt becomes one row per response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from ..chats import check_chats
from ..chunk_results import KnownResult, ToCompute, results_of_chunks
from ..columns import ROW_CONTRACT, flat, of_task
from ..errors import DataError
from ..groups import Array
from ..operator import Change, Columns, RowsOfChunk, concatenate
from ..sampling.engines import decoded_prompt, open_engine, rendered_chat
from ..sampling.protocol import Failure, Group, Prompt, Settings
from ..sampling.rollout import RolloutMapper, column_of

_WRITTEN = (
    "response_id", "response", "finish_reason", "prompt_token_ids", "response_token_ids",
    "response_logprobs", "policy", "policy_version", "sampling",
)  # fmt: skip
_PromptResult: TypeAlias = Group | Failure | Change
"""What was sampled, why nothing was, or that nothing is to be."""
_PromptOrKnown: TypeAlias = ToCompute[Prompt] | KnownResult[_PromptResult]


class PolicyRolloutMapper(RolloutMapper):
    """Sample `n` responses to each prompt, with everything that on-policy training needs.

    `prompt_token_ids` and `response_token_ids` are the tokens as they were sampled, never tokenised
    again from text; `response_logprobs` is the log-probability of each under the policy;
    `finish_reason` is `stop` or `length`; `policy` and `policy_version` identify the policy;
    `sampling` contains temperature, top_p, max_tokens and the seed of the prompt.

    Samples are determined by `seed` and `prompt_id`, whatever else is sampled in the same batch.
    Groups are committed as they finish: an interrupted run resumes where it stopped, and no prompt
    is sampled twice. A prompt that fails repeatedly is dropped with a reason; a server that stays
    down ends the run.

    With `task`, only rows of that task are prompts, and other rows pass unchanged. So the responses
    of a first sampling and the verification prompts made from them can be in one table.
    """

    task: Literal["generate", "verify"] | None = None
    """Sample only rows of this task: `verify` for the prompts that `self_verification_mapper`
    makes. Null: all rows; the column `task` is then not read."""

    code: ClassVar[str | None] = "1"
    reasons: ClassVar[Mapping[str, str]] = {
        **RolloutMapper.reasons,
        "already_sampled": "the row belongs to the `task` to sample, but already has a response",
    }

    def reads(self) -> Columns:
        # Rows that pass unchanged keep their values of the written columns.
        passing = () if self.task is None else ("task", *_WRITTEN)
        return ("prompt_id", "prompt", *passing)

    def writes(self) -> Columns:
        return _WRITTEN

    def cache_key_fields(self) -> Mapping[str, Any]:
        # Without a task the field is left out, so that samples of versions without tasks are found.
        fields = super().cache_key_fields()
        return {k: v for k, v in fields.items() if k != "task" or v is not None}

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None:
            chat = (("user", "{prompt}"),)
            return {"the policy sees a message": rendered_chat(self._engine_spec(), chat)}
        ids = row.get("prompt_token_ids")
        return {} if ids is None else {"the policy saw": decoded_prompt(self._engine_spec(), ids)}

    def apply(self, table: pa.Table) -> Change:
        if table.num_rows == 0:
            return self._change(table["prompt_id"], [])
        found = dict(self.process_rows(table, range(table.num_rows)))
        change = concatenate([found[row] for row in range(table.num_rows)], [1] * table.num_rows)
        columns = {name: flat(column) for name, column in change.columns.items()}
        return change._replace(columns=columns)

    def process_chunks(self, chunks: Iterator[RowsOfChunk]) -> Iterator[tuple[int, int, Change]]:
        results = results_of_chunks(chunks, self._prompts_or_changes, self._sample)
        for number, (table, (row,)), found in results:
            if not isinstance(found, Change):
                found = self._change(table["prompt_id"].slice(row, 1), [found])
            yield number, row, found

    def _prompts_or_changes(self, table: pa.Table, rows: Sequence[int]) -> Iterator[_PromptOrKnown]:
        # First, so that no samples are paid for if these columns are invalid.
        written = () if self.task is None else _WRITTEN
        passed = {name: _as_written(table, name) for name in written}
        check_chats(table["prompt"])
        is_prompt_N = self._is_prompt(table)
        for row in (row for row in rows if not is_prompt_N[row]):
            columns = {name: column.slice(row, 1) for name, column in passed.items()}
            unchanged = Change(columns, pa.nulls(1, pa.string()), np.zeros(1, np.int64))
            yield KnownResult([row], unchanged)
        for row, prompt in self.prompts_of(table, [row for row in rows if is_prompt_N[row]]):
            if isinstance(prompt, Failure):
                yield KnownResult([row], prompt)
            else:
                yield ToCompute([row], prompt)

    def _sample(self, prompts: Iterable[Prompt]) -> Iterator[tuple[int, _PromptResult]]:
        settings = Settings(self.n, self.temperature, self.top_p, self.max_tokens)
        return self._reported(open_engine(self._engine_spec()).sample(prompts, settings))

    def _is_prompt(self, table: pa.Table) -> Array:
        if self.task is None:
            return np.ones(table.num_rows, bool)
        return of_task(table, self.task)

    def findable(self, table: pa.Table, rows: Sequence[int]) -> Sequence[int]:
        # Rows of other tasks pass, and several of them may be of one prompt.
        found, is_prompt_N = {*super().findable(table, rows)}, self._is_prompt(table)
        return [row for row in rows if row in found or not is_prompt_N[row]]

    def prompts_of(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, Prompt | Failure]]:
        sampled_N = np.zeros(table.num_rows, bool)
        if self.task is not None:
            sampled_N = np.asarray(table["response"].is_valid())
        for row, prompt in super().prompts_of(table, rows):
            yield row, Failure("already_sampled", "") if sampled_N[row] else prompt

    def _change(self, prompt_ids: pa.ChunkedArray, found: Sequence[Group | Failure]) -> Change:
        groups = [(row, group) for row, group in enumerate(found) if isinstance(group, Group)]
        samples = [(group, sample) for _, group in groups for sample in group.samples]
        columns = {
            **column_of("response", (sample.text for _, sample in samples)),
            **column_of("finish_reason", (sample.finish_reason for _, sample in samples)),
            **column_of("prompt_token_ids", (group.prompt_token_ids for group, _ in samples)),
            **column_of("response_token_ids", (sample.token_ids for _, sample in samples)),
            **column_of("response_logprobs", (sample.logprobs for _, sample in samples)),
        }
        sources = [(row, k, group) for row, group in groups for k in range(len(group.samples))]
        return self._change_of(prompt_ids, found, sources, columns)


def _as_written(table: pa.Table, name: str) -> pa.Array:
    """An input column in the type in which it is written; a DataError if that is incompatible."""
    column, kind = flat(table[name]), ROW_CONTRACT[name]
    bad = DataError(f"column '{name}' is {column.type}", f"it must be {kind}")
    fields = column.type if pa.types.is_struct(column.type) else ()
    if pa.types.is_struct(kind) and any(kind.get_field_index(field.name) < 0 for field in fields):
        raise bad  # A cast would lose the field.
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise bad from None
