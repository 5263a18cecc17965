"""Servers that take, ignore and refuse what those of each kind do, by their sources."""

from __future__ import annotations

from typing import Any

from fake_server import FakeServer

_UNSIGNED = 1 << 32


class KindOfServer(FakeServer):
    """Answers chats in the way of one kind of server. The text of a response is the seed with which
    it was sampled, `?` where none was sent, and its number: two of the same seed are the same.

    Args:
        unseeded: whether it refuses any seed, as a server that knows none.
        **rest: see FakeServer.
    """

    def __init__(self, *, unseeded: bool = False, **rest: Any) -> None:
        self.unseeded = unseeded
        self.sent: list[dict[str, Any]] = []
        super().__init__(**rest)

    def seed_and_n(self, body: dict[str, Any]) -> tuple[int, int]:
        return body.get("seed", 0), body.get("n") or 1

    def refusal(self, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        self.sent.append(body)
        if self.unseeded and "seed" in body:
            return 400, {"error": {"message": "Unsupported parameter: 'seed'", "param": "seed"}}
        return None

    def answer(self, path, body, seed, attempt, n) -> dict[str, Any]:
        choices = [
            {"index": k, "finish_reason": "stop", "message": {"content": text}}
            for k, text in enumerate(self.texts(body, n))
        ]
        return {"choices": choices}

    def texts(self, body: dict[str, Any], n: int) -> list[str]:
        """The responses to a request."""
        seed = body.get("seed")
        return ["?" if seed is None else str(seed + k) for k in range(n)]


class Vllm(KindOfServer):
    """n responses have the seeds from that of the request on; it gives token ids where asked to."""

    def answer(self, path, body, seed, attempt, n) -> dict[str, Any]:
        found = super().answer(path, body, seed, attempt, n)
        for choice in found["choices"] if body.get("return_token_ids") else ():
            choice |= {"token_ids": [5, 6], "logprobs": {"content": [{"logprob": -0.5}] * 2}}
            found["prompt_token_ids"] = [1, 2]
        return found


class Sglang(KindOfServer):
    """With `--enable-deterministic-inference`: all responses of a request have its seed."""

    def texts(self, body, n) -> list[str]:
        return [str(body["seed"])] * n


class LlamaCpp(KindOfServer):
    """It refuses any n but 1, by a status of its own failures, and reads 32 bits of a seed."""

    def refusal(self, path, body) -> tuple[int, Any] | None:
        if body.get("n", 1) != 1:
            message = "Only one completion choice is allowed"
            return 500, {"error": {"code": 500, "message": message, "type": "server_error"}}
        return super().refusal(path, body)

    def texts(self, body, n) -> list[str]:
        return [str(body["seed"] % _UNSIGNED)]


class Ollama(KindOfServer):
    """It ignores n, and a number of JSON is a double to it."""

    def texts(self, body, n) -> list[str]:
        return [str(int(float(body["seed"])) % _UNSIGNED)]


class Tgi(KindOfServer):
    """It ignores n, refuses a top_p of 1, and has finish reasons of its own."""

    def refusal(self, path, body) -> tuple[int, Any] | None:
        if body.get("top_p", 0.5) >= 1:
            message = "Input validation error: `top_p` must be > 0.0 and < 1.0"
            return 422, {"error": message, "error_type": "validation"}
        return super().refusal(path, body)

    def texts(self, body, n) -> list[str]:
        return [str(body["seed"])]

    def answer(self, path, body, seed, attempt, n) -> dict[str, Any]:
        found = super().answer(path, body, seed, attempt, n)
        for choice in found["choices"]:
            choice["finish_reason"] = "eos_token"
        return found


class OpenAI(KindOfServer):
    """A model that reasons: it refuses max_tokens, and takes no temperature and no top_p."""

    def refusal(self, path, body) -> tuple[int, Any] | None:
        for name, other in (("max_tokens", "max_completion_tokens"), ("top_p", "")):
            if name in body:
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                use = f" Use '{other}' instead." if other else ""
                error = {"message": message + use, "type": "invalid_request_error", "param": name}
                return 400, {"error": error | {"code": "unsupported_parameter"}}
        return super().refusal(path, body)


KINDS: dict[str, type[KindOfServer]] = {
    "vllm": Vllm,
    "sglang": Sglang,
    "llama_cpp": LlamaCpp,
    "ollama": Ollama,
    "tgi": Tgi,
    "openai": OpenAI,
}
