"""Options of engines and scorers, as recipes give them. Their docstrings are the recipe's docs."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

Dtype = Literal["float32", "bfloat16", "float16"]


class Options(BaseModel):
    """Options of one engine, or of a scorer."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    incidental: ClassVar[frozenset[str]] = frozenset()
    """Those that do not decide what is sampled: another one finds the same samples again."""


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


class ServerOptions(Options):
    """Which server with OpenAI's API, and how patiently it is asked."""

    base_url: str = "http://localhost:8000/v1"
    """Address of the server, up to and with `/v1`."""
    api_key_env: str | None = None
    """Environment variable with the key, where the server wants one. Null: no key is sent."""
    concurrency: PositiveInt = 64
    """Most requests under way at a time."""
    attempts: PositiveInt = 10
    """Most attempts for one request. An answer that cannot be used counts as a third of them, a
    request that the server refuses as all; to be told to wait (429) or to find no server does not
    count."""
    timeout_s: PositiveFloat = 600
    """Longest wait for one answer."""
    give_up_s: PositiveFloat = 1800
    """No attempt for a request starts later than this after its first."""
    patience_s: NonNegativeFloat = 120
    """How long to wait for a server that cannot be reached before it is down."""
    back_off_s: PositiveFloat = 0.5
    """First pause before another attempt is up to this long; later ones double, up to 30 s. It
    comes on top of the `Retry-After` of the server."""

    incidental: ClassVar[frozenset[str]] = frozenset(
        {"base_url", "api_key_env", "concurrency", "attempts", "timeout_s", "give_up_s"}
        | {"patience_s", "back_off_s"}
    )

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if not re.match(r"https?://[^/]", url):
            raise ValueError("it must begin with http:// or https://")
        return url


class OpenAIOptions(ServerOptions):
    """How the `openai` engine works: one request is for all responses to one prompt."""

    api: Literal["completions", "chat", "generate"] = "completions"
    """Which endpoint of the server. `completions` gets token ids: the chat template is applied
    here. `chat` leaves that to the server. `generate` is vLLM's own, which states weight
    versions."""
    tokenizer: str | None = None
    """Name or folder of the tokenizer whose chat template is applied. Null: that of `model`."""


class ScorerOptions(ServerOptions):
    """How a scorer is asked: one request is for one response."""

    timeout_s: PositiveFloat = 120
    """Longest wait for one answer."""
    give_up_s: PositiveFloat = 600
    """No attempt for a request starts later than this after its first."""


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
