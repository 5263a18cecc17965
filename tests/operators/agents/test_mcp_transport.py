"""Answers of an MCP server over HTTP: bounded, and not decompressed."""

import asyncio
import gzip

import pytest

from rejuice.operators.agents import mcp_connection

httpx2 = pytest.importorskip("httpx2")


def fetched(monkeypatch, *, headers=(), body=b"", kind="application/json"):
    """The body that a client has of such an answer, where 1,000 bytes are the most."""
    monkeypatch.setattr(mcp_connection, "LARGEST", 1000)
    lines = ["HTTP/1.1 200 OK", "Connection: close", f"Content-Type: {kind}", *headers, "", ""]

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write("\r\n".join(lines).encode() + body)
        writer.close()

    async def main():
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            async with mcp_connection.http_client({"X": "own"}, 30) as client:
                return (await client.get(address)).content

    return asyncio.run(main())


def test_answers_by_http_are_bounded(monkeypatch):
    assert fetched(monkeypatch, body=b"x" * 1000) == b"x" * 1000
    with pytest.raises(httpx2.StreamError, match=r"^a message of more than 16 MiB$"):
        fetched(monkeypatch, body=b"x" * 1001)
    # Its events are bounded one by one.
    assert len(fetched(monkeypatch, body=b"x" * 1001, kind="text/event-stream")) == 1001
    with pytest.raises(
        httpx2.DecodingError, match=r"^a compressed answer, which was not asked for$"
    ):
        fetched(monkeypatch, headers=["Content-Encoding: gzip"], body=gzip.compress(b"x"))
