"""A scorer that gives what a response asks for, or fails as a script tells it to."""

from __future__ import annotations

import json
import re
from typing import Any

from fake_server import FakeServer, Trouble

DIMENSIONS = ("accuracy", "grammar", "informativeness", "coherence")
PROBE = -1


class FakeJudge(FakeServer):
    """Knows a response by the first number in it; its answer about number k is `says[k]`.

    It scores a response by the dimensions of the schema it was sent, or by the four default ones.

    Args:
        script: number of a response -> what its requests meet, one after the other.
        says: number of a response -> the answers about it, by attempt; else `scores_of`.
        **rest: see FakeServer.
    """

    def __init__(self, script=None, *, says=None, **rest: Any) -> None:
        self.says: dict[int, list[str]] = says or {}
        super().__init__(script, **rest)

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        shown = body["messages"][-1]["content"]
        begins = r"(?:<response(?: \w{16})?>|\*\*response\*\*)"
        number = re.search(rf"{begins}(?:(?!</response)\D)*?(\d+)", shown)
        return (int(number[1]) if number else PROBE), 1

    def answer(self, path, body, seed, attempt, n) -> dict[str, Any]:
        answers = self.says.get(seed, [])
        text = answers[min(attempt, len(answers) - 1)] if answers else verdict(scores_of(seed))
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
        if body.get("logprobs") and len(text) < 1000:
            choice["logprobs"] = {"content": logprobs_of(text)}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return {"choices": [choice], "usage": usage}


def scores_of(number: int) -> list[int]:
    """What the judge thinks of a response: its number in base five, as digits from 1 to 5."""
    return [number // 5**place % 5 + 1 for place in range(len(DIMENSIONS))]


def verdict(scores: list[int]) -> str:
    """As JSON."""
    return json.dumps(dict(zip(DIMENSIONS, scores, strict=True)))


def logprobs_of(text: str) -> list[dict[str, Any]]:
    """One token for each character; a digit has half of the probability, its two neighbours a
    quarter each, as far as they are there."""
    content = []
    for character in text:
        top = [{"token": character, "logprob": LOG_HALF}]
        if character.isdigit():
            near = (int(character) - 1, int(character) + 1)
            top += [{"token": str(each), "logprob": 2 * LOG_HALF} for each in near]
        content.append({"token": character, "logprob": LOG_HALF, "top_logprobs": top})
    return content


LOG_HALF = -0.6931471805599453

__all__ = ["DIMENSIONS", "PROBE", "FakeJudge", "Trouble", "logprobs_of", "scores_of", "verdict"]
