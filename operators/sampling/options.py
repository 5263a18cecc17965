"""Options of engines and scorers, as recipes give them. Their docstrings are the recipe's docs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import (
    Field,
    PositiveInt,
)

from ..openai.options import Options, ServerOptions

Dtype = Literal["float32", "bfloat16", "float16"]


class TransformersOptions(Options):
    """How the `transformers` engine works."""

    device: str | None = None
    """As torch names it, such as `cuda:0`. Null: a GPU where there is one, else the CPU."""
    dtype: Dtype = "float32"
    """Of weights and computation. In float32 a sample is the same whatever is sampled beside it;
    in the others now and then it is not."""
    workers: PositiveInt | None = None
    """Processes. Null: one for each core where the weights are small, else one with all cores; one
    on a GPU."""
    rows: PositiveInt = 512
    """Responses that a process works on at a time: they bound its memory."""

    incidental: ClassVar[frozenset[str]] = frozenset({"device", "workers", "rows"})


class OpenAIOptions(ServerOptions):
    """How the `openai` engine works: one request is for all responses to one prompt."""

    api: Literal["completions", "chat", "generate"] = "completions"
    """Which endpoint of the server. `completions` gets token ids: the chat template is applied
    here. `chat` leaves that to the server. `generate` is vLLM's own, which states weight
    versions."""
    tokenizer: str | None = None
    """Name or folder of the tokenizer whose chat template is applied. Null: that of `model`."""


class VllmOptions(Options):
    """How the `vllm` engine works."""

    python: str | None = None
    """Interpreter of the environment that vLLM and this version of rejuice are installed in. Null:
    this one."""
    dtype: Literal["auto"] | Dtype = "auto"
    """Of weights and computation; `auto` is that of the weights."""
    tensor_parallel_size: PositiveInt = 1
    """GPUs that share the model."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    """Share of a GPU's memory for weights and keys and values."""
    max_model_len: PositiveInt | None = None
    """Longest prompt with its response, in tokens. Null: what the model says."""
    arguments: dict[str, Any] = Field({})
    """Further arguments of `vllm.LLM`, such as `{enforce_eager: true}`."""

    incidental: ClassVar[frozenset[str]] = frozenset({"python", "gpu_memory_utilization"})


class RecordedOptions(Options):
    """What the `recorded` engine reads."""

    path: str | None = None
    """A Parquet, Arrow or JSON Lines file, or a folder of them, with one row for each response: the
    export of a recipe that ends behind its sampling step, or your own. The first `n` responses to a
    prompt are taken. Columns `prompt` and `response` must be there, with `on_policy: true` also
    `prompt_token_ids`, `response_token_ids` and `response_logprobs`."""
