"""An MCP server over stdio that does one thing wrong; it needs no library, so it starts at once.

python hostile_mcp_server.py FAULT [SCHEMA]

SCHEMA is the JSON of its only tool's input schema.
"""

from __future__ import annotations

import json
import sys
from typing import Any

fault = sys.argv[1]
schema = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {"type": "object"}
TOOL: dict[str, Any] = {"name": "act", "description": "Act.", "inputSchema": schema}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tools(cursor: str | None) -> dict[str, Any]:
    at = int(cursor or 0)
    match fault:
        case "endless_pages":
            return {"tools": [{**TOOL, "name": f"act{at}"}], "nextCursor": str(at + 1)}
        case "same_cursor":
            return {"tools": [{**TOOL, "name": f"act{at}"}], "nextCursor": "7"}
        case "same_name":
            return {"tools": [{**TOOL, "name": "other"}, TOOL, TOOL]}
        case "escape_in_name":
            return {"tools": [{**TOOL, "name": "act\x1b[31m"}]}
        case "long_description":
            return {"tools": [{**TOOL, "description": "x" * (1 << 20)}]}
        case "tools_of_wrong_type":
            return {"tools": 7}
        case "other_output_schema":
            return {"tools": [{**TOOL, "outputSchema": {"type": "object", "required": ["b"]}}]}
    return {"tools": [TOOL]}


def called(number: Any) -> None:
    content = [{"type": "text", "text": "done"}]
    result: dict[str, Any] = {"content": content, "structuredContent": {"text": "a" * 40 + "!"}}
    match fault:
        case "no_answer":
            return
        case "progress":
            while True:
                progress = {"progressToken": number, "progress": 1}
                send({"method": "notifications/progress", "params": progress})
        case "garbage":
            print("Traceback (most recent call last):\n\x1b[31m no JSON", flush=True)
        case "deep_result":
            deep = '{"a":' * 20000 + "1" + "}" * 20000
            begin = f'{{"jsonrpc": "2.0", "id": {json.dumps(number)}, "result": '
            print(f'{begin}{{"content": [], "structuredContent": {deep}}}}}', flush=True)
            return
        case "result_of_wrong_type":
            result = {"content": "done"}
        case "other_id":
            number = 99
        case "bad_arguments":
            send({"id": number, "error": {"code": -32602, "message": "text is missing"}})
            return
        case "internal_error":
            send({"id": number, "error": {"code": -32603, "message": "out of order"}})
            return
    send({"id": number, "result": result})


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            server = {"name": "hostile", "version": "1"}
            result = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
            send({"id": message["id"], "result": result})
        case "tools/list":
            if fault == "no_list":
                continue
            send({"id": message["id"], "result": tools(message.get("params", {}).get("cursor"))})
        case "tools/call":
            called(message["id"])
        case _ if "id" in message and "method" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
