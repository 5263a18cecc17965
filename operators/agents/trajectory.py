"""A trajectory: everything that happened from a prompt to the final answer, turn by turn.

It is one row of a table. `response` is the final answer, so that verifiers, diversity, pass rates
and advantages see it as they see any response; `turns` is what training reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from ..columns import ROW_CONTRACT
from ..config import Config
from ..sampling.protocol import Failure
from ..sampling.tokenizer import Messages

# --- Tasks and budgets ----------------------------------------------------------------


class Task(NamedTuple):
    """What a trajectory is about.

    Attributes:
        prompt_id: of the prompt.
        messages: the prompt, as (role, content) pairs.
        columns: of the dataset, those that tools and the flow read, by name. The reference is never
            among them.
    """

    prompt_id: str
    messages: Messages
    columns: Mapping[str, Any]

    @property
    def question(self) -> str:
        """Content of the last user message; empty if there is none."""
        contents = [content for role, content in self.messages if role == "user"]
        return contents[-1] if contents else ""


class SeededTask(NamedTuple):
    """A task, and the seed of its prompt."""

    task: Task
    seed: int


class Budgets(Config):
    """How much one trajectory may use."""

    max_turns: PositiveInt = 10
    """Most turns of the policy."""
    max_tool_calls: NonNegativeInt | None = None
    """Most tool calls. Null: no limit."""
    trajectory_tokens: PositiveInt | None = None
    """Most tokens that the policy may sample in all its turns. Null: no limit but `max_tokens` of
    each turn."""
    max_prompt_tokens: PositiveInt | None = None
    """Longest prompt of a turn; a longer one ends the trajectory, and nothing is cut off. Null: the
    policy's context, and in training `train.max_prompt_tokens`."""
    max_observation: int = Field(4096, ge=64)
    """Longest observation, in characters; what is beyond it is cut off, with a visible marker."""
    seconds: PositiveFloat = 600
    """Longest time that tools, frozen models and the flow may take in a trajectory, without the
    policy's own turns. Its reward is then missing, as a slow server is not the policy's fault."""


# --- Trajectories ---------------------------------------------------------------------

POLICY = "policy"
"""Role of the turns of the policy itself, the only ones that are trained."""
TOOL = "tool"
"""Role of a tool's turns."""
TOOL_SECONDS = "tool_seconds"
"""Column of float64 in training: `Trajectory.tool_seconds`."""

POLICY_ENDS = {
    "stop": "the flow returned an answer, or decided that there is none",
    "turn_limit": "the policy used up its turns",
    "call_limit": "the policy used up its tool calls",
    "length": "the policy used up its tokens",
    "context_full": "the next prompt would be longer than it may be",
}
"""Ends of trajectories that are the policy's own doing: without an answer, `response` is empty."""
FAILURES = {
    "time_limit": "its tools and frozen models took longer than they may",
    "tool_failed": "a tool could not be used, which is not the policy's fault",
    "model_failed": "a frozen model gave no answer",
    "flow_failed": "its flow has a bug: it raised, crashed or returned something else than text",
    "sampling_failed": "the engine gave no sample of a later turn",
}
"""Ends that are not the policy's doing: `response` is null, so no verifier grades it, and its
reward is missing, never 0."""


class Turn(NamedTuple):
    """One turn: what a model wrote, or a tool call. Fields that do not apply are None."""

    role: str  # `policy`, `tool`, or the name of a frozen model
    text: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None  # int[P], what the policy saw
    token_ids: tuple[int, ...] | None = None  # int[T], with the end-of-sequence token if sampled
    logprobs: tuple[float, ...] | None = None  # float[T], before temperature and top_p
    finish_reason: str | None = None  # `stop` or `length`
    tool: str | None = None  # None where the action was malformed
    arguments: str | None = None  # as JSON
    observation: str | None = None  # as the policy sees it
    status: str | None = None  # `ok`, or see `tool.Observation`
    policy_version: int | None = None
    seed: int | None = None


