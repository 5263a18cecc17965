"""Search by a retrieval server: Search-R1's `/retrieve`, or SearXNG's `/search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote, urlencode

from pydantic import BaseModel, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from ...errors import EngineError
from ...servers.options import ServerOptions
from ...servers.wire import AttemptError, RetryClass, WireModel, bad_response, parse_body
from ..tool import Observation, Tool, ToolError
from .search import Passage, passage_of, shown


class HttpSearch(Tool, ServerOptions):
    """Search a collection of documents."""

    base_url: str
    """Address of the server, without `/retrieve` or `/search`."""
    style: Literal["search_r1", "searxng"] = "search_r1"
    """How the server is asked: `search_r1` posts `{queries, topk, return_scores}` to `/retrieve`,
    as Search-R1's and verl's examples do; `searxng` gets `/search?format=json`, which the server's
    settings must allow."""
    revision: str = ""
    """Identifies what the server searches. Empty: its address does."""
    k: PositiveInt = 3
    """Most documents that a search shows."""
    longest: PositiveInt | None = 1000
    """Longest text of a document, in characters; what is beyond it is cut off, with a visible
    marker. Null: no limit but the flow's `max_observation`."""
    attempts: PositiveInt = 5
    timeout_s: PositiveFloat = 30
    give_up_s: PositiveFloat = 120
    patience_s: NonNegativeFloat = 60

    code: ClassVar[str | None] = "1"
    excluded_from_cache_key: ClassVar[frozenset[str]] = ServerOptions.excluded_from_cache_key - {
        "base_url"
    }

    async def call(
        self, query: Annotated[str, Field(description="what to search for")]
    ) -> Observation:
        """What the server finds, the best first."""
        if not query.strip():
            raise ValueError("the query is empty")
        from ...servers.endpoints import ServerDownError

        try:
            return Observation(shown(await self._found(query), self.k, self.longest))
        except ServerDownError as error:
            raise ToolError(str(error)) from error
        except AttemptError as error:
            if error.retry_class is RetryClass.REFUSED:
                return Observation(f"the search refuses this query: {error.detail}", "error")
            raise ToolError(f"{error.reason}: {error.detail}") from error

    def preflight(self) -> None:
        """Search once, so that a wrong address is found before anything is sampled."""
        from ...servers.concurrency import LoopThread

        with closing(LoopThread(f"check of {self.base_url}")) as thread:
            thread.run(self._checked())

    async def close(self) -> None:
        from ...servers.client import close_shared_client

        await close_shared_client(self)

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = super().cache_key_fields()
        return {**fields, "base_url": None} if self.revision else fields

    async def _checked(self) -> None:
        try:
            await self._found("test")
        except AttemptError as error:
            found = f"{self.base_url} answers no search: {error.reason}, {error.detail}"
            raise EngineError(found, f"is it a server of the style {self.style}?") from None
        finally:
            await self.close()

    async def _found(self, query: str) -> Sequence[Passage]:
        from ...servers.client import Request, shared_client

        if self.style == "search_r1":
            body = {"queries": [query], "topk": self.k, "return_scores": True}
            request = Request("{}/retrieve".format, body, _read_retrieved)
        else:
            fields = urlencode({"q": query, "format": "json"}, quote_via=quote)
            request = Request(lambda base: f"{base}/search?{fields}", None, _read_web_pages)
        client = await shared_client(self)
        return await client.answer(request)


_LARGEST = 1 << 24
"""Bytes of an answer; as Python's objects it takes up to forty times that."""


class _Scored(BaseModel):
    document: dict[str, Any] | str


class _Retrieved(BaseModel):
    result: list[list[_Scored]]


class _WebPage(BaseModel):
    title: str | None = None
    content: str | None = None


class _WebPages(BaseModel):
    results: list[_WebPage]


def _parsed(kind: type[WireModel], body: bytes) -> WireModel:
    if len(body) > _LARGEST:
        raise bad_response(f"an answer of more than {_LARGEST >> 20} MiB")
    return parse_body(kind, body)


def _read_retrieved(body: bytes) -> Sequence[Passage]:
    found = _parsed(_Retrieved, body).result
    if len(found) != 1:
        raise bad_response(f"{len(found)} results, not 1")
    try:
        return [_with_title(passage_of(each.document)) for each in found[0]]
    except ValueError as error:
        raise bad_response(str(error)) from None


def _with_title(passage: Passage) -> Passage:
    """The title is the first line of `contents`, in quotation marks, in Search-R1's collections."""
    first, line_break, rest = passage.text.partition("\n")
    is_title = line_break and len(first) > 2 and first[0] == first[-1] == '"'
    return Passage(first[1:-1], rest) if is_title and not passage.title else passage


def _read_web_pages(body: bytes) -> Sequence[Passage]:
    pages = _parsed(_WebPages, body).results
    return [Passage(page.title or "", page.content or "") for page in pages]
