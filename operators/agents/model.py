"""Frozen models, which flows and tools ask and which are never trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import PositiveFloat, model_validator
from typing_extensions import Self

from ..config import deciding_fields
from ..sampling.tokenizer import Messages
from ..servers.options import ChatFields, Dialect, DialectServer
from ..servers.wire import AttemptError, ChatCompletion, RetryClass, parse_body

_PROBE: Messages = (("user", "Hi"),)


class ModelError(Exception):
    """A frozen model gave no answer."""


class FrozenModel(ChatFields, DialectServer):
    """A chat model behind a server with OpenAI's API, which flows and tools ask.

    Models at a server with the same options share its connections and `concurrency`.
    """

    timeout_s: PositiveFloat = 120
    give_up_s: PositiveFloat = 600

    code: ClassVar[str] = "1"
    """The version of the code that decides the answers."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.check_parameters(self._own_fields(_PROBE), self.server)
        return self

    def cache_key_fields(self) -> Mapping[str, Any]:
        """What decides the answers, as JSON: where the server is does not."""
        return {**deciding_fields(self), "code": self.code}

    def preflight(self) -> None:
        """Wait until the server is up, `patience_s` at most, and check that it has the model."""
        from ..servers.client import check_server

        check_server(self, self.model)

    async def ask(self, messages: Messages) -> str:
        """The model's answer to a chat.

        A ModelError: there is none after the attempts that the options allow, or the server is
        down; it may recover, so the run goes on without this answer. An EngineError: it would never
        answer.
        """
        from ..servers.client import chat_request, shared_client
        from ..servers.endpoints import ServerDownError

        client = await shared_client(self)
        read = partial(_read, dialect=self.server)
        request = chat_request(self._body(messages), self.server, read)
        # Any answer shows that it is up, also one that its few tokens were too few for.
        probe = chat_request(self._body(_PROBE), self.server, lambda _: None)
        try:
            return await client.answer(request, probe)
        except ServerDownError as error:
            raise ModelError(str(error)) from error
        except AttemptError as error:
            raise ModelError(f"{error.reason}: {error.line}") from error

    async def close(self) -> None:
        from ..servers.client import close_shared_client

        await close_shared_client(self)

    def _body(self, messages: Messages) -> dict[str, Any]:
        return self._own_fields(messages) | self.parameters

    def _own_fields(self, messages: Messages) -> dict[str, Any]:
        chat = [{"role": role, "content": content} for role, content in messages]
        shown = "\0".join(part for message in messages for part in message)
        return self.chat_body(chat, self.server, shown)


def _read(body: bytes, dialect: Dialect) -> str:
    choice = parse_body(ChatCompletion, body).the_choice(dialect)
    text = choice.message.content or ""
    if not text and choice.finish_reason == "length":
        # All of `max_tokens` went into reasoning: another attempt would end in the same way.
        detail = "max_tokens was used up before the answer began"
        raise AttemptError("no_answer", detail, RetryClass.REFUSED)
    return text
