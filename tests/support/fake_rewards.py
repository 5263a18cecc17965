"""A server of a scalar reward model, as vLLM, SGLang and OpenRLHF serve one."""

from __future__ import annotations

import json
import re
from typing import Any

from aiohttp import web
from fake_server import FakeServer

PROBE = -1
PATHS = {"classify": "/classify", "pooling": "/pooling", "sglang": "/classify"}
PATHS["openrlhf"] = "/get_reward"


class FakeRewards(FakeServer):
    """Knows a response by the number in `response K`; its reward is `reward_of(K)`.

    Args:
        script: number of a response -> what its requests meet, one after the other.
        api: which server it is.
        outputs: number of a response -> the outputs of the model in place of the reward.
        raw: number of a response -> the whole answer in place of the server's.
        decode: from token ids to text.
        **rest: see FakeServer.

    Attributes:
        asked: the numbers of responses, as they came.
    """

    def __init__(self, script=None, *, api="classify", outputs=None, raw=None, decode=None, **rest):
        self.api, self.outputs, self.raw = api, outputs or {}, raw or {}
        self.decode, self.asked, self.paths = decode, [], set[str]()
        super().__init__(script, **rest)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        if self.api != "openrlhf":
            router.add_get("/v1/models", self._models)
        router.add_post(PATHS[self.api], self._post)

    def text_of(self, body: dict[str, Any]) -> str:
        """What the model is shown."""
        if self.api == "openrlhf":
            (text,) = body["query"]
            return text
        if "messages" in body:
            return json.dumps(body["messages"])
        given = body.get("input", body.get("input_ids", body.get("text")))
        return given if isinstance(given, str) else self.decode(given)

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        number = re.search(r"response (\d+)", self.text_of(body))
        return (int(number[1]) if number else PROBE), 1

    def answer(self, path, body, seed, attempt, n) -> Any:
        self.asked.append(seed)
        self.paths.add(path)
        if seed in self.raw:
            return self.raw[seed]
        outputs = self.outputs.get(seed, [reward_of(seed)])
        usage = {"prompt_tokens": 7, "total_tokens": 7}
        match self.api:
            case "classify":
                one = {"index": 0, "label": "LABEL_0", "probs": outputs, "num_classes": 1}
                return {"object": "list", "data": [one], "usage": usage}
            case "pooling":
                one = {"index": 0, "object": "pooling", "data": outputs}
                return {"object": "list", "data": [one], "usage": usage}
            case "sglang":
                return {"embedding": outputs, "meta_info": {"id": "a", "prompt_tokens": 7}}
        return {"rewards": outputs, "scores": outputs, "extra_logs": {"dummy_scores": outputs}}


def reward_of(number: int) -> float:
    """What the model thinks of a response."""
    return number / 4 - 1.5
