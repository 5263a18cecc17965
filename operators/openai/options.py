"""Options of servers with OpenAI's API. Their docstrings document the recipe's fields."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from ..config import Config


class Options(Config):
    """Options of one engine, or of a scorer."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not affect the samples: after changing one, kept samples are still found."""


class ServerOptions(Options):
    """Which server with OpenAI's API, and how requests are retried."""

    base_url: str = "http://localhost:8000/v1"
    """Address of the server, including `/v1`."""
    api_key_env: str | None = None
    """Environment variable with the key, if the server needs one. Null: no key is sent."""
    concurrency: PositiveInt = 64
    """Most concurrent requests."""
    attempts: PositiveInt = 10
    """Most attempts for one request. An unusable answer counts as a third of them, and a request
    that the server refuses as all of them; being asked to wait (429) and finding no server do not
    count."""
    timeout_s: PositiveFloat = 600
    """Longest wait for one answer, in seconds."""
    give_up_s: PositiveFloat = 1800
    """No attempt for a request starts later than this many seconds after its first one."""
    patience_s: NonNegativeFloat = 120
    """Seconds to wait for a server that cannot be reached before it counts as down."""
    back_off_s: PositiveFloat = 0.5
    """Longest first pause before another attempt, in seconds; it doubles with each one, up to 30 s.
    The server's `Retry-After` is added."""

    excluded_from_cache_key: ClassVar[frozenset[str]] = frozenset(
        {"base_url", "api_key_env", "concurrency", "attempts", "timeout_s", "give_up_s"}
        | {"patience_s", "back_off_s"}
    )

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if not re.match(r"https?://[^/]", url):
            raise ValueError("it must begin with http:// or https://")
        return url


class ScorerOptions(ServerOptions):
    """Where the scorer is, and how requests to it are retried: one request scores one response."""

    timeout_s: PositiveFloat = 120
    """Longest wait for one answer, in seconds."""
    give_up_s: PositiveFloat = 600
    """No attempt for a request starts later than this many seconds after its first one."""
