"""Actions as a policy writes them: a tool call, an answer, or neither."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from .play import Action

_decoder = json.JSONDecoder(strict=False)  # Models write programs with line breaks in strings.


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
    """The action in one line, `tool: its input` or `answer: text`.

    >>> read_line(Action("calculate: 8 * 46", cut_off=False))
    Call(shown='calculate: 8 * 46', tool='calculate', arguments='8 * 46')

    A text of several lines is malformed, and so is one that was cut off: its end is not known.
    """
    # Shown in one line, or a second one could pass for an observation.
    line, shown = action.text.strip(), " ".join(action.text.split())
    name, colon, text = (part.strip() for part in line.partition(":"))
    if action.cut_off or "\n" in line or not (name and colon):
        return Malformed(shown)
    return Answer(shown, text) if name == "answer" else Call(shown, name, text)


def read_json(action: Action) -> Move:
    """The action in a text with one JSON object.

    The object is `{"tool": …, "arguments": {…}}` or `{"answer": …}`. Thoughts before it are
    ignored, up to the last `</think>` even if they contain objects. So is what follows it, where
    models like to invent an observation; but a second action there is malformed.
    """
    text = without_thoughts(action.text)
    found = [each for each in json_objects(text) if {"tool", "answer"} & each.fields.keys()]
    if len(found) != 1:
        return Malformed(text.strip())
    ((fields, end),) = found
    shown = text[:end].strip()
    if fields.keys() == {"answer"}:
        answer = fields["answer"]
        return Answer(shown, answer if isinstance(answer, str) else json.dumps(answer))
    tool, arguments = fields.get("tool"), fields.get("arguments", {})
    if not isinstance(tool, str) or not fields.keys() <= {"tool", "arguments"}:
        return Malformed(shown)
    if not isinstance(arguments, (dict, str)):
        return Malformed(shown)
    return Call(shown, tool, arguments)


def without_thoughts(text: str) -> str:
    """What a model wrote after its thoughts, if it marks them by `<think>` and `</think>`."""
    return text.rpartition("</think>")[2]


class JsonObject(NamedTuple):
    """A JSON object in a text: its fields, and the place in the text where it ends."""

    fields: dict[str, Any]
    end: int


def json_objects(text: str) -> list[JsonObject]:
    """The JSON objects in a text, in order, without those within others.

    >>> json_objects('No {braces}. {"answer": {"apples": 3}}')
    [JsonObject(fields={'answer': {'apples': 3}}, end=38)]
    """
    found, place = list[JsonObject](), text.find("{")
    while place >= 0:
        try:
            fields, end = _decoder.raw_decode(text, place)
            # Half of a pair of surrogates can be written in JSON, but nowhere else.
            json.dumps(fields, ensure_ascii=False).encode()
            found.append(JsonObject(fields, end))
            place = end
        except (ValueError, RecursionError):  # No JSON, or a number of thousands of digits.
            place += 1
        place = text.find("{", place)
    return found
