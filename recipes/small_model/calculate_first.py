"""A flow for a policy that writes plain sentences: the first formula in them is calculated."""

from __future__ import annotations

import re

from rejuice.operators.agents import Flow, Play, Task

_FORMULA = re.compile(r"\d+(?: ?[-+] ?\d+)+")


class CalculateFirst(Flow):
    """Calculate the first formula that the policy writes, then let it answer.

    The calculator is the only tool. A policy that writes no formula has answered.
    """

    code = "1"

    async def run(self, task: Task, play: Play) -> str | None:
        first = await play.act(task.messages)
        formula = _FORMULA.search(first.text)
        if formula is None:
            return first.text
        found = await play.call_text("calculator", formula[0])
        *before, (role, question) = task.messages
        seen = f"{question}\n{formula[0]} = {found.text}"
        return (await play.act((*before, (role, seen)))).text
