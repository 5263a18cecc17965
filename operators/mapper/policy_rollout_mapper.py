"""Sample responses from a policy: one row per prompt becomes one row per response."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import Self

from ..columns import ROW_CONTRACT, content_ids, flat, of_task
from ..errors import DataError
from ..groups import Array, Groups, hash_each
from ..operator import Change, Columns, ResumableOperator, Scope
from ..sampling.engines import (
    Asked,
    EngineName,
    chat_as_seen,
    prompt_as_seen,
    release,
    sampler,
    state_of,
)
from ..sampling.options import OpenAIOptions, RecordedOptions, TransformersOptions, VllmOptions
from ..sampling.protocol import Failure, Group, Prompt, Settings

_log = logging.getLogger(__name__)
_SEEDS = 2**62
_WRITTEN = (
    "response_id", "response", "finish_reason", "prompt_token_ids", "response_token_ids",
    "response_logprobs", "policy", "policy_version", "sampling",
)  # fmt: skip


class PolicyRolloutMapper(ResumableOperator):
    """Sample `n` responses to each prompt, with all that on-policy training needs about each.

    `prompt_token_ids` and `response_token_ids` are the tokens as they were sampled, never tokenised
    again from text; `response_logprobs` is the log-probability of each under the policy;
    `finish_reason` is `stop` or `length`; `policy` and `policy_version` say whose they are;
    `sampling` holds temperature, top_p, max_tokens and the seed of the prompt.

    Samples are decided by `seed` and `prompt_id`, whatever else is sampled beside them. Groups are
    committed as they finish: a run that was stopped goes on where it was, and no prompt is sampled
    twice. A prompt that keeps failing is dropped for a reason; a server that is gone ends the run.

    With `task`, only rows of that task are prompts, and the others pass as they are. So responses
    of a first sampling and the verification prompts that are made of them can stand in one table.
    """

    engine: EngineName = "transformers"
    """`transformers`: in processes of this machine. `openai`: any server with OpenAI's API, such as
    vLLM. `vllm`: vLLM on this machine's GPUs. `recorded`: what an earlier run sampled."""
    model: str = "embedded"
    """The policy: a folder or hub name; with `openai` its name on the server. `embedded` is the
    small policy that comes with rejuice. Not used by `recorded`."""
    policy_version: NonNegativeInt = 0
    """Which weights these are. Raise it when those behind a server's name have changed, and they
    are sampled anew; a change in a folder is seen without."""
    n: PositiveInt = 8
    """Responses to each prompt."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """1 samples from the policy itself; 0 takes the most probable token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample among the most probable tokens that have this much of the mass; 1 leaves none out."""
    max_tokens: PositiveInt = 1024
    """Longest response, in tokens."""
    seed: int = 0
    """Another seed gives other samples."""
    task: Literal["generate", "verify"] | None = None
    """Sample only rows of this task: `verify` for the prompts that `self_verification_mapper`
    makes. Null: all rows; the column `task` is then not read."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """What else the chat template is told, such as `{enable_thinking: false}` for Qwen3."""
    on_policy: bool = True
    """Stop with an error where the engine gives no token ids and log-probabilities, or where
    `temperature` or `top_p` make the samples another policy's. `false` is for evaluation."""
    transformers: TransformersOptions = TransformersOptions()
    """Options of that engine."""
    openai: OpenAIOptions = OpenAIOptions()
    """Options of that engine."""
    vllm: VllmOptions = VllmOptions()
    """Options of that engine."""
    recorded: RecordedOptions = RecordedOptions()
    """Options of that engine."""

    scope: ClassVar[Scope] = Scope.GROUP  # To see a prompt that is there twice.
    code: ClassVar[str | None] = "1"
    reasons: ClassVar[Mapping[str, str]] = {
        "no_prompt": "the prompt is null or empty, or a message lacks its role or content",
        "repeated_prompt": "the row before has the same prompt_id: one row is one prompt",
        "already_sampled": "the row is of the `task` that is to be sampled, and has a response",
        "prompt_too_long": "the prompt leaves no room for a response in the policy's context",
        "template_refused": "the chat template refuses the messages",
        "not_recorded": "the recording does not have the prompt",
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
            raise ValueError("temperature: 0 gives one response time and again: it needs n: 1")
        if self.engine == "openai" and self.model == "embedded" and self.openai.tokenizer is None:
            raise ValueError(
                "engine openai needs model, its name on the server; where that is 'embedded', set "
                "openai: {tokenizer: embedded} too"
            )
        if self.engine == "recorded" and self.recorded.path is None:
            raise ValueError(
                "engine recorded needs recorded: {path: …}, what an earlier run sampled"
            )
        return self

    def reads(self) -> Columns:
        # Rows that pass keep the values of the columns that are written.
        passing = () if self.task is None else ("task", *_WRITTEN)
        return ("prompt_id", "prompt", *passing)

    def writes(self) -> Columns:
        return _WRITTEN

    def cache_key_fields(self) -> Mapping[str, Any]:
        # Without a task nothing is said of it: what was sampled before there were tasks is found.
        unsaid = {"task"} if self.task is None else set[str]()
        fields = self.model_dump(mode="json", exclude={*get_args(EngineName), *unsaid})
        return {**fields, **state_of(self._asked())}

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None:
            return {"the policy sees a message": chat_as_seen(self._asked(), "{prompt}")}
        ids = row.get("prompt_token_ids")
        return {} if ids is None else {"the policy saw": prompt_as_seen(self._asked(), ids)}

    def apply(self, table: pa.Table) -> Change:
        passed = self._passed(table)  # First, so that nothing is paid for where it cannot pass.
        found = dict(self._sampled(table, range(table.num_rows)))
        became = [found[row] for row in range(table.num_rows)]
        passing = np.array([row for row, each in enumerate(became) if each is None], np.int64)
        return _with_rows(self._change(table["prompt_id"], became), passed, passing)

    def process_rows(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        prompt_ids, passed = table["prompt_id"], self._passed(table)
        for row, found in self._sampled(table, rows):
            if found is None:
                yield row, _unchanged(passed, row)
            else:
                yield row, self._change(prompt_ids.slice(row, 1), [found])

    def close(self) -> None:
        release(self._asked())
        _told.clear()

    def _asked(self) -> Asked:
        options = getattr(self, self.engine)
        kwargs = self.chat_template_kwargs
        return Asked(self.model, self.policy_version, self.on_policy, kwargs, options)

    def _passed(self, table: pa.Table) -> dict[str, pa.Array]:
        """The columns that are written, as they come in; none where no row passes."""
        return {} if self.task is None else {name: _as_written(table, name) for name in _WRITTEN}

    def _sampled(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, Group | Failure | None]]:
        """What became of each of these rows, as they finish; None: it passes."""
        _check_prompts(table["prompt"])
        is_prompt_N = self._is_prompt(table)
        yield from ((row, None) for row in rows if not is_prompt_N[row])
        places, prompts = list[int](), list[Prompt]()
        for row, asked in self._prompts(table, [row for row in rows if is_prompt_N[row]]):
            if isinstance(asked, Failure):
                yield row, asked
            else:
                places.append(row)
                prompts.append(asked)
        if prompts:
            settings = Settings(self.n, self.temperature, self.top_p, self.max_tokens)
            for index, found in sampler(self._asked()).sample(prompts, settings):
                if isinstance(found, Failure):
                    _tell(found)
                yield places[index], found

    def _is_prompt(self, table: pa.Table) -> Array:
        """Which rows are to be sampled, bool[N]."""
        if self.task is None:
            return np.ones(table.num_rows, bool)
        return of_task(table, self.task)

    def _prompts(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, Prompt | Failure]]:
        """What is asked for each of these rows, or why nothing can be asked."""
        repeated_N = Groups.of(table).position() > 0
        sampled_N = np.zeros(table.num_rows, bool)
        if self.task is not None:
            sampled_N = np.asarray(table["response"].is_valid())
        seeds_N = hash_each(table["prompt_id"], seed=self.seed & 0xFFFFFFFFFFFFFFFF) % _SEEDS
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
        """The change to rows of which this became, less those that pass."""
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
            return None  # Where nobody knows the seed, nobody knows how it was sampled.
        settings = (self.temperature, self.top_p, self.max_tokens, group.seed)
        return dict(zip(("temperature", "top_p", "max_tokens", "seed"), settings, strict=True))


