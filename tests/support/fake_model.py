"""A server that Data-Juicer's LLM operators ask, which answers about a row or fails on it."""

from __future__ import annotations

import json
import re
from typing import Any

from fake_server import FakeServer, Trouble

DIMENSIONS = ["accuracy", "grammar", "informativeness", "coherence"]


class FakeModel(FakeServer):
    """Knows a row by the last number in its text; its answer about row k is `says[k]`.

    By default it gives every text the highest scores.
    """

    def __init__(self, script=None, *, says=None, **rest: Any) -> None:
        self.says: dict[int, list[str]] = says or {}
        super().__init__(script, **rest)

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        numbers = re.findall(r"row (\d+)", body["messages"][-1]["content"])
        return (int(numbers[-1]) if numbers else -1), 1

    def answer(self, path, body, seed, attempt, n) -> dict[str, Any]:
        answers = self.says.get(seed, [])
        text = answers[min(attempt, len(answers) - 1)] if answers else self.usual(seed)
        return {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}

    def usual(self, seed: int) -> str:
        """What it answers about a row of which nothing else is known."""
        return json.dumps({"dimension_scores": dict.fromkeys(DIMENSIONS, 5)})


__all__ = ["DIMENSIONS", "FakeModel", "Trouble"]
