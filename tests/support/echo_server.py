"""A server that repeats the key of each request, in whatever it answers, with what steers a terminal."""

import json
from base64 import b64encode
from urllib.parse import quote

from aiohttp import web
from fake_server import FakeServer

CONTROLS = "\x1b]0;title\x07\x1b[31m\u202e\x9b2J\x08"
FORMS = (
    lambda key: f"Bearer {key}",
    lambda key: quote(key, safe=""),
    lambda key: b64encode(f"user:{key}".encode()).decode(),
    lambda key: json.dumps({"Authorization": key}),
)
"""How it writes it."""
STATUSES = {
    "400": 400, "401": 401, "402": 402, "404": 404, "429": 429, "500": 500, "302": 302,
    "html": 502, "plain": 418,
}  # fmt: skip
ANSWERS = ("answer", "error in 200", "other JSON", "half", "ending", "refusal", "two choices")
BROKEN = ("status line", "long header")
KINDS = (*STATUSES, *ANSWERS, *BROKEN)


class EchoServer(FakeServer):
    """It lists the model `m`, and answers all else in one of the ways of `KINDS`."""

    def __init__(self, kind):
        self.kind = kind
        super().__init__()

    async def _post(self, request):
        self.keys.add(request.headers.get("Authorization"))
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        text = f"{CONTROLS} you sent {' '.join(form(key) for form in FORMS)}"
        if self.kind in BROKEN:
            return await self._break(request, key)
        if self.kind in ("html", "plain"):
            return web.Response(text=f"<html>{text}", status=STATUSES[self.kind])
        if self.kind in STATUSES:
            place = {"Location": f"http://else.where/?k={quote(key, safe='')}&auth={key}"}
            error = {"error": {"message": text, "code": key, "param": key}}
            return web.json_response(error, status=STATUSES[self.kind], headers=place)
        return web.Response(text=self._body(text, key), content_type="application/json")

    def _body(self, text, key):
        choice = {"index": 0, "finish_reason": "stop", "message": {"content": f"{text} so 7"}}
        answer = {"choices": [choice], "model": key, "id": text}
        if self.kind == "error in 200":
            return json.dumps({"error": {"message": text, "code": 502}})
        if self.kind == "other JSON":
            return json.dumps({"choices": text, "headers": {key: key}})
        if self.kind == "half":
            return json.dumps(answer)[:-30]
        if self.kind == "ending":
            choice["finish_reason"] = text
        if self.kind == "refusal":
            choice["message"] = {"content": None, "refusal": text}
        if self.kind == "two choices":
            answer["choices"] *= 2
        return json.dumps(answer)

    async def _break(self, request, key):
        line = "HTTP/1.1 200 OK" if self.kind == "long header" else f"HTTP/1.1 {key} {key}"
        long = "x" * 9000 if self.kind == "long header" else ""
        request.transport.write(f"{line}\r\nX-Sent: {key}{long}\r\n\r\n".encode())
        request.transport.close()
        return web.Response()