def _as_written(table: pa.Table, name: str) -> pa.Array:
    """A column that came in, in the type in which it is written.

    Raises:
        DataError: it holds something else.
    """
    column, kind = flat(table[name]), ROW_CONTRACT[name]
    bad = DataError(f"column '{name}' is {column.type}", f"it must be {kind}")
    fields = column.type if pa.types.is_struct(column.type) else ()
    if pa.types.is_struct(kind) and any(kind.get_field_index(field.name) < 0 for field in fields):
        raise bad  # A cast would leave the field out.
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise bad from None


def _with_rows(change: Change, passed: Mapping[str, pa.Array], rows: Array) -> Change:
    """The change, with rows between its own that keep what is in `passed`."""
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
    """The change to a row alone that keeps what is in `passed`."""
    columns = {name: column.slice(row, 1) for name, column in passed.items()}
    return Change(columns, pa.nulls(1, pa.string()), np.zeros(1, np.int64))


def _column(name: str, values: Iterable[Any]) -> dict[str, pa.Array]:
    return {name: pa.array(list(values), ROW_CONTRACT[name])}


def _check_prompts(prompts: pa.ChunkedArray) -> None:
    """Refuse a column that is no chats, or chats of which a part would be lost.

    Raises:
        DataError: it is.
    """
    right = "prompt_template_mapper makes prompts: lists of messages with role and content"
    kind = prompts.type
    if pa.types.is_null(kind):
        return
    if not (_is_list(kind) and pa.types.is_struct(kind.value_type)):
        raise DataError(f"column 'prompt' is {kind}", right)
    messages = pc.list_flatten(prompts)
    for field in kind.value_type:
        if field.name in ("role", "content"):
            if not (_is_text(field.type) or pa.types.is_null(field.type)):
                raise DataError(
                    f"'{field.name}' of the messages in 'prompt' is {field.type}", right
                )
        elif pc.struct_field(messages, field.name).null_count < len(messages):
            raise DataError(
                f"messages in 'prompt' have a '{field.name}', which the policy would not see", right
            )
    for name in ("role", "content"):
        if kind.value_type.get_field_index(name) < 0:
            raise DataError(f"messages in 'prompt' have no '{name}'", right)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_told: set[str] = set()


def _tell(failure: Failure) -> None:
    """The first failure of each kind in full: the books keep only its reason."""
    if failure.reason not in _told:
        _told.add(failure.reason)
        _log.warning("a prompt failed with %s: %s", failure.reason, failure.detail)
