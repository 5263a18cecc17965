"""Trajectories without an engine: policies that follow a script, and a clock that skips waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from rejuice.operators.agents.flow import Flow
from rejuice.operators.agents.model import ModelError
from rejuice.operators.agents.play import Model, Play
from rejuice.operators.agents.runner import play_trajectory
from rejuice.operators.agents.tool import Tool
from rejuice.operators.agents.toolbox import Toolbox
from rejuice.operators.agents.trajectory import Task, Trajectory
from rejuice.operators.errors import EngineError
from rejuice.operators.sampling.protocol import Failure, Group, Prompt, Sample
from rejuice.operators.sampling.tokenizer import Messages

T = TypeVar("T")
END = 0


def encode(messages: Messages) -> list[int]:
    """Tokens are bytes; a message ends with END, and a prompt with an `a:`."""
    ids: list[int] = []
    for role, content in messages:
        ids += [*f"{role[0]}:{content}".encode(), END]
    return [*ids, *b"a:"]


class ScriptedPolicy:
    """A sampler whose policy says one thing after the other.

    Args:
        says: its actions; None waits for ever, a Failure or an error is what the engine gives.
    """

    def __init__(self, *says: str | Failure | Exception | None) -> None:
        self.says, self.prompts = says, list[Prompt]()

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group | Failure:
        assert prompt.max_tokens == max_tokens
        self.prompts.append(prompt)
        answer = self.says[len(self.prompts) - 1]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Failure):
            return answer
        if isinstance(answer, Exception):
            raise answer
        ids = (*str(answer).encode(), END)[:max_tokens]
        stopped = ids[-1] == END
        text = bytes(ids[:-1] if stopped else ids).decode(errors="replace")
        sample = Sample(text, ids, (-1.0,) * len(ids), "stop" if stopped else "length")
        return Group("p", 3, prompt.seed, prompt.token_ids, (sample,))


class Says:
    """A frozen model that gives the same answer always; None: no answer."""

    def __init__(self, *texts: str | None) -> None:
        self._texts, self.asked = list(texts), list[Messages]()

    async def ask(self, messages: Messages) -> str:
        self.asked.append(messages)
        text = self._texts.pop(0) if len(self._texts) > 1 else self._texts[0]
        if text is None:
            raise ModelError("the server is down")
        return text

    async def close(self) -> None: ...


def task(question: str = "why?", **columns: Any) -> Task:
    return Task("q", (("user", question),), columns)


def played(
    flow: Flow,
    *says: str | Failure | EngineError | None,
    tools: Sequence[Tool] = (),
    about: Task | None = None,
    models: Mapping[str, Model] | None = None,
    policy: ScriptedPolicy | None = None,
    max_tokens: int = 100,
    max_prompt_tokens: int | None = None,
    encoded: Callable[[Messages], Sequence[int]] | None = encode,
) -> Trajectory:
    """The trajectory of a policy that says `says`; nothing waits."""

    async def trajectory() -> Trajectory:
        play = Play(
            about or task(),
            flow,
            sampler=policy or ScriptedPolicy(*says),
            encode=encoded,
            toolbox=await Toolbox.of(tools),
            models=flow.models() if models is None else models,
            max_tokens=max_tokens,
            max_prompt_tokens=max_prompt_tokens,
            seed=7,
            index=0,
        )
        return await play_trajectory(flow, play)

    return run(trajectory())


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of work in a loop whose clock skips waiting."""
    loop = _QuickLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class _Skips(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits, for nothing")
        self.now += timeout
        return super().select(0)


class _QuickLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skips = _Skips()
        super().__init__(self._skips)

    def time(self) -> float:
        return self._skips.now