class Trajectory(NamedTuple):
    """All turns of one attempt, and its outcome."""

    turns: tuple[Turn, ...]
    response: str | None  # empty where the policy gave none, None where something else failed
    finish_reason: str  # a key of `POLICY_ENDS` or of `FAILURES`
    # These are not stored: what failed, in one line; why the first turn could not be sampled; in
    # which seconds a tool or a frozen model was at work for it, None: not known.
    detail: str = ""
    first_failure: Failure | None = None
    tool_seconds: float | None = None

    @property
    def actions(self) -> list[Turn]:
        """The turns of the policy."""
        return [turn for turn in self.turns if turn.role == POLICY]

    def to_json(self) -> bytes:
        """What is stored of it, as JSON; floats keep their bits."""
        turns = [turn._asdict() for turn in self.turns]
        return orjson.dumps([turns, self.response, self.finish_reason])

    @classmethod
    def from_json(cls, text: bytes | str) -> Trajectory:
        turns, response, finish_reason = orjson.loads(text)
        return cls(tuple(map(_turn, turns)), response, finish_reason)


class TrajectoryGroup(NamedTuple):
    """The `n` trajectories of one prompt, and their origin, as `sampling.protocol.Group`."""

    policy: str
    version: int
    seed: int | None
    trajectories: tuple[Trajectory, ...]


def turns_of(row: Sequence[dict[str, Any]]) -> tuple[Turn, ...]:
    """The turns in a cell of the column `turns`."""
    return tuple(map(_turn, row))


_COLUMNS = (
    "response", "finish_reason", "prompt_token_ids", "response_token_ids", "response_logprobs",
    "turns", "turn_count", "tool_calls", "tool_errors",
)  # fmt: skip


def columns_of(trajectories: Sequence[Trajectory]) -> dict[str, pa.Array]:
    """The columns that describe trajectories, one row each.

    `prompt_token_ids` is the first prompt of the policy; `response_token_ids` and
    `response_logprobs` are all its actions, one after the other, without observations: they are
    there for lengths and counts.
    """
    schema = pa.schema([(name, ROW_CONTRACT[name]) for name in _COLUMNS])
    batch = pa.RecordBatch.from_pylist([_row(each) for each in trajectories], schema)
    return dict(zip(_COLUMNS, batch.columns, strict=True))


def _row(trajectory: Trajectory) -> dict[str, Any]:
    actions = trajectory.actions
    calls = [turn for turn in trajectory.turns if turn.role == TOOL]
    return {
        "response": trajectory.response,
        "finish_reason": trajectory.finish_reason,
        "prompt_token_ids": actions[0].prompt_token_ids if actions else None,
        "response_token_ids": _joined([each.token_ids for each in actions]),
        "response_logprobs": _joined([each.logprobs for each in actions]),
        "turns": [turn._asdict() for turn in trajectory.turns],
        "turn_count": len(actions),
        "tool_calls": len([turn for turn in calls if turn.tool is not None]),
        "tool_errors": len([turn for turn in calls if turn.status != "ok"]),
    }


def _joined(parts: Sequence[tuple[Any, ...] | None]) -> list[Any] | None:
    return None if None in parts else list(chain.from_iterable(parts))  # type: ignore[arg-type]


def _turn(fields: dict[str, Any]) -> Turn:
    lists = {n: fields[n] for n in ("prompt_token_ids", "token_ids", "logprobs")}
    tuples = {name: None if each is None else tuple(each) for name, each in lists.items()}
    return Turn(**{**fields, **tuples})


# --- Turns in words, for `rejuice explain` --------------------------------------------

_WIDEST = 160


def holds_turns(cell: Any) -> bool:
    """Whether a cell has the turns of a trajectory: a dataset may have a `turns` of its own."""
    fields = set(Turn._fields)
    return isinstance(cell, list) and all(
        isinstance(each, dict) and each.keys() == fields for each in cell
    )


def turn_lines(cell: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A line for each turn: `2. search {"query": "apples"}, ok`, and what was written or seen."""
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
