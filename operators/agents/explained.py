"""Flows, tools and trajectories in words, for `rejuice explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..sampling.protocol import Failure, Prompt
from ..sampling.tokenizer import Messages
from ..servers.concurrency import LoopThread
from .flow import Flow
from .model import ModelError
from .play import Limits
from .runner import play_trajectory
from .tool import Tool, ToolFunction, close_all
from .toolbox import Toolbox
from .trajectory import TOOL, Task, Turn, turns_of

_WIDEST = 160


def first_prompt(flow: Flow, tools: Sequence[Tool], prompt: Messages) -> Messages | None:
    """What the policy sees first; None where frozen models, which are not asked, come before it.

    Raises:
        ToolError: a tool cannot say what it has.
    """
    loop = LoopThread("a first prompt")
    try:
        return loop.run(_first_prompt(flow, tools, prompt))
    finally:
        loop.close()


def functions_of(tools: Sequence[Tool]) -> list[ToolFunction]:
    """What tools give the policy to call.

    Raises:
        ToolError: a tool cannot say what it has.
    """
    loop = LoopThread("descriptions of tools")
    try:
        return loop.run(_functions_of(tools))
    finally:
        loop.close()


def holds_turns(cell: Any) -> bool:
    """Whether a cell has the turns of a trajectory: a dataset may have a `turns` of its own."""
    fields = set(Turn._fields)
    return isinstance(cell, list) and all(
        isinstance(each, dict) and each.keys() == fields for each in cell
    )


def turn_lines(cell: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A line for each turn of a trajectory.

    Returns:
        What happened, such as `2. search {"query": "apples"}, ok`, and what was written or seen.
    """
    return dict(_line(number, turn) for number, turn in enumerate(turns_of(cell), 1))


def _line(number: int, turn: Turn) -> tuple[str, str]:
    if turn.role != TOOL:
        sizes = [] if turn.token_ids is None else [f"{len(turn.token_ids)} tokens"]
        cut = ["cut off"] if turn.finish_reason == "length" else []
        return f"{number}. {', '.join([turn.role, *sizes, *cut])}", _shown(turn.text or "")
    called = " ".join(f"{turn.tool or ''} {turn.arguments or ''}".split())
    what = [_shown(called)] if called else []
    return f"{number}. {', '.join([*what, str(turn.status)])}", _shown(turn.observation or "")


def _shown(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}… ({len(text):,} characters)"


class _Seen:
    """Samples nothing, and keeps the first prompt."""

    messages: Messages | None = None

    async def sample(self, prompt: Prompt, max_tokens: int) -> Failure:
        self.messages = self.messages or prompt.messages
        return Failure("not_sampled", "")


class _Silent:
    """In place of a frozen model: it gives no answer."""

    async def ask(self, messages: Messages) -> str:
        raise ModelError("it is not asked")

    async def close(self) -> None:
        pass


async def _first_prompt(flow: Flow, tools: Sequence[Tool], prompt: Messages) -> Messages | None:
    seen = _Seen()
    functions = await _functions_of(tools)
    await play_trajectory(
        flow,
        Task("", prompt, dict.fromkeys(flow.reads())),
        sampler=seen,
        encode=None,
        toolbox=Toolbox(functions),
        models=dict.fromkeys(flow.models(), _Silent()),
        limits=Limits(1, None),
        seed=0,
        index=0,
    )
    return seen.messages


async def _functions_of(tools: Sequence[Tool]) -> list[ToolFunction]:
    try:
        return [each for tool in tools for each in await tool.functions()]
    finally:
        await close_all(*tools)
