"""A retrieval server that finds what it is asked for, or fails as a script tells it to."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web
from fake_server import FakeServer

TEST = -1
"""What a query without a number is known by, such as that of a check."""


class FakeSearch(FakeServer):
    """Knows a query by the first number in it, and finds two documents that repeat it.

    Args:
        script: number -> what its requests meet, one after the other.
        says: number -> the JSON that it answers instead.
        **rest: see FakeServer.
    """

    def __init__(self, script=None, *, says=None, **rest: Any) -> None:
        self.says: dict[int, Any] = says or {}
        super().__init__(script, **rest)

    @property
    def url(self) -> str:
        return super().url.removesuffix("/v1")

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/retrieve", self._post)
        router.add_get("/search", self._post)

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        number = re.search(r"\d+", query_of(body))
        return (int(number[0]) if number else TEST), 1

    def answer(self, path, body, seed, attempt, n) -> Any:
        if seed in self.says:
            return self.says[seed]
        query = query_of(body)
        if path == "/search":
            pages = [
                {"title": f"Page {k}", "content": f"about {query}", "url": "u"} for k in (1, 2)
            ]
            return {"query": query, "results": pages}
        texts = (f'"Tea"\n{query} is hot.', f"{query} is cold.")
        found = [
            {"document": {"id": str(k), "contents": t}, "score": 1.0} for k, t in enumerate(texts)
        ]
        return {"result": [found]}


def query_of(body: dict[str, Any]) -> str:
    """The query of a request in either style."""
    return body["queries"][0] if "queries" in body else body["q"]
