"""Sample trajectories of an agent: one row per prompt becomes one row per trajectory."""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pydantic import Field, model_validator
from typing_extensions import Self

from ..agents.flow import Flow, FlowEntry, ToolEntry, build_flow, build_tools
from ..agents.isolation import isolated
from ..agents.model import FrozenModel
from ..agents.tool import Tool, ToolError
from ..agents.toolbox import ToolCacheMode, cached
from ..agents.trajectory import (
    FAILURES,
    Budgets,
    SeededTask,
    Task,
    Trajectory,
    TrajectoryGroup,
    columns_of,
    turn_lines,
    turns_of,
)
from ..chats import check_chats
from ..chunk_results import KnownResult, ToCompute, results_of_chunks
from ..disk import in_user_cache
from ..errors import EngineError, RecipeError, shown
from ..operator import Change, Columns, RowsOfChunk
from ..sampling.engines import decoded_prompt, encoder, open_engine, rendered_chat
from ..sampling.protocol import Failure, Prompt, Settings
from ..sampling.recording import FIX_EXACT, Recording, beginning
from ..sampling.rollout import TOKEN_BYTES, RolloutMapper
from ..sampling.tokenizer import Encode

if TYPE_CHECKING:
    from ..agents.runner import AgentRunner

# --- Trajectories of an earlier run: nothing is sampled, and no tool is called --------

_EXACT = ("prompt_token_ids", "token_ids", "logprobs")


class RecordedTrajectories:
    """The trajectories of a table with one row each, such as the export of a run.

    It has the columns `prompt`, `turns` and `response`; others that sampling writes are used if
    present. `exact` requires token ids and log-probabilities of each turn of the policy.
    """

    def __init__(self, path: str, settings: Settings, *, exact: bool) -> None:
        self._path, self._settings, self._exact = path, settings, exact
        self._recording = Recording(path, ["turns", "response"], [], wants_exact=exact)

    def run(
        self, tasks: Iterable[SeededTask], n: int
    ) -> Iterator[tuple[int, TrajectoryGroup | Failure]]:
        """As `AgentRunner.run`."""
        prompts = (Prompt(each.task.messages, each.seed) for each in tasks)
        settings = self._settings._replace(n=n)
        for (index, prompt), found in self._recording.rows_of(prompts, settings):
            yield index, found if isinstance(found, Failure) else self._group(prompt, found)

    def close(self) -> None:
        """There is nothing to release."""

    def _group(self, prompt: Prompt, rows: list[dict[str, Any]]) -> TrajectoryGroup:
        trajectories = tuple(map(_trajectory, rows))
        if self._exact:
            for each in trajectories:
                self._check_exact(each, prompt)
        origin = self._recording.origin(rows)
        policy = origin.policy or "recorded"
        return TrajectoryGroup(policy, origin.version or 0, origin.seed, trajectories)

    def _check_exact(self, trajectory: Trajectory, prompt: Prompt) -> None:
        for number, turn in enumerate(trajectory.actions, 1):
            where = f"turn {number} of a trajectory of {beginning(prompt)}"
            for name in _EXACT:
                if getattr(turn, name) is None:
                    raise EngineError(f"{self._path} lacks {name} of {where}", FIX_EXACT)
            tokens, logprobs = len(turn.token_ids or ()), len(turn.logprobs or ())
            if tokens != logprobs:
                found = f"{self._path} has {tokens} token_ids and {logprobs} logprobs of {where}"
                raise EngineError(found, FIX_EXACT)


def _trajectory(row: dict[str, Any]) -> Trajectory:
    end = "stop" if row["response"] is not None else "sampling_failed"
    return Trajectory(turns_of(row["turns"]), row["response"], row["finish_reason"] or end)


# --- The operator ---------------------------------------------------------------------

_WRITTEN = (
    "response_id", "response", "finish_reason", "prompt_token_ids", "response_token_ids",
    "response_logprobs", "turns", "turn_count", "tool_calls", "tool_errors",
    "policy", "policy_version", "sampling",
)  # fmt: skip
_NOT_IN_KEY = ("flow", "tools", "tool_cache", "tool_cache_path", "custom_operator_paths")


