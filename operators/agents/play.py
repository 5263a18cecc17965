"""One trajectory under way: its budgets, and a record of every turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..chats import TAGS
from ..errors import EngineError, RejuiceError
from ..json_text import as_utf8
from ..logs import redact
from ..sampling.protocol import Failure, Group, Prompt, turn_seed
from ..sampling.tokenizer import Encode, Messages, TemplateRefusedError
from .model import ModelError
from .tool import Observation, ToolError, ToolFunction
from .toolbox import Toolbox
from .trajectory import FAILURES, POLICY, POLICY_ENDS, TOOL, Budgets, Task, Turn

# --- A chat that grows by token ids: what was sampled is never tokenised again --------

_ASK, _MORE = ("user", "a"), ("user", "d")


class GrowingChat:
    """Prompts of a policy that sees the whole chat so far, and below it one more message.

    A template has the prefix property if the tokens of a chat begin with those of each shorter one.
    Then a prompt is the one before it, the action as it was sampled, and what the template writes
    from the end of the action to the beginning of the next one. Refused is a template without this
    property, and one that leaves out the thoughts of earlier messages, as that of Qwen3 does.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        try:
            start = self._ids(())
            one, other = (self._ids((("assistant", word), _MORE)) for word in "bc")
            longer = self._ids((("assistant", "b"), _MORE) * 2)
        except TemplateRefusedError as error:
            raise _unfit(str(error)) from error
        ends = zip(one[len(start) :][::-1], other[len(start) :][::-1], strict=False)
        size = len(list(takewhile(lambda both: both[0] == both[1], ends)))
        self._before = one[: len(one) - size]
        """Tokens of the chat up to the end of its action."""
        grows = one[: len(start)] == start == other[: len(start)]
        if not (grows and size and longer == one + one[len(start) :]):
            raise _unfit("it writes earlier messages differently when others follow")
        for opened, closed in TAGS:
            texts = (f"{opened}\n{thought}\n{closed}\n\nb" for thought in "ce")
            one, other = (self._ids((("assistant", text), _MORE)) for text in texts)
            if one == other:
                raise _unfit("it leaves out the thoughts of earlier messages")

    def after(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], stopped: bool, text: str
    ) -> tuple[int, ...]:
        """The prompt after this prompt, int[P], this action, int[T], and a message from the user.

        `stopped`: the action has an end-of-sequence token.
        """
        ids = self._ids((("assistant", "b"), ("user", text)))
        between = ids[len(self._before) :]
        if stopped and list(token_ids[-1:]) == between[:1]:
            between = between[1:]  # The action has this token itself.
        return (*prompt_ids, *token_ids, *between)

    def _ids(self, messages: Messages) -> list[int]:
        return list(self._encode((_ASK, *messages)))


@lru_cache(maxsize=4)
def growing_chat(encode: Encode | None) -> GrowingChat:
    """The `GrowingChat` of a template, which is checked once; None: it is on the server."""
    if encode is None:
        found = "context: append needs the policy's tokenizer, which only the server has"
        raise EngineError(found, "choose another api than chat, or set context: memory")
    return GrowingChat(encode)


def _unfit(reason: str) -> EngineError:
    found = f"the policy's chat template does not suit context: append: {reason}"
    return EngineError(found, "set context: memory")


# --- The time that a trajectory may take ----------------------------------------------


class TimeLimit:
    """Counts the seconds that tools, frozen models and the flow take.

    It stands still while the policy is sampled. How long that takes depends on the engine and on
    what else it samples, and the engine has limits of its own: a trajectory whose turns wait behind
    those of many others must not fail.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._over: Callable[[], None] | None = None
        self._stops = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def running(self, over: Callable[[], None]) -> Iterator[None]:
        """While the context lasts, time runs; `over` is called once, when it has run out."""
        self._over = over
        self._run()
        try:
            yield
        finally:
            self._over = None
            self._halt()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """While the context lasts, no time runs; a flow may sample several turns at once."""
        self._halt()
        self._stops += 1
        try:
            yield
        finally:
            self._stops -= 1
            self._run()

    def _run(self) -> None:
        if self._over is not None and not self._stops:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(self._left, 0.0), self._over)

    def _halt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._left = self._timer.when() - asyncio.get_running_loop().time()
            self._timer = None


# --- A trajectory under way -----------------------------------------------------------

_TokenIds: TypeAlias = Callable[[], tuple[int, ...] | None]


class TurnSampler(Protocol):
    """Samples turns of a policy: one response to each prompt."""

    async def sample(self, prompt: Prompt, max_tokens: int) -> Group | Failure:
        """A group of one sample. The prompt has `token_ids` where the policy's tokenizer is known.

        An EngineError means that the engine itself has failed, and ends the run.
        """
        ...


class Model(Protocol):
    """A frozen model."""

    async def ask(self, messages: Messages) -> str:
        """Its answer; a ModelError where it gives none."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Action(NamedTuple):
    """What the policy did in a turn: its text, and whether that was cut off at `max_tokens`."""

    text: str
    cut_off: bool


