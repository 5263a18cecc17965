"""AgentFlow: a planner that is trained, and three modules that are not.

After "In-the-Flow Agentic System Optimization for Effective Planning and Tool Use" (arXiv
2510.05592). As in its public code, a frozen model analyses the query, and a step that names no tool
is spent; the prompts are our own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import orjson

from ...chats import without_thoughts
from ...json_text import json_objects
from ...sampling.tokenizer import Messages
from ..flow import Flow
from ..model import FrozenModel
from ..play import Play, TrajectoryEnd
from ..tool import ToolFunction, described
from ..trajectory import POLICY_ENDS, Task

_ANALYSE = """\
Analyse a query that is to be answered with the help of tools: its objective, the skills and the
tools that it needs, and what each of them contributes. Be brief and precise."""
_PLAN = """\
Plan the next step towards an answer to the query. Choose the one tool that helps most now, and a
sub-goal that this tool can reach by itself. Give it all that it needs to know, such as numbers and
names from earlier steps: it sees nothing else.
Explain your choice. Then write one JSON object, and nothing after it:
{"context": what the tool needs to know, "sub_goal": what it is to find out, "tool": its name}"""
_EXECUTE = """\
Write the arguments of a tool call that reaches the sub-goal. Answer with one JSON object that fits
the tool's parameters, and with nothing else."""
_VERIFY = """\
Judge whether the steps so far are enough to answer the query. Are all its parts covered? Do results
contradict each other, or need to be checked? Could a tool still contribute something?
Explain briefly, and end with the word STOP if the query can be answered now, or CONTINUE if not."""
_GENERATE = """\
Answer the query by what the steps have found out. Sum up what each of them contributed, and end
with the answer itself, which must be direct and precise."""
_EXPECTED = 'expected one JSON object, {"context": "...", "sub_goal": "...", "tool": name}'
_CONCLUSION = re.compile(r"\b(STOP|CONTINUE)\b")


class Agentflow(Flow):
    """A planner, which is trained, works on a query in steps: it chooses a sub-goal and a tool. A
    frozen executor writes the call, a frozen verifier decides whether to go on, and a frozen
    generator writes the answer from what the steps have found out.

    Every step is one turn of the policy. When its turns are used up, the answer is generated from
    what there is.
    """

    frozen: FrozenModel
    """The model of all frozen modules, except those named below."""
    executor: FrozenModel | None = None
    """The model that writes the arguments of tool calls."""
    verifier: FrozenModel | None = None
    """The model that decides whether the steps so far are enough."""
    generator: FrozenModel | None = None
    """The model that analyses the query, and in the end answers it."""
    train_analysis: bool = False
    """Whether the policy analyses the query itself, in a turn that is trained, too."""

    code: ClassVar[str | None] = "1"

    def models(self) -> Mapping[str, FrozenModel]:
        return {
            "executor": self.executor or self.frozen,
            "verifier": self.verifier or self.frozen,
            "generator": self.generator or self.frozen,
        }

    async def run(self, task: Task, play: Play) -> str | None:
        query = "\n\n".join(content for _, content in task.messages)
        about = {"Query": query, "Tools": _listed(play.tools)}
        asked = _prompt(_ANALYSE, about)
        try:
            analysis = (
                (await play.act(asked)).text
                if self.train_analysis
                else await play.ask("generator", asked)
            )
            about["Analysis of the query"] = without_thoughts(analysis).strip()
            while play.turns_left and await self._step(about, play):
                pass
        except TrajectoryEnd as end:
            if end.reason not in POLICY_ENDS:
                raise
        answer = await play.ask("generator", _prompt(_GENERATE, about, play.memory))
        return without_thoughts(answer).strip()

    async def _step(self, about: Mapping[str, str], play: Play) -> bool:
        """Take a step, and say whether another one is needed."""
        action = await play.act(_prompt(_PLAN, about, play.memory))
        place = f"step {len(play.memory) + 1}"
        plan = _plan(action.text)
        if plan is None:
            play.memory[place] = {"result": play.refuse(_EXPECTED).text}
            return True
        arguments = await self._arguments(plan, about, play)
        found = await play.call(plan["tool"], arguments)
        play.memory[place] = {**plan, "arguments": arguments, "result": found.text}
        verdict = await play.ask("verifier", _prompt(_VERIFY, about, play.memory))
        conclusions = _CONCLUSION.findall(without_thoughts(verdict))
        return conclusions[-1:] != ["STOP"]

    async def _arguments(
        self, plan: Mapping[str, str], about: Mapping[str, str], play: Play
    ) -> Mapping[str, Any] | str:
        tools = [each for each in play.tools if each.name == plan["tool"]]
        if not tools:
            return {}  # The call says which tools there are; no model is asked for it.
        shown = {
            "Query": about["Query"],
            "Sub-goal": plan["sub_goal"],
            "What is known": plan["context"],
            "Tool": _listed(tools),
        }
        text = without_thoughts(await play.ask("executor", _prompt(_EXECUTE, shown)))
        objects = json_objects(text)
        return objects[-1].fields if objects else text


def _plan(text: str) -> dict[str, str] | None:
    """The planner's choice: the last object in its text, if that is complete."""
    objects = json_objects(without_thoughts(text))
    fields = objects[-1].fields if objects else {}
    names = ("context", "sub_goal", "tool")
    if not isinstance(fields.get("sub_goal"), str) or not isinstance(fields.get("tool"), str):
        return None
    found = {name: fields.get(name, "") for name in names}
    return {
        name: each if isinstance(each, str) else json.dumps(each) for name, each in found.items()
    }


def _prompt(
    instructions: str, about: Mapping[str, str], memory: Mapping[str, Any] | None = None
) -> Messages:
    parts = [f"{title}:\n{text}" for title, text in about.items()]
    if memory is not None:
        steps = (
            f"{place}: {json.dumps(step, ensure_ascii=False)}" for place, step in memory.items()
        )
        parts.append("Steps so far:\n" + ("\n".join(steps) or "none"))
    return (("user", "\n\n".join([instructions, *parts])),)


def _listed(tools: Sequence[ToolFunction]) -> str:
    return "\n".join(orjson.dumps(described(each)["function"]).decode() for each in tools)
