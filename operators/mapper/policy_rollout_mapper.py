"""Sample responses from a policy: one row per prompt becomes one row per response."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import Self

from ..chats import check_chats
from ..columns import ROW_CONTRACT, content_ids, flat, of_task
from ..errors import DataError
from ..first_failures import FirstFailures
from ..groups import Array, Groups
from ..operator import Change, Columns, ResumableOperator, Scope
from ..sampling.engines import (
    EngineName,
    EngineSpec,
    cache_key_state,
    decoded_prompt,
    open_engine,
    preflight,
    release,
    rendered_chat,
)
from ..sampling.options import OpenAIOptions, RecordedOptions, TransformersOptions, VllmOptions
from ..sampling.protocol import Failure, Group, Prompt, Settings
from ..sampling.seeds import prompt_seeds

_first_failures = FirstFailures(logging.getLogger(__name__).warning)
_WRITTEN = (
    "response_id", "response", "finish_reason", "prompt_token_ids", "response_token_ids",
    "response_logprobs", "policy", "policy_version", "sampling",
)  # fmt: skip


class PolicyRolloutMapper(ResumableOperator):
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

    engine: EngineName = "transformers"
    """`transformers`: in processes of this machine. `openai`: any server with OpenAI's API, such as
    vLLM. `vllm`: vLLM on this machine's GPUs. `recorded`: the responses of an earlier run."""
    model: str = "embedded"
    """The policy: a folder or hub name; with `openai`, its name on the server. `embedded` is the
    small policy that comes with rejuice. Not used by `recorded`."""
    policy_version: NonNegativeInt = 0
    """Version of the weights. Raise it when the weights behind a server's name change, so that
    responses are sampled again; changes in a folder are detected automatically."""
    n: PositiveInt = 8
    """Responses to each prompt."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """1 samples from the policy itself; 0 takes the most probable token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample among the most probable tokens with this probability mass; 1 excludes none."""
    max_tokens: PositiveInt = 1024
    """Longest response, in tokens."""
    seed: int = 0
    """Another seed gives other samples."""
    task: Literal["generate", "verify"] | None = None
    """Sample only rows of this task: `verify` for the prompts that `self_verification_mapper`
    makes. Null: all rows; the column `task` is then not read."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """Further arguments of the chat template, such as `{enable_thinking: false}` for Qwen3."""
    on_policy: bool = True
    """Raise an error if the engine gives no token ids and log-probabilities, or if `temperature`
    or `top_p` change the distribution of the policy. Set it to false for evaluation."""
    transformers: TransformersOptions = TransformersOptions()
    """Options of that engine."""
    openai: OpenAIOptions = OpenAIOptions()
    """Options of that engine."""
    vllm: VllmOptions = VllmOptions()
    """Options of that engine."""
    recorded: RecordedOptions = RecordedOptions()
    """Options of that engine."""

    scope: ClassVar[Scope] = Scope.GROUP  # To detect prompts that occur twice.
    code: ClassVar[str | None] = "1"
    reasons: ClassVar[Mapping[str, str]] = {
        "no_prompt": "the prompt is null or empty, or a message lacks its role or content",
        "repeated_prompt": "the previous row has the same prompt_id: each prompt must be one row",
        "already_sampled": "the row belongs to the `task` to sample, but already has a response",
        "prompt_too_long": "the prompt leaves no room for a response in the policy's context",
        "template_refused": "the chat template refuses the messages",
        "not_recorded": "the recording does not contain the prompt",
        "request_refused": "the server refuses the request, such as a prompt that is too long",
        "content_refused": "the server's content filter, or a refusal instead of a response",
        "too_few_samples": "fewer than n responses came back, or were recorded",
        "bad_response": "the server's answers could not be read",
        "rate_limited": "the server was too busy at every attempt",
        "server_error": "the server failed at every attempt",
        "timeout": "the server took too long at every attempt",
        "connection_lost": "the connection broke at every attempt",
    }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.on_policy and (self.temperature, self.top_p) != (1, 1):
            raise ValueError("on_policy needs temperature: 1 and top_p: 1; or set on_policy: false")
        if self.temperature == 0 and self.n > 1:
            raise ValueError("temperature: 0 always gives the same response: it needs n: 1")
        if self.engine == "openai" and self.model == "embedded" and self.openai.tokenizer is None:
            raise ValueError(
                "engine openai needs model, its name on the server; where that is 'embedded', set "
                "openai: {tokenizer: embedded} too"
            )
        if self.engine == "recorded" and self.recorded.path is None:
            raise ValueError(
                "engine recorded needs recorded: {path: …}, the responses of an earlier run"
            )
        return self

    def reads(self) -> Columns:
        # Rows that pass unchanged keep their values of the written columns.
        passing = () if self.task is None else ("task", *_WRITTEN)
        return ("prompt_id", "prompt", *passing)

    def writes(self) -> Columns:
        return _WRITTEN

    def cache_key_fields(self) -> Mapping[str, Any]:
        # Without a task the field is left out, so that samples of versions without tasks are found.
        unset = {"task"} if self.task is None else set[str]()
        fields = self.model_dump(mode="json", exclude={*get_args(EngineName), *unset})
        return {**fields, **cache_key_state(self._engine_spec())}

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None:
            return {"the policy sees a message": rendered_chat(self._engine_spec(), "{prompt}")}
        ids = row.get("prompt_token_ids")
        return {} if ids is None else {"the policy saw": decoded_prompt(self._engine_spec(), ids)}

    def apply(self, table: pa.Table) -> Change:
        passed = self._passed(
            table
        )  # First, so that no samples are paid for if these columns are invalid.
        found = dict(self._sampled(table, range(table.num_rows)))
        results = [found[row] for row in range(table.num_rows)]
        passing = np.array([row for row, each in enumerate(results) if each is None], np.int64)
        return _with_rows(self._change(table["prompt_id"], results), passed, passing)

    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        prompt_ids, passed = table["prompt_id"], self._passed(table)
        for row, found in self._sampled(table, rows):
            if found is None:
                yield row, _unchanged(passed, row)
            else:
                yield row, self._change(prompt_ids.slice(row, 1), [found])

    def preflight(self) -> None:
        preflight(self._engine_spec())

    def has_results(self) -> bool:
        return self.engine == "recorded"

    def close(self) -> None:
        release(self._engine_spec())
        _first_failures.clear()

    def _engine_spec(self) -> EngineSpec:
        options = getattr(self, self.engine)
        kwargs = self.chat_template_kwargs
        return EngineSpec(self.model, self.policy_version, self.on_policy, kwargs, options)

    def _passed(self, table: pa.Table) -> dict[str, pa.Array]:
        """The input values of the written columns; empty if no row passes unchanged."""
        return {} if self.task is None else {name: _as_written(table, name) for name in _WRITTEN}

    def _sampled(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, Group | Failure | None]]:
        """The result of each of these rows, as they finish; None: it passes unchanged."""
        check_chats(table["prompt"])
        is_prompt_N = self._is_prompt(table)
        yield from ((row, None) for row in rows if not is_prompt_N[row])
        places, prompts = list[int](), list[Prompt]()
        for row, prompt in self._prompts(table, [row for row in rows if is_prompt_N[row]]):
            if isinstance(prompt, Failure):
                yield row, prompt
            else:
                places.append(row)
                prompts.append(prompt)
        if prompts:
            settings = Settings(self.n, self.temperature, self.top_p, self.max_tokens)
            for index, found in open_engine(self._engine_spec()).sample(prompts, settings):
                if isinstance(found, Failure):
                    message = f"a prompt failed with {found.reason}: {found.detail}"
                    _first_failures.report(found.reason, message)
                yield places[index], found

    def _is_prompt(self, table: pa.Table) -> Array:
        """Which rows are prompts to sample from, bool[N]."""
        if self.task is None:
            return np.ones(table.num_rows, bool)
        return of_task(table, self.task)

    def _prompts(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, Prompt | Failure]]:
        """The prompt of each of these rows, or why there is none."""
        repeated_N = Groups.of(table).position() > 0
        sampled_N = np.zeros(table.num_rows, bool)
        if self.task is not None:
            sampled_N = np.asarray(table["response"].is_valid())
        seeds_N = prompt_seeds(table["prompt_id"], self.seed)
        chosen = table["prompt"].take(pa.array(rows, pa.int64())).to_pylist()
        for row, messages in zip(rows, chosen, strict=True):
            chat = tuple((each["role"], each["content"]) for each in messages or () if each)
            if sampled_N[row]:
                yield row, Failure("already_sampled", "")
            elif repeated_N[row]:
                yield row, Failure("repeated_prompt", "")
            elif not chat or len(chat) < len(messages) or None in chain.from_iterable(chat):
                yield row, Failure("no_prompt", "")
            else:
                yield row, Prompt(chat, int(seeds_N[row]))

    def _change(
        self, prompt_ids: pa.ChunkedArray, found: Sequence[Group | Failure | None]
    ) -> Change:
        """The change to rows with these results, without the rows that pass unchanged."""
        samples = [
            (row, k, group, sample)
            for row, group in enumerate(found)
            if isinstance(group, Group)
            for k, sample in enumerate(group.samples)
        ]
        ids = prompt_ids.to_pylist()
        parts = ((ids[row], str(k), sample.text) for row, k, _, sample in samples)
        columns = {
            "response_id": content_ids(parts),
            **_column("response", (sample.text for *_, sample in samples)),
            **_column("finish_reason", (sample.finish_reason for *_, sample in samples)),
            **_column("prompt_token_ids", (group.prompt_token_ids for *_, group, _ in samples)),
            **_column("response_token_ids", (sample.token_ids for *_, sample in samples)),
            **_column("response_logprobs", (sample.logprobs for *_, sample in samples)),
            **_column("policy", (group.policy for *_, group, _ in samples)),
            **_column("policy_version", (group.version for *_, group, _ in samples)),
            **_column("sampling", (self._sampling(group) for *_, group, _ in samples)),
        }
        reasons = [each.reason if isinstance(each, Failure) else None for each in found]
        parents = np.array([row for row, *_ in samples], np.int64)
        return Change(columns, pa.array(reasons, pa.string()), parents)

    def _sampling(self, group: Group) -> dict[str, float] | None:
        if group.seed is None:
            return None  # If the seed is unknown, so are the other sampling parameters.
        settings = (self.temperature, self.top_p, self.max_tokens, group.seed)
        return dict(zip(("temperature", "top_p", "max_tokens", "seed"), settings, strict=True))


def _as_written(table: pa.Table, name: str) -> pa.Array:
    """An input column, cast to the type in which it is written.

    Raises:
        DataError: it has an incompatible type.
    """
    column, kind = flat(table[name]), ROW_CONTRACT[name]
    bad = DataError(f"column '{name}' is {column.type}", f"it must be {kind}")
    fields = column.type if pa.types.is_struct(column.type) else ()
    if pa.types.is_struct(kind) and any(kind.get_field_index(field.name) < 0 for field in fields):
        raise bad  # A cast would lose the field.
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise bad from None


def _with_rows(change: Change, passed: Mapping[str, pa.Array], rows: Array) -> Change:
    """The change, extended by `rows`, which keep their values in `passed`."""
    if len(rows) == 0:
        return change
    parents = np.concatenate([change.parents, rows])
    order = np.argsort(parents, kind="stable")
    columns = {
        name: pa.concat_arrays([column, passed[name].take(pa.array(rows))]).take(pa.array(order))
        for name, column in change.columns.items()
    }
    return change._replace(columns=columns, parents=parents[order])


def _unchanged(passed: Mapping[str, pa.Array], row: int) -> Change:
    """The change to a single row, which keeps its values in `passed`."""
    columns = {name: column.slice(row, 1) for name, column in passed.items()}
    return Change(columns, pa.nulls(1, pa.string()), np.zeros(1, np.int64))


def _column(name: str, values: Iterable[Any]) -> dict[str, pa.Array]:
    return {name: pa.array(list(values), ROW_CONTRACT[name])}
