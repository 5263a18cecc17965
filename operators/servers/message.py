"""A message of a chat as a model wrote it, whatever the server has taken out of its text.

A server that is set up to (vLLM by `--reasoning-parser` and `--tool-call-parser`) gives the thought
and the tool calls of a response apart from its text. Here they are put back, in the form in which
most models write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, model_validator

_OPENS, _CLOSES = "<think>", "</think>"
_CALL, _END_OF_CALL = "<tool_call>\n", "\n</tool_call>"
_FIELDS = {"text": "text", "output_text": "text", "thinking": "thinking", "refusal": "refusal"}
"""Where the parts of each kind have their text."""
_LONGEST_KIND = 40  # characters of one that is not known


class ChatMessage(BaseModel):
    """The message of a choice in a chat completion.

    Attributes:
        content: its text, without what the server gives apart from it; empty where the model wrote
            none, None where there is no message or only tool calls.
        refusal: why the model refuses to answer.
        thought: what it thought before, if the server gives that apart.
        calls: its tool calls, if the server gives them apart: a name, and arguments as the model
            wrote them, or as an object.
    """

    content: str | None = None
    refusal: str | None = None
    thought: str = ""
    calls: tuple[tuple[str, str | dict[str, Any]], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_fields_of_servers(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping):
            return fields
        names = ("reasoning_content", "reasoning")
        thoughts = [fields[name] for name in names if isinstance(fields.get(name), str)]
        content, refusal = fields.get("content"), fields.get("refusal")
        if isinstance(content, list):
            texts = list(_texts(content))
            thoughts += ["".join(text for field, text in texts if field == "thinking")]
            refusal = refusal or "".join(text for field, text in texts if field == "refusal")
            found = [text for field, text in texts if field == "text"]
            content = "".join(found) if found else None
        legacy = fields.get("function_call")
        has_legacy = isinstance(legacy, Mapping) and any(legacy.values())
        called = fields.get("tool_calls") or ([{"function": legacy}] if has_legacy else [])
        if content is None and fields and not called:
            content = ""  # The first token that was sampled ended it, or it is all thought.
        return {
            "content": content,
            "refusal": refusal,
            "thought": next(filter(None, thoughts), ""),
            "calls": tuple(_calls(called)),
        }

    def whole_text(self) -> str | None:
        r"""All that the model wrote; None where there is no message, or a call that is none.

        A thought without anything after it is not closed: it may have been cut off.

        Example:
            >>> message = {"reasoning": "3 * 4 is 12.", "content": "It is 12."}
            >>> ChatMessage.model_validate(message).whole_text()
            '<think>\n3 * 4 is 12.\n</think>\n\nIt is 12.'
            >>> ChatMessage.model_validate({"reasoning": "3 * 4"}).whole_text()
            '<think>\n3 * 4'
        """
        calls = [_CALL + _call_text(*call) + _END_OF_CALL for call in self.calls]
        parts = [*filter(None, [self.content]), *calls]
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
    """The texts of parts, which may have parts themselves, each with the field that it stands in.

    Raises:
        ValueError: a part is something else than a text, a thought or a refusal.
    """
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


def _calls(tool_calls: Any) -> Iterator[tuple[str, str | dict[str, Any]]]:
    for each in tool_calls if isinstance(tool_calls, list) else ():
        function = each.get("function") if isinstance(each, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            arguments = function.get("arguments")
            yield function["name"], arguments if isinstance(arguments, (str, dict)) else {}


def _call_text(name: str, arguments: str | Mapping[str, Any]) -> str:
    """A call as a JSON object, its arguments as they were written where that is an object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(text or "{}", strict=False), dict):
            return f'{{"name": {json.dumps(name)}, "arguments": {text or "{}"}}}'
    return json.dumps({"name": name, "arguments": text}, ensure_ascii=False)