class TrajectoryEnd(Exception):  # noqa: N818 - an end, as StopIteration
    """A budget is used up, or something failed: nothing more happens in this trajectory.

    A flow need not catch it. `reason` is one of `trajectory.POLICY_ENDS` and `FAILURES`.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, redact(detail)
        super().__init__(reason, self.detail)


class Play:
    """What a flow works with. Every turn is recorded, and budgets are enforced.

    Attributes:
        memory: for the flow, new for each trajectory.
        turns: so far.
        first_failure: why the first prompt of the policy could not be sampled, if so.
        ended: why nothing more happens in this trajectory, if so.
        broken: the engine's own error, if it has failed; that ends the run.
        tool_seconds: in which a tool or a frozen model was at work for it.
    """

    def __init__(
        self,
        task: Task,
        budgets: Budgets,
        *,
        sampler: TurnSampler,
        encode: Encode | None,
        toolbox: Toolbox,
        models: Mapping[str, Model],
        max_tokens: int,
        max_prompt_tokens: int | None = None,
        seed: int,
        index: int,
    ) -> None:
        self.memory: dict[str, Any] = {}
        self.turns: list[Turn] = []
        self.first_failure: Failure | None = None
        self.ended: TrajectoryEnd | None = None
        self.broken: EngineError | None = None
        self.tool_seconds = 0.0
        self._calls_under_way, self._began = 0, 0.0
        most = (budgets.max_prompt_tokens, max_prompt_tokens)
        self._max_prompt_tokens = min((each for each in most if each is not None), default=None)
        self.task, self._budgets, self._longest_action = task, budgets, max_tokens
        self._sampler, self._encode, self._time_limit = sampler, encode, TimeLimit(budgets.seconds)
        self._toolbox, self._models = toolbox, models
        self._seed, self._index = seed, index
        self._acted = self._tokens = self._called = 0

    @property
    def turns_left(self) -> int:
        """Turns that the policy still has."""
        return self._budgets.max_turns - self._acted

    @property
    def tools(self) -> Sequence[ToolFunction]:
        """What the policy can call."""
        return self._toolbox.functions

    def waiting(self) -> AbstractContextManager[None]:
        """While it lasts, the time of the trajectory stands still."""
        return self._time_limit.stopped()

    def limited(self, over: Callable[[], None]) -> AbstractContextManager[None]:
        """While it lasts, that time runs; `over` is called once, when it has run out."""
        return self._time_limit.running(over)

    async def act(self, messages: Messages) -> Action:
        """Return the policy's answer to a chat: a turn that is trained.

        Raises:
            TrajectoryEnd: a budget is used up.
        """
        chat = tuple(messages)
        encode = self._encode
        return await self._act(chat, lambda: None if encode is None else tuple(encode(chat)))

    async def reply(self, text: str) -> Action:
        """Return the policy's next action in the same chat, after one more message from the user.

        The chat grows by token ids: what was sampled is not tokenised again.

        Raises:
            TrajectoryEnd: a budget is used up.
            EngineError: the template of the policy does not allow it.
        """
        return await self._act((("user", text),), partial(self._grown, text))

    async def _act(self, messages: Messages, token_ids: _TokenIds) -> Action:
        self._go_on()
        max_tokens = self._max_tokens()
        prompt = self._prompt(messages, token_ids, max_tokens)
        try:
            with self._time_limit.stopped():
                found = await self._sampler.sample(prompt, max_tokens)
        except EngineError as error:
            self.broken = error
            raise
        if isinstance(found, Failure):
            raise self._not_sampled(found)
        (sample,) = found.samples
        self.turns.append(
            Turn(
                POLICY,
                sample.text,
                found.prompt_token_ids,
                sample.token_ids,
                sample.logprobs,
                sample.finish_reason,
                policy_version=found.version,
                seed=found.seed,
            )
        )
        self._acted += 1
        self._tokens += len(sample.token_ids or ())
        return Action(sample.text, sample.finish_reason == "length")

    async def ask(self, role: str, messages: Messages) -> str:
        """Return the answer of a frozen model, which is recorded and never trained.

        `role` is a key of `Flow.models`.

        Raises:
            TrajectoryEnd: the model gives no answer.
        """
        self._go_on(frozen=True)
        try:
            with self._timed():
                text = await self._models[role].ask(tuple(messages))
        except ModelError as error:
            raise self._ended("model_failed", f"{role}: {error}") from error
        self.turns.append(Turn(role, text))
        return text

    async def call(self, tool: str, arguments: Mapping[str, Any] | str) -> Observation:
        """Return the observation of a tool call; arguments as text are parsed as JSON.

        Raises:
            TrajectoryEnd: a budget is used up, or the tool cannot be used.
        """
        given = arguments if isinstance(arguments, str) else _json(arguments)
        return await self._call(tool, arguments, given)

    async def call_text(self, tool: str, text: str) -> Observation:
        """Return the observation of a tool call with plain text, see `Toolbox.arguments_of`."""
        return await self._call(tool, self._toolbox.arguments_of(tool, text), text)

    async def _call(self, tool: str, arguments: Mapping[str, Any] | str, given: str) -> Observation:
        self._go_on()
        most = self._budgets.max_tool_calls
        if most is not None and self._called >= most:
            raise self._ended("call_limit")
        self._called += 1
        try:
            with self._timed():
                found = await self._toolbox.call(tool, arguments, self.task.columns)
        except ToolError as error:
            raise self._ended("tool_failed", f"{tool}: {error}") from error
        except RejuiceError:
            raise
        except Exception as error:  # A bug of the tool, which is not the policy's fault.
            raise self._ended("tool_failed", f"{tool}: {error!r}") from error
        return self._observed(found, tool, given)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the seconds of a call to `tool_seconds`; those of calls at the same time, once."""
        clock = asyncio.get_running_loop().time
        if not self._calls_under_way:
            self._began = clock()
        self._calls_under_way += 1
        try:
            yield
        finally:
            self._calls_under_way -= 1
            if not self._calls_under_way:
                self.tool_seconds += clock() - self._began

    def refuse(self, text: str) -> Observation:
        """Tell the policy what an action is: this text is recorded as a turn without a tool."""
        return self._observed(Observation(text, "malformed"))

    def _observed(
        self, found: Observation, tool: str | None = None, arguments: str | None = None
    ) -> Observation:
        text = as_utf8(_shortened(found.text, self._budgets.max_observation))
        found = found._replace(text=text)
        self.turns.append(
            Turn(TOOL, tool=tool, arguments=arguments, observation=found.text, status=found.status)
        )
        return found

    def end(self, reason: str, detail: str = "") -> TrajectoryEnd:
        """End the trajectory from outside, such as for its time limit.

        The first end counts, unless it is the policy's own and this one is not: a frozen model may
        then still have been at work on an answer.
        """
        if self.ended is not None and (self.ended.reason in FAILURES or reason in POLICY_ENDS):
            return self.ended
        return self._ended(reason, detail)

    def _go_on(self, *, frozen: bool = False) -> None:
        """Raise the end again if there is one: a flow that caught it has little left to do.

        A frozen model may still make an answer of what there is when the policy's budgets are used
        up.
        """
        if self.ended is not None and not (frozen and self.ended.reason in POLICY_ENDS):
            raise self.ended

    def _ended(self, reason: str, detail: str = "") -> TrajectoryEnd:
        self.ended = TrajectoryEnd(reason, detail)
        return self.ended

    def _max_tokens(self) -> int:
        """Longest next action."""
        if self._acted >= self._budgets.max_turns:
            raise self._ended("turn_limit")
        whole = self._budgets.trajectory_tokens
        if whole is None:
            return self._longest_action
        if whole <= self._tokens:
            raise self._ended("length")
        return min(self._longest_action, whole - self._tokens)

    def _prompt(self, messages: Messages, token_ids: _TokenIds, max_tokens: int) -> Prompt:
        seed = turn_seed(self._seed, self._index, self._acted)
        try:
            ids = token_ids()
        except TemplateRefusedError as error:
            raise self._not_sampled(Failure("template_refused", str(error))) from error
        most = self._max_prompt_tokens
        if most is not None and ids is not None and len(ids) > most:
            detail = f"{len(ids)} tokens, and a prompt may have {most}"
            raise self._not_sampled(Failure("prompt_too_long", detail))
        return Prompt(messages, seed, ids, max_tokens)

    def _grown(self, text: str) -> tuple[int, ...]:
        last = next(turn for turn in reversed(self.turns) if turn.role == POLICY)
        chat = growing_chat(self._encode)
        if last.prompt_token_ids is None or last.token_ids is None:
            found = "the engine gives no token ids, by which a chat grows"
            raise EngineError(found, "choose one that does, or set context: memory")
        stopped = last.finish_reason == "stop"
        return chat.after(last.prompt_token_ids, last.token_ids, stopped, text)

    def _not_sampled(self, failure: Failure) -> TrajectoryEnd:
        if self._acted == 0:
            self.first_failure = failure
        if failure.reason == "prompt_too_long":
            return self._ended("context_full", failure.detail)
        return self._ended("sampling_failed", f"{failure.reason}: {failure.detail}")


def _json(arguments: Mapping[str, Any]) -> str:
    # Not by orjson, which refuses integers of more than 64 bits.
    return as_utf8(json.dumps(dict(arguments), default=str, ensure_ascii=False))


def _shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is too long, and how much is missing between."""
    if len(text) <= most:
        return text
    marker = f"\n[… {len(text) - most:,} characters left out …]\n"
    head = (most * 2) // 3
    return f"{text[:head]}{marker}{text[len(text) - (most - head) :]}"
