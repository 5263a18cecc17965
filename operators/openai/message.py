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


class ChatMessage(BaseModel):
    """The message of a choice in a chat completion.

    Attributes:
        content: its text, without what the server gives apart from it.
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
        content = fields.get("content")
        if isinstance(content, list):
            thoughts += ["".join(_texts(content, "thinking"))]
            content = "".join(_texts(content, "text"))
        return {
            "content": content,
            "refusal": fields.get("refusal"),
            "thought": next(filter(None, thoughts), ""),
            "calls": tuple(_calls(fields.get("tool_calls"))),
        }

    def whole_text(self) -> str | None:
        r"""All that the model wrote; None where there is nothing but a content of null.

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


def _texts(parts: list[Any], kind: str) -> Iterator[str]:
    """The texts of the parts of one kind, which may have parts themselves."""
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") == kind:
            text = part.get(kind)
            if isinstance(text, list):
                yield from _texts(text, "text")
            elif isinstance(text, str):
                yield text


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
