"""An MCP server for tests, over stdio or, with a port, by streamable HTTP.

python mcp_server.py [port]
"""

from __future__ import annotations

import os
import sys

import anyio
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("tests", log_level="CRITICAL")


@server.tool()
def add(one: int, other: int) -> str:
    """Add two numbers."""
    return str(one + other)


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool()
def die() -> str:
    """End the server in the middle of a call."""
    os._exit(3)


@server.tool()
async def wait() -> str:
    """Never answer."""
    await anyio.sleep(60)
    return "late"


@server.tool()
def picture() -> list[str | Image]:
    """Give a text and a picture."""
    return ["a dot", Image(data=b"\x89PNG", format="png")]


@server.tool()
def nothing() -> None:
    """Give nothing."""


@server.tool()
def variable(name: str) -> str:
    """Give the value of an environment variable."""
    return os.environ.get(name, "not set")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
