"""The requests to an OpenAI-compatible server and its answers, as JSON."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, FiniteFloat, ValidationError, model_validator

from ..errors import EngineError
from ..json_text import as_utf8
from ..logs import redact
from .options import Dialect

# --- Messages of a chat ---------------------------------------------------------------
# A server that is set up to (vLLM by `--reasoning-parser` and `--tool-call-parser`) gives the
# thought and the tool calls of a response apart from its text. Here they are put back, in the form
# in which most models write them.

_OPENS, _CLOSES = "<think>", "</think>"
_FIELDS = {"text": "text", "output_text": "text", "thinking": "thinking", "refusal": "refusal"}
"""Where the parts of each kind have their text."""
_LONGEST_KIND = 40  # characters of one that is not known


class ChatMessage(BaseModel):
    """The message of a choice in a chat completion, in whatever fields the server has put it."""

    # its text, without what the server gives apart from it; empty where the model wrote none, None
    # where there is no message or only tool calls
    content: str | None = None
    refusal: str | None = None  # why the model refuses to answer
    thought: str = ""  # what it thought before, if the server gives that apart
    calls: tuple[str, ...] = ()  # its tool calls as models write them, if the server does

    @model_validator(mode="before")
    @classmethod
    def _from_fields_of_servers(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping):
            return fields
        content, refusal = fields.get("content"), fields.get("refusal")
        thoughts = [fields.get("reasoning_content"), fields.get("reasoning")]
        if isinstance(content, list):
            texts = defaultdict[str, str](str)
            for field, text in _texts(content):
                texts[field] += text
            thoughts.append(texts["thinking"])
            refusal, content = refusal or texts["refusal"], texts.get("text")
        legacy = fields.get("function_call")
        has_legacy = isinstance(legacy, Mapping) and any(legacy.values())
        called = fields.get("tool_calls") or ([{"function": legacy}] if has_legacy else [])
        if content is None and fields and not called:
            content = ""  # The first token that was sampled ended it, or it is all thought.
        return {
            "content": content,
            "refusal": refusal,
            "thought": next((each for each in thoughts if each and isinstance(each, str)), ""),
            "calls": tuple(_calls(called)),
        }

    def whole_text(self) -> str | None:
        r"""All that the model wrote; None where there is no message, or a call that is none.

        A thought without anything after it is not closed: it may have been cut off.

        >>> message = {"reasoning": "3 * 4 is 12.", "content": "It is 12."}
        >>> ChatMessage.model_validate(message).whole_text()
        '<think>\n3 * 4 is 12.\n</think>\n\nIt is 12.'
        """
        parts = [*filter(None, [self.content]), *self.calls]
        text, thought = "\n".join(parts), self.thought
        if not thought or text.lstrip().startswith(_OPENS):
            return text if parts else self.content
        # A server may have stripped both, or neither.
        opened = _OPENS + ("" if thought.startswith("\n") else "\n") + thought
        if not text:
            return opened
        closed = opened + ("" if thought.endswith("\n") else "\n") + _CLOSES
        return closed + ("" if text.startswith("\n") else "\n\n") + text


def _texts(parts: list[Any]) -> Iterator[tuple[str, str]]:
    """The texts of parts, which may have parts themselves, each with the field that it stands in;
    a ValueError where a part is something else than a text, a thought or a refusal."""
    for part in parts:
        if isinstance(part, str):
            yield "text", part
            continue
        if not isinstance(part, Mapping):
            raise ValueError(f"content has a part that is {str(part)[:_LONGEST_KIND]!r}")
        kind = str(part.get("type") or "text")
        field = _FIELDS.get(kind)
        if field is None:
            raise ValueError(f"content has a part of kind {kind[:_LONGEST_KIND]!r}, not text")
        text = part.get(field)
        if isinstance(text, list):
            yield from ((field, inner) for _, inner in _texts(text))
        elif isinstance(text, str):
            yield field, text
        else:
            raise ValueError(f"content has a part of kind {kind!r} without a text")


def _calls(tool_calls: Any) -> Iterator[str]:
    for each in tool_calls if isinstance(tool_calls, list) else ():
        function = each.get("function") if isinstance(each, Mapping) else None
        if isinstance(function, Mapping) and isinstance(name := function.get("name"), str):
            arguments = function.get("arguments") or "{}"
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            with suppress(ValueError, RecursionError):
                if isinstance(json.loads(arguments, strict=False), dict):  # As it was written.
                    call = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
            yield f"<tool_call>\n{call}\n</tool_call>"


# --- Answers, and what an error means -------------------------------------------------

WireModel = TypeVar("WireModel", bound=BaseModel)
_BUSY = frozenset({408, 425, 429})
_UNSUPPORTED = frozenset({501, 505})  # Not implemented, and the like: retrying cannot help.
_REFUSED = frozenset({400, 413, 414, 422, 451})
_PAYMENT_REQUIRED = 402
_NOT_PAID = frozenset({"insufficient_quota", "billing_not_active", "exceeded_current_quota_error"})
"""Codes of errors that pass only once someone pays, whatever status they come with."""
_PLAIN_KEY = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z][\w-]*", re.IGNORECASE)
"""Text that YAML reads as the same text without quotes."""

ENDINGS = ("stop", "length")
_FAILED = ("error", "abort")  # Finish reasons of responses that are not whole.
_PLAIN = Dialect()

Api: TypeAlias = Literal["completions", "chat", "generate"]
"""Endpoint of the server: `/v1/completions` with token ids, `/v1/chat/completions`, which applies
the chat template itself, or vLLM's own `/inference/v1/generate`, which states weight versions."""


