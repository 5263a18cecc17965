"""Options of servers with OpenAI's API. Their docstrings document the recipe's fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from pydantic import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from ..config import Config
from ..errors import RecipeError
from .dialect import Dialect


class Options(Config):
    """Options of one engine, or of a scorer."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not affect the samples: after changing one, kept samples are still found."""


def refuse_credentials(field: str, address: str) -> None:
    """Pass an address without a user: addresses are in logs, reports and caches.

    Raises:
        RecipeError: it has one. Pydantic would make a line of a ValueError that shows the password.
    """
    if re.match(r"(?:[^/]*//)?[^/?#]*@", address):
        found = f"{field} has a user name or a password before an '@'"
        raise RecipeError(found, "take it out; api_key_env names the variable with a server's key")


class ServerOptions(Options):
    """Which server with OpenAI's API, and how requests are retried."""

    base_url: str | tuple[str, ...] = "http://localhost:8000/v1"
    """Address of the server, including `/v1`; or a list of addresses with the same model. Each
    request goes to the one with the fewest requests in flight; one that fails is set aside."""
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
        """All addresses, without slashes at their ends."""
        each = (self.base_url,) if isinstance(self.base_url, str) else self.base_url
        return tuple(address.rstrip("/") for address in each)


class DialectServer(ServerOptions):
    """Which server, how it differs from others, and how requests are retried."""

    server: Dialect = Dialect()
    """How the server differs from others, such as `{kind: ollama}`."""

    @property
    def excluded_from_cache_key(self) -> frozenset[str]:  # type: ignore[override]
        """See `Options`. What was sampled before there was `server` is found while it is unused."""
        plain = ServerOptions.excluded_from_cache_key
        return plain if self.server.cache_key_fields() else plain | {"server"}


class ScorerOptions(Dialect, ServerOptions):
    """Where the scorer is, how it differs from other servers, and how requests to it are retried:
    one request scores one response."""

    timeout_s: PositiveFloat = 120
    """Longest wait for one answer, in seconds."""
    give_up_s: PositiveFloat = 600
    """No attempt for a request starts later than this many seconds after its first one, however
    long the server asks to wait; one after the first may take what is left. Waiting for a limit per
    minute does not count."""


def dialect_of(options: ServerOptions) -> Dialect:
    """How the server of some options differs from others."""
    if isinstance(options, Dialect):
        return options
    return options.server if isinstance(options, DialectServer) else Dialect()


def probed_url(base: str, options: ServerOptions) -> str:
    """What is asked for by GET at an address to see whether anything answers there."""
    return f"{base}/models" if dialect_of(options).models else base


def refuse_own_fields(
    parameters: Mapping[str, Any], own: Collection[str], dialect: Dialect
) -> None:
    """Pass further fields of a request that are not among those that are set already.

    Args:
        parameters: the further fields.
        own: names of those that are set.
        dialect: by which they are sent.

    Raises:
        ValueError: one of them is.
    """
    for name in parameters:
        if name == "max_tokens":
            raise ValueError(
                "parameters must not name 'max_tokens', which the field max_tokens sets; if the "
                "server has another name for it, set server: {token_limit: max_completion_tokens}"
            )
        if name == dialect.token_limit or name in own:
            raise ValueError(f"parameters must not name '{name}', which is set already")
