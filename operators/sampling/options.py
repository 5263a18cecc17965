"""Options of engines, as recipes give them. Their docstrings document the recipe's fields."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import (
    Field,
    PositiveInt,
)

from ..servers.options import DialectServer, Options

Dtype = Literal["float32", "bfloat16", "float16"]


class TransformersOptions(Options):
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


class VllmOptions(Options):
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


class RecordedOptions(Options):
    """Options of the `recorded` engine."""

    path: str | None = None
    """A Parquet, Arrow or JSON Lines file, or a folder of them, with one row for each response: the
    export of a recipe that ends with its sampling step, or your own file. The first `n` responses
    to a prompt are taken. Columns `prompt` and `response` are required, with `on_policy: true`
    also `prompt_token_ids`, `response_token_ids` and `response_logprobs`."""