class RetryClass(Enum):
    """Why an attempt failed, which decides how much of a request's attempts it uses up."""

    OVERLOADED = "overloaded"
    """The server has too many requests. Uses up no attempt: only time bounds it."""
    SERVER_FAILED = "server_failed"
    """The server failed, perhaps only for now. Uses up one attempt."""
    BAD_ANSWER = "bad_answer"
    """The answer is unusable. Uses up a third of the attempts: a proxy may have truncated it, but
    the same seed mostly gives the same answer."""
    REFUSED = "refused"
    """The server refuses the request and will refuse it again. Uses up all attempts."""

    def cost(self, attempts: int) -> int:
        return {
            RetryClass.OVERLOADED: 0,
            RetryClass.SERVER_FAILED: 1,
            RetryClass.BAD_ANSWER: -(-attempts // 3),
            RetryClass.REFUSED: attempts,
        }[self]


class AttemptError(Exception):
    """An attempt at a request that gave no usable answer.

    `reason` is a slug, `detail` the server's message or what was wrong, `after` the seconds that
    the server asks to wait, and `right` what to set so that it may answer; empty if unknown.
    """

    def __init__(
        self,
        reason: str,
        detail: str,
        retry_class: RetryClass,
        *,
        after: float = 0.0,
        right: str = "",
    ) -> None:
        self.reason, self.detail, self.retry_class = reason, redact(detail), retry_class
        self.after, self.right = after, redact(right)
        super().__init__(reason, self.detail)

    @property
    def line(self) -> str:
        return f"{self.detail.rstrip('.')}; {self.right}" if self.right else self.detail


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    retry_after: str = ""
    location: str = ""


def endpoint(base: str, api: Api) -> str:
    """The address to post to.

    >>> endpoint("http://localhost:8000/v1", "generate")
    'http://localhost:8000/inference/v1/generate'
    """
    if api == "generate":
        return f"{base.removesuffix('/v1')}/inference/v1/generate"
    return f"{base}/chat/completions" if api == "chat" else f"{base}/completions"


def check_status(response: HttpResponse, base: str) -> None:
    """Pass a response with status 200. An AttemptError may pass with another attempt or prompt; an
    EngineError never does: the address or the key is wrong, or has no credit left."""
    status = response.status
    if status == 200:
        return
    message = f"{status}: {error_text(response.body)}"
    if (error := _error(status, response.body, base, message)) is not None:
        error.after = _seconds(response.retry_after)
        raise error
    if 300 <= status < 400:
        found = f"{base} redirects requests to '{response.location}'"
        raise EngineError(found, "set base_url to the address of the server")
    if status in (401, 403):
        raise EngineError(f"{base} answers {message}", "is the key right? see api_key_env")
    raise EngineError(f"{base} answers {message}", "is base_url right?")


def error_in_answer(body: bytes, base: str) -> AttemptError | None:
    """The error that an answer with status 200 is, as where a proxy passes on that of a server; an
    EngineError as in `check_status`."""
    found = _object_in(body)
    code = _status_in(found)
    is_error = isinstance(found.get("message"), str) and "choices" not in found
    is_error = is_error and (found.get("object") == "error" or (code or 0) >= 400)
    error = found.get("error") or (found if is_error else None)
    if not error:
        return None
    message = f"200, but an error: {error_text(body)}"
    code = _status_in(error) if isinstance(error, dict) else None
    known = _error(code, body, base, message)
    return known or AttemptError("server_error", message, RetryClass.SERVER_FAILED)


def _error(status: int | None, body: bytes, base: str, message: str) -> AttemptError | None:
    """The error with this status or code, where another attempt or prompt may succeed; an
    EngineError where the server answers only once someone has paid."""
    if status == _PAYMENT_REQUIRED or refusal_in(body).code in _NOT_PAID:
        right = "does the account of the key have credit? see api_key_env"
        raise EngineError(f"{base} answers {message.rstrip('.')}", right)
    if status in _REFUSED:
        return AttemptError("request_refused", message, RetryClass.REFUSED)
    if status == 429:
        return AttemptError("rate_limited", message, RetryClass.OVERLOADED)
    if status in _BUSY or ((status or 0) >= 500 and status not in _UNSUPPORTED):
        return AttemptError("server_error", message, RetryClass.SERVER_FAILED)
    return None


def served_models(models: HttpResponse) -> list[str]:
    try:
        return [str(entry["id"]) for entry in _object_in(models.body).get("data", ())]
    except (TypeError, LookupError):
        return []


def error_text(body: bytes) -> str:
    """The message of an error, from its JSON or its text: one line of at most 300 characters."""
    return " ".join(refusal_in(body).message.split())[:300]


class ServerRefusal(NamedTuple):
    """What a server says of a request: a message, and the field and the code, if it names them."""

    message: str
    param: str = ""
    code: str = ""


def refusal_in(body: bytes) -> ServerRefusal:
    """What a server says, in the form of OpenAI's API, of vLLM, of FastAPI, or as plain text."""
    found = _object_in(body)
    error = found.get("error") or found
    if isinstance(error, str):
        return ServerRefusal(error)
    if isinstance(error, dict) and isinstance(message := error.get("message"), str):
        names = [error.get(name) for name in ("param", "code", "type")]
        param, code, kind = (name if isinstance(name, str) else "" for name in names)
        return ServerRefusal(message, param, kind if kind in _NOT_PAID else code)
    with suppress(TypeError, LookupError):
        first = found["detail"][0]
        name = ".".join(str(part) for part in first["loc"] if part != "body")
        return ServerRefusal(f"{name}: {first['msg']}", name)
    return ServerRefusal(body[:300].decode(errors="replace"))


def _status_in(error: Mapping[str, Any]) -> int | None:
    code = str(error.get("code"))
    return int(code) if re.fullmatch("[1-9][0-9]{2}", code) else None


def _object_in(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(retry_after: str) -> float:
    """How long a `Retry-After` header asks to wait, given in seconds or as a date; otherwise 0."""
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)?", retry_after):
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


_Count = Annotated[int, BeforeValidator(lambda found: 0 if found is None else found)]


class ReportedUsage(BaseModel):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class LogProb(BaseModel):
    logprob: FiniteFloat


class ChatChoice(BaseModel):
    message: ChatMessage
    finish_reason: str | None = None


class ChatCompletion(BaseModel):
    choices: list[ChatChoice]  # and no field that not all who ask need

    def the_choice(self, dialect: Dialect = _PLAIN) -> ChatChoice:
        """Its only choice, which ended by itself (`stop`) or was cut off (`length`); an
        AttemptError if there is no such choice, or the model refuses to answer."""
        if len(self.choices) != 1:
            raise bad_response(f"{len(self.choices)} choices, not 1")
        (choice,) = self.choices
        check_not_refused(choice.message.refusal, choice.finish_reason)
        ending = dialect.ending(choice.finish_reason)
        if ending not in ENDINGS:
            raise unknown_ending("it", choice.finish_reason)
        return choice.model_copy(update={"finish_reason": ending})


def parse_body(kind: type[WireModel], body: bytes) -> WireModel:
    """The body of an answer as a model of that kind, or an AttemptError. Half a pair of surrogates,
    as of an emoji that was cut, is a `?` in it."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        if b"\\u" in body:
            with suppress(ValueError, RecursionError):
                whole = as_utf8(json.dumps(json.loads(body), ensure_ascii=False))
                return kind.model_validate_json(whole)
        if body.startswith(b"data:"):
            raise bad_response("a stream of events, which was not asked for") from None
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        message = first["msg"].removeprefix("Value error, ")  # Of a validator here.
        raise bad_response(f"{place}: {message}: {body[:80]!r}") from None


def check_not_refused(refusal: str | None, finish_reason: str | None) -> None:
    if refusal or finish_reason == "content_filter":
        detail = refusal or "the server's content filter"
        raise AttemptError("content_refused", detail, RetryClass.REFUSED)


def bad_response(detail: str, right: str = "") -> AttemptError:
    return AttemptError("bad_response", detail, RetryClass.BAD_ANSWER, right=right)


def unknown_ending(what: str, finish_reason: str | None, place: str = "") -> AttemptError:
    name = "null" if finish_reason is None else finish_reason
    if finish_reason is not None and not _PLAIN_KEY.fullmatch(name):
        name = json.dumps(name, ensure_ascii=not name.isprintable())  # As YAML has to have it.
    means, right = "stop", "if it is then complete, or length if it is cut off"
    if name in _FAILED:
        means, right = "length", "to take it as cut off"
    setting = in_server(place, f"finish_reasons: {{{name}: {means}}}")
    return bad_response(f"{what} finished with {finish_reason!r}", f"set {setting} {right}")


def in_server(place: str, field: str) -> str:
    """A field of `Dialect` as it stands in a recipe.

    >>> in_server("openai", "index: by_order")
    'openai: {server: {index: by_order}}'
    """
    text = f"server: {{{field}}}"
    return f"{place}: {{{text}}}" if place else text


# --- What to set where a server refuses a request -------------------------------------

_UNKNOWN = re.compile(
    r"unsupported|not (?:been )?(?:supported|implemented|permitted|allowed|recogni[sz]ed)|unknown|"
    r"unrecogni[sz]ed|unexpected|(?:does|do) not (?:support|accept|exist)|extra (?:inputs|fields)|"
    r"no such|not a valid|disallowed|use '?max_",
    re.IGNORECASE,
)
"""How servers say that they do not know a field, or never take it."""
_ABOUT_N = re.compile(
    r"(?<!\w)(?:['\"`]n['\"`]|n(?=\s*(?:[=<>]|must|should|has to|can ?not|can only|is |value))|"
    r"(?:parameter|argument|field|property):? n|n_cmpl)(?!\w)|"
    r"best_of|(?:completion|multiple|one|1) (?:choice|completion|sample)s?",
    re.IGNORECASE,
)
_ABOUT_FORMAT = ("response_format", "json_schema", "json_object", "structured output", "grammar")
_OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_FOR_TRAINING = ("return_token_ids", "logprobs", "top_k", "min_p", "repetition_penalty")


def advice(body: bytes, sent: Mapping[str, Any], dialect: Dialect, place: str = "") -> str:
    """What to set so that the server may take a request that it has refused, as an instruction;
    empty if it is unknown, or the prompt that is refused.

    >>> advice(b'{"error": {"message": "n must be 1"}}', {"n": 4}, Dialect(), "openai")
    'set openai: {server: {one_sample_per_request: true}}'
    """
    fields = {**sent, **sent.get("sampling_params", {})}
    for name, value in _candidates(refusal_in(body), fields, dialect):
        text = f"{name}: {value}"
        return f"set {in_server(place, text) if name in Dialect.model_fields else text}"
    return ""


def _candidates(
    refusal: ServerRefusal, sent: Mapping[str, Any], dialect: Dialect
) -> Iterator[tuple[str, str]]:
    is_unknown = bool(_UNKNOWN.search(refusal.message))
    for limit, other in _OTHER_LIMIT.items():
        # One that is too long for the prompt is named as well, often by both names.
        if limit in sent and is_unknown and _is_about(refusal, limit):
            yield "token_limit", other
    if sent.get("n", 1) != 1 and _is_about(refusal, "n"):
        yield "one_sample_per_request", "true"
    seed = sent.get("seed")
    if seed is not None and _is_about(refusal, "seed", str(seed)):
        is_refused = is_unknown and str(seed) not in refusal.message
        yield "seed", "none" if is_refused or dialect.seed == "32_bit" else "32_bit"
    if "response_format" in sent and _is_about(refusal, *_ABOUT_FORMAT):
        yield "answer_format", "text"
    for name in ("temperature", "top_p"):
        if name in sent and _is_about(refusal, name):
            yield ("defaults", "left_out") if sent[name] == 1 else (name, "1")
    for name in _FOR_TRAINING:
        if name in sent and is_unknown and _is_about(refusal, name):
            yield "on_policy", "false"
    if "chat_template_kwargs" in sent and is_unknown and _is_about(refusal, "chat_template_kwargs"):
        yield "chat_template_kwargs", "{}"


def _is_about(refusal: ServerRefusal, *words: str) -> bool:
    """Whether it is about one of these; where the server names a field, about no other one."""
    if refusal.param:
        return refusal.param.rpartition(".")[2] in words
    if words == ("n",):
        return bool(_ABOUT_N.search(refusal.message))
    named = "|".join(map(re.escape, words))
    return bool(re.search(rf"(?<!\w)(?:{named})(?!\w)", refusal.message, re.IGNORECASE))
