"""Frozen models, which flows and tools ask and which are never trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

import xxhash
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from typing_extensions import Self

from ..config import deciding_fields
from ..sampling.tokenizer import Messages
from ..servers.options import Dialect, DialectServer, refuse_own_fields
from ..servers.wire import (
    AttemptError,
    ChatChoice,
    ChatCompletion,
    RetryClass,
    endpoint,
    parse_body,
)

_SEEDS = 2**31
_PROBE: Messages = (("user", "Hi"),)
_SET_ALREADY = frozenset({"seed", "chat_template_kwargs", "n", "stream"})


class ModelError(Exception):
    """A frozen model gave no answer."""


class FrozenModel(DialectServer):
    """A chat model behind a server with OpenAI's API, which flows and tools ask.

    Models at a server with the same options share its connections and `concurrency`.
    """

    model: str
    """Name of the model on the server."""
    revision: str = ""
    """Identifies the weights. Change it when the weights behind the name change."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Its temperature. Above 0, the seed of a request is made of the chat, so that the same chat
    has the same answer."""
    max_tokens: PositiveInt = 2048
    """Longest answer, in tokens, including its reasoning."""
    chat_template_kwargs: dict[str, Any] = Field({})
    """Further arguments of the server's chat template, such as `{enable_thinking: false}` for
    Qwen3."""
    parameters: dict[str, Any] = Field({})
    """Further fields of the request, such as `{reasoning_effort: low}`."""
    timeout_s: PositiveFloat = 120
    """Longest wait for one answer, in seconds."""
    give_up_s: PositiveFloat = 600
    """No attempt for a request starts later than this many seconds after its first one, however
    long the server asks to wait; one after the first may take what is left. Waiting for a limit per
    minute does not count."""

    code: ClassVar[str] = "1"
    """The version of the code that decides the answers."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        own = self._own_fields(_PROBE).keys() | _SET_ALREADY
        refuse_own_fields(self.parameters, own, self.server)
        return self

    def cache_key_fields(self) -> Mapping[str, Any]:
        """Return what decides the answers, as JSON: where the server is does not."""
        return {**deciding_fields(self), "code": self.code}

    def preflight(self) -> None:
        """Wait until the server is up, `patience_s` at most, and check that it has the model.

        Raises:
            EngineError: it is not up, lacks the model or refuses the key, or its address is wrong.
        """
        from ..servers.client import check_server

        check_server(self, self.model)

    async def ask(self, messages: Messages) -> str:
        """Return the model's answer to a chat.

        Raises:
            ModelError: there is none after the attempts that the options allow, or the server is
                down: it may recover, so the run goes on without this answer.
            EngineError: it would never answer: the address, the model or the key is wrong.
        """
        from ..servers.client import Request, shared_client
        from ..servers.endpoints import ServerDownError
        from ..servers.wire import advice

        client = await shared_client(self)
        url = partial(endpoint, api="chat")
        sent = self.server.sent(self._body(messages))
        advise = partial(advice, sent=sent, dialect=self.server)
        read = partial(_read, dialect=self.server)
        request = Request(url, sent, read, advise=advise)
        probe = Request(url, self.server.sent(self._body(_PROBE)), lambda body: None)
        try:
            return await client.answer(request, probe)
        except ServerDownError as error:
            raise ModelError(str(error)) from error
        except AttemptError as error:
            raise ModelError(f"{error.reason}: {error.line}") from error

    async def close(self) -> None:
        """Close the connections of this event loop to the server."""
        from ..servers.client import close_shared_client

        await close_shared_client(self)

    def _body(self, messages: Messages) -> dict[str, Any]:
        return self._own_fields(messages) | self.parameters

    def _own_fields(self, messages: Messages) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": role, "content": content} for role, content in messages],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.temperature and self.server.seed != "none":
            shown = "\0".join(part for message in messages for part in message).encode()
            body["seed"] = xxhash.xxh3_64_intdigest(shown) % _SEEDS
        if self.chat_template_kwargs:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return body


def _read(body: bytes, dialect: Dialect) -> str:
    choice = parse_body(ChatCompletion[ChatChoice], body).the_choice(dialect)
    text = choice.message.content or ""
    if not text and choice.finish_reason == "length":
        # All of `max_tokens` went into reasoning: another attempt would end in the same way.
        detail = "max_tokens was used up before the answer began"
        raise AttemptError("no_answer", detail, RetryClass.REFUSED)
    return text
