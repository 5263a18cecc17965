"""The protocol of sampling engines: prompts in, groups of samples out, as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from ..config import Config
from ..groups import Array, hash_each, mix
from ..servers.options import DialectServer

# --- Token count, for whoever shows progress ------------------------------------------

TokenListener: TypeAlias = Callable[[int], None]
"""Called with numbers of tokens that have been sampled since the last call."""

_listener: ContextVar[TokenListener] = ContextVar("token_listener", default=lambda _: None)


def token_listener() -> TokenListener:
    """The listener of the thread that iterates over `Engine.sample`; at least one that ignores."""
    return _listener.get()


@contextmanager
def listening(listener: TokenListener) -> Iterator[None]:
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


# --- Seeds of responses, offline and in training --------------------------------------
# Samples that are already paid for are found by them: another formula would sample them again.

_STEP_STRIDE = 0x9E3779B97F4A7C15
_SEEDS = 2**62
_WORD = 2**64 - 1


def prompt_seeds(prompt_ids: pa.ChunkedArray | pa.Array, seed: int, step: int = 0) -> Array:
    """The seed of each prompt's samples, uint64[N] in [0, 2**62)."""
    return hash_each(prompt_ids, seed=(seed + step * _STEP_STRIDE) & _WORD) % _SEEDS


def prompt_seed(prompt_id: str, seed: int, step: int) -> int:
    return int(prompt_seeds(pa.array([prompt_id], pa.string()), seed, step)[0])


def turn_seed(seed: int, index: int, turn: int) -> int:
    """The seed of a turn of a trajectory, in [0, 2**62)."""
    mixed = np.array([seed], np.uint64)
    for part in (index, turn):
        mixed = mix(mix(mixed) + np.uint64(part + 1))
    return int(mixed[0]) % _SEEDS


# --- Prompts, samples and engines -----------------------------------------------------


class Prompt(NamedTuple):
    """One prompt to sample responses to."""

    # the chat, as (role, content) pairs; the engine applies the chat template once
    messages: tuple[tuple[str, str], ...]
    seed: int  # in [0, 2**62); determines the samples of this prompt, whatever else is in the batch
    # int[P], the prompt as it is sampled from, exactly; None: the engine applies the chat template
    # to `messages`
    token_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None  # longest response to this prompt; None: that of the settings


class Settings(NamedTuple):
    """Sampling parameters."""

    n: int = 8  # responses per prompt
    # 1.0 samples from the policy itself, which is what on-policy training needs
    temperature: float = 1.0
    top_p: float = 1.0  # 1.0 truncates nothing
    max_tokens: int = 1024  # longest response, in tokens

    def of(self, prompt: Prompt) -> Settings:
        """Those for one prompt, which may have a lower `max_tokens` of its own."""
        if prompt.max_tokens is None:
            return self
        return self._replace(max_tokens=min(self.max_tokens, prompt.max_tokens))


class Sample(NamedTuple):
    """One response, exactly as it was sampled."""

    text: str  # the decoded response, without the special token that ends it
    # int[T], including the end-of-sequence token if one was sampled; None if the engine does not
    # report them
    token_ids: tuple[int, ...] | None
    # float[T], log-probability of each sampled token under the policy itself, before temperature
    # and top_p; None if the engine does not report them
    logprobs: tuple[float, ...] | None
    finish_reason: str  # `stop` or `length`


class Group(NamedTuple):
    """The samples of one prompt, and their origin."""

    policy: str  # name of the policy
    version: int  # of its weights
    seed: int | None  # with which they were sampled; None if unknown
    # the prompt as the policy received it; None if the engine does not report it
    prompt_token_ids: tuple[int, ...] | None
    samples: tuple[Sample, ...]  # n of them

    def sampled_tokens(self) -> int:
        """Tokens of all samples, as far as the engine reports them."""
        return sum(len(sample.token_ids or ()) for sample in self.samples)


class Failure(NamedTuple):
    """A prompt that could not be sampled: a slug such as `request_refused`, and the details."""

    reason: str
    detail: str


