"""Options of servers with OpenAI's API. Their docstrings document the recipe's fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import xxhash
from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from ..config import Config
from ..errors import RecipeError

# --- How servers differ ---------------------------------------------------------------

ServerKind: TypeAlias = Literal["vllm", "sglang", "llama_cpp", "ollama", "tgi", "openai"]
Ending: TypeAlias = Literal["stop", "length"]

_NO_REASON = "null"
"""A finish reason that is missing or null, as a key of `finish_reasons`."""
_SEEDS_32_BIT = 1 << 31  # 0 and above, in 32 bits with a sign
_LEFT_OUT = ("temperature", "top_p")
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "vllm": {},
    # With --enable-deterministic-inference a response is decided by prompt and seed: n responses of
    # one request would be the same.
    "sglang": {"one_sample_per_request": True},
    # It refuses n above its slots, in older versions any but 1. Seeds are unsigned numbers of 32
    # bits: of a larger one only the lowest bits count.
    "llama_cpp": {"one_sample_per_request": True, "seed": "32_bit"},
    # It ignores n, and a number of JSON becomes a double: the seeds of neighbours would be equal.
    "ollama": {"one_sample_per_request": True, "seed": "32_bit"},
    # It ignores n, and refuses a top_p of 1.
    "tgi": {
        "one_sample_per_request": True,
        "defaults": "left_out",
        "finish_reasons": {"eos_token": "stop", "stop_sequence": "stop"},
    },
    # Models that reason refuse max_tokens, and some of them any temperature and top_p.
    "openai": {"token_limit": "max_completion_tokens", "defaults": "left_out"},
}
TAKES_NO_TOKEN_IDS: frozenset[ServerKind] = frozenset({"ollama", "tgi"})
"""Kinds of server that take a prompt only as text or as a chat."""
GIVES_NO_TOKEN_IDS: frozenset[ServerKind] = frozenset({"llama_cpp", "ollama", "tgi", "openai"})
"""Kinds of server that do not say which tokens they sampled."""


class Dialect(Config):
    """What a server takes and gives, where servers differ."""

    kind: ServerKind | None = None
    """Which server it is. It presets the fields below; each can be given as well, and then counts.
    Null: they have their defaults, which fit vLLM."""
    one_sample_per_request: bool = False
    """Send n requests for one response each, without `n`; response i has the seed of the prompt +
    i, as vLLM seeds the responses of one request. For servers that refuse or ignore `n`."""
    seed: Literal["64_bit", "32_bit", "none"] = "64_bit"
    """Seeds that the server takes. `32_bit`: their lowest 31 bits are sent. `none`: none is sent,
    so the same request gives other responses each time."""
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of the longest response in a chat. OpenAI's models that reason refuse `max_tokens`."""
    defaults: Literal["sent", "left_out"] = "sent"
    """Whether a `temperature` or `top_p` of 1 is sent. `left_out` is for servers that refuse them,
    and right only where the server's own default is 1."""
    finish_reasons: dict[str, Ending] = Field({})
    """What the server's own finish reasons mean, such as `{eos_token: stop}`: `stop` if the
    response has ended, `length` if it is cut off. `null` stands for none."""
    index: Literal["required", "by_order"] = "required"
    """What distinguishes the responses of one request: the `index` that each must have, or
    `by_order` where the server leaves it out or gives all of them the same."""
    models: bool = True
    """Whether `GET /models` is answered. False: it is not sent, so a wrong `model` is known by its
    first request only."""

    # How requests are written and answers are read decides no sample; seeds do.
    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset(
        {"kind", "one_sample_per_request", "token_limit", "defaults", "finish_reasons", "index"}
        | {"models"}
    )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping):
            return fields
        kind, own = fields.get("kind"), fields.get("finish_reasons", {})
        preset = _PRESETS.get(kind, {}) if isinstance(kind, str) else {}
        found = {**preset, **fields}
        if isinstance(own, Mapping):
            named = {_NO_REASON if name is None else name: each for name, each in own.items()}
            found["finish_reasons"] = {**preset.get("finish_reasons", {}), **named}
        return found

    @model_validator(mode="after")
    def _keeps_what_reasons_mean(self) -> Dialect:
        for name in ("stop", "length"):
            if name in self.finish_reasons:
                raise ValueError(f"finish_reasons must not name '{name}', which has its meaning")
        return self

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def sent(self, fields: Mapping[str, Any], *, chat: bool = True) -> dict[str, Any]:
        """Fields of a request as the server takes them.

        >>> Dialect(kind="tgi").sent({"n": 1, "top_p": 1.0, "max_tokens": 9, "seed": 1 << 40})
        {'max_tokens': 9, 'seed': 1099511627776}
        """
        found = {}
        for name, value in fields.items():
            if name == "n" and self.one_sample_per_request:
                continue
            if name in _LEFT_OUT and value == 1 and self.defaults == "left_out":
                continue
            if name == "seed":
                value = self.seed_of(value)
                if value is None:
                    continue
            found[self.token_limit if name == "max_tokens" and chat else name] = value
        return found

    def seed_of(self, seed: int) -> int | None:
        if self.seed == "none":
            return None
        return seed % _SEEDS_32_BIT if self.seed == "32_bit" else seed

    def ending(self, finish_reason: str | None) -> str | None:
        """What a finish reason of the server means, if it is known; else the reason itself."""
        name = _NO_REASON if finish_reason is None else finish_reason
        return self.finish_reasons.get(name, finish_reason)


