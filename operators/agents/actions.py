"""Actions as a policy writes them: a tool call, an answer, or neither."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from ..thoughts import without_thoughts
from .json_text import json_objects
from .play import Action

_CLOSES_CALL = re.compile(r"\s*</tool_call>")


class Call(NamedTuple):
    """A tool call.

    Attributes:
        shown: the action as the policy sees it in later turns, without thoughts and afterthoughts.
        tool: its name.
        arguments: by name, or as plain text.
    """

    shown: str
    tool: str
    arguments: Mapping[str, Any] | str


class Answer(NamedTuple):
    """A final answer."""

    shown: str
    text: str


class Malformed(NamedTuple):
    """An action that is neither."""

    shown: str


Move: TypeAlias = Call | Answer | Malformed


def read_line(action: Action) -> Move:
    """The action in one line, `tool: its input` or `answer: text`, after the thoughts if any.

    >>> read_line(Action("calculate: 8 * 46", cut_off=False))
    Call(shown='calculate: 8 * 46', tool='calculate', arguments='8 * 46')

    A text of several lines is malformed, and so is one that was cut off: its end is not known.
    """
    text = without_thoughts(action.text)
    # Shown in one line, or a second one could pass for an observation.
    line, shown = text.strip(), " ".join(text.split())
    name, colon, text = (part.strip() for part in line.partition(":"))
    if action.cut_off or "\n" in line or not (name and colon):
        return Malformed(shown)
    return Answer(shown, text) if name == "answer" else Call(shown, name, text)


def read_json(action: Action) -> Move:
    """The action in a text with one JSON object.

    The object is `{"tool": …, "arguments": {…}}` or `{"answer": …}`. A call is also read as models
    were trained to write it: `{"name": …, "arguments": {…}}`, or `parameters` for `arguments`,
    perhaps within `<tool_call>`. Backslashes of LaTeX in it stay what they are, see `json_text`.

    Thoughts before it are ignored, even if they contain objects; one that is not closed was cut
    off, and nothing in it is an action. Ignored is also what follows the object, where models like
    to invent an observation; but a second action there is malformed.
    """
    text = without_thoughts(action.text)
    found = [each for each in json_objects(text) if _is_action(each.fields)]
    if len(found) != 1:
        return Malformed(text.strip() or action.text.strip())
    ((fields, end, begin),) = found
    shown = text[: _end_of_call(text, end)].strip()
    if fields.keys() == {"answer"}:
        (answer,) = json_objects(text[begin:end], is_program=False)[0].fields.values()
        return Answer(shown, answer if isinstance(answer, str) else json.dumps(answer))
    fields = _as_call(fields)
    tool, arguments = fields.get("tool"), fields.get("arguments", {})
    if not isinstance(tool, str) or not fields.keys() <= {"tool", "arguments"}:
        return Malformed(shown)
    if not isinstance(arguments, (dict, str)):
        return Malformed(shown)
    return Call(shown, tool, arguments)


def _is_action(fields: dict[str, Any]) -> bool:
    return bool({"tool", "answer"} & fields.keys()) or _as_call(fields) is not fields


def _as_call(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a call as `tool` and `arguments`, where they have the names of other forms."""
    for name in ("arguments", "parameters"):
        if {"name", name} <= fields.keys() <= {"name", name, "type", "id"}:
            return {"tool": fields["name"], "arguments": fields[name]}
    return fields


def _end_of_call(text: str, end: int) -> int:
    """Where a call ends whose JSON ends there: after the tag that closes it, if there is one."""
    closed = _CLOSES_CALL.match(text, end)
    return closed.end() if closed else end