class AgentRolloutMapper(RolloutMapper):
    """Let the policy work on each prompt `n` times, in several turns and with tools.

    A row is a trajectory. `response` is its final answer, so every later step takes it as it takes
    any response; it is empty where the policy gave none, and null where something else failed.
    `finish_reason` is `stop`, or what ended the trajectory: `turn_limit`, `call_limit`, `length` or
    `context_full`, which are the policy's own doing; `time_limit`, `tool_failed`, `model_failed`,
    `flow_failed` or `sampling_failed`, which are not.

    `turns` has all that happened: what the policy wrote with its token ids and log-probabilities,
    each tool call with its observation and status, and what frozen models wrote. `turn_count`,
    `tool_calls` and `tool_errors` are its figures. `prompt_token_ids` is the policy's first
    prompt; `response_token_ids` and `response_logprobs` are all its turns, one after the other.

    Trajectories are determined by `seed` and `prompt_id`, as far as tools always give the same.
    Groups are committed as they finish: an interrupted run resumes where it stopped, and no
    finished group is sampled twice.
    """

    flow: FlowEntry = Field({"react": {}}, validate_default=True)
    """How the policy works on a task, with its fields, which include its budgets: `react`, or one
    of your own. `max_tokens` is the longest response of one turn."""
    tools: tuple[ToolEntry, ...] = ()
    """What the policy can call, each with its fields, such as `search: {documents: documents}`."""
    tool_cache: ToolCacheMode = "off"
    """Whether observations of tools that cost something are kept and found again, by tool,
    arguments and the columns that it reads. `read_write` calls a tool for what is not known;
    `read_only` calls none, and such a trajectory ends with `tool_failed`."""
    tool_cache_path: Path | None = None
    """Where they are kept: a folder that ends in `.answers`. Null: `rejuice/tools.answers` in your
    cache folder."""
    custom_operator_paths: tuple[Path, ...] = ()
    """Python files, or folders of them, that define tools and flows. A recipe gives the step those
    of its head."""

    code: ClassVar[str | None] = "1"

    @model_validator(mode="before")
    @classmethod
    def _budgets_are_in_the_flow(cls, fields: Any) -> Any:
        """Say where a budget belongs that the step has, or the flow beside its name."""
        if not isinstance(fields, Mapping):
            return fields
        flow = fields.get("flow", "react")
        inner = list(flow) if isinstance(flow, Mapping) else [str(flow)]
        name = next((key for key in inner if key not in Budgets.model_fields), "NAME")
        for field in (*fields, *inner):
            if field in Budgets.model_fields:
                right = f"it is a field of the flow: {cls.name()}.flow.{name}.{field}"
                raise RecipeError(f"unknown field {shown(field)}", right)
        return fields

    @model_validator(mode="after")
    def _has_its_parts(self) -> Self:
        self._flow()
        for tool in self._tools():
            try:
                if self.engine != "recorded":  # Then no tool is called.
                    tool.check()
            except RecipeError as error:
                raise error.at(f"tools.{tool.name()}") from None
        if self.engine != "recorded":
            self.open_tools()
        return self

    def open_flow(self) -> Flow:
        """The flow, in processes of its own if it is a user's; whoever uses it closes it."""
        return isolated(self._flow(), self.flow)

    def open_tools(self) -> tuple[Tool, ...]:
        """The tools likewise, behind their cache; whoever uses them closes them."""
        tools = zip(self._tools(), self.tools, strict=True)
        path = self.tool_cache_path or in_user_cache("tools.answers")
        return cached([isolated(*each) for each in tools], self.tool_cache, path)

    def _flow(self) -> Flow:
        return build_flow(self.flow, self.custom_operator_paths)

    def _tools(self) -> tuple[Tool, ...]:
        return build_tools(self.tools, self.custom_operator_paths)

    def tasks(self, table: pa.Table, rows: Iterable[int]) -> Iterator[Task]:
        """What the trajectories of these rows are about; each of them has a prompt."""
        own = list(self._readers())
        columns = table.select([*own, "prompt_id", "prompt"])
        for at in rows:
            (row,) = columns.slice(at, 1).to_pylist()
            chat = tuple((each["role"], each["content"]) for each in row["prompt"])
            yield Task(row["prompt_id"], chat, {name: row[name] for name in own})

    def reads(self) -> Columns:
        return tuple(dict.fromkeys(("prompt_id", "prompt", *self._readers())))

    def reader_of(self, column: str) -> str:
        return self._readers().get(column, "")

    def largest_result(self) -> tuple[int, int]:
        if self.engine == "recorded":
            return super().largest_result()
        flow = self._flow()
        tokens = min(flow.trajectory_tokens or math.inf, flow.max_turns * self.max_tokens)
        seen = flow.max_turns * flow.max_observation
        # Texts; and token ids of all that came before each turn, of which a column holds as many.
        text = tokens * TOKEN_BYTES + seen
        prompts = flow.max_turns / 2 * (tokens + seen / 4)
        return self.n, int(self.n * max(text, prompts))

    def failed_values(self) -> Mapping[str, frozenset[str]]:
        return {} if self.engine == "recorded" else {"finish_reason": frozenset(FAILURES)}

    def writes(self) -> Columns:
        return _WRITTEN

    def cache_key_fields(self) -> Mapping[str, Any]:
        fields = {k: v for k, v in super().cache_key_fields().items() if k not in _NOT_IN_KEY}
        flow, tools = self._flow(), self._tools()
        return {
            **fields,
            "flow": {flow.name(): flow.cache_key_fields()},
            "tools": [{tool.name(): tool.cache_key_fields()} for tool in tools],
        }

    def explain(self, row: Mapping[str, Any] | None = None) -> Mapping[str, str]:
        if row is None:
            return self._explained()
        ids = row.get("prompt_token_ids")
        saw = {} if ids is None else {"the policy saw": decoded_prompt(self._engine_spec(), ids)}
        return {**saw, **turn_lines(row.get("turns") or ())}

    def apply(self, table: pa.Table) -> Change:
        chunks = iter([RowsOfChunk(table, range(table.num_rows))])
        found = {row: group for _, (_, (row,)), group in self._results(chunks)}
        results = [found[row] for row in range(table.num_rows)]
        return self._change(table["prompt_id"], results)

    def process_chunks(self, chunks: Iterator[RowsOfChunk]) -> Iterator[tuple[int, int, Change]]:
        for number, (table, (row,)), found in self._results(chunks):
            yield number, row, self._change(table["prompt_id"].slice(row, 1), [found])

    def close(self) -> None:
        player = _open.pop(self._key(), None)
        try:
            if player is not None:
                player.close()
        finally:
            super().close()

    def preflight(self) -> None:
        super().preflight()
        if self.engine != "recorded":
            self.preflight_parts(encoder(self._engine_spec()))

    def preflight_parts(self, encode: Encode | None) -> None:
        """Check that the flow suits the policy, and that the servers of its parts are up.

        Without `encode`, the policy's engine applies the chat template.
        """
        flow = self._flow()
        flow.check(encode)
        for model in flow.models().values():
            if isinstance(model, FrozenModel):
                model.preflight()
        for tool in self.open_tools():
            tool.preflight()

    def _readers(self) -> dict[str, str]:
        """The columns that tools and the flow read, each with the first of them."""
        if self.engine == "recorded":
            return {}
        parts: list[Flow | Tool] = [self._flow(), *reversed(self._tools())]
        return {name: f"the {part.noun} {part.name()}" for part in parts for name in part.reads()}

    def _results(
        self, chunks: Iterator[RowsOfChunk]
    ) -> Iterator[tuple[int, RowsOfChunk, TrajectoryGroup | Failure]]:
        """The result of each row, as they finish."""

        def run(tasks: Iterable[SeededTask]) -> Iterator[tuple[int, TrajectoryGroup | Failure]]:
            return self._reported(self._player().run(tasks, self.n))

        return results_of_chunks(chunks, self._tasks_or_failures, run)

    def _tasks_or_failures(
        self, table: pa.Table, rows: Sequence[int]
    ) -> Iterator[ToCompute[SeededTask] | KnownResult[TrajectoryGroup | Failure]]:
        """What the trajectories of each of these rows are about, or why there are none."""
        check_chats(table["prompt"])
        prompts = dict[int, Prompt]()
        for row, prompt in self.prompts_of(table, rows):
            if isinstance(prompt, Failure):
                yield KnownResult([row], prompt)
            else:
                prompts[row] = prompt
        for (row, prompt), task in zip(prompts.items(), self.tasks(table, prompts), strict=True):
            yield ToCompute([row], SeededTask(task, prompt.seed))

    def _player(self) -> AgentRunner | RecordedTrajectories:
        """What runs trajectories; within a thread, the same one until the step is closed."""
        key = self._key()
        if key not in _open:
            settings = Settings(self.n, self.temperature, self.top_p, self.max_tokens)
            if self.engine == "recorded":
                path = str(self.recorded.path)
                _open[key] = RecordedTrajectories(path, settings, exact=self.on_policy)
            else:
                from ..agents.runner import AgentRunner

                flow, tools, spec = self.open_flow(), self.open_tools(), self._engine_spec()
                engine, encode = open_engine(spec), encoder(spec)
                _open[key] = AgentRunner(
                    flow, tools, engine, settings, policy=spec.model, encode=encode
                )
        return _open[key]

    def _key(self) -> str:
        # As for engines: one call at a time, so each thread that runs recipes has its own.
        return f"{threading.get_ident()} {self!r}"

    def _change(
        self, prompt_ids: pa.ChunkedArray, found: Sequence[TrajectoryGroup | Failure]
    ) -> Change:
        trajectories = list[Trajectory]()
        sources = list[tuple[int, int, TrajectoryGroup]]()
        for row, group in enumerate(found):
            if isinstance(group, TrajectoryGroup):
                trajectories += group.trajectories
                sources += [(row, k, group) for k in range(len(group.trajectories))]
        return self._change_of(prompt_ids, found, sources, columns_of(trajectories))

    def _explained(self) -> Mapping[str, str]:
        """What the policy sees first, and the tools."""
        from ..agents.runner import first_prompt, functions_of

        lines = {}
        try:
            functions = functions_of(self._tools())
            chat = first_prompt(self.open_flow(), functions, (("user", "{prompt}"),))
            for each in functions:
                arguments = ", ".join(each.parameters.get("properties", {}))
                lines[f"tool {each.name}({arguments})"] = each.description
        except ToolError as error:
            return {"the flow or a tool cannot be used": str(error)}
        if chat is not None:
            lines = {"the policy sees a message": rendered_chat(self._engine_spec(), chat), **lines}
        return lines


_open: dict[str, AgentRunner | RecordedTrajectories] = {}


@atexit.register
def _close_all() -> None:
    while _open:
        _open.popitem()[1].close()
