"""A chat model that repeats what it is sent, or fails as a script tells it to."""

from __future__ import annotations

import re
from typing import Any

from fake_server import FakeServer

PROBE = -1


class FakeChat(FakeServer):
    """Knows a chat by the first number in its last message, and answers `echo: MESSAGE`.

    Args:
        script: number -> what its requests meet, one after the other.
        says: number -> its answer and why that ended.
        **rest: see FakeServer.
    """

    def __init__(self, script=None, *, says=None, **rest: Any) -> None:
        self.says: dict[int, tuple[str | None, str]] = says or {}
        super().__init__(script, **rest)

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        number = re.search(r"\d+", body["messages"][-1]["content"])
        return (int(number[0]) if number else PROBE), 1

    def answer(self, path, body, seed, attempt, n) -> dict[str, Any]:
        shown = body["messages"][-1]["content"]
        text, finish_reason = self.says.get(seed, (f"echo: {shown}", "stop"))
        message = {"content": text}
        return {"choices": [{"index": 0, "finish_reason": finish_reason, "message": message}]}