# --- Options --------------------------------------------------------------------------


def refuse_credentials(field: str, address: str) -> None:
    """Refuse an address with a user, which would be in logs, reports and caches: by a RecipeError,
    because pydantic would show the password in the line that it makes of a ValueError."""
    if re.match(r"(?:[^/]*//)?[^/?#]*@", address):
        found = f"{field} has a user name or a password before an '@'"
        raise RecipeError(found, "take it out; api_key_env names the variable with a server's key")


class ServerOptions(Config):
    """Which server with OpenAI's API, and how requests are retried."""

    base_url: str | tuple[str, ...] = "http://localhost:8000/v1"
    """Address of the server, including `/v1`; or a list of addresses with the same model. Each
    request goes to the one with the fewest requests in flight; one that fails rests."""
    api_key_env: str | None = None
    """Environment variable with the key, if the server needs one. Null: no key is sent."""
    concurrency: PositiveInt = 64
    """Most concurrent requests, to all addresses together."""
    requests_per_minute: PositiveFloat | None = None
    """Most requests in a minute, to all addresses together. Null: no limit."""
    tokens_per_minute: PositiveFloat | None = None
    """Most tokens in a minute, of prompts and responses, at all addresses together. A request
    counts with its longest possible response until the server reports its usage. Null: no limit."""
    attempts: PositiveInt = 10
    """Most attempts for one request. An unusable answer counts as a third of them, and a request
    that the server refuses as all of them; being asked to wait (429) and finding no server do not
    count."""
    timeout_s: PositiveFloat = 600
    """Longest wait for one answer, in seconds."""
    give_up_s: PositiveFloat = 1800
    """No attempt for a request starts later than this many seconds after its first one, however
    long the server asks to wait; one after the first may take what is left. Waiting for a limit per
    minute does not count."""
    patience_s: NonNegativeFloat = 120
    """Seconds to wait for a server that cannot be reached before it counts as down; of several, for
    the first of them that can be used."""
    back_off_s: PositiveFloat = 0.5
    """Longest first pause before another attempt, in seconds; it doubles with each one, up to 30 s.
    The server's `Retry-After` is added."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset(
        {"base_url", "api_key_env", "concurrency", "attempts", "timeout_s", "give_up_s"}
        | {"patience_s", "back_off_s", "requests_per_minute", "tokens_per_minute"}
    )

    @field_validator("base_url")
    @classmethod
    def _are_addresses(cls, url: str | tuple[str, ...]) -> str | tuple[str, ...]:
        each = (url,) if isinstance(url, str) else url
        if not each:
            raise ValueError("it must have at least one address")
        for address in each:
            refuse_credentials("base_url", address)
        if not all(re.match(r"https?://[^/]", address) for address in each):
            begins = "it" if isinstance(url, str) else "each"
            raise ValueError(f"{begins} must begin with http:// or https://")
        if len({address.rstrip("/") for address in each}) < len(each):
            raise ValueError("each address must be given once")
        return url

    @property
    def addresses(self) -> tuple[str, ...]:
        each = (self.base_url,) if isinstance(self.base_url, str) else self.base_url
        return tuple(address.rstrip("/") for address in each)


class DialectServer(ServerOptions):
    """Which server, how it differs from others, and how requests are retried."""

    server: Dialect = Dialect()
    """How the server differs from others, such as `{kind: ollama}`."""


class ScorerOptions(Dialect, ServerOptions):
    """Where the scorer is, how it differs from other servers, and how requests to it are retried:
    one request scores one response."""

    timeout_s: PositiveFloat = 120
    give_up_s: PositiveFloat = 600


def dialect_of(options: ServerOptions) -> Dialect:
    if isinstance(options, Dialect):
        return options
    return options.server if isinstance(options, DialectServer) else Dialect()


class ChatFields(Config):
    """What a chat model behind a server is asked with, whatever it is asked."""

    model: str
    """Name of the model on the server."""
    revision: str = ""
    """Identifies the weights. Change it when the weights behind the name change: all that it has
    answered is then asked for again."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Its temperature. Above 0, the seed of a request is made of what it is shown, so that the same
    request has the same answer."""
    max_tokens: PositiveInt = 2048
    """Longest answer, in tokens, including its reasoning."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """Further arguments of the server's chat template, such as `{enable_thinking: false}` for
    Qwen3."""
    parameters: dict[str, Any] = Field({})
    """Further fields of the request, such as `{reasoning_effort: low}`."""

    def chat_body(
        self, messages: list[dict[str, str]], dialect: Dialect, seeded_by: str
    ) -> dict[str, Any]:
        """The JSON of a request, but for `parameters`, before `dialect.sent`."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.temperature and dialect.seed != "none":
            body["seed"] = xxhash.xxh3_64_intdigest(seeded_by.encode()) % _SEEDS_32_BIT
        if self.chat_template_kwargs:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return body

    def check_parameters(self, own: Mapping[str, Any], dialect: Dialect) -> None:
        for name in self.parameters:
            if name == "max_tokens":
                raise ValueError(
                    "parameters must not name 'max_tokens', which the field max_tokens sets; if "
                    "the server has another name for it, set server: "
                    "{token_limit: max_completion_tokens}"
                )
            if name in (dialect.token_limit, "n", "stream") or name in own:
                raise ValueError(f"parameters must not name '{name}', which is set already")
