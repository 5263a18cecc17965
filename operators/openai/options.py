"""Options of servers with OpenAI's API. Their docstrings are the recipe's docs."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
)


class Options(BaseModel):
    """Options of one engine, or of a scorer."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    incidental: ClassVar[frozenset[str]] = frozenset()
    """Those that do not decide what is sampled: another one finds the same samples again."""


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


class ScorerOptions(ServerOptions):
    """How a scorer is asked: one request is for one response."""

    timeout_s: PositiveFloat = 120
    """Longest wait for one answer."""
    give_up_s: PositiveFloat = 600
    """No attempt for a request starts later than this after its first."""
