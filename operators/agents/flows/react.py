"""ReAct: the policy acts, sees what that gave, and acts again, until it answers.

After "ReAct: Synergizing Reasoning and Acting in Language Models" (arXiv 2210.03629).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import orjson
from pydantic import Field

from ...chats import without_thoughts
from ...json_text import json_objects
from ...sampling.tokenizer import Encode, Messages
from ..flow import Flow
from ..play import Action, Play, growing_chat
from ..tool import ToolFunction, described
from ..trajectory import Task

# --- Actions as a policy writes them: a tool call, an answer, or neither --------------

_CLOSES_CALL = re.compile(r"\s*</tool_call>")


class Call(NamedTuple):
    """A tool call; `shown` is the action as the policy sees it later, without thoughts."""

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
    found = [
        each
        for each in json_objects(text)
        if {"tool", "answer"} & each.fields.keys() or _as_call(each.fields) is not each.fields
    ]
    if len(found) != 1:
        return Malformed(text.strip() or action.text.strip())
    ((fields, end, begin),) = found
    closed = _CLOSES_CALL.match(text, end)
    shown = text[: closed.end() if closed else end].strip()
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


def _as_call(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a call as `tool` and `arguments`, where they have the names of other forms."""
    for name in ("arguments", "parameters"):
        if {"name", name} <= fields.keys() <= {"name", name, "type", "id"}:
            return {"tool": fields["name"], "arguments": fields[name]}
    return fields


# --- ReAct: the policy acts, sees what that gave, and acts again, until it answers ----

JSON_INSTRUCTIONS = """\
Work on the task step by step, with the help of tools. Write exactly one JSON object each time: \
{"tool": name, "arguments": {...}} to call a tool, whose result you see next, or \
{"answer": "..."} to give the final answer. The tools are:
{tools}"""
"""What a policy reads by default with `format: json`."""


class PastStep(NamedTuple):
    """An action of the policy, and what it saw then."""

    action: str
    observation: str


def messages(
    prompt: Messages, steps: Sequence[PastStep], instructions: str | None = None
) -> Messages:
    """What the policy reads in a turn: the prompt, and below it all that has happened since.

    Each step is a line with the action and a line `-> observation` at the end of the last message.
    Instructions are a system message, or the beginning of the prompt's own.

    >>> messages((("user", "How much are 8 at 46?"),), [PastStep("calculate: 8 * 46", "368")])
    (('user', 'How much are 8 at 46?\\ncalculate: 8 * 46\\n-> 368'),)
    """
    *before, (role, content) = prompt
    lines = [content]
    for step in steps:
        lines += [step.action, f"-> {step.observation}"]
    whole = (*before, (role, "\n".join(lines)))
    if instructions is None:
        return whole
    if whole[0][0] == "system":
        return (("system", f"{instructions}\n\n{whole[0][1]}"), *whole[1:])
    return (("system", instructions), *whole)


class React(Flow):
    """The policy acts, sees what that gave, and acts again, until it answers or a budget ends."""

    format: Literal["json", "lines"] = "json"
    """How an action is written. `json`: one JSON object, `{"tool": "…", "arguments": {…}}` or
    `{"answer": "…"}`, after whatever the policy thinks. `lines`: one line, `tool: its input` or
    `answer: …`; for small policies."""
    context: Literal["memory", "append"] = "memory"
    """What the policy sees of earlier turns. `memory`: its actions and observations, below the
    question of a new prompt. `append`: one growing chat, with all that it wrote, token by token;
    only for chat templates that leave earlier messages, and thoughts in them, as they are."""
    instructions: str | None = None
    """System message; `{tools}` in it is replaced by the tools, as JSON. Null: with `json`, the
    tools and how to call them; with `lines`, there is none."""
    actions: dict[str, str] = Field({"calculate": "calculator"})
    """Tools that the policy calls by another name in `lines`: that name, then the tool's."""

    code: ClassVar[str | None] = "1"

    def check(self, encode: Encode | None) -> None:
        if self.context == "append":
            growing_chat(encode)

    async def run(self, task: Task, play: Play) -> str | None:
        instructions = self._instructions(play.tools)
        steps: list[PastStep] = []
        while True:
            if steps and self.context == "append":
                action = await play.reply(steps[-1].observation)
            else:
                action = await play.act(messages(task.messages, steps, instructions))
            move = self._read(action)
            if isinstance(move, Answer):
                return move.text
            steps.append(PastStep(move.shown, await self._observation(move, play)))

    def _instructions(self, tools: Sequence[ToolFunction]) -> str | None:
        text = self.instructions
        if text is None and self.format == "json":
            text = JSON_INSTRUCTIONS
        if text is None or "{tools}" not in text:
            return text
        lines = [orjson.dumps(described(each)["function"]).decode() for each in tools]
        return text.replace("{tools}", "\n".join(lines))

    def _read(self, action: Action) -> Move:
        return read_line(action) if self.format == "lines" else read_json(action)

    async def _observation(self, move: Move, play: Play) -> str:
        if isinstance(move, (Answer, Malformed)):
            return play.refuse(self._expected(play.tools)).text
        tool, arguments = move.tool, move.arguments
        if self.format == "lines":
            called = await play.call_text(self.actions.get(tool, tool), str(arguments))
        else:
            called = await play.call(tool, arguments)
        return called.text

    def _expected(self, tools: Sequence[ToolFunction]) -> str:
        if self.format == "json":
            return (
                'expected exactly one JSON object, {"tool": name, "arguments": {...}} or '
                '{"answer": "..."}'
            )
        shown = {tool: name for name, tool in self.actions.items()}
        names = [shown.get(each.name, each.name) for each in tools]
        return "expected one line: " + " or ".join(f"{name}: ..." for name in (*names, "answer"))