class Engine(Protocol):
    """A sampling engine: built once, used for many batches, then closed.

    It takes prompts as it becomes free for them, so they need not all exist at the beginning:

    | engine         | how many it takes before it needs a result, `capacity`               |
    |----------------|----------------------------------------------------------------------|
    | `openai`       | `concurrency`, and a quarter more, which wait here for a free slot   |
    | `vllm`         | two for each that vLLM has a slot for: `2 * max_num_seqs / n`        |
    | `transformers` | those that it decodes, `rows / n`, and a block of four times as many |
    | `recorded`     | one                                                                  |
    | in processes   | the sum over the processes, and a quarter more, which wait there     |
    """

    def sample(
        self, prompts: Iterable[Prompt], settings: Settings
    ) -> Iterator[tuple[int, Group | Failure]]:
        """Groups as they finish, each with the index of its prompt; every index exactly once.

        Prompts are taken while this iterator is advanced, in the same thread, and never more than
        `capacity` of them are unfinished. Sampled tokens are reported to `token_listener()`.

        Raises:
            EngineError: the engine itself has failed and gives no further samples.
        """
        ...

    def capacity(self, settings: Settings) -> int:
        """Most prompts that it takes before it has yielded a result of one of them; at least 1."""
        ...

    def close(self) -> None:
        """Release processes, connections and memory. Closing twice is no error."""
        ...


# --- Options of engines, as recipes give them -----------------------------------------
# Their docstrings document the recipe's fields.

Dtype = Literal["float32", "bfloat16", "float16"]


class TransformersOptions(Config):
    """Options of the `transformers` engine."""

    device: str | None = None
    """A device of torch, such as `cuda:0`. Null: a GPU if there is one, else the CPU."""
    dtype: Dtype = "float32"
    """Type of weights and computation. In float32 a sample does not depend on what else is in the
    batch; in the other types, it occasionally does."""
    workers: PositiveInt | None = None
    """Processes, each with a copy of the weights. Null: one for each core; one for two cores where
    the weights take over 1 GiB; or fewer, so that the copies fit in 40% of the free memory; one on
    a GPU."""
    rows: PositiveInt = 512
    """Responses that a process decodes at a time: they bound its memory."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset({"device", "workers", "rows"})


class OpenAIOptions(DialectServer):
    """Options of the `openai` engine: one request asks for all responses to a prompt, or one for
    each."""

    api: Literal["completions", "chat", "generate"] = "completions"
    """Endpoint of the server. `completions` receives token ids: the chat template is applied on
    this side. `chat` leaves that to the server. `generate` is vLLM's own endpoint, which reports
    weight versions."""
    tokenizer: str | None = None
    """Name or folder of the tokenizer whose chat template is applied. Null: that of `model`."""


class VllmOptions(Config):
    """Options of the `vllm` engine."""

    python: str | None = None
    """Interpreter of the environment in which vLLM and this version of rejuice are installed. Null:
    the current one."""
    dtype: Literal["auto"] | Dtype = "auto"
    """Type of weights and computation; `auto` takes that of the weights."""
    tensor_parallel_size: PositiveInt = 1
    """GPUs that share the model."""
    replicas: PositiveInt = 1
    """Processes, each with the whole model on `tensor_parallel_size` GPUs of its own. A process
    gets more prompts as it finishes some; the others sample those of one that dies."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    """Share of a GPU's memory for the weights and the KV cache."""
    max_model_len: PositiveInt | None = None
    """Longest prompt with its response, in tokens. Null: the model's own limit."""
    arguments: dict[str, Any] = Field({})
    """Further arguments of `vllm.LLM`, such as `{enforce_eager: true}`."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset(
        {"python", "gpu_memory_utilization", "replicas"}
    )


class RecordedOptions(Config):
    """Options of the `recorded` engine."""

    path: str | None = None
    """A Parquet, Arrow or JSON Lines file, or a folder of them, with one row for each response: the
    export of a recipe that ends with its sampling step, or your own file. The first `n` responses
    to a prompt are taken. Columns `prompt` and `response` are required, with `on_policy: true`
    also `prompt_token_ids`, `response_token_ids` and `response_logprobs`."""
