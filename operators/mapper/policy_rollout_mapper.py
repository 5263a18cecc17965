"""Sample responses from a policy: one row per prompt becomes one row per response."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import Self

from ..columns import ROW_CONTRACT, content_ids
from ..errors import EngineError
from ..groups import Array, Groups, hash_each
from ..operator import Change, Columns, Scope, StreamOperator
from ..sampling.engines import (
    EngineName,
    chat_as_seen,
    prompt_as_seen,
    release,
    sampler,
    state_of,
)
from ..sampling.options import OpenAIOptions, TransformersOptions, VllmOptions
from ..sampling.protocol import Failure, Group, Prompt, Settings

_MANY = 16
_log = logging.getLogger(__name__)
_SEEDS = 2**62
_WRITTEN = (
    "response_id", "response", "finish_reason", "prompt_token_ids", "response_token_ids",
    "response_logprobs", "policy", "policy_version", "sampling",
)  # fmt: skip


class PolicyRolloutMapper(StreamOperator):
    """Sample `n` responses to each prompt, with all that on-policy training needs about each.

    `prompt_token_ids` and `response_token_ids` are the tokens as they were sampled, never tokenised
    again from text; `response_logprobs` is the log-probability of each under the policy;
    `finish_reason` is `stop` or `length`; `policy` and `policy_version` say whose they are;
    `sampling` holds temperature, top_p, max_tokens and the seed of the prompt.

    Samples are decided by `seed` and `prompt_id`, whatever else is sampled beside them. Groups are
    committed as they finish: a run that was stopped goes on where it was, and no prompt is sampled
    twice. A prompt that keeps failing is dropped for a reason; a server that is gone ends the run.
    """

    engine: EngineName = "transformers"
    """`transformers`: in processes of this machine. `openai`: any server with OpenAI's API, such as
    vLLM. `vllm`: vLLM on this machine's GPUs. `recorded`: what an earlier run sampled."""
    model: str = "embedded"
    """The policy: a folder or hub name; with `openai` its name on the server, with `recorded` the
    file of an earlier run. `embedded` is the small policy that comes with rejuice."""
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
    on_policy: bool = True
    """Stop with an error where the engine gives no token ids and log-probabilities, or where
    `temperature` or `top_p` make the samples another policy's. `false` is for evaluation."""
    transformers: TransformersOptions = TransformersOptions()
    """Options of that engine."""
    openai: OpenAIOptions = OpenAIOptions()
    """Options of that engine."""
    vllm: VllmOptions = VllmOptions()
    """Options of that engine."""

    scope: ClassVar[Scope] = Scope.GROUP  # To see a prompt that is there twice.
    reasons: ClassVar[Mapping[str, str]] = {
        "no_prompt": "the prompt is null or has no messages",
        "repeated_prompt": "the row before has the same prompt_id: one row is one prompt",
        "prompt_too_long": "prompt and response do not fit into the policy's context",
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
    def _is_on_policy(self) -> Self:
        if self.on_policy and (self.temperature, self.top_p) != (1, 1):
            raise ValueError("on_policy needs temperature: 1 and top_p: 1")
        if self.engine == "openai" and self.model == "embedded" and self.openai.tokenizer is None:
            raise ValueError("engine openai needs model, its name on the server")
        return self

    def reads(self) -> Columns:
        return ("prompt_id", "prompt")

    def writes(self) -> Columns:
        return _WRITTEN

    def identity(self) -> Mapping[str, Any]:
        fields = self.model_dump(mode="json", exclude={"transformers", "openai", "vllm"})
        return {**fields, **state_of(self)}

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None:
            return {"the policy sees": chat_as_seen(self, "{prompt}")}
        ids = row.get("prompt_token_ids")
        return {} if ids is None else {"the policy saw": prompt_as_seen(self, ids)}

    def apply(self, table: pa.Table) -> Change:
        found = dict(self._sampled(table, range(table.num_rows)))
        return self._change(table["prompt_id"], [found[row] for row in range(table.num_rows)])

    def stream(self, table: pa.Table, rows: Sequence[int]) -> Iterator[tuple[int, Change]]:
        prompt_ids = table["prompt_id"]
        for row, found in self._sampled(table, rows):
            yield row, self._change(prompt_ids.slice(row, 1), [found])

    def close(self) -> None:
        release(self)

    def _sampled(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[tuple[int, Group | Failure]]:
        """What became of each of these rows, as they finish."""
        places, prompts = list[int](), list[Prompt]()
        repeated_N = Groups.of(table).position() > 0
        seeds_N = hash_each(table["prompt_id"], seed=self.seed & 0xFFFFFFFFFFFFFFFF) % _SEEDS
        for row in rows:
            messages = table["prompt"][row].as_py()
            if repeated_N[row]:
                yield row, Failure("repeated_prompt", "")
            elif not messages:
                yield row, Failure("no_prompt", "")
            else:
                chat = tuple((each["role"], each["content"]) for each in messages)
                places.append(row)
                prompts.append(Prompt(chat, int(seeds_N[row])))
        if prompts:
            settings = Settings(self.n, self.temperature, self.top_p, self.max_tokens)
            results = _watched(sampler(self).sample(prompts, settings), table.num_rows)
            yield from ((places[index], found) for index, found in results)

    def _change(self, prompt_ids: pa.ChunkedArray, found: Sequence[Group | Failure]) -> Change:
        """The change to rows of which this became."""
        groups = [(row, each) for row, each in enumerate(found) if isinstance(each, Group)]
        parents = np.array([row for row, group in groups for _ in group.samples], np.int64)
        samples = [sample for _, group in groups for sample in group.samples]
        sizes = [len(group.samples) for _, group in groups]
        ids = prompt_ids.take(pa.array(parents)).to_pylist()
        index = chain.from_iterable(range(size) for size in sizes)
        texts = [sample.text for sample in samples]
        columns = {
            "response_id": content_ids(zip(ids, map(str, index), texts, strict=True)),
            "response": pa.array(texts, pa.string()),
            "finish_reason": pa.array([sample.finish_reason for sample in samples], pa.string()),
            "response_token_ids": _lists("response_token_ids", [s.token_ids for s in samples]),
            "response_logprobs": _lists("response_logprobs", [s.logprobs for s in samples]),
            **self._provenance([group for _, group in groups], sizes),
        }
        reasons = [each.reason if isinstance(each, Failure) else None for each in found]
        return Change(columns, pa.array(reasons, pa.string()), parents)

    def _provenance(self, groups: Sequence[Group], sizes: Sequence[int]) -> dict[str, pa.Array]:
        """The columns that are the same for all samples of a group."""
        of = pa.array(np.repeat(np.arange(len(groups)), sizes))
        n = len(groups)
        sampling = {
            "temperature": pa.array(np.full(n, self.temperature)),
            "top_p": pa.array(np.full(n, self.top_p)),
            "max_tokens": pa.array(np.full(n, self.max_tokens)),
            "seed": pa.array([group.seed for group in groups], pa.int64()),
        }
        columns = {
            "prompt_token_ids": _lists("prompt_token_ids", [g.prompt_token_ids for g in groups]),
            "policy": pa.array([group.policy for group in groups], pa.string()),
            "policy_version": pa.array([group.version for group in groups], pa.int64()),
            "sampling": pa.StructArray.from_arrays(list(sampling.values()), names=list(sampling)),
        }
        return {name: column.take(of) for name, column in columns.items()}


def _lists(name: str, rows: Sequence[Sequence[float] | None]) -> pa.Array:
    """A column of lists; of numpy, which is ten times faster than of Python's lists."""
    kind = ROW_CONTRACT[name]
    sizes = [0 if row is None else len(row) for row in rows]
    flat: Array = np.fromiter(
        chain.from_iterable(row for row in rows if row is not None),
        kind.value_type.to_pandas_dtype(),
        sum(sizes),
    )
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    absent = pa.array([row is None for row in rows], pa.bool_())
    return pa.ListArray.from_arrays(offsets, pa.array(flat), type=kind, mask=absent)


def _watched(
    results: Iterator[tuple[int, Group | Failure]], prompts: int
) -> Iterator[tuple[int, Group | Failure]]:
    """The same results; of each kind of failure, the first is told in a warning.

    Raises:
        EngineError: all of many prompts failed, so it is not the prompts.
    """
    seen: Counter[str] = Counter()
    for index, found in results:
        if isinstance(found, Failure):
            seen[found.reason] += 1
            if seen[found.reason] == 1:
                _log.warning("a prompt failed with %s: %s", found.reason, found.detail)
            if seen.total() == prompts >= _MANY:
                said = f"all {prompts} prompts failed, the last one with {found.reason}"
                raise EngineError(f"{said}: {found.detail}")
        yield index, found
